//! Policies that mean no good, against a server that runs: whatever it is given, it answers everyone else, does not grow,
//! and goes on.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::http;
use super::policies::counted;
use super::session::Session;
use corpus::Hostile;

#[path = "../../../muster-policy/tests/hostile/corpus.rs"]
mod corpus;

/// What a server may hold more after all of it. Most of it is taken once, by answers of 2²⁰ values, and kept by the
/// allocator: 350 MiB were seen, and no more when others follow. A leak for each of them would go beyond.
const GROWTH_BYTES_MAX: u64 = 512 << 20;
/// What is worth a line of output.
const JUMP_BYTES: u64 = 16 << 20;
/// The longest that anyone else waits for an answer. A machine that runs all tests at once is slow by itself.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Those that are stopped in the process of a server. The others get past its bounds, as `docs/policies.md` says: a single
/// step takes all the time or memory there is. Operators vouch for what they put into force; a worker holds these too.
fn stopped_in_process() -> Vec<Hostile> {
    corpus::all().into_iter().filter(|hostile| !hostile.only_worker).collect()
}

fn ask(session: &Session, method: &str, path: &str, body: &str) -> (u16, String) {
    let asked = http::ask(session.url(), method, path, body);
    asked.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

fn apply(session: &Session, source: &str) -> (u16, String) {
    let body = serde_json::json!({ "files": { "policy.gsky": source } });
    ask(session, "POST", "/api/v1/policies", &muster_json::to_string(&body))
}

/// Put one into force, and if that goes let it decide about a job. Whether it went.
fn give(session: &Session, hostile: &Hostile) -> bool {
    let before = session.resident_bytes();
    // What the table calls a hook is asked about every job.
    let has_hook = hostile.source.contains("hook");
    // Before it is in force: then it is asked at once about those who wait, and not again about one that is like them.
    let (asked, failed) = (heard(session, "calls"), heard(session, "failures"));
    let (status, said) = apply(session, &hostile.source.replace("hook", "admit"));
    assert!(matches!(status, 200 | 422 | 413), "{}: {status} {said}", hostile.title);
    assert!(status != 200 || has_hook || hostile.harmless, "{} is in force", hostile.title);
    if status == 200 && has_hook {
        decide(session, hostile, (asked, failed));
    }
    let grown = session.resident_bytes().saturating_sub(before);
    if grown > JUMP_BYTES {
        println!("{} takes {} MiB", hostile.title, grown >> 20);
    }
    status == 200
}

/// Submit a job, and wait until the policy in force was asked about it.
fn decide(session: &Session, hostile: &Hostile, (asked, failed): (f64, f64)) {
    let job = r#"{"gpu_count":1,"command":["true"],"annotations":{"muster.sim/runtime":"20ms"}}"#;
    let (status, said) = ask(session, "POST", "/api/v1/jobs", job);
    assert_eq!(status, 201, "{}: {said}", hostile.title);
    let until = Instant::now() + ANSWER_MAX;
    // Once when it was submitted, and once before it, or one that is like it, could start.
    while heard(session, "calls") < asked + 2.0 {
        assert!(Instant::now() < until, "{}: nobody decides about the job", hostile.title);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(hostile.harmless || heard(session, "failures") > failed, "{}: it was answered", hostile.title);
}

/// What the metrics say; before anything was asked they say nothing.
fn heard(session: &Session, what: &str) -> f64 {
    counted(session, what).unwrap_or(0.0)
}

/// Ask what others ask, all the time, and say how long the slowest answer took.
fn look_on(session: &Session, over: &AtomicBool, answers: &AtomicUsize) -> Duration {
    let mut slowest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        for path in ["/healthz", "/readyz", "/api/v1/jobs?limit=20", "/api/v1/cluster/status"] {
            let began = Instant::now();
            let (status, said) = ask(session, "GET", path, "");
            assert_eq!(status, 200, "{path}: {said}");
            slowest = slowest.max(began.elapsed());
            answers.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    slowest
}

#[test]
fn a_server_outlives_policies_that_mean_no_good() {
    let session = Session::new("hostile", &[]);
    assert_eq!(apply(&session, "def admit(job):\n    return True\n").0, 200);
    let hostile = stopped_in_process();
    assert!(hostile.len() >= 200, "only {} policies were found", hostile.len());
    let before = session.resident_bytes();
    let (over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (in_force, slowest) = std::thread::scope(|scope| {
        let onlooker = scope.spawn(|| look_on(&session, &over, &answers));
        // The onlooker must end also where one of them brings the server down.
        let given = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            hostile.iter().filter(|hostile| give(&session, hostile)).count()
        }));
        over.store(true, Ordering::Relaxed);
        let slowest = onlooker.join().unwrap();
        (given.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), slowest)
    });
    let grown = session.resident_bytes().saturating_sub(before);
    let answers = answers.into_inner();
    println!(
        "{} policies, {in_force} of them in force; {answers} answers to others, the slowest after {} ms; {} KiB more",
        hostile.len(),
        slowest.as_millis(),
        grown >> 10
    );
    assert!(in_force > 20 && answers > hostile.len() && slowest < ANSWER_MAX);
    assert!(grown < GROWTH_BYTES_MAX, "the server has grown by {grown} bytes");

    session.says("policy apply --none");
    let plain = session.says("submit --gpus 1 --annotation muster.sim/runtime=200ms -- work");
    session.says(&format!("wait {} --timeout 60s", plain.trim()));
    session.end();
}
