//! `muster sim`: runs of whole clusters with injected faults, each from one seed. A failing fault schedule is shrunk.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::time::Instant;

use muster_sim::campaign::{self, Campaign};
use muster_sim::decision_digest::DecisionDigest;
use muster_sim::fault_schedule::FaultSchedule;
use muster_sim::minimise::minimise;
use muster_sim::sim_cluster::{RunFailure, journal_of_schedule, run_schedule_traced};
use serde::Serialize;

use crate::commands::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::output::{self, Card, ShowArgs};
use crate::units;

/// Maximum number of runs to shrink a failing fault schedule.
const SHRINK_RUNS_MAX: usize = 400;

/// Seeds and steps of the runs.
#[derive(Debug, clap::Args)]
pub struct FaultRunArgs {
    /// Run only this seed and print its steps
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Number of seeds to run
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Steps of each run before all faults are repaired
    #[arg(long, default_value_t = 2_000)]
    steps: u64,
    /// Print a digest of the decisions of each seed, to compare two builds
    #[arg(long, conflicts_with = "seed")]
    digest: bool,
    /// Number of last steps to print
    #[arg(long, default_value_t = 40)]
    lines: usize,
    #[command(flatten)]
    show: ShowArgs,
}

/// The output of `-o json`.
#[derive(Debug, Serialize)]
struct CampaignSummary<'a> {
    stories: u64,
    steps: u64,
    jobs: u64,
    leaderships: u64,
    simulated_hours: f64,
    seconds: f64,
    steps_per_second: f64,
    events: &'a BTreeMap<&'static str, u64>,
}

pub fn run(args: &FaultRunArgs) -> CommandResult {
    match args.seed {
        Some(seed) => run_seed(args, &FaultSchedule::from_seed(seed, args.steps)),
        None if args.digest => print_digests(args),
        None => run_campaign(args),
    }
}

fn run_seed(args: &FaultRunArgs, schedule: &FaultSchedule) -> CommandResult {
    let (outcome, trace) = run_schedule_traced(schedule);
    output::print_stdout(&format!("{schedule}\n{}\n", last_lines(&trace, args.lines)))?;
    match outcome {
        Ok(totals) => {
            let steps = units::count_text(totals.steps, "step");
            output::print_stderr(&format!("no law violated in {steps}"));
            Ok(ExitStatus::SUCCESS)
        }
        Err(failure) => Err(law_violation(schedule, &failure)),
    }
}

/// Prints a line per seed, also for seeds that violate a law: two builds are compared with each other.
fn print_digests(args: &FaultRunArgs) -> CommandResult {
    for seed in args.first..args.first.saturating_add(args.seeds) {
        let line = match journal_of_schedule(&FaultSchedule::from_seed(seed, args.steps)) {
            Ok(entries) => {
                let digest = DecisionDigest::from_journal(&entries);
                format!("{seed} {} {digest}\n", digest.decisions())
            }
            Err(failure) => format!("{seed} step {} {}\n", failure.step, failure.law),
        };
        output::print_stdout(&line)?;
    }
    Ok(ExitStatus::SUCCESS)
}

fn run_campaign(args: &FaultRunArgs) -> CommandResult {
    let begin = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let campaign = campaign::run(args.first, args.seeds, args.steps, threads);
    if let Some((seed, failure)) = &campaign.failure {
        return Err(shrink_failure(args, *seed, failure));
    }
    let seconds = begin.elapsed().as_secs_f64();
    let summary = campaign_summary(&campaign, seconds);
    output::show(&args.show, &summary_card(&summary), "sim", &summary)?;
    Ok(ExitStatus::SUCCESS)
}

fn campaign_summary(campaign: &Campaign, seconds: f64) -> CampaignSummary<'_> {
    let totals = &campaign.totals;
    CampaignSummary {
        stories: campaign.schedules_passed,
        steps: totals.steps,
        jobs: totals.jobs,
        leaderships: totals.leaderships,
        simulated_hours: totals.simulated_ms as f64 / 3_600_000.0,
        seconds,
        steps_per_second: totals.steps as f64 / seconds.max(1e-9),
        events: &totals.events,
    }
}

fn summary_card(summary: &CampaignSummary) -> Card {
    let events: Vec<String> = summary.events.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    Card::default()
        .field("runs", format!("{}, no law violated", summary.stories))
        .field("steps", format!("{} ({:.0} per second)", summary.steps, summary.steps_per_second))
        .field("simulated", format!("{:.1} hours in {:.1} s", summary.simulated_hours, summary.seconds))
        .field("jobs", summary.jobs.to_string())
        .field("leaderships", summary.leaderships.to_string())
        .field("events", events.join("\n"))
}

/// Shrinks the failing fault schedule and prints it with its last steps.
fn shrink_failure(args: &FaultRunArgs, seed: u64, failure: &RunFailure) -> CliError {
    output::print_stderr(&format!("seed {seed} violates a law; shrinking the fault schedule"));
    let shrunk = minimise(&FaultSchedule::from_seed(seed, args.steps), SHRINK_RUNS_MAX);
    let (_, trace) = run_schedule_traced(&shrunk);
    output::print_stderr(&format!("{shrunk}\n{}\n", last_lines(&trace, args.lines)));
    law_violation(&shrunk, failure)
}

fn law_violation(schedule: &FaultSchedule, failure: &RunFailure) -> CliError {
    let (seed, step) = (schedule.seed, failure.step);
    CliError::failed(format!("seed {seed} violates a law at step {step}: {}", failure.law))
        .hint(format!("repeat the run with `muster sim --seed {seed}`"))
}

fn last_lines(trace: &[String], lines: usize) -> String {
    trace[trace.len().saturating_sub(lines)..].join("\n")
}
