//! `muster bench numa`: the gain from selecting GPUs by the links between them, by the model in `muster_sim::numa`.

mod report;

use muster_sim::numa::{
    FABRICS, FabricBandwidths, NodeBandwidths, NumaWorkload, TrainingStep, node_facts, rows_for_load,
};

use crate::error::{CliError, CommandResult, ExitStatus};
use crate::output::{self, ShowArgs};

/// Offered loads, as shares of all GPUs.
const LOADS: [f64; 2] = [0.7, 0.9];

#[derive(Debug, clap::Args)]
pub struct NumaArgs {
    /// Nodes of the cluster
    #[arg(long, default_value_t = 32)]
    nodes: usize,
    /// Streams of jobs; waits vary much between streams
    #[arg(long, default_value_t = 8)]
    streams: u64,
    /// Jobs of each stream
    #[arg(long, default_value_t = 20_000)]
    jobs: usize,
    /// Seed of the first stream: the same seed gives the same jobs
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Computation of a GPU in each training step, in milliseconds
    #[arg(long, default_value_t = 100.0)]
    compute_ms: f64,
    /// Gradients summed over all GPUs after each step, in megabytes
    #[arg(long, default_value_t = 1_000.0)]
    gradient_mb: f64,
    /// Bandwidth between sockets in gigabytes per second, instead of that of each machine
    #[arg(long)]
    socket_gbps: Option<f64>,
    #[command(flatten)]
    show: ShowArgs,
}

/// Serve the streams under each device policy on each machine, and print a table.
pub fn run(args: &NumaArgs) -> CommandResult {
    let workload =
        NumaWorkload { nodes: args.nodes, streams: args.streams, jobs_per_stream: args.jobs, seed: args.seed };
    let step = TrainingStep { compute_ms: args.compute_ms, gradient_mb: args.gradient_mb };
    let mut rows = Vec::new();
    for fabric in FABRICS {
        let facts = node_facts(fabric.machine).map_err(|error| CliError::usage(error.to_string()))?;
        let socket_gbps = args.socket_gbps.unwrap_or(fabric.socket_gbps);
        let bandwidths = NodeBandwidths::new(&facts, FabricBandwidths { socket_gbps, ..*fabric });
        for load in LOADS {
            rows.extend(rows_for_load(&workload, &facts, &bandwidths, step, load));
        }
    }
    output::print_text(&args.show, &report::table(&rows), "numa", &rows)?;
    Ok(ExitStatus::SUCCESS)
}
