//! Policies in a process of their own: what comes back, and what becomes of those that go too far.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use muster_policy::{Confinement, Launch, Limits, Plain, PolicyError, Worker};

/// The worker of these tests.
pub fn launch() -> Launch {
    Launch { program: env!("CARGO_BIN_EXE_muster-policy-worker").into(), words: Vec::new() }
}

/// A bundle of one file.
pub fn bundle(source: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("policy.gsky".to_string(), source.to_string())])
}

/// The bounds as they are, with time for a machine that runs all tests at once.
fn patient() -> Confinement {
    Confinement { call_time: Duration::from_secs(1), ..Confinement::default() }
}

/// End the process of a worker, as an operator would.
fn kill(worker: &Worker) -> u32 {
    let id = worker.process_id().unwrap();
    let process = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    id
}

/// Bounds under which the interpreter looks at nothing: only the process is left to hold.
fn unwatched() -> Confinement {
    let (forever, any) = (Duration::from_secs(3_600), usize::MAX >> 1);
    let limits = Limits { steps: u64::MAX >> 8, time: forever, load_time: forever, ..Limits::default() };
    Confinement { limits: Limits { heap_bytes: any, ..limits }, ..patient() }
}

fn called(worker: &mut Worker, function: &str, args: &[Plain]) -> String {
    worker.call(function, args).map_or_else(|error| error.to_string(), |value| value.to_string())
}

#[test]
fn a_worker_answers_as_the_program_itself_would() {
    let mut worker = Worker::new(launch(), patient());
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
        Plain::None,
        Plain::Bool(true),
        Plain::Int(i64::MIN),
        Plain::Float(0.1),
        Plain::Float(f64::INFINITY),
        Plain::text("a\0\u{1F63F}\""),
        Plain::Dict(vec![(Plain::Tuple(vec![Plain::Int(1)]), Plain::List(vec![Plain::None]))]),
    ];
    for value in values {
        assert_eq!(worker.call("same", std::slice::from_ref(&value)).unwrap(), value);
    }
    let job = Plain::Record(vec![("gpus", Plain::Int(4))]);
    assert_eq!(worker.call("gpus", &[job]).unwrap(), Plain::Int(8));
    let wrong = worker.call("wrong", &[]).unwrap_err();
    assert!(matches!(&wrong, PolicyError::Wrong { line: 8, .. }), "{wrong}");
    assert!(called(&mut worker, "nobody", &[]).contains("there is no function `nobody`"));
}

#[test]
fn a_bundle_that_cannot_be_loaded_leaves_the_one_before() {
    let mut worker = Worker::new(launch(), patient());
    assert!(called(&mut worker, "f", &[]).contains("there is no function"));
    worker.load(&bundle("def f():\n  return 1")).unwrap();
    let said = worker.load(&bundle("def f(:")).unwrap_err().to_string();
    assert!(said.starts_with("policy.gsky:1:"), "{said}");
    assert_eq!(called(&mut worker, "f", &[]), "1");
    kill(&worker);
    assert!(worker.call("f", &[]).is_err());
    assert_eq!(called(&mut worker, "f", &[]), "1", "a new process begins with the last that could be loaded");
}

#[test]
fn who_goes_too_far_is_ended_and_the_next_is_answered() {
    let mut worker = Worker::new(launch(), unwatched());
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
        ("endless", "it took longer than 1000 ms and was ended"),
        ("greedy", "it wanted more memory than the 256 MiB it may have, and was ended"),
        ("long", "the answer has"),
    ];
    for (function, expected) in cases {
        let began = Instant::now();
        let said = called(&mut worker, function, &[]);
        assert!(said.contains(expected), "{function}: {said}");
        assert!(began.elapsed() < Duration::from_secs(3), "{function} took {:?}", began.elapsed());
        assert_eq!(called(&mut worker, "good", &[]), "\"well\"");
    }
}

#[test]
fn a_worker_that_is_killed_is_replaced() {
    let mut worker = Worker::new(launch(), patient());
    worker.load(&bundle("def f():\n  return 1")).unwrap();
    let id = kill(&worker);
    assert!(called(&mut worker, "f", &[]).contains("its process was ended by signal 9"));
    assert_eq!(called(&mut worker, "f", &[]), "1");
    assert_ne!(worker.process_id(), Some(id));
}

#[test]
fn a_worker_has_nothing_but_its_pipes() {
    let mut worker = Worker::new(launch(), patient());
    worker.load(&bundle("def f():\n  return 1")).unwrap();
    let folder = std::path::PathBuf::from(format!("/proc/{}", worker.process_id().unwrap()));
    let status = std::fs::read_to_string(folder.join("status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("Threads:\t1\n"), "{status}");
    // Nobody but the superuser reads these two of a process that hides its memory.
    if let Ok(environment) = std::fs::read(folder.join("environ")) {
        assert_eq!(environment, b"");
        assert_eq!(std::fs::read_link(folder.join("cwd")).unwrap(), std::path::Path::new("/"));
    }
    let limits = std::fs::read_to_string(folder.join("limits")).unwrap();
    let most = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().take(2).map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(most("Max open files"), ["3", "3"]);
    assert_eq!(most("Max file size"), ["0", "0"]);
    assert_eq!(most("Max core file size"), ["0", "0"]);
    assert_eq!(most("Max processes"), ["0", "0"]);
    assert_ne!(most("Max address space")[1], "unlimited");
    assert_ne!(most("Max cpu time")[0], "unlimited");
}

#[test]
fn what_cannot_be_started_or_is_no_worker_is_told() {
    let tell = |program: &str, words: &[&str]| {
        let words = words.iter().map(std::ffi::OsString::from).collect();
        let launch = Launch { program: program.into(), words };
        let hasty = Confinement { start_time: Duration::from_millis(300), ..Confinement::default() };
        Worker::new(launch, hasty).load(&BTreeMap::new()).unwrap_err().to_string()
    };
    assert!(tell("/no/such/program", &[]).contains("`/no/such/program` cannot be started"));
    assert!(tell("/bin/false", &[]).contains("its process ended without an answer"));
    assert!(tell("/bin/sleep", &["100"]).contains("longer than 300 ms"));
    assert!(tell("/bin/echo", &["hello, I am no worker"]).contains("its process ended without an answer"));
}
