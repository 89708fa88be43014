//! Kills, freezes and cuts off servers, agents and shims of a cluster of real processes at random points, under load.
//!
//! Eight agents run in network namespaces of their own. No job may be lost, no job may ever have two live attempts, and no
//! attempt may end without need. The judge of that are files that the jobs write themselves, not what muster reports.
//!
//! `KILLS=1000 FENCES=100 TAKEOVERS=50 cargo test -p muster --test nodes` does more of it. The tests need root and `ip`.

#![allow(clippy::unwrap_used)] // A panic fails the test, as intended.

mod campaign;
mod job_files;
mod namespaces;
mod outages;
mod random;
mod site;

use campaign::Campaign;

/// Kills without `KILLS`. At least a third of the agents' kills must hit a node that runs an attempt.
const KILLS_DEFAULT: usize = 100;
/// Nodes that are fenced without `FENCES`.
const FENCES_DEFAULT: usize = 20;
/// Killed leaders without `TAKEOVERS`.
const TAKEOVERS_DEFAULT: usize = 5;

#[test]
fn jobs_survive_kills_of_server_agents_and_shims() {
    namespaces::in_own_namespaces("jobs_survive_kills_of_server_agents_and_shims", || {
        let mut campaign = Campaign::start("kills", 8_000);
        campaign.kill_at_random(amount("KILLS", KILLS_DEFAULT));
        campaign.freeze_and_cut_briefly(amount("KILLS", KILLS_DEFAULT) / 5);
        campaign.finish_and_judge();
    });
}

#[test]
fn fenced_jobs_start_elsewhere_and_never_run_twice() {
    namespaces::in_own_namespaces("fenced_jobs_start_elsewhere_and_never_run_twice", || {
        let mut campaign = Campaign::start("fences", 5_000);
        campaign.fence(amount("FENCES", FENCES_DEFAULT));
        campaign.finish_and_judge();
    });
}

#[test]
fn agents_follow_a_new_leader() {
    namespaces::in_own_namespaces("agents_follow_a_new_leader", || {
        let Some(server) = muster_store::testing::shared_postgres() else { return };
        let database = server.create_database().unwrap();
        let url = format!("postgres://{}@/{}?host={}", database.user, database.database, database.host);
        let mut campaign = Campaign::start_pair("takeover", 30_000, url);
        let mut times = campaign.kill_leaders(amount("TAKEOVERS", TAKEOVERS_DEFAULT));
        campaign.finish_and_judge();
        times.sort();
        println!(
            "from the kill of the leader to the start of a new job: median {:?}, worst {:?}",
            times[times.len() / 2],
            times[times.len() - 1]
        );
    });
}

#[test]
fn the_tour_of_a_cluster_shows_what_failures_do() {
    if let Some(missing) = namespaces::missing_requirement() {
        return namespaces::skip(&missing);
    }
    let mut tour = std::process::Command::new("scripts/demo-cluster.sh");
    tour.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let output = tour.env("MUSTER_BIN", env!("CARGO_BIN_EXE_muster")).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    for words in ["rank 2 of 3", "Suspect", "started under the new leader", "FencePending", "Draining", "7. Who used"] {
        assert!(shown.contains(words), "the tour does not show `{words}`:\n{shown}");
    }
}

/// An amount that a variable of the environment may raise.
fn amount(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
