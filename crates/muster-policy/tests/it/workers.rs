//! The worker pool: hooks answer as in process, and tenants do not delay each other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use muster_core::objects::job::{Exit, Topology};
use muster_core::objects::policy::{Admission, FailureView, Hook, PolicyBundle};
use muster_core::policy::{CandidateView, JobView, Moment, NodeView, TenantView};
use muster_core::{JobId, Timestamp};
use muster_policy::hooks::{self, HookExecutor};
use muster_policy::{
    CallBatch, Confinement, Limits, PolicyError, PolicyValue, Program, WorkerPool, WorkerPoolSettings,
};

use crate::worker::{bundle as files, command};

/// Default limits, with deadlines for a machine that runs all tests at once.
fn slow_machine_confinement() -> Confinement {
    let slow = Duration::from_secs(20);
    let limits = Limits { call_time: slow, load_time: slow, ..Limits::default() };
    Confinement { call_time: slow, load_time: slow, cpu_seconds: 20, limits, ..Confinement::default() }
}

fn unlimited_time_share() -> WorkerPoolSettings {
    WorkerPoolSettings { time_share: Duration::from_secs(3_600), ..WorkerPoolSettings::default() }
}

fn workers(confinement: Confinement, settings: WorkerPoolSettings) -> WorkerPool {
    WorkerPool::new(command(), confinement, settings)
}

fn compiled(workers: &WorkerPool, source: &str) -> PolicyBundle {
    workers.compile(files(source)).unwrap()
}

/// The answer of the function `f` to a number.
fn query_f(workers: &WorkerPool, tenant: &str, bundle: &PolicyBundle, number: i64) -> Result<PolicyValue, String> {
    let calls = CallBatch::single(vec![PolicyValue::Int(number)]);
    let answer = workers.query(tenant, bundle, |session| session.call_each("policy.gsky", "f", &calls).remove(0));
    answer.map_err(|error| error.to_string())
}

/// Query until `f` answers, for at most a minute.
fn query_f_until_answered(workers: &WorkerPool, tenant: &str, bundle: &PolicyBundle) -> Result<PolicyValue, String> {
    let started_at = Instant::now();
    loop {
        let answer = query_f(workers, tenant, bundle, 1);
        if answer.is_ok() || started_at.elapsed() > Duration::from_secs(60) {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn job(gpus: u32) -> JobView {
    JobView {
        tenant: "red".parse().unwrap(),
        user: "ann".to_string(),
        priority: 500,
        tasks: 1,
        gpus,
        gpus_per_task: gpus,
        gpu_milli: 1_000,
        gpu_models: BTreeSet::new(),
        gpu_memory_mib: 0,
        isolation: "none",
        cpus: 1,
        memory_mib: 1,
        time_limit_ms: None,
        topology: Topology::Any,
        pool: None,
        node_labels: BTreeMap::new(),
        labels: BTreeMap::new(),
        name: None,
        image: None,
        now: Moment::of(Timestamp(0), 0),
    }
}

fn tenant() -> TenantView {
    TenantView {
        id: "red".parse().unwrap(),
        priority: 500,
        weight: 3,
        gpu_milli_held: 0,
        gpus_guaranteed: None,
        gpus_max: None,
        jobs: 1,
        labels: BTreeMap::new(),
    }
}

fn node(name: &str, gpus: u32) -> NodeView {
    NodeView {
        node: name.parse().unwrap(),
        models: BTreeSet::new(),
        gpus,
        gpu_memory_mib: 1,
        partitioned: false,
        cpus: 1,
        memory_mib: 1,
        labels: BTreeMap::new(),
        pools: BTreeSet::new(),
    }
}

fn candidate(number: u64, saves: bool) -> CandidateView {
    CandidateView {
        id: JobId::single(number),
        tenant: "blue".parse().unwrap(),
        user: "bob".to_string(),
        priority: 100,
        gpus: 2,
        ran_ms: 1,
        lost_gpu_ms: 1,
        preemptions: 1,
        saves,
        labels: BTreeMap::new(),
    }
}

/// The answers of all hooks but `limit`, as text.
fn all_answers(executor: &impl HookExecutor) -> Vec<String> {
    let failure = FailureView { exit: Exit::Code { code: 1 }, attempt: 2, failures: 3, ran_ms: 5, nodes: Vec::new() };
    let candidates = [candidate(1, true), candidate(2, false)];
    let nodes = [node("a", 8), node("b", 4)];
    let mut answers = Vec::new();
    for gpus in 0..5 {
        let job = job(gpus);
        answers.push(format!("{:?}", hooks::admit(executor, &job)));
        answers.push(format!("{:?}", hooks::score(executor, &job, &nodes)));
        answers.push(format!("{:?}", hooks::priority(executor, &job, &tenant())));
        answers.push(format!("{:?}", hooks::victims(executor, &job, &candidates)));
        answers.push(format!("{:?}", hooks::retry(executor, &job, &failure)));
        answers.push(format!("{:?}", hooks::power(executor, &job)));
    }
    answers
}

#[test]
fn worker_and_in_process_compilation_agree() {
    let workers = workers(slow_machine_confinement(), unlimited_time_share());
    let source = "def admit(job):\n    return job.labels.get('team') != 'x'\ndef power(job):\n    return 3\n";
    let (in_process, _) = muster_policy::compile(files(source), Limits::default()).unwrap();
    assert_eq!(compiled(&workers, source), in_process);
    assert!(in_process.hooks.contains(&Hook::Power) && in_process.mentions.contains("team"));
    let empty = workers.compile(Default::default()).unwrap();
    assert_eq!(empty, muster_policy::compile(Default::default(), Limits::default()).unwrap().0);
    for (source, expected) in [("def admit(job, x):\n  pass", "calls it as admit(job)"), ("x = (", "policy.gsky:1")] {
        let error = workers.compile(files(source)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(workers.process_ids().len(), 0, "a compilation leaves no process");
}

const ALL: &str = "
def admit(job):
    if job.gpus == 1:
        return refuse('one is none')
    if job.gpus == 2:
        return 'two wait'
    return job.gpus // (job.gpus - 3) > 0
def victims(job, candidates):
    return [one for one in candidates if one.saves]
def score(job, node):
    return node.gpus - 8 if job.gpus > 1 else 1 // 0
def priority(job, tenant):
    return job.priority + tenant.weight
def retry(job, failure):
    return failure.failures < 3 or 'often enough'
def power(job):
    return 250.5
";

#[test]
fn hooks_answer_the_same_in_a_worker_and_in_process() {
    let mut sources = files(ALL);
    sources.insert("z.gsky".to_string(), "def priority(job, tenant):\n    return job.priority - 1\n".to_string());
    let workers = workers(slow_machine_confinement(), unlimited_time_share());
    let bundle = workers.compile(sources.clone()).unwrap();
    let in_process = Program::compile_files(&sources, slow_machine_confinement().limits).unwrap();
    let in_worker = workers.query("red", &bundle, |session| Ok(all_answers(session))).unwrap();
    assert_eq!(in_worker, all_answers(&in_process));
    assert!(in_worker.iter().any(|answer| answer.contains("one is none")), "{in_worker:?}");

    // Many calls in one message: a failed call affects no other.
    let all: Vec<JobView> = (0..200).map(job).collect();
    let jobs: Vec<&JobView> = all.iter().collect();
    let many = workers.query("red", &bundle, |session| Ok(hooks::admit_each(session, &jobs))).unwrap();
    assert_eq!(many, hooks::admit_each(&in_process, &jobs));
    assert_eq!(many[1], Ok(Admission::Refuse { why: "one is none".to_string() }));
    assert!(many[3].is_err() && many[4].is_ok(), "{many:?}");
    let nodes = [node("a", 8), node("b", 4)];
    let many = workers.query("red", &bundle, |session| Ok(hooks::score_each(session, &jobs, &nodes))).unwrap();
    assert_eq!(many, hooks::score_each(&in_process, &jobs, &nodes));
    assert!(many[1].is_err(), "{many:?}");
    assert_eq!((&many[2], &many[199]), (&Ok(vec![0, 4_000]), &Ok(vec![0, 4_000])));
    assert_eq!(workers.process_ids().len(), 1);
}

/// Allocates `x` GiB, which exceeds the memory limit from 1 on.
const GREEDY: &str = "def f(x):\n    return len('a' * (x << 30))\n";

#[test]
fn a_failed_tenant_is_not_called_during_backoff() {
    let settings = WorkerPoolSettings { backoff: Duration::from_secs(3_600), ..unlimited_time_share() };
    let workers = workers(slow_machine_confinement(), settings);
    let bundle = compiled(&workers, GREEDY);
    assert_eq!(query_f(&workers, "red", &bundle, 0), Ok(PolicyValue::Int(0)));
    let error = query_f(&workers, "red", &bundle, 1).unwrap_err();
    assert!(error.contains("exceeded its memory limit"), "{error}");
    assert_eq!(workers.process_ids().len(), 0);
    // The same error at once, without a new process. Another tenant with the same policies is not affected.
    assert_eq!(query_f(&workers, "red", &bundle, 0), Err(error));
    assert_eq!(workers.process_ids().len(), 0);
    assert_eq!(query_f(&workers, "blue", &bundle, 0), Ok(PolicyValue::Int(0)));
    // A new bundle ends the backoff.
    let other = compiled(&workers, "def f(x):\n    return 'well'\n");
    assert_eq!(query_f(&workers, "red", &other, 1), Ok(PolicyValue::text("well")));
}

#[test]
fn a_tenant_is_called_again_after_backoff() {
    let settings = WorkerPoolSettings { backoff: Duration::from_millis(50), ..unlimited_time_share() };
    let workers = workers(slow_machine_confinement(), settings);
    let source = "def f(x):\n    return 'well'\n";
    let bundle = compiled(&workers, source);
    assert_eq!(query_f(&workers, "red", &bundle, 1), Ok(PolicyValue::text("well")));
    let id = workers.process_ids()["red"];
    let process = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    assert!(query_f(&workers, "red", &bundle, 1).unwrap_err().contains("signal 9"));
    assert_eq!(query_f_until_answered(&workers, "red", &bundle), Ok(PolicyValue::text("well")));
    assert_ne!(workers.process_ids()["red"], id);
}

#[test]
fn the_least_recently_used_process_is_stopped_first() {
    let workers =
        workers(slow_machine_confinement(), WorkerPoolSettings { processes_max: 2, ..unlimited_time_share() });
    let bundle = compiled(&workers, "def f(x):\n    return x\n");
    for tenant in ["red", "blue", "red", "green"] {
        assert_eq!(query_f(&workers, tenant, &bundle, 7), Ok(PolicyValue::Int(7)), "{tenant}");
    }
    assert_eq!(workers.process_ids().into_keys().collect::<Vec<_>>(), ["green", "red"]);
    assert_eq!(query_f(&workers, "blue", &bundle, 7), Ok(PolicyValue::Int(7)), "a stopped worker is started again");
    assert_eq!(workers.process_ids().into_keys().collect::<Vec<_>>(), ["blue", "green"]);
}

#[test]
fn waiting_for_a_process_start_is_bounded_by_the_call_timeout() {
    let slow = "x = [i for i in range(20000)]\ndef f(x):\n    return x\n";
    let confinement = Confinement { call_time: Duration::from_millis(1), ..slow_machine_confinement() };
    let workers = workers(confinement, unlimited_time_share());
    let bundle = compiled(&workers, slow);
    let error = query_f(&workers, "red", &bundle, 1).unwrap_err();
    assert!(error.contains("the policy worker is starting"), "{error}");
    // The start continues in the background. After it, a millisecond may still be too short, which is another error.
    let started_at = Instant::now();
    loop {
        let answer = query_f(&workers, "red", &bundle, 1);
        if !answer.as_ref().is_err_and(|error| error.contains("is starting")) {
            break;
        }
        assert!(started_at.elapsed() < Duration::from_secs(60), "it never starts");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn exhausting_one_tenants_time_share_does_not_block_another() {
    let settings = WorkerPoolSettings {
        time_share: Duration::from_micros(1),
        share_period: Duration::from_secs(3_600),
        ..WorkerPoolSettings::default()
    };
    let workers = workers(slow_machine_confinement(), settings);
    let bundle = compiled(&workers, "def f(x):\n    return x\n");
    assert_eq!(query_f(&workers, "red", &bundle, 1), Ok(PolicyValue::Int(1)));
    let error = query_f(&workers, "red", &bundle, 1).unwrap_err();
    assert!(error.contains("has used up its share of policy time"), "{error}");
    assert_eq!(query_f(&workers, "blue", &bundle, 1), Ok(PolicyValue::Int(1)));
}

/// A batched query succeeds with an error for each call. The failure of the worker still counts.
#[test]
fn a_bundle_is_suspended_after_repeated_worker_failures() {
    let settings = WorkerPoolSettings { backoff: Duration::from_millis(1), ..WorkerPoolSettings::for_cluster() };
    let workers = workers(slow_machine_confinement(), settings);
    let bundle = compiled(&workers, GREEDY);
    let calls = CallBatch::from_rows([[PolicyValue::Int(0)], [PolicyValue::Int(1)]]);
    let query = || workers.query("1", &bundle, |session| Ok(session.call_each("policy.gsky", "f", &calls)));
    let mut failures = 0;
    while workers.suspension_reason("1").is_none() {
        assert!(failures < 3, "it is not suspended");
        let failed = query().is_ok_and(|answers| answers.iter().all(Result::is_err));
        failures += usize::from(failed);
    }
    assert_eq!(failures, 3);
    let error = query().unwrap_err().to_string();
    assert!(error.contains("suspended") && workers.suspension_reason("1") == Some(error), "the same error");
    assert_eq!(workers.suspension_reason("2"), None);
    assert_eq!(workers.process_ids().len(), 0);
}

/// The values of a batch are sent once, and every call has its answer at its index.
#[test]
fn a_batch_split_over_many_messages_is_answered_in_order() {
    let workers = workers(slow_machine_confinement(), WorkerPoolSettings::for_cluster());
    let bundle = compiled(&workers, "def f(x, y):\n    return x.gpus * 1000 + y\n");
    let first = |gpus| PolicyValue::Record(vec![("gpus", PolicyValue::Int(gpus)), ("name", PolicyValue::text("n"))]);
    let calls = CallBatch::from_pairs((0..100).map(first).collect(), (0..100).map(PolicyValue::Int).collect());
    let answers = workers.query("1", &bundle, |session| Ok(session.call_each("policy.gsky", "f", &calls))).unwrap();
    let row = |x: i64| (0..100).map(move |y| Ok(PolicyValue::Int(x * 1000 + y)));
    let expected: Vec<Result<PolicyValue, PolicyError>> = (0..100).flat_map(row).collect();
    assert_eq!(answers, expected);
}
