//! The success criteria of the specification, each tested on the running product.
//!
//! `make criteria` runs these alone and prints `ok` for each.

use std::path::Path;
use std::process::Command;

use muster_store::testing;

use super::console::Console;
use super::docs::{root, run_demo};

/// Runs until the end of the test.
const LONG_RUNTIME: &str = "--annotation muster.sim/runtime=60s";
/// Ends almost at once.
const SHORT_RUNTIME: &str = "--annotation muster.sim/runtime=200ms";

/// A new cluster of two nodes with four GPUs each.
fn cluster(name: &str) -> Console {
    let mut console = Console::open(&format!("criteria-{name}"));
    console.serve(&["muster", "dev"]);
    console
}

/// Runs a command that must succeed.
fn run_ok(console: &mut Console, command: &str) -> String {
    let (output, code) = console.run_command(command);
    assert_eq!(code, 0, "$ {command}\n{output}");
    output
}

/// Runs a command that must succeed and print all these words.
fn assert_output_contains(console: &mut Console, command: &str, words: &[&str]) {
    let output = run_ok(console, command);
    for word in words {
        assert!(output.contains(word), "$ {command}\ndoes not print `{word}`:\n{output}");
    }
}

#[test]
fn working_mvp_with_core_scheduling() {
    let mut console = cluster("mvp");
    assert_output_contains(
        &mut console,
        &format!("muster run --gpus 2 {SHORT_RUNTIME} -- python train.py"),
        &["exit code 0"],
    );
    assert_output_contains(&mut console, "muster show job-1", &["Done", "gpu-hours"]);
}

#[test]
fn multi_tenant_support() {
    let mut console = cluster("tenants");
    run_ok(&mut console, "muster tenant create --name red --max-gpus 4");
    run_ok(&mut console, "muster tenant create --name blue --max-gpus 4");
    for _ in 0..2 {
        run_ok(&mut console, &format!("muster submit --tenant red --gpus 4 {LONG_RUNTIME} -- python a.py"));
    }
    run_ok(&mut console, &format!("muster submit --tenant blue --gpus 4 {LONG_RUNTIME} -- python b.py"));
    // The quota of red is used up, so its second job waits although the later job of blue runs.
    run_ok(&mut console, "until_state job-1 Running; until_state job-3 Running");
    assert_output_contains(&mut console, "muster why job-2", &["QuotaTenant"]);
    let blue = run_ok(&mut console, "muster ps --tenant blue -o name");
    assert_eq!(blue.trim(), "job-3");
}

#[test]
fn priority_based_queueing() {
    let mut console = cluster("priority");
    for _ in 0..2 {
        run_ok(&mut console, &format!("muster submit --gpus 4 --priority high {LONG_RUNTIME} -- python a.py"));
    }
    run_ok(&mut console, "until_state job-1 Running; until_state job-2 Running");
    for priority in ["low", "medium"] {
        run_ok(&mut console, &format!("muster submit --gpus 4 --priority {priority} {SHORT_RUNTIME} -- python b.py"));
    }
    // The later job has the higher priority and is first in the queue.
    run_ok(&mut console, "muster cancel job-1");
    assert_output_contains(&mut console, "muster wait job-3 job-4 --timeout 60s", &["job-3 done", "job-4 done"]);
    let started = |console: &mut Console, job: &str| {
        let shown = run_ok(console, &format!("muster show {job} -o json"));
        let line = shown.lines().find(|line| line.contains("\"started_at\"")).unwrap().to_string();
        line.split('"').nth(3).unwrap().to_string()
    };
    let (low, medium) = (started(&mut console, "job-3"), started(&mut console, "job-4"));
    assert!(medium <= low, "medium started at {medium}, low at {low}");
}

#[test]
fn resource_allocation() {
    let mut console = cluster("allocation");
    run_ok(&mut console, &format!("muster submit --gpus 3 {LONG_RUNTIME} -- python a.py"));
    run_ok(&mut console, &format!("muster submit --gpus 3 {LONG_RUNTIME} -- python b.py"));
    run_ok(&mut console, "until_state job-1 Running; until_state job-2 Running");
    assert_output_contains(
        &mut console,
        "curl -sS $MUSTER_SERVER/api/v1/allocations",
        &["\"job_id\":\"job-1\"", "\"job_id\":\"job-2\""],
    );
    assert_output_contains(&mut console, "curl -sS $MUSTER_SERVER/api/v1/cluster/status", &["\"available_gpus\":2"]);
}

#[test]
fn preemption_support() {
    let mut console = cluster("preemption");
    for _ in 0..2 {
        run_ok(&mut console, "muster submit --gpus 4 --annotation muster.sim/runtime=3s -- python train.py");
    }
    run_ok(&mut console, "until_state job-1 Running; until_state job-2 Running");
    run_ok(&mut console, &format!("muster submit --gpus 4 --priority critical {SHORT_RUNTIME} -- python serve.py"));
    assert_output_contains(&mut console, "muster wait job-3 --timeout 30s", &["job-3 done"]);
    assert_output_contains(&mut console, "muster wait job-1 job-2 --timeout 60s", &["job-1 done", "job-2 done"]);
    assert_output_contains(&mut console, "muster show job-1; muster show job-2", &["preempted    once"]);
}

#[test]
fn rest_api() {
    let mut console = cluster("rest");
    assert_output_contains(&mut console, "curl -sS $MUSTER_SERVER/health", &["healthy"]);
    let body = r#"{"tenant_id":"default","name":"api-job","gpu_count":1,"image":"nvidia/cuda:12.0-base"}"#;
    let submit = format!("curl -sS -X POST $MUSTER_SERVER/api/v1/jobs -H 'Content-Type: application/json' -d '{body}'");
    assert_output_contains(&mut console, &submit, &["\"job_id\":\"job-1\"", "submitted"]);
    assert_output_contains(&mut console, "curl -sS $MUSTER_SERVER/api/v1/jobs/job-1", &["api-job"]);
    assert_output_contains(&mut console, "curl -sS $MUSTER_SERVER/api/v1/openapi.json", &["\"openapi\":\"3"]);
}

#[test]
fn cli_tool() {
    let mut console = cluster("cli");
    assert_output_contains(&mut console, "gpu-cli submit --name cli-job --gpus 1 --priority 500", &["job-1"]);
    assert_output_contains(&mut console, "gpu-cli get job-1", &["cli-job"]);
    assert_output_contains(&mut console, "gpu-cli list", &["cli-job"]);
    assert_output_contains(&mut console, "gpu-cli status", &["GPU"]);
}

#[test]
fn postgresql_persistence() {
    // `make criteria` must not print `ok` for a criterion that was not tested.
    let Some(postgres) = testing::shared_postgres() else {
        let required = std::env::var_os("MUSTER_CRITERIA").is_some();
        assert!(!required, "PostgreSQL is not installed, so this criterion cannot be tested");
        return;
    };
    let at = postgres.create_database().unwrap();
    let url = format!("postgres://{}@/{}?host={}", at.user, at.database, at.host);
    let mut console = Console::open("criteria-postgres");
    console.serve(&["muster", "dev", "--database", &url]);
    run_ok(&mut console, &format!("muster submit --name kept {LONG_RUNTIME} -- python train.py"));
    console.kill_servers();
    console.serve(&["muster", "dev", "--database", &url]);
    assert_output_contains(&mut console, "muster ps", &["kept"]);
}

#[test]
fn configuration_management() {
    let mut console = Console::open("criteria-configuration");
    assert_output_contains(
        &mut console,
        "muster config show --config config/scheduler-config.yaml",
        &["default_priority"],
    );
    run_ok(&mut console, "printf 'scheduler:\\n  default_priorty: 7\\n' > wrong.yaml");
    let (output, code) = console.run_command("muster config check wrong.yaml");
    assert_ne!(code, 0, "{output}");
    assert!(output.contains("did you mean `scheduler.default_priority`"), "{output}");
}

#[test]
fn documentation() {
    // Each document with the headings that readers look for.
    let required: [(&str, &[&str]); 6] = [
        ("README.md", &["## Start", "## What works today", "## Not yet"]),
        ("ARCHITECTURE.md", &["## The path of a job", "## Crates", "## The laws"]),
        ("CONTRIBUTING.md", &[]),
        ("docs/GETTING_STARTED.md", &[]),
        ("docs/API_REFERENCE.md", &["### `POST /api/v1/jobs`", "### `GET /metrics`"]),
        ("docs/design.md", &["## Architecture", "## Decisions", "## Failure handling", "## Sources"]),
    ];
    for (document, headings) in required {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        for heading in headings {
            assert!(text.lines().any(|line| line.starts_with(heading)), "{document} has no `{heading}`");
        }
        for path in paths(&text) {
            assert!(root().join(path).exists(), "{document} names `{path}`, which does not exist");
        }
    }
    let licence = std::fs::read_to_string(root().join("LICENSE")).unwrap();
    assert!(licence.starts_with("MIT License"), "{licence}");
}

/// The files and folders that a document names in backticks.
fn paths(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let begins = ["docs/", "crates/", "policies/", "scripts/", "config/"];
    let is_path =
        |word: &&str| begins.iter().any(|begin| word.starts_with(begin)) && !word.contains([' ', '*', '{', '\n']);
    quoted.filter(is_path).collect()
}

#[test]
fn build_system() {
    for target in ["build", "dist", "run", "test", "demo", "demo-cluster", "bench", "lint", "fmt"] {
        let made = Command::new("make").args(["-n", target]).current_dir(root()).output().unwrap();
        assert!(made.status.success(), "make {target}: {}", String::from_utf8_lossy(&made.stderr));
    }
    assert!(Path::new(env!("CARGO_BIN_EXE_muster")).exists());
}

#[test]
fn demo_scripts() {
    run_demo();
}
