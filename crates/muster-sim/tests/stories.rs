//! Clusters with every misfortune, one story for each seed. `SEEDS=` and `STEPS=` tell more and longer ones, `FIRST=`
//! others.

use std::num::NonZero;

use muster_core::Event;
use muster_sim::campaign;
use muster_sim::decisions;
use muster_sim::minimise::minimise;
use muster_sim::story::{Act, Story, Wish};
use muster_sim::world::{journal_of, tell, tell_in_full};

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn every_story_ends_well() {
    let (first, seeds, steps) = (number("FIRST", 0), number("SEEDS", 2_000), number("STEPS", 2_000));
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let campaign = campaign::run(first, seeds, steps, threads);
    if let Some((seed, failure)) = campaign.failure {
        let shorter = minimise(&Story::of_seed(seed, steps), 200);
        let (_, diary) = tell_in_full(&shorter);
        let last = diary.len().saturating_sub(40);
        let again = tell(&shorter).err().map(|failure| failure.law).unwrap_or_default();
        panic!("{}\nseed {seed}: {}\nmade short:\n{shorter}{again}", diary[last..].join("\n"), failure.law);
    }
    assert_eq!(campaign.stories, seeds);
}

/// Stories that found something once, with what they found.
#[test]
fn seeds_that_found_something_find_nothing_any_more() {
    for line in include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let (Some(seed), Some(steps)) = (number(), number()) else { continue };
        if let Err(failure) = tell(&Story::of_seed(seed, steps)) {
            panic!("{line}: {}", failure.law);
        }
    }
}

#[test]
fn the_same_seed_is_the_same_story() {
    for seed in 0..5 {
        let story = Story::of_seed(seed, 1_000);
        assert_eq!(tell_in_full(&story), tell_in_full(&story));
    }
}

/// From 10 s to 30 s a part stands still: it does nothing meanwhile, and goes on afterwards.
#[test]
fn who_stands_still_does_nothing() {
    let calm = Story { seed: 1, steps: 600, servers: 1, nodes: vec![1], acts: Vec::new() };
    for (act, word) in [
        (Act::PauseServer(0, 20_000), "Engine(0)"),
        (Act::FreezeServer(0, 20_000), "Engine(0)"),
        (Act::PauseAgent(0, 20_000), "Agent(0)"),
        (Act::FreezeNode(0, 20_000), "Agent(0)"),
    ] {
        let story = Story { acts: vec![(10_000, act.clone())], ..calm.clone() };
        let seconds: Vec<f64> = moments(&tell_in_full(&story).1, word);
        let during = seconds.iter().filter(|at| (10.01..29.99).contains(*at)).count();
        assert_eq!(during, 0, "{act:?}");
        assert!(seconds.iter().any(|at| (30.0..32.0).contains(at)), "{act:?} goes on: {seconds:?}");
    }
}

/// A server is away for five minutes while its only job ends after seconds.
#[test]
fn an_outage_of_the_server_is_not_charged() {
    let wish = Wish {
        tenant: 0,
        user: 0,
        priority: 100,
        tasks: 1,
        gpus: 1,
        milli: 1_000,
        limit_ms: None,
        restarts: 0,
        saves: false,
        after_last: false,
        array: None,
        patience: 5,
    };
    let mut outages = 0;
    for seed in 0..20 {
        let acts = vec![(3_000, Act::Submit(wish.clone())), (8_000, Act::CrashServer(0, 300_000))];
        let story = Story { seed, steps: 2_000, servers: 1, nodes: vec![1], acts };
        for entry in journal_of(&story).unwrap() {
            let Event::AttemptEnded { charge, at, .. } = &entry.event else { continue };
            // Jobs run for two minutes at most; what was heard of after the outage was over long before.
            if at.0 - 1_700_000_000_000 > 300_000 && charge.gpu_ms > 0 {
                outages += 1;
                assert!(charge.gpu_ms < 130_000, "seed {seed}: {} GPU-ms are charged", charge.gpu_ms);
            }
        }
    }
    assert!(outages >= 5, "{outages} outages");
}

/// When something happened, in seconds.
fn moments(diary: &[String], word: &str) -> Vec<f64> {
    let lines = diary.iter().filter(|line| line.ends_with(word));
    lines.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect()
}

/// The journal tells from what state and at what moment each plan was drawn up, and that is enough to draw it up again.
#[test]
fn every_decision_can_be_made_again() {
    let mut plans = 0;
    for seed in 0..40 {
        let entries = journal_of(&Story::of_seed(seed, 2_000)).unwrap();
        plans += decisions::check(&entries).unwrap_or_else(|other| panic!("seed {seed}: {other:?}"));
    }
    assert!(plans > 1_000, "{plans} plans");
}
