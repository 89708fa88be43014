//! Policies that mean no good, as policies of the cluster, against a server that runs with little address space: whatever
//! it is given, it answers everyone else, does not grow, and goes on.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::http;
use super::policies::counted;
use super::session::Session;
use corpus::Hostile;

#[path = "../../../muster-policy/tests/hostile/corpus.rs"]
mod corpus;

/// What a server may hold more after all of it. Most of it is taken once, by answers of 2²⁰ values, and kept by the
/// allocator. A leak for each of them would go beyond.
const GROWTH_BYTES_MAX: u64 = 512 << 20;
/// What is worth a line of output.
const JUMP_BYTES: u64 = 16 << 20;
/// The longest that anyone else waits for an answer. A machine that runs all tests at once is slow by itself.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// What a server may have: far less than one of these policies would take.
const ADDRESS_SPACE_KIB: u64 = 6_000_000;
/// Of all policies one in so many is tried, unless the variable says `all`.
const ONE_IN: usize = 15;
const VARIABLE: &str = "MUSTER_HOSTILE";

/// All of them with `MUSTER_HOSTILE=all`, otherwise some of every kind: each takes seconds.
fn tried() -> Vec<Hostile> {
    let all = corpus::all();
    assert!(all.len() >= 300, "only {} policies were found", all.len());
    let every = if std::env::var(VARIABLE).is_ok_and(|word| word == "all") { 1 } else { ONE_IN };
    let (only_worker, others): (Vec<Hostile>, Vec<Hostile>) =
        all.into_iter().partition(|one| one.only_worker);
    only_worker.into_iter().step_by(every).chain(others.into_iter().step_by(every)).collect()
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
    let session = Session::limited("hostile", ADDRESS_SPACE_KIB, &[]);
    assert_eq!(apply(&session, "def admit(job):\n    return True\n").0, 200);
    let hostile = tried();
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
    assert!(in_force > hostile.len() / 10 && answers > hostile.len() && slowest < ANSWER_MAX);
    assert!(grown < GROWTH_BYTES_MAX, "the server has grown by {grown} bytes");

    session.says("policy apply --none");
    let plain = session.says("submit --gpus 1 --annotation muster.sim/runtime=200ms -- work");
    session.says(&format!("wait {} --timeout 60s", plain.trim()));
    session.end();
}

/// A list of 10⁹ items: 8 GB.
const GREEDY: &str = "def admit(job):\n    x = [0] * 1000000000\n    return True\n";

/// It used to take the server with it, again at every start.
#[test]
fn a_bundle_that_ends_its_worker_is_suspended_and_the_server_goes_on() {
    let session = Session::limited("greedy", ADDRESS_SPACE_KIB, &[]);
    assert_eq!(apply(&session, "def admit(job):\n    return True\n").0, 200);
    assert_eq!(apply(&session, GREEDY).0, 200, "nobody can know before it is asked");
    let job = session.says("submit --gpus 1 --annotation muster.sim/runtime=200ms -- work");
    let job = job.trim();
    let why = session.waits_for(&format!("why {job}"), "the bundle is suspended");
    assert!(why.contains("ended 3 times within 10 minutes, the last time it wanted more memory"), "{why}");

    // Loudly: in the list, the details, the health check, the metrics and the log.
    assert!(session.says("policy ls").contains("suspended"));
    assert!(session.says("policy show").contains("suspended: the policy gave no answer"));
    session.refuses("doctor");
    let doctor = session.prints("doctor");
    assert!(doctor.contains("policies") && doctor.contains("the bundle is suspended"), "{doctor}");
    let (_, metrics) = ask(&session, "GET", "/metrics", "");
    assert!(metrics.contains("muster_policy_suspended{scope=\"cluster\"} 1"), "{metrics}");
    assert!(session.log().contains("a policy bundle is suspended"), "{}", session.log());

    // A start past it: nothing is asked, and that is said.
    let session = session.restart_with(&["--without-policies"]);
    let why = session.waits_for(&format!("why {job}"), "--without-policies");
    assert!(why.contains("a policy failed"), "{why}");
    assert_eq!(session.policy_workers(), 0);
    assert!(session.log().contains("no policy runs (--without-policies)"), "{}", session.log());
    assert!(session.prints("doctor").contains("--without-policies"));
    session.says("policy apply --none --why greedy");
    session.says(&format!("wait {job} --timeout 60s"));
    session.end();
}
