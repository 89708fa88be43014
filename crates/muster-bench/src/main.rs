//! `make bench`: throughput and size benchmarks of the server, each with a baseline measured in the same run.
//!
//! Machines are noisy, so each figure is the median of several runs, and the ratios to the baselines matter. The server
//! under test is the release binary in its own process; this process generates the load. The planner has its own
//! benchmark, `muster bench plan`. The agent's launch path is measured in process (`launch`), and with server and link
//! as real processes (`link`, `idle`).

mod agents;
mod baselines;
mod cluster_size;
mod http;
mod launch;
mod launch_anchor;
mod link_idle;
mod link_jobs;
mod server;
mod submission_rate;
mod table;

use anyhow::{Result, bail};

/// Name of a benchmark and the function that runs it and prints its table.
type Benchmark = (&'static str, fn() -> Result<()>);

const BENCHMARKS: [Benchmark; 5] = [
    ("submit", submission_rate::print_submission_rates),
    ("size", cluster_size::print_cluster_sizes),
    ("launch", launch::print_launch_rates),
    ("link", link_jobs::print_link_rates),
    ("idle", link_idle::print_idle_costs),
];

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if let [word, folder] = &names[..]
        && word == link_idle::PEERS_WORD
    {
        return link_idle::run_peers(folder);
    }
    if let Some(unknown) = names.iter().find(|name| !BENCHMARKS.iter().any(|(known, _)| known == name)) {
        bail!("unknown benchmark `{unknown}`; choose `submit`, `size`, `launch`, `link` or `idle`");
    }
    for (name, run) in BENCHMARKS {
        if names.is_empty() || names.iter().any(|chosen| chosen == name) {
            run()?;
        }
    }
    Ok(())
}
