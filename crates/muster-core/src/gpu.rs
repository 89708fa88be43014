//! GPUs: models and their spellings, MIG, GPU shares, device health, and how devices are linked (NUMA, PCIe, NVLink).

pub mod device;
pub mod gpu_share;
pub mod mig;
pub mod model;
pub mod partition;
pub mod topology;
