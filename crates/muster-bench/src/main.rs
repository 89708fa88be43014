//! `make bench`: throughput and size benchmarks of the server, each with a baseline measured in the same run.
//!
//! Machines are noisy, so each figure is the median of several runs, and the ratios to the baselines matter. The server
//! under test is the release binary in its own process; this process generates the load. The planner has its own
//! benchmark, `muster bench plan`.

mod baselines;
mod cluster_size;
mod http;
mod server;
mod submission_rate;
mod table;

use anyhow::{Result, bail};

/// Name of a benchmark and the function that runs it and prints its table.
type Benchmark = (&'static str, fn() -> Result<()>);

const BENCHMARKS: [Benchmark; 2] =
    [("submit", submission_rate::print_submission_rates), ("size", cluster_size::print_cluster_sizes)];

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = names.iter().find(|name| !BENCHMARKS.iter().any(|(known, _)| known == name)) {
        bail!("unknown benchmark `{unknown}`; choose `submit` or `size`");
    }
    for (name, run) in BENCHMARKS {
        if names.is_empty() || names.iter().any(|chosen| chosen == name) {
            run()?;
        }
    }
    Ok(())
}
