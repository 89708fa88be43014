//! GPUs: models and their names, MIG, shares of a device, health, and the topology of a node's devices.

pub mod device;
pub mod gpu_share;
pub mod mig;
pub mod model;
pub mod partition;
pub mod topology;
