//! What it is worth to choose devices by their wiring, and what it costs.
//!
//! A stream of jobs of one to eight GPUs is served in order on nodes of one box, again and again, with
//! devices chosen in another manner each time. `model.rs` says how long a step of training takes on the
//! devices a job got; the anchors are the lowest free indexes and devices by chance.

mod model;
mod placer;
mod planner;
mod report;
mod serve;
mod stream;

use muster_agent::Cluster;
use muster_core::node::NodeFacts;

use self::model::{Board, Work};
use self::placer::{Blind, Manner};
use self::planner::Planner;
use self::report::Row;
use self::serve::Served;
use self::stream::Job;
use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::output::{self, ShowArgs};
use muster_sim::random::Random;

/// Shares of the GPUs that are asked for.
const LOADS: [f64; 2] = [0.7, 0.9];

/// `muster bench numa`.
#[derive(Debug, clap::Args)]
pub struct NumaArgs {
    /// Nodes of the cluster
    #[arg(long, default_value_t = 32)]
    nodes: usize,
    /// Streams of jobs; waits differ much from one to the next
    #[arg(long, default_value_t = 8)]
    streams: u64,
    /// Jobs of each stream
    #[arg(long, default_value_t = 20_000)]
    jobs: usize,
    /// Where the first stream comes from: the same seed, the same jobs
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// What a device computes in each step, in milliseconds
    #[arg(long, default_value_t = 100.0)]
    compute_ms: f64,
    /// What is summed up over all devices after each step, in megabytes
    #[arg(long, default_value_t = 1_000.0)]
    gradient_mb: f64,
    /// Gigabytes per second between sockets, instead of those of each box
    #[arg(long)]
    socket_gbps: Option<f64>,
    #[command(flatten)]
    show: ShowArgs,
}

/// Serve the jobs in each manner on each box, and print a table.
pub fn run(args: &NumaArgs) -> Ending {
    let work = Work { compute_ms: args.compute_ms, gradient_mb: args.gradient_mb };
    let mut rows = Vec::new();
    for fabric in model::FABRICS {
        let facts = facts(fabric.machine)?;
        let fabric = model::Fabric { socket_gbps: args.socket_gbps.unwrap_or(fabric.socket_gbps), ..*fabric };
        let board = Board::new(&facts, fabric);
        for load in LOADS {
            rows.extend(runs(args, &facts, &board, work, load));
        }
    }
    output::say(&args.show, &report::table(&rows), "numa", &rows)?;
    Ok(Code::DONE)
}

/// The streams of one load, served in each manner.
fn runs(args: &NumaArgs, facts: &NodeFacts, board: &Board, work: Work, load: f64) -> Vec<Row> {
    let gpus = facts.gpus.len();
    let seeds = args.seed..args.seed + args.streams;
    let stream = |seed| stream::jobs(seed, args.jobs, load, args.nodes * gpus, gpus as u32);
    let streams: Vec<(u64, Vec<Job>)> = seeds.map(|seed| (seed, stream(seed))).collect();
    let serve = |manner: Manner| {
        let served = streams.iter().map(|(seed, jobs)| served(jobs, facts, args.nodes, manner, *seed));
        (manner, served.collect())
    };
    report::rows(board, work, load, &Manner::ALL.map(serve))
}

/// One stream, served in one manner.
fn served(jobs: &[Job], facts: &NodeFacts, nodes: usize, manner: Manner, seed: u64) -> Vec<Served> {
    let gpus = facts.gpus.len() as u32;
    match manner {
        Manner::Planner => serve::serve(jobs, &mut Planner::new(facts, nodes)),
        Manner::SameNuma => serve::serve(jobs, &mut Planner::same_numa(facts, nodes)),
        Manner::Lowest => serve::serve(jobs, &mut Blind::new(gpus, nodes, None)),
        Manner::Random => serve::serve(jobs, &mut Blind::new(gpus, nodes, Some(Random(seed)))),
    }
}

/// A node of a box, as its agent would describe it.
fn facts(machine: &str) -> Result<NodeFacts, CliError> {
    let text = format!("nodes: [{{name: n, box: {machine}}}]");
    let cluster = Cluster::parse(&text).map_err(|error| CliError::usage(error.to_string()))?;
    let node = cluster.registrations().swap_remove(0);
    Ok(muster_server::agents::facts(node))
}

#[cfg(test)]
mod tests;
