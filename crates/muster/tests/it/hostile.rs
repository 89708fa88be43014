//! Hostile policies as cluster policies of a server with little address space: the server keeps answering other clients,
//! does not grow, and keeps running.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::http;
use super::policies::admit_metric;
use super::session::Session;
use corpus::Hostile;

#[path = "../../../muster-policy/tests/hostile/corpus.rs"]
mod corpus;

/// The growth allowed to the server over all policies. Most of it is allocated once, for answers of 2²⁰ values, and kept
/// by the allocator. A leak per policy would exceed it.
const GROWTH_BYTES_MAX: u64 = 512 << 20;
/// Growth of a single policy that is printed.
const GROWTH_REPORTED_BYTES: u64 = 16 << 20;
/// The longest response time of other requests. A machine that runs all tests at once is slow by itself.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// The address space of the server: far less than one of these policies would allocate.
const ADDRESS_SPACE_KIB: u64 = 6_000_000;
/// One policy in this many is tested, unless the variable is `all`.
const SAMPLE_EVERY: usize = 15;
const VARIABLE: &str = "MUSTER_HOSTILE";

/// All policies with `MUSTER_HOSTILE=all`, otherwise a sample: each takes seconds.
fn sampled_policies() -> Vec<Hostile> {
    let all = corpus::all();
    assert!(all.len() >= 300, "only {} policies were found", all.len());
    let every = if std::env::var(VARIABLE).is_ok_and(|word| word == "all") { 1 } else { SAMPLE_EVERY };
    let (only_worker, others): (Vec<Hostile>, Vec<Hostile>) = all.into_iter().partition(|one| one.only_worker);
    only_worker.into_iter().step_by(every).chain(others.into_iter().step_by(every)).collect()
}

fn http_request(session: &Session, method: &str, path: &str, body: &str) -> (u16, String) {
    let response = http::request(session.url(), method, path, body);
    response.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

fn apply_policy(session: &Session, source: &str) -> (u16, String) {
    let body = serde_json::json!({ "files": { "policy.gsky": source } });
    http_request(session, "POST", "/api/v1/policies", &muster_json::to_string(&body))
}

/// Applies a policy and, if the server accepts it, submits a job that it decides about. Returns whether it was accepted.
fn apply_and_run(session: &Session, hostile: &Hostile) -> bool {
    let before = session.resident_bytes();
    // A function that the corpus names `hook` is called for every job.
    let has_hook = hostile.source.contains("hook");
    // Read before it is applied: then it is called at once for waiting jobs, and not again for a job like them.
    let (calls, failures) = (policy_metric(session, "calls"), policy_metric(session, "failures"));
    let (status, body) = apply_policy(session, &hostile.source.replace("hook", "admit"));
    assert!(matches!(status, 200 | 422 | 413), "{}: {status} {body}", hostile.title);
    assert!(status != 200 || has_hook || hostile.harmless, "{} was accepted", hostile.title);
    if status == 200 && has_hook {
        submit_and_wait_for_call(session, hostile, (calls, failures));
    }
    let grown = session.resident_bytes().saturating_sub(before);
    if grown > GROWTH_REPORTED_BYTES {
        println!("{} grew the server by {} MiB", hostile.title, grown >> 20);
    }
    status == 200
}

/// Submits a job, and waits until the active policy was called for it.
fn submit_and_wait_for_call(session: &Session, hostile: &Hostile, (calls, failures): (f64, f64)) {
    let job = r#"{"gpu_count":1,"command":["true"],"annotations":{"muster.sim/runtime":"20ms"}}"#;
    let (status, body) = http_request(session, "POST", "/api/v1/jobs", job);
    assert_eq!(status, 201, "{}: {body}", hostile.title);
    let until = Instant::now() + ANSWER_MAX;
    // Once at its submission, and once before it, or a job like it, could start.
    while policy_metric(session, "calls") < calls + 2.0 {
        assert!(Instant::now() < until, "{}: the policy was not called for the job", hostile.title);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(hostile.harmless || policy_metric(session, "failures") > failures, "{}: the call succeeded", hostile.title);
}

/// The value of a metric of `admit`; 0 before the first call.
fn policy_metric(session: &Session, metric: &str) -> f64 {
    admit_metric(session, metric).unwrap_or(0.0)
}

/// Sends requests of other clients continuously, and returns the longest response time.
fn measure_slowest_answer(session: &Session, over: &AtomicBool, answers: &AtomicUsize) -> Duration {
    let mut slowest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        for path in ["/healthz", "/readyz", "/api/v1/jobs?limit=20", "/api/v1/cluster/status"] {
            let begin = Instant::now();
            let (status, body) = http_request(session, "GET", path, "");
            assert_eq!(status, 200, "{path}: {body}");
            slowest = slowest.max(begin.elapsed());
            answers.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    slowest
}

#[test]
fn a_server_survives_hostile_policies() {
    let session = Session::with_address_space_limit("hostile", ADDRESS_SPACE_KIB, &[]);
    assert_eq!(apply_policy(&session, "def admit(job):\n    return True\n").0, 200);
    let hostile = sampled_policies();
    let before = session.resident_bytes();
    let (over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (accepted, slowest) = std::thread::scope(|scope| {
        let client = scope.spawn(|| measure_slowest_answer(&session, &over, &answers));
        // The client must also end if a policy brings the server down.
        let accepted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            hostile.iter().filter(|hostile| apply_and_run(&session, hostile)).count()
        }));
        over.store(true, Ordering::Relaxed);
        let slowest = client.join().unwrap();
        (accepted.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), slowest)
    });
    let grown = session.resident_bytes().saturating_sub(before);
    let answers = answers.into_inner();
    println!(
        "{} policies, {accepted} accepted; {answers} other requests, the slowest took {} ms; grew by {} KiB",
        hostile.len(),
        slowest.as_millis(),
        grown >> 10
    );
    assert!(accepted > hostile.len() / 10 && answers > hostile.len() && slowest < ANSWER_MAX);
    assert!(grown < GROWTH_BYTES_MAX, "the server grew by {grown} bytes");

    session.run_ok("policy apply --none");
    let plain = session.run_ok("submit --gpus 1 --annotation muster.sim/runtime=200ms -- work");
    session.run_ok(&format!("wait {} --timeout 60s", plain.trim()));
    session.stop_and_remove();
}

/// A list of 10⁹ items: 8 GB.
const GREEDY: &str = "def admit(job):\n    x = [0] * 1000000000\n    return True\n";

/// Such a bundle once killed the server, again at every start.
#[test]
fn a_bundle_that_kills_its_worker_is_suspended_and_the_server_continues() {
    let session = Session::with_address_space_limit("greedy", ADDRESS_SPACE_KIB, &[]);
    assert_eq!(apply_policy(&session, "def admit(job):\n    return True\n").0, 200);
    assert_eq!(apply_policy(&session, GREEDY).0, 200, "the harm shows only when it is called");
    let job = session.run_ok("submit --gpus 1 --annotation muster.sim/runtime=200ms -- work");
    let job = job.trim();
    let why = session.wait_for_output(&format!("why {job}"), "the bundle is suspended");
    assert!(why.contains("failed 3 times within 10 minutes; last failure: it exceeded its memory limit"), "{why}");

    // The suspension shows in the list, the details, the health check, the metrics and the log.
    assert!(session.run_ok("policy ls").contains("suspended"));
    assert!(session.run_ok("policy show").contains("suspended: the policy worker failed"));
    session.run_refused("doctor");
    let doctor = session.run_stdout("doctor");
    assert!(doctor.contains("policies") && doctor.contains("the bundle is suspended"), "{doctor}");
    let (_, metrics) = http_request(&session, "GET", "/metrics", "");
    assert!(metrics.contains("muster_policy_suspended{scope=\"cluster\"} 1"), "{metrics}");
    assert!(session.log().contains("policy bundle suspended"), "{}", session.log());

    // With `--without-policies` the server starts, calls no policy, and says so.
    let session = session.restart_with(&["--without-policies"]);
    let why = session.wait_for_output(&format!("why {job}"), "--without-policies");
    assert!(why.contains("a policy failed"), "{why}");
    assert_eq!(session.policy_workers(), 0);
    assert!(session.log().contains("policies are disabled (--without-policies)"), "{}", session.log());
    assert!(session.run_stdout("doctor").contains("--without-policies"));
    session.run_ok("policy apply --none --why greedy");
    session.run_ok(&format!("wait {job} --timeout 60s"));
    session.stop_and_remove();
}
