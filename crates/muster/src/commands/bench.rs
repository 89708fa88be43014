//! How fast this build is on this machine, and how well it places.

mod cpu;
mod mixed;
mod numa;
mod placement;
mod plan;
mod policy;
mod product;
mod replay;
mod share;
mod synthetic;
mod traces;

use super::Ending;
use crate::output::ShowArgs;

/// What to measure.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Measure the planner on clusters that exist in memory only: placements, gangs, preemption, fair rounds
    Plan(PlanArgs),
    /// Measure how much of a cluster policies of placement fill, on recorded pods
    Placement(placement::Args),
    /// Measure how soon training jobs are done under policies of scheduling, on recorded queues
    Replay(replay::Args),
    /// Reckon what it is worth to choose GPUs by NUMA node, PCIe switch and NVLink, and what it costs in waiting
    Numa(numa::NumaArgs),
    /// Measure what it is worth to know how fast each job is on each kind of GPU
    Mixed(mixed::Args),
    /// Measure what policies cost: evaluations, loading, and rounds of the planner that ask them
    Policy(policy::Args),
    /// Reckon how many GPUs small jobs need that share them in one manner or another, and how much slower they get
    Share(share::Args),
}

/// `muster bench plan`.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// Skip the cluster of 10,000 nodes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    show: ShowArgs,
}

/// Measure, and print a table.
pub fn run(verb: Verb) -> Ending {
    match verb {
        Verb::Plan(args) => plan::run(args.quick, &args.show),
        Verb::Placement(args) => placement::run(args),
        Verb::Replay(args) => replay::run(args),
        Verb::Numa(args) => numa::run(&args),
        Verb::Mixed(args) => mixed::run(&args),
        Verb::Policy(args) => policy::run(&args),
        Verb::Share(args) => share::run(args),
    }
}
