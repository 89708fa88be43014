//! `muster sim`: whole clusters with every misfortune, each from one seed; and the one that went wrong, made short.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::time::Instant;

use muster_sim::campaign::{self, Campaign};
use muster_sim::digest::Digest;
use muster_sim::minimise::minimise;
use muster_sim::story::Story;
use muster_sim::world::{Failure, journal_of, tell_in_full};
use serde::Serialize;

use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::output::{self, Card, ShowArgs};
use crate::units;

/// So many stories are told at most to make one shorter.
const TRIES: usize = 400;

/// Which stories.
#[derive(Debug, clap::Args)]
pub struct StoryArgs {
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
struct Sum<'a> {
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
pub fn run(args: &StoryArgs) -> Ending {
    match args.seed {
        Some(seed) => one(args, &Story::of_seed(seed, args.steps)),
        None if args.digest => digests(args),
        None => many(args),
    }
}

fn one(args: &StoryArgs, story: &Story) -> Ending {
    let (outcome, diary) = tell_in_full(story);
    output::print(&format!("{story}\n{}\n", last(&diary, args.lines)))?;
    match outcome {
        Ok(told) => {
            output::talk(&format!("all laws held in {}", units::count(told.steps, "step")));
            Ok(Code::DONE)
        }
        Err(failure) => Err(broken(story, &failure)),
    }
}

/// A line for each seed. Seeds that break a law have one too: what counts is that two builds agree.
fn digests(args: &StoryArgs) -> Ending {
    for seed in args.first..args.first.saturating_add(args.seeds) {
        let line = match journal_of(&Story::of_seed(seed, args.steps)) {
            Ok(entries) => {
                let digest = Digest::of_journal(&entries);
                format!("{seed} {} {digest}\n", digest.decisions())
            }
            Err(failure) => format!("{seed} step {} {}\n", failure.step, failure.law),
        };
        output::print(&line)?;
    }
    Ok(Code::DONE)
}

fn many(args: &StoryArgs) -> Ending {
    let begin = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let campaign = campaign::run(args.first, args.seeds, args.steps, threads);
    if let Some((seed, failure)) = &campaign.failure {
        return Err(made_short(args, *seed, failure));
    }
    let seconds = begin.elapsed().as_secs_f64();
    let sum = sum(&campaign, seconds);
    output::show(&args.show, &card(&sum), "sim", &sum)?;
    Ok(Code::DONE)
}

fn sum(campaign: &Campaign, seconds: f64) -> Sum<'_> {
    let told = &campaign.told;
    Sum {
        stories: campaign.stories,
        steps: told.steps,
        jobs: told.jobs,
        leaderships: told.leaders,
        simulated_hours: told.ms as f64 / 3_600_000.0,
        seconds,
        steps_per_second: told.steps as f64 / seconds.max(1e-9),
        events: &told.events,
    }
}

fn card(sum: &Sum) -> Card {
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
fn made_short(args: &StoryArgs, seed: u64, failure: &Failure) -> CliError {
    output::talk(&format!("seed {seed} breaks a law; looking for a shorter story"));
    let shorter = minimise(&Story::of_seed(seed, args.steps), TRIES);
    let (_, diary) = tell_in_full(&shorter);
    output::talk(&format!("{shorter}\n{}\n", last(&diary, args.lines)));
    broken(&shorter, failure)
}

fn broken(story: &Story, failure: &Failure) -> CliError {
    CliError::failed(format!("seed {} breaks a law at step {}: {}", story.seed, failure.step, failure.law))
        .hint(format!("tell it again with `muster sim --seed {}`", story.seed))
}

fn last(diary: &[String], lines: usize) -> String {
    diary[diary.len().saturating_sub(lines)..].join("\n")
}
