//! Secrets of jobs: where the job finds them, who else can read them, and that they are on no disk.

use std::path::{Path, PathBuf};
use std::process::Command;

use muster_agent::LauncherConfig;
use muster_agent::logs::Stream;
use muster_protocol::agent::{AttemptOrder, AttemptSecrets, Exit, Report, SecretFile, StopOrder, TaskOrder};
use muster_protocol::secret_value::SecretValue;

use crate::harness::{AgentHarness, is_root, now_ms, order, script, wait_until};

/// Jobs print it in capitals, so that the search for it does not find their output.
const VALUE: &str = "needle-in-memory-only";
const VALUE_IN_BASE64: &str = "bmVlZGxlLWluLW1lbW9yeS1vbmx5";
const PRINTED: &str = "NEEDLE-IN-MEMORY-ONLY";
const PRINT: &str = "tr a-z A-Z < $MUSTER_SECRETS_DIR/TOKEN; echo";

fn with_secret(text: &str) -> AttemptOrder {
    let mut with_secret = order(script(text));
    with_secret.run.secrets = vec!["TOKEN".to_string()];
    with_secret
}

fn secrets_of(order: &AttemptOrder) -> AttemptSecrets {
    let file = SecretFile { name: "TOKEN".to_string(), value: SecretValue::new(VALUE.as_bytes().to_vec()) };
    AttemptSecrets { job: order.job.clone(), attempt: order.attempt, files: vec![file], refusal: None }
}

fn started(launcher: LauncherConfig, order: &AttemptOrder) -> AgentHarness {
    let mut harness = AgentHarness::with_launcher(launcher);
    harness.send_orders_with_secrets(vec![order.clone()], vec![secrets_of(order)]);
    harness.wait_for_start();
    harness
}

fn stop(harness: &mut AgentHarness, order: &AttemptOrder) {
    let stop = Some(StopOrder { since_ms: now_ms(), grace_ms: 0, why: "enough".to_string() });
    harness.send_orders(vec![AttemptOrder { stop, ..order.clone() }]);
    harness.wait_for_exit();
}

fn wait_for_output(harness: &AgentHarness, text: &str) {
    wait_until("the job has written", || harness.read_log(0, Stream::Stdout).contains(text));
}

fn without_private_mounts() -> LauncherConfig {
    LauncherConfig { private_tmp: false, ..LauncherConfig::default() }
}

/// The files below a directory that hold the value, in either form.
fn files_with_the_value(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_with_the_value(&path));
        } else if path.is_file() && contains_the_value(&std::fs::read(&path).unwrap_or_default()) {
            found.push(path);
        }
    }
    found
}

fn contains_the_value(bytes: &[u8]) -> bool {
    [VALUE, VALUE_IN_BASE64].iter().any(|text| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
}

/// The processes whose arguments or environment hold the value.
fn processes_with_the_value() -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let files = processes.flat_map(|process| ["cmdline", "environ"].map(|file| process.join(file)));
    files.filter(|path| contains_the_value(&std::fs::read(path).unwrap_or_default())).collect()
}

fn shared_dirs() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("muster-secrets-")))
        .collect()
}

#[test]
fn a_job_finds_its_secret_in_memory_and_nobody_else_does() {
    if !is_root() {
        return;
    }
    let text = format!(
        "cd $MUSTER_SECRETS_DIR; stat -c '%n %a' . TOKEN; [ $(stat -c %u TOKEN) = $(id -u) ] && echo own; \
         stat -f -c %T .; (echo x > new) 2>/dev/null || echo read-only; {PRINT}; sleep 600"
    );
    let job = with_secret(&text);
    let mut harness = started(LauncherConfig::default(), &job);
    wait_for_output(&harness, PRINTED);
    let expected = format!(". 500\nTOKEN 400\nown\ntmpfs\nread-only\n{PRINTED}\n");
    assert_eq!(harness.read_log(0, Stream::Stdout), expected);
    assert_eq!(files_with_the_value(&harness.data_dir), [] as [PathBuf; 0], "not on the disk of the agent");
    assert_eq!(processes_with_the_value(), [] as [PathBuf; 0], "neither in arguments nor in environments");
    let secrets = harness.attempt_dir().join("secrets");
    assert_eq!(std::fs::read_dir(&secrets).unwrap().count(), 0, "the host sees an empty mount point");

    // Another job of the same account does not see them at that path, nor below it or beside it.
    let text = format!(
        "(cat {}/TOKEN; find {} /dev/shm /tmp -name TOKEN; echo end) 2>/dev/null",
        secrets.display(),
        harness.data_dir.display()
    );
    let other = AttemptOrder { job: "job-2".to_string(), ..order(script(&text)) };
    harness.send_orders(vec![AttemptOrder { started: true, ..job.clone() }, other]);
    harness.wait_for_exit_of("job-2");
    assert_eq!(harness.read_log_of("job-2", 0, Stream::Stdout), "end\n");

    let stop = Some(StopOrder { since_ms: now_ms(), grace_ms: 0, why: "enough".to_string() });
    harness.send_orders(vec![AttemptOrder { stop, started: true, ..job }]);
    harness.wait_for_exit_of(crate::harness::JOB);
    wait_until("the mount point is gone", || !secrets.exists());
}

#[test]
fn every_task_of_a_gang_finds_the_secret() {
    let mut gang = with_secret(PRINT);
    let task = gang.tasks[0].clone();
    gang.tasks = (0..2).map(|rank| TaskOrder { rank, group_rank: rank, ..task.clone() }).collect();
    gang.gang_size = 2;
    let mut harness = AgentHarness::with_runner();
    harness.send_orders_with_secrets(vec![gang.clone()], vec![secrets_of(&gang)]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0), "{}", harness.read_log(0, Stream::Stderr));
    for rank in 0..2 {
        assert_eq!(harness.read_log(rank, Stream::Stdout), format!("{PRINTED}\n"), "rank {rank}");
    }
}

#[test]
fn without_a_mount_namespace_the_secret_is_in_a_private_directory_that_goes_with_the_attempt() {
    let job = with_secret(&format!("stat -c '%a' $MUSTER_SECRETS_DIR; echo $MUSTER_SECRETS_DIR; {PRINT}; sleep 600"));
    let mut harness = started(without_private_mounts(), &job);
    wait_for_output(&harness, PRINTED);
    let output = harness.read_log(0, Stream::Stdout);
    let dir = PathBuf::from(output.lines().nth(1).unwrap());
    assert!(output.starts_with("500\n") && dir.join("TOKEN").exists(), "{output}");
    assert_eq!(files_with_the_value(&harness.data_dir), [] as [PathBuf; 0]);
    let label = harness.reports().into_iter().find_map(|report| match report {
        Report::Registered(registration) => registration.labels.get("muster.io/secrets").cloned(),
        _ => None,
    });
    assert_eq!(label.as_deref(), Some("shared"));
    stop(&mut harness, &job);
    assert!(!dir.exists(), "removed by the shim");

    // A killed shim removes nothing; then the agent does.
    let harness = started(without_private_mounts(), &job);
    wait_for_output(&harness, PRINTED);
    let dir = PathBuf::from(harness.read_log(0, Stream::Stdout).lines().nth(1).unwrap());
    assert!(shared_dirs().contains(&dir) || !dir.starts_with("/dev/shm"));
    let lock = std::fs::read_to_string(harness.attempt_dir().join("pid.json")).unwrap();
    let pid = lock.split("\"pid\":").nth(1).unwrap().split(',').next().unwrap().trim().to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    harness.wait_for_exit();
    assert!(!dir.exists(), "removed by the agent");
}

#[test]
fn a_job_is_not_launched_before_its_secrets_are_there() {
    let job = with_secret(PRINT);
    let mut harness = AgentHarness::with_runner();
    harness.send_orders(vec![job.clone()]);
    harness.wait_for_heartbeats(3);
    assert_eq!(harness.start_report_count(), 0);
    assert!(!harness.attempt_dir().join("intent.json").exists(), "nothing is on disk");
    harness.send_orders_with_secrets(vec![job.clone()], vec![secrets_of(&job)]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0));
    assert_eq!(harness.read_log(0, Stream::Stdout), format!("{PRINTED}\n"));
}

#[test]
fn a_secret_that_cannot_be_delivered_ends_the_launch_with_the_reason() {
    let job = with_secret(PRINT);
    let why = "invalid job: the secret `TOKEN` was removed".to_string();
    let refusal = AttemptSecrets { files: Vec::new(), refusal: Some(why.clone()), ..secrets_of(&job) };
    let mut harness = AgentHarness::with_runner();
    harness.send_orders_with_secrets(vec![job], vec![refusal]);
    assert_eq!(harness.wait_for_exit(), Exit::NotStarted(why));
}
