//! Clusters with every misfortune, one story for each seed. `SEEDS=` and `STEPS=` tell more and longer ones.

use std::panic::catch_unwind;

use muster_sim::story::Story;
use muster_sim::world::tell;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn every_story_ends_well() {
    let (first, seeds, steps) = (number("FIRST", 0), number("SEEDS", 200), number("STEPS", 2_000));
    for seed in first..first + seeds {
        let story = Story::of_seed(seed, steps);
        let told = catch_unwind(|| tell(&story));
        match told {
            Ok(Ok(_)) => {}
            Ok(Err(failure)) => panic!("{story}\nstep {}: {}", failure.step, failure.law),
            Err(_) => panic!("{story}\npanicked"),
        }
    }
}
