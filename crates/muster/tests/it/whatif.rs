//! What-if replays of the history of a live server.

use std::path::Path;

use muster_store::testing;
use serde_json::Value;

use super::session::Session;

/// Live decisions replayed without a change are identical: the current planner repeats each one from the journal of a
/// live server, after submissions, preemption, a drain, a hold and cancellations.
#[test]
fn replaying_unchanged_history_reproduces_every_decision() {
    let session = Session::new("history", &[]);
    session.run_ok("tenant create red --max-gpus 6");
    session.run_ok("tenant create blue");
    for number in 0..36 {
        let tenant = ["red", "blue", "blue"][number % 3];
        let gpus = [1, 2, 4, 1, 3][number % 5];
        let priority = ["low", "medium", "medium", "critical"][number % 4];
        let runtime = 100 + number * 37 % 900;
        session.run_ok(&format!(
            "submit --tenant {tenant} --gpus {gpus} --priority {priority} \
             --annotation muster.sim/runtime={runtime}ms -- work"
        ));
        match number {
            10 => drop(session.run_ok("node drain gpu01 --why test")),
            14 => drop(session.run_ok("hold job-14")),
            18 => drop(session.run_ok("node undrain gpu01")),
            22 => drop(session.run_ok("cancel job-14")),
            _ => {}
        }
    }
    let jobs: Vec<String> = (1..=36).filter(|job| *job != 14).map(|job| format!("job-{job}")).collect();
    session.run_ok(&format!("wait {} --timeout 120s", jobs.join(" ")));

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

    // The database file of the server, read directly, gives the same figures.
    let file = session.folder.join("data/muster.db");
    let from_file = session.whatif(&format!("--add-nodes 4x8xH100 --journal {}", path(&file)));
    assert_eq!(from_file["changed"]["wait_mean_s"], more["changed"]["wait_mean_s"]);
    session.stop_and_remove();
}

/// The same with a journal in PostgreSQL: replayed by the server, and read directly from the database.
#[test]
fn a_history_in_postgresql_can_be_replayed() {
    // Skipped with a message if PostgreSQL is not installed; on CI that is a failure.
    let Some(postgres) = testing::shared_postgres() else { return };
    let at = postgres.create_database().unwrap();
    let url = format!("postgres://{}@/{}?host={}", at.user, at.database, at.host);
    let session = Session::new("history-postgres", &["--database", &url]);
    session.run_ok("tenant create red --max-gpus 4");
    for _ in 0..3 {
        session.run_ok("submit --tenant red --gpus 4 --annotation muster.sim/runtime=4s -- work");
    }
    session.run_ok("wait job-1 job-2 job-3 --timeout 120s");
    let from_server = session.whatif("--set tenants.red.max_gpus=8");
    let from_database = session.whatif(&format!("--set tenants.red.max_gpus=8 --journal {url}"));
    let decisions = (&from_server["decisions"], &from_server["decisions_different"]);
    assert_eq!(decisions, (&Value::from(3), &Value::from(0)));
    assert_eq!(
        (&from_server["sooner"], &from_server["changed"]["wait_max_s"]),
        (&from_database["sooner"], &from_database["changed"]["wait_max_s"])
    );
    assert_eq!(from_server["sooner"], 2);
    let replayed = session.run_ok(&format!("sim replay {url} --nodes 2x4xH100 --columns done --no-headers"));
    assert_eq!(replayed.trim(), "3");
    session.stop_and_remove();
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
