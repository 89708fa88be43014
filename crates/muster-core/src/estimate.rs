//! Estimates: runtimes, expected ends, remaining time, the workload mix, and the accuracy of start ranges.

pub mod calibration;
pub mod expected_end;
pub mod fragmentation;
pub mod gittins;
pub mod recent;
pub mod remaining;
pub mod runtime_model;
pub mod runtimes;
pub mod workload_mix;
