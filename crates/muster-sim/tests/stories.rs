//! Clusters with every misfortune, one story for each seed. `SEEDS=` and `STEPS=` tell more and longer ones.

use muster_sim::minimise::{judge, minimise};
use muster_sim::story::Story;
use muster_sim::world::tell_in_full;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn every_story_ends_well() {
    let (first, seeds, steps) = (number("FIRST", 0), number("SEEDS", 200), number("STEPS", 2_000));
    for seed in first..first + seeds {
        let story = Story::of_seed(seed, steps);
        if let Some(failure) = judge(&story) {
            let shorter = minimise(&story, 200);
            let (_, diary) = tell_in_full(&shorter);
            let last = diary.len().saturating_sub(number("LINES", 30) as usize);
            let again = judge(&shorter).map(|failure| failure.law).unwrap_or_default();
            panic!(
                "{}\nseed {seed} breaks a law: {}\nminimised:\n{shorter}{again}",
                diary[last..].join("\n"),
                failure.law
            );
        }
    }
}
