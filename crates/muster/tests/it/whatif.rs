//! The history of a server that really ran, replayed.

use std::path::Path;

use muster_store::testing;
use serde_json::Value;

use super::session::Session;

/// Live decisions replayed without a change are the same: each is made again from the journal of a server that ran, by
/// the planner of now, after submissions, preemption, a drain, a hold and cancellations.
#[test]
fn live_decisions_are_the_same_when_they_are_made_again() {
    let session = Session::new("history", &[]);
    session.says("tenant create red --max-gpus 6");
    session.says("tenant create blue");
    for number in 0..36 {
        let tenant = ["red", "blue", "blue"][number % 3];
        let gpus = [1, 2, 4, 1, 3][number % 5];
        let priority = ["low", "medium", "medium", "critical"][number % 4];
        let runtime = 100 + number * 37 % 900;
        session.says(&format!(
            "submit --tenant {tenant} --gpus {gpus} --priority {priority} \
             --annotation muster.sim/runtime={runtime}ms -- work"
        ));
        match number {
            10 => drop(session.says("node drain gpu01 --why test")),
            14 => drop(session.says("hold job-14")),
            18 => drop(session.says("node undrain gpu01")),
            22 => drop(session.says("cancel job-14")),
            _ => {}
        }
    }
    let jobs: Vec<String> = (1..=36).filter(|job| *job != 14).map(|job| format!("job-{job}")).collect();
    session.says(&format!("wait {} --timeout 120s", jobs.join(" ")));

    let same = session.whatif("");
    assert!(same["decisions"].as_u64().unwrap() > 10, "{same}");
    assert_eq!(same["decisions_different"], 0, "{same}");
    assert_eq!((&same["differs_from"], &same["sooner"]), (&Value::Null, &Value::from(0)));
    assert_eq!(same["really"], same["changed"]);

    let more = session.whatif("--add-nodes 4x8xH100");
    assert_eq!(more["decisions_different"], 0);
    let count = |which: &str| more[which].as_u64().unwrap();
    assert!(count("sooner") > 2 * count("later"), "{}", serde_json::to_string_pretty(&more["jobs"]).unwrap());
    let wait = |which: &str| more[which]["wait_mean_s"].as_f64().unwrap();
    assert!(wait("changed") < wait("really"), "{} {}", wait("changed"), wait("really"));
    assert_eq!(more["changed"]["ended"], 36);

    // The file of the server, read by itself, says the same.
    let file = session.folder.join("data/muster.db");
    let from_file = session.whatif(&format!("--add-nodes 4x8xH100 --journal {}", path(&file)));
    assert_eq!(from_file["changed"]["wait_mean_s"], more["changed"]["wait_mean_s"]);
    session.end();
}

/// The same where the journal is in PostgreSQL: by the server, and by whoever reads the database.
#[test]
fn a_history_in_postgresql_can_be_replayed() {
    // Where it is not installed this says so; on CI it must be.
    let Some(postgres) = testing::postgres() else { return };
    let at = postgres.database().unwrap();
    let url = format!("postgres://{}@/{}?host={}", at.user, at.database, at.host);
    let session = Session::new("history-postgres", &["--database", &url]);
    session.says("tenant create red --max-gpus 4");
    for _ in 0..3 {
        session.says("submit --tenant red --gpus 4 --annotation muster.sim/runtime=4s -- work");
    }
    session.says("wait job-1 job-2 job-3 --timeout 120s");
    let asked = session.whatif("--set tenants.red.max_gpus=8");
    let read = session.whatif(&format!("--set tenants.red.max_gpus=8 --journal {url}"));
    assert_eq!((&asked["decisions"], &asked["decisions_different"]), (&Value::from(3), &Value::from(0)));
    assert_eq!(
        (&asked["sooner"], &asked["changed"]["wait_max_s"]),
        (&read["sooner"], &read["changed"]["wait_max_s"])
    );
    assert_eq!(asked["sooner"], 2);
    let replayed = session.says(&format!("sim replay {url} --nodes 2x4xH100 --columns done --no-headers"));
    assert_eq!(replayed.trim(), "3");
    session.end();
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
