//! The policies of tenants, each in a process of its own: what hooks hear through it, and who is held up by whom.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use muster_core::job::{Exit, Topology};
use muster_core::policy::{
    Admission, Bundle, CandidateView, FailureView, Hook, JobView, Moment, NodeView, TenantView,
};
use muster_core::{JobId, Timestamp};
use muster_policy::hooks::{self, Caller};
use muster_policy::{Calls, Confinement, Limits, Patience, Plain, PolicyError, Program, Workers};

use crate::worker::{bundle as files, launch};

/// The bounds as they are, with time for a machine that runs all tests at once.
fn patient() -> Confinement {
    let slow = Duration::from_secs(20);
    let limits = Limits { time: slow, load_time: slow, ..Limits::default() };
    Confinement { call_time: slow, load_time: slow, cpu_seconds: 20, limits, ..Confinement::default() }
}

/// Nobody is short of time.
fn generous() -> Patience {
    Patience { share: Duration::from_secs(3_600), ..Patience::default() }
}

fn workers(confinement: Confinement, patience: Patience) -> Workers {
    Workers::new(launch(), confinement, patience)
}

fn compiled(workers: &Workers, source: &str) -> Bundle {
    workers.compile(files(source)).unwrap()
}

/// What its function `f` answers to a number.
fn asked(workers: &Workers, tenant: &str, bundle: &Bundle, number: i64) -> Result<Plain, String> {
    let calls = Calls::one(vec![Plain::Int(number)]);
    let answer = workers.ask(tenant, bundle, |guest| guest.call_each("policy.gsky", "f", &calls).remove(0));
    answer.map_err(|error| error.to_string())
}

/// Ask until there is another answer than that nobody is asked now.
fn asked_in_the_end(workers: &Workers, tenant: &str, bundle: &Bundle) -> Result<Plain, String> {
    let began = Instant::now();
    loop {
        let answer = asked(workers, tenant, bundle, 1);
        if answer.is_ok() || began.elapsed() > Duration::from_secs(60) {
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

/// Everything that is asked of a caller.
fn all_answers(caller: &impl Caller) -> Vec<String> {
    let failure =
        FailureView { exit: Exit::Code { code: 1 }, attempt: 2, failures: 3, ran_ms: 5, nodes: Vec::new() };
    let candidates = [candidate(1, true), candidate(2, false)];
    let nodes = [node("a", 8), node("b", 4)];
    let mut said = Vec::new();
    for gpus in 0..5 {
        let job = job(gpus);
        said.push(format!("{:?}", hooks::admit(caller, &job)));
        said.push(format!("{:?}", hooks::score(caller, &job, &nodes)));
        said.push(format!("{:?}", hooks::priority(caller, &job, &tenant())));
        said.push(format!("{:?}", hooks::victims(caller, &job, &candidates)));
        said.push(format!("{:?}", hooks::retry(caller, &job, &failure)));
        said.push(format!("{:?}", hooks::power(caller, &job)));
    }
    said
}

#[test]
fn a_bundle_compiled_in_a_worker_is_the_bundle_compiled_here() {
    let workers = workers(patient(), generous());
    let source = "def admit(job):\n    return job.labels.get('team') != 'x'\ndef power(job):\n    return 3\n";
    let (here, _) = muster_policy::compile(files(source), Limits::default()).unwrap();
    assert_eq!(compiled(&workers, source), here);
    assert!(here.hooks.contains(&Hook::Power) && here.mentions.contains("team"));
    let none = workers.compile(Default::default()).unwrap();
    assert_eq!(none, muster_policy::compile(Default::default(), Limits::default()).unwrap().0);
    for (wrong, told) in [("def admit(job, x):\n  pass", "asked as admit(job)"), ("x = (", "policy.gsky:1")] {
        let said = workers.compile(files(wrong)).unwrap_err().to_string();
        assert!(said.contains(told), "{said}");
    }
    assert_eq!(workers.processes().len(), 0, "who only compiles stays nowhere");
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
fn hooks_hear_through_a_worker_what_they_hear_here() {
    let mut sources = files(ALL);
    sources.insert(
        "z.gsky".to_string(),
        "def priority(job, tenant):\n    return job.priority - 1\n".to_string(),
    );
    let workers = workers(patient(), generous());
    let bundle = workers.compile(sources.clone()).unwrap();
    let here = Program::of_files(&sources, patient().limits).unwrap();
    let there = workers.ask("red", &bundle, |guest| Ok(all_answers(guest))).unwrap();
    assert_eq!(there, all_answers(&here));
    assert!(there.iter().any(|said| said.contains("one is none")), "{there:?}");

    // Many by one letter: one call that fails spoils no other.
    let all: Vec<JobView> = (0..200).map(job).collect();
    let jobs: Vec<&JobView> = all.iter().collect();
    let many = workers.ask("red", &bundle, |guest| Ok(hooks::admit_each(guest, &jobs))).unwrap();
    assert_eq!(many, hooks::admit_each(&here, &jobs));
    assert_eq!(many[1], Ok(Admission::Refuse { why: "one is none".to_string() }));
    assert!(many[3].is_err() && many[4].is_ok(), "{many:?}");
    let nodes = [node("a", 8), node("b", 4)];
    let many = workers.ask("red", &bundle, |guest| Ok(hooks::score_each(guest, &jobs, &nodes))).unwrap();
    assert_eq!(many, hooks::score_each(&here, &jobs, &nodes));
    assert!(many[1].is_err(), "{many:?}");
    assert_eq!((&many[2], &many[199]), (&Ok(vec![0, 4_000]), &Ok(vec![0, 4_000])));
    assert_eq!(workers.processes().len(), 1);
}

/// More memory than a process may have.
const GREEDY: &str = "def f(x):\n    return len('a' * (x << 30))\n";

#[test]
fn who_was_ended_is_not_asked_until_it_has_rested() {
    let patience = Patience { rest: Duration::from_secs(3_600), ..generous() };
    let workers = workers(patient(), patience);
    let bundle = compiled(&workers, GREEDY);
    assert_eq!(asked(&workers, "red", &bundle, 0), Ok(Plain::Int(0)));
    let said = asked(&workers, "red", &bundle, 1).unwrap_err();
    assert!(said.contains("no answer"), "{said}");
    assert_eq!(workers.processes().len(), 0);
    // At once, in the same words, and without a new process; whoever else has the same policies is asked.
    assert_eq!(asked(&workers, "red", &bundle, 0), Err(said));
    assert_eq!(workers.processes().len(), 0);
    assert_eq!(asked(&workers, "blue", &bundle, 0), Ok(Plain::Int(0)));
    // Other policies are another matter.
    let other = compiled(&workers, "def f(x):\n    return 'well'\n");
    assert_eq!(asked(&workers, "red", &other, 1), Ok(Plain::text("well")));
}

#[test]
fn who_has_rested_is_asked_again() {
    let patience = Patience { rest: Duration::from_millis(50), ..generous() };
    let workers = workers(patient(), patience);
    let source = "def f(x):\n    return 'well'\n";
    let bundle = compiled(&workers, source);
    assert_eq!(asked(&workers, "red", &bundle, 1), Ok(Plain::text("well")));
    let id = workers.processes()["red"];
    let process = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    assert!(asked(&workers, "red", &bundle, 1).unwrap_err().contains("signal 9"));
    assert_eq!(asked_in_the_end(&workers, "red", &bundle), Ok(Plain::text("well")));
    assert_ne!(workers.processes()["red"], id);
}

#[test]
fn who_was_asked_longest_ago_makes_room() {
    let workers = workers(patient(), Patience { processes: 2, ..generous() });
    let bundle = compiled(&workers, "def f(x):\n    return x\n");
    for tenant in ["red", "blue", "red", "green"] {
        assert_eq!(asked(&workers, tenant, &bundle, 7), Ok(Plain::Int(7)), "{tenant}");
    }
    assert_eq!(workers.processes().into_keys().collect::<Vec<_>>(), ["green", "red"]);
    assert_eq!(asked(&workers, "blue", &bundle, 7), Ok(Plain::Int(7)), "who made room is asked as before");
    assert_eq!(workers.processes().into_keys().collect::<Vec<_>>(), ["blue", "green"]);
}

#[test]
fn nobody_waits_for_a_process_longer_than_for_an_answer() {
    let slow = "x = [i for i in range(20000)]\ndef f(x):\n    return x\n";
    let bounds = Confinement { call_time: Duration::from_millis(1), ..patient() };
    let workers = workers(bounds, generous());
    let bundle = compiled(&workers, slow);
    let said = asked(&workers, "red", &bundle, 1).unwrap_err();
    assert!(said.contains("its process is being started"), "{said}");
    // It goes on starting beside, and is there in the end. Then a millisecond may still be too short, and that is told.
    let began = Instant::now();
    loop {
        let said = asked(&workers, "red", &bundle, 1);
        if !said.as_ref().is_err_and(|said| said.contains("being started")) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it never starts");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_tenant_has_its_share_of_time_and_others_have_theirs() {
    let patience =
        Patience { share: Duration::from_micros(1), span: Duration::from_secs(3_600), ..Patience::default() };
    let workers = workers(patient(), patience);
    let bundle = compiled(&workers, "def f(x):\n    return x\n");
    assert_eq!(asked(&workers, "red", &bundle, 1), Ok(Plain::Int(1)));
    let said = asked(&workers, "red", &bundle, 1).unwrap_err();
    assert!(said.contains("all the time there is for it"), "{said}");
    assert_eq!(asked(&workers, "blue", &bundle, 1), Ok(Plain::Int(1)));
}

/// Of a batch the question itself is answered, with an error for each call: that hides no end of a worker.
#[test]
fn a_bundle_that_ends_its_worker_again_and_again_is_suspended() {
    let patience = Patience { rest: Duration::from_millis(1), ..Patience::of_cluster() };
    let workers = workers(patient(), patience);
    let bundle = compiled(&workers, GREEDY);
    let calls = Calls::of_rows([[Plain::Int(0)], [Plain::Int(1)]]);
    let ask = || workers.ask("1", &bundle, |guest| Ok(guest.call_each("policy.gsky", "f", &calls)));
    let mut ends = 0;
    while workers.suspended("1").is_none() {
        assert!(ends < 3, "it is not suspended");
        let ended = ask().is_ok_and(|said| said.iter().all(Result::is_err));
        ends += usize::from(ended);
    }
    assert_eq!(ends, 3);
    let said = ask().unwrap_err().to_string();
    assert!(said.contains("suspended") && workers.suspended("1") == Some(said), "in the same words");
    assert_eq!(workers.suspended("2"), None);
    assert_eq!(workers.processes().len(), 0);
}

/// Letters of one batch are sent its values once, and every call is answered in its place.
#[test]
fn a_batch_of_many_letters_is_answered_in_order() {
    let workers = workers(patient(), Patience::of_cluster());
    let bundle = compiled(&workers, "def f(x, y):\n    return x.gpus * 1000 + y\n");
    let first = |gpus| Plain::Record(vec![("gpus", Plain::Int(gpus)), ("name", Plain::text("n"))]);
    let calls = Calls::of_pairs((0..100).map(first).collect(), (0..100).map(Plain::Int).collect());
    let said = workers.ask("1", &bundle, |guest| Ok(guest.call_each("policy.gsky", "f", &calls))).unwrap();
    let row = |x: i64| (0..100).map(move |y| Ok(Plain::Int(x * 1000 + y)));
    let expected: Vec<Result<Plain, PolicyError>> = (0..100).flat_map(row).collect();
    assert_eq!(said, expected);
}
