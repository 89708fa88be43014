//! `muster sim`: whole clusters with every misfortune, each from one seed; and the one that went wrong, made short.

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

/// So many stories are told at most to make one shorter.
const SHRINK_RUNS_MAX: usize = 400;

/// Which stories.
#[derive(Debug, clap::Args)]
pub struct FaultRunArgs {
    /// Tell the story of this seed alone, and what happens in it
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Tell so many stories
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Begin with this seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many things happen in each before the world is healed
    #[arg(long, default_value_t = 2_000)]
    steps: u64,
    /// Print a digest of the decisions of each seed, to compare two builds
    #[arg(long, conflicts_with = "seed")]
    digest: bool,
    /// Show so many of the last things that happened
    #[arg(long, default_value_t = 40)]
    lines: usize,
    #[command(flatten)]
    show: ShowArgs,
}

/// What came of it, for machines.
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

/// Tell them, and say what came of it.
pub fn run(args: &FaultRunArgs) -> CommandResult {
    match args.seed {
        Some(seed) => run_seed(args, &FaultSchedule::from_seed(seed, args.steps)),
        None if args.digest => print_digests(args),
        None => run_campaign(args),
    }
}

fn run_seed(args: &FaultRunArgs, story: &FaultSchedule) -> CommandResult {
    let (outcome, diary) = run_schedule_traced(story);
    output::print_stdout(&format!("{story}\n{}\n", last_lines(&diary, args.lines)))?;
    match outcome {
        Ok(told) => {
            output::print_stderr(&format!("all laws held in {}", units::count_text(told.steps, "step")));
            Ok(ExitStatus::SUCCESS)
        }
        Err(failure) => Err(law_violation(story, &failure)),
    }
}

/// A line for each seed. Seeds that break a law have one too: what counts is that two builds agree.
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
    let sum = campaign_summary(&campaign, seconds);
    output::show(&args.show, &summary_card(&sum), "sim", &sum)?;
    Ok(ExitStatus::SUCCESS)
}

fn campaign_summary(campaign: &Campaign, seconds: f64) -> CampaignSummary<'_> {
    let told = &campaign.totals;
    CampaignSummary {
        stories: campaign.schedules_passed,
        steps: told.steps,
        jobs: told.jobs,
        leaderships: told.leaderships,
        simulated_hours: told.simulated_ms as f64 / 3_600_000.0,
        seconds,
        steps_per_second: told.steps as f64 / seconds.max(1e-9),
        events: &told.events,
    }
}

fn summary_card(sum: &CampaignSummary) -> Card {
    let events: Vec<String> = sum.events.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    Card::default()
        .field("stories", format!("{}, and no law was broken", sum.stories))
        .field("steps", format!("{} ({:.0} a second)", sum.steps, sum.steps_per_second))
        .field("simulated", format!("{:.1} hours in {:.1} s", sum.simulated_hours, sum.seconds))
        .field("jobs", sum.jobs.to_string())
        .field("leaderships", sum.leaderships.to_string())
        .field("events", events.join("\n"))
}

/// A shorter story, and the last things that happened in it.
fn shrink_failure(args: &FaultRunArgs, seed: u64, failure: &RunFailure) -> CliError {
    output::print_stderr(&format!("seed {seed} breaks a law; looking for a shorter story"));
    let shorter = minimise(&FaultSchedule::from_seed(seed, args.steps), SHRINK_RUNS_MAX);
    let (_, diary) = run_schedule_traced(&shorter);
    output::print_stderr(&format!("{shorter}\n{}\n", last_lines(&diary, args.lines)));
    law_violation(&shorter, failure)
}

fn law_violation(story: &FaultSchedule, failure: &RunFailure) -> CliError {
    CliError::failed(format!("seed {} breaks a law at step {}: {}", story.seed, failure.step, failure.law))
        .hint(format!("tell it again with `muster sim --seed {}`", story.seed))
}

fn last_lines(diary: &[String], lines: usize) -> String {
    diary[diary.len().saturating_sub(lines)..].join("\n")
}
