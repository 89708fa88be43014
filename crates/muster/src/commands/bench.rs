//! Benchmarks: the speed of this build on this machine, and its decisions against published schedulers.
//!
//! The models and trace readers are in `muster-sim`. Here are the arguments, the choice of workloads and the tables,
//! and the benchmarks that measure time in this process: `plan` and `policy`.

mod mixed;
mod named_values;
mod numa;
mod placement;
mod plan;
mod policy;
mod replay;
mod share;
mod timing;
mod traces;

use crate::error::CommandResult;
use crate::output::ShowArgs;

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Measure the planner on synthetic clusters: placements, gangs, preemption, rounds with a long queue
    Plan(PlanArgs),
    /// Compare placement policies (FGD, best fit, …) by allocated GPUs on the OpenB trace
    Placement(placement::Args),
    /// Compare scheduling policies (SRTF, Tiresias, …) by job completion time on the Muri traces
    Replay(replay::Args),
    /// Model how much topology-aware GPU selection shortens training steps, and what it adds to waiting
    Numa(numa::NumaArgs),
    /// Simulate heterogeneity-aware against blind fair sharing on several GPU types
    Mixed(mixed::Args),
    /// Measure what policies cost: calls, compilation, and planner rounds that query them
    Policy(policy::Args),
    /// Model GPU sharing (MIG, MPS, time slices): GPUs needed and slowdown of small jobs
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

pub fn run(verb: Verb) -> CommandResult {
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
