//! One worker process: its answers, its limits, and its replacement after it is killed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use muster_policy::{Confinement, Limits, PolicyError, PolicyValue, Worker, WorkerCommand};

/// The command of the worker binary of this crate.
pub fn command() -> WorkerCommand {
    WorkerCommand { program: env!("CARGO_BIN_EXE_muster-policy-worker").into(), args: Vec::new() }
}

/// A bundle of one file.
pub fn bundle(source: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("policy.gsky".to_string(), source.to_string())])
}

/// Default limits, with a deadline for a machine that runs all tests at once.
fn test_confinement() -> Confinement {
    Confinement { call_time: Duration::from_secs(1), ..Confinement::default() }
}

/// Kill the process of a worker, and return its id.
fn kill(worker: &Worker) -> u32 {
    let id = worker.process_id().unwrap();
    let process = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    id
}

/// Without interpreter limits, so that only the limits of the process apply.
fn confinement_without_interpreter_limits() -> Confinement {
    let (forever, any) = (Duration::from_secs(3_600), usize::MAX >> 1);
    let limits = Limits { steps: u64::MAX >> 8, call_time: forever, load_time: forever, ..Limits::default() };
    Confinement { limits: Limits { heap_bytes: any, ..limits }, ..test_confinement() }
}

fn call_text(worker: &mut Worker, function: &str, args: &[PolicyValue]) -> String {
    worker.call(function, args).map_or_else(|error| error.to_string(), |value| value.to_string())
}

#[test]
fn worker_answers_equal_in_process_answers() {
    let mut worker = Worker::new(command(), test_confinement());
    let source = "
gpu_ops.register_pool(gpu_pool(name = 'p', min_memory_gb = 2.5))
def same(x):
    return x
def gpus(job):
    return job.gpus * 2
def wrong():
    return 1 // 0
";
    let loaded = worker.load(&bundle(source)).unwrap();
    assert_eq!(loaded.rules.pools["p"].min_memory_milli_gb, 2_500);
    assert_eq!(loaded.functions.keys().collect::<Vec<_>>(), ["gpus", "same", "wrong"]);
    let values = [
        PolicyValue::None,
        PolicyValue::Bool(true),
        PolicyValue::Int(i64::MIN),
        PolicyValue::Float(0.1),
        PolicyValue::Float(f64::INFINITY),
        PolicyValue::text("a\0\u{1F63F}\""),
        PolicyValue::Dict(vec![(
            PolicyValue::Tuple(vec![PolicyValue::Int(1)]),
            PolicyValue::List(vec![PolicyValue::None]),
        )]),
    ];
    for value in values {
        assert_eq!(worker.call("same", std::slice::from_ref(&value)).unwrap(), value);
    }
    let job = PolicyValue::Record(vec![("gpus", PolicyValue::Int(4))]);
    assert_eq!(worker.call("gpus", &[job]).unwrap(), PolicyValue::Int(8));
    let wrong = worker.call("wrong", &[]).unwrap_err();
    assert!(matches!(&wrong, PolicyError::InvalidAt { line: 8, .. }), "{wrong}");
    assert!(call_text(&mut worker, "nobody", &[]).contains("there is no function `nobody`"));
}

#[test]
fn a_failed_load_keeps_the_previous_bundle() {
    let mut worker = Worker::new(command(), test_confinement());
    assert!(call_text(&mut worker, "f", &[]).contains("there is no function"));
    worker.load(&bundle("def f():\n  return 1")).unwrap();
    let error = worker.load(&bundle("def f(:")).unwrap_err().to_string();
    assert!(error.starts_with("policy.gsky:1:"), "{error}");
    assert_eq!(call_text(&mut worker, "f", &[]), "1");
    kill(&worker);
    assert!(worker.call("f", &[]).is_err());
    assert_eq!(call_text(&mut worker, "f", &[]), "1", "a new process starts with the last bundle that loaded");
}

#[test]
fn a_call_over_its_limits_is_killed_and_the_next_call_succeeds() {
    let mut worker = Worker::new(command(), confinement_without_interpreter_limits());
    let source = "
def good():
    return 'well'
def endless():
    for i in range(1 << 30):
        for j in range(1 << 30):
            pass
def greedy(n = 1 << 30):
    return len('a' * n)
def long():
    return ['a' * 1000] * 1045
";
    worker.load(&bundle(source)).unwrap();
    let cases = [
        ("endless", "it exceeded its time limit of 1000 ms and was killed"),
        ("greedy", "it exceeded its memory limit of 256 MiB and was killed"),
        ("long", "the answer has"),
    ];
    for (function, expected) in cases {
        let started_at = Instant::now();
        let answer = call_text(&mut worker, function, &[]);
        assert!(answer.contains(expected), "{function}: {answer}");
        assert!(started_at.elapsed() < Duration::from_secs(3), "{function} took {:?}", started_at.elapsed());
        assert_eq!(call_text(&mut worker, "good", &[]), "\"well\"");
    }
}

#[test]
fn a_worker_that_is_killed_is_replaced() {
    let mut worker = Worker::new(command(), test_confinement());
    worker.load(&bundle("def f():\n  return 1")).unwrap();
    let id = kill(&worker);
    assert!(call_text(&mut worker, "f", &[]).contains("the worker process was killed by signal 9"));
    assert_eq!(call_text(&mut worker, "f", &[]), "1");
    assert_ne!(worker.process_id(), Some(id));
}

#[test]
fn a_worker_has_no_files_environment_or_privileges() {
    let mut worker = Worker::new(command(), test_confinement());
    worker.load(&bundle("def f():\n  return 1")).unwrap();
    let folder = std::path::PathBuf::from(format!("/proc/{}", worker.process_id().unwrap()));
    let status = std::fs::read_to_string(folder.join("status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("Threads:\t1\n"), "{status}");
    // Only root may read these two files of a process that is not dumpable.
    if let Ok(environment) = std::fs::read(folder.join("environ")) {
        assert_eq!(environment, b"");
        assert_eq!(std::fs::read_link(folder.join("cwd")).unwrap(), std::path::Path::new("/"));
    }
    let limits = std::fs::read_to_string(folder.join("limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().take(2).map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(limit("Max open files"), ["3", "3"]);
    assert_eq!(limit("Max file size"), ["0", "0"]);
    assert_eq!(limit("Max core file size"), ["0", "0"]);
    assert_eq!(limit("Max processes"), ["0", "0"]);
    assert_ne!(limit("Max address space")[1], "unlimited");
    assert_ne!(limit("Max cpu time")[0], "unlimited");
}

#[test]
fn worker_launch_failures_are_reported() {
    let start_error = |program: &str, args: &[&str]| {
        let args = args.iter().map(std::ffi::OsString::from).collect();
        let command = WorkerCommand { program: program.into(), args };
        let confinement = Confinement { start_time: Duration::from_millis(300), ..Confinement::default() };
        Worker::new(command, confinement).load(&BTreeMap::new()).unwrap_err().to_string()
    };
    assert!(start_error("/no/such/program", &[]).contains("`/no/such/program` cannot be started"));
    assert!(start_error("/bin/false", &[]).contains("the worker process exited without a reply"));
    assert!(start_error("/bin/sleep", &["100"]).contains("its time limit of 300 ms"));
    assert!(start_error("/bin/echo", &["hello, I am no worker"]).contains("the worker process exited without a reply"));
}
