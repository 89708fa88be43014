//! Answers of every hook, of one file and combined over several.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::ids::{JobId, NodeId};
use muster_core::objects::job::{Exit, Topology};
use muster_core::objects::policy::{Admission, FailureView, Hook, PolicyBundle};
use muster_core::policy::{CandidateView, ClusterView, JobView, Moment, NodeView, TenantView};
use muster_core::time::Timestamp;

use super::*;
use crate::{Limits, compile};

fn bundle(files: &[(&str, &str)]) -> Result<(PolicyBundle, Program), PolicyError> {
    let files = files.iter().map(|(name, source)| (name.to_string(), source.to_string())).collect();
    // Generous: a busy machine must not fail the test.
    let limits = Limits { call_time: Duration::from_secs(10), load_time: Duration::from_secs(60), ..Limits::default() };
    compile(files, limits)
}

fn program(files: &[(&str, &str)]) -> Program {
    bundle(files).unwrap().1
}

fn job() -> JobView {
    JobView {
        tenant: "vision".parse().unwrap(),
        user: "ann".to_string(),
        priority: 500,
        tasks: 2,
        gpus: 8,
        gpus_per_task: 4,
        gpu_milli: 500,
        gpu_models: BTreeSet::from(["h100".to_string()]),
        gpu_memory_mib: 40_000,
        isolation: "memory",
        cpus: 16,
        memory_mib: 64_000,
        time_limit_ms: Some(90_500),
        topology: Topology::SameRack,
        pool: Some("gpu_pool_prod".to_string()),
        node_labels: BTreeMap::from([("zone".to_string(), "a".to_string())]),
        labels: BTreeMap::from([("team".to_string(), "blue".to_string())]),
        name: None,
        image: Some("train:1".to_string()),
        // A Wednesday.
        now: Moment::of(Timestamp(1_767_787_260_000), 60),
    }
}

fn cluster() -> ClusterView {
    let pools = BTreeMap::from([("fast".to_string(), 8)]);
    ClusterView { gpus: 16, gpu_milli_held: 2_500, pools, now: job().now }
}

/// The limit on all GPUs and on pools, in thousandths.
type LimitAnswer = (Option<u64>, Vec<(String, u64)>);

/// The combined answer of `limit` with these bodies, in one file or two.
fn limit_answer(files: &[&str]) -> Result<LimitAnswer, String> {
    let names = ["a.gsky", "b.gsky"];
    let files: Vec<(&str, String)> =
        names.into_iter().zip(files.iter().map(|body| format!("def limit(tenant, cluster):\n    {body}"))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, source)| (*name, source.as_str())).collect();
    let limit = limit(&program(&files), &tenant(), &cluster()).map_err(|error| error.to_string())?;
    Ok((limit.gpu_milli, limit.pools.into_iter().collect()))
}

#[test]
fn limit_answers_are_a_gpu_count_or_a_dict_by_pool() {
    let of_pools =
        |pools: &[(&str, u64)]| pools.iter().map(|(pool, milli)| (pool.to_string(), *milli)).collect::<Vec<_>>();
    let cases = [
        ("return None", (None, of_pools(&[]))),
        ("return cluster.gpus / 2", (Some(8_000), of_pools(&[]))),
        ("return 0", (Some(0), of_pools(&[]))),
        ("return 2.9999", (Some(2_999), of_pools(&[]))),
        ("return 4.1", (Some(4_100), of_pools(&[]))),
        ("return 1.1", (Some(1_100), of_pools(&[]))),
        ("return 10.0 / 3", (Some(3_333), of_pools(&[]))),
        ("return 1000000000", (Some(1_000_000_000_000), of_pools(&[]))),
        ("return {}", (None, of_pools(&[]))),
        ("return {'gpus': 3}", (Some(3_000), of_pools(&[]))),
        ("return {'gpus': None, 'pools': None}", (None, of_pools(&[]))),
        ("return {'pools': {'a': 1.5, 'b': None}}", (None, of_pools(&[("a", 1_500)]))),
        ("return {'gpus': tenant.gpus_held, 'pools': cluster.pools}", (Some(2_500), of_pools(&[("fast", 8_000)]))),
    ];
    for (body, expected) in cases {
        assert_eq!(limit_answer(&[body]), Ok(expected), "{body}");
    }
    let expected = "it must return a number of GPUs from 0, None, or {\"gpus\": number, \"pools\": {name: number}}";
    let rejected = [
        "-1",
        "'8'",
        "True",
        "[8]",
        "float('nan')",
        "float('inf')",
        "1e10",
        "{'gpu': 3}",
        "{'gpus': '3'}",
        "{'gpus': -1}",
        "{'pools': 3}",
        "{'pools': {'a': 'x'}}",
        "{'pools': {1: 2}}",
        "{1: 2}",
        "{'gpus': 1, 'pool': {}}",
    ];
    for answer in rejected {
        let error = limit_answer(&[&format!("return {answer}")]).unwrap_err();
        assert!(error.contains("a.gsky: `limit` returned") && error.contains(expected), "{answer}: {error}");
    }
}

#[test]
fn the_lowest_limit_of_all_files_applies() {
    let of_pools =
        |pools: &[(&str, u64)]| pools.iter().map(|(pool, milli)| (pool.to_string(), *milli)).collect::<Vec<_>>();
    let both = ["return {'gpus': 3, 'pools': {'a': 1, 'b': 5}}", "return {'gpus': 4, 'pools': {'a': 2, 'b': 4}}"];
    assert_eq!(limit_answer(&both), Ok((Some(3_000), of_pools(&[("a", 1_000), ("b", 4_000)]))));
    assert_eq!(limit_answer(&["return None", "return 7"]), Ok((Some(7_000), Vec::new())));
    assert_eq!(limit_answer(&["return {'pools': {'a': 2}}", "return 7"]), Ok((Some(7_000), of_pools(&[("a", 2_000)]))));
    assert!(limit_answer(&["return 7", "return 'x'"]).unwrap_err().contains("b.gsky"), "the error is returned");
}

fn tenant() -> TenantView {
    TenantView {
        id: "vision".parse().unwrap(),
        priority: 500,
        weight: 3,
        gpu_milli_held: 2_500,
        gpus_guaranteed: None,
        gpus_max: Some(16),
        jobs: 4,
        labels: BTreeMap::new(),
    }
}

fn node(name: &str, models: &[&str]) -> NodeView {
    NodeView {
        node: name.parse::<NodeId>().unwrap(),
        models: models.iter().map(ToString::to_string).collect(),
        gpus: 8,
        gpu_memory_mib: 81_559,
        partitioned: false,
        cpus: 64,
        memory_mib: 512_000,
        labels: BTreeMap::new(),
        pools: BTreeSet::from(["gpu_pool_prod".to_string()]),
    }
}

fn candidate(number: u64, ran_ms: i64) -> CandidateView {
    CandidateView {
        id: JobId::single(number),
        tenant: "speech".parse().unwrap(),
        user: "bob".to_string(),
        priority: 100,
        gpus: 2,
        ran_ms,
        lost_gpu_ms: 7_900,
        preemptions: 1,
        saves: true,
        labels: BTreeMap::new(),
    }
}

fn failure(exit: Exit) -> FailureView {
    let nodes = vec!["node-1".parse().unwrap()];
    FailureView { exit, attempt: 2, failures: 1, ran_ms: 61_999, nodes }
}

fn admit_answer(body: &str) -> Result<Admission, String> {
    let it = program(&[("a.gsky", &format!("def admit(job):\n    return {body}"))]);
    admit(&it, &job()).map_err(|error| error.to_string())
}

fn wait(why: &str) -> Admission {
    Admission::Wait { why: why.to_string() }
}

fn refuse(why: &str) -> Admission {
    Admission::Refuse { why: why.to_string() }
}

#[test]
fn admit_answers_map_to_yes_wait_or_refuse() {
    assert_eq!(admit_answer("True"), Ok(Admission::Yes));
    assert_eq!(admit_answer("None"), Ok(Admission::Yes));
    assert_eq!(admit_answer("False"), Ok(wait("`a.gsky` does not admit the job now")));
    assert_eq!(admit_answer("'only\\nat night '"), Ok(wait("only at night")));
    assert_eq!(admit_answer("refuse('no such image')"), Ok(refuse("no such image")));
    let long = admit_answer("'x' * 1000");
    assert!(matches!(long, Ok(Admission::Wait { why }) if why.chars().count() == 300));
    for (body, kind) in [("3", "3 (int)"), ("[]", "[] (list)"), ("{'refuse': 1}", "(dict)")] {
        let error = admit_answer(body).unwrap_err();
        assert!(error.starts_with("a.gsky: `admit` returned ") && error.contains(kind), "{error}");
        assert!(error.contains("it must return True, False, None, a string or refuse(string)"), "{error}");
    }
    assert!(admit_answer("refuse('')").unwrap_err().contains("the reason is empty"));
    assert!(admit_answer("getattr(job, 'gpu')").unwrap_err().starts_with("a.gsky:2:"));
}

#[test]
fn the_strictest_admit_answer_wins_and_every_file_is_called() {
    let yes = ("a.gsky", "def admit(job):\n    return True");
    let late = ("b.gsky", "def admit(job):\n    return 'later'");
    let later = ("c.gsky", "def admit(job):\n    return 'much later'");
    let never = ("d.gsky", "def admit(job):\n    return refuse('never')");
    let none = ("e.gsky", "def helper(job):\n    return 1");
    let wrong = ("f.gsky", "def admit(job):\n    return 1");
    let answer = |files: &[(&str, &str)]| admit(&program(files), &job());
    assert_eq!(answer(&[yes, none]), Ok(Admission::Yes));
    assert_eq!(answer(&[yes, late, later]), Ok(wait("later")));
    assert_eq!(answer(&[yes, late, later, never]), Ok(refuse("never")));
    assert!(answer(&[late, wrong]).is_err());
    assert!(answer(&[("0.gsky", wrong.1), never]).is_err(), "an error takes precedence over a refusal");
    assert_eq!(answer(&[none]), Ok(Admission::Yes));
}

#[test]
fn an_error_in_a_batched_admit_affects_only_its_own_job() {
    let it = program(&[("a.gsky", "def admit(job):\n    return 8 // (job.gpus - 3) > 1")]);
    let of = |gpus| JobView { gpus, ..job() };
    let answers = admit_each(&it, &[&of(4), &of(3), &of(99), &of(7)]);
    assert_eq!(answers[0], Ok(Admission::Yes));
    assert!(answers[1].as_ref().unwrap_err().to_string().starts_with("a.gsky:2:"));
    assert_eq!(answers[2], Ok(wait("`a.gsky` does not admit the job now")));
    assert_eq!(answers[3], Ok(Admission::Yes));
    assert_eq!(admit_each(&it, &[]), []);
}

#[test]
fn batched_priority_score_and_power_are_answered_per_job() {
    let it = program(&[
        (
            "a.gsky",
            "def priority(job, tenant):\n    return job.priority + 8 // (job.gpus - 3)\n\
             def score(job, node):\n    return 8 // (job.gpus - node.gpus)\n\
             def power(job):\n    return 100 * (8 // (job.gpus - 3))",
        ),
        ("b.gsky", "def priority(job, tenant):\n    return job.priority * 2\ndef power(job):\n    return 500"),
    ]);
    let all = [4, 3, 5].map(|gpus| JobView { gpus, priority: 10, ..job() });
    let jobs: Vec<&JobView> = all.iter().collect();
    let tenant = tenant();
    let pairs: Vec<(&JobView, &TenantView)> = jobs.iter().map(|job| (*job, &tenant)).collect();
    let answers = priority_each(&it, &pairs);
    assert_eq!((&answers[0], &answers[2]), (&Ok(Some(36)), &Ok(Some(28))));
    assert!(answers[1].is_err(), "{answers:?}");
    let answers = power_each(&it, &jobs);
    assert_eq!((&answers[0], &answers[2]), (&Ok(Some(500_000)), &Ok(Some(400_000))));
    assert!(answers[1].is_err(), "{answers:?}");
    let of = |gpus| NodeView { gpus, ..node("n", &[]) };
    // The second job fails on its first node; the rest of its row must not shift into the row of the next job.
    let answers = score_each(&it, &jobs, &[of(3), of(1), of(2)]);
    assert_eq!(answers[0], Ok(vec![-8_000, -2_000, -4_000]));
    assert!(answers[1].is_err(), "{answers:?}");
    assert_eq!(answers[2], Ok(vec![-4_000, -2_000, -2_000]));
    assert_eq!(score_each(&it, &jobs, &[]), vec![Ok(Vec::new()); 3]);
}

#[test]
fn each_priority_hook_sees_the_result_of_the_previous_file() {
    let twice = ("b.gsky", "def priority(job, tenant):\n    return job.priority * 2");
    let more = ("a.gsky", "def priority(job, tenant):\n    return job.priority + tenant.weight");
    let none = ("c.gsky", "def priority(job, tenant):\n    pass");
    let answer = |files: &[(&str, &str)]| priority(&program(files), &job(), &tenant());
    assert_eq!(answer(&[more, twice, none]), Ok(Some(1_006)));
    assert_eq!(answer(&[none]), Ok(None));
    assert_eq!(answer(&[("a.gsky", "def priority(job, tenant):\n    return job.priority")]), Ok(None));
    for body in ["-1", "10001", "1.5", "True", "'high'"] {
        let answer = answer(&[("a.gsky", &format!("def priority(job, tenant):\n    return {body}"))]);
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("a whole number from 0 to 10000, or None"), "{error}");
    }
    assert_eq!(answer(&[("a.gsky", "def priority(job, tenant):\n    return 10000")]), Ok(Some(10_000)));
    assert_eq!(answer(&[("a.gsky", "def priority(job, tenant):\n    return 0")]), Ok(Some(0)));
}

#[test]
fn higher_policy_scores_lower_the_placement_cost() {
    let nodes = [node("n1", &["h100-80gb-hbm3"]), node("n2", &["a10"]), node("n3", &[])];
    let model = "def score(job, node):\n    return 1.5 if any([is_model(m, 'H100') for m in node.models]) else -0.25";
    let answer = |files: &[(&str, &str)]| score(&program(files), &job(), &nodes);
    assert_eq!(answer(&[("a.gsky", model)]), Ok(vec![-1_500, 250, 250]));
    let one = "def score(job, node):\n    return len(node.models) or None";
    assert_eq!(answer(&[("a.gsky", model), ("b.gsky", one)]), Ok(vec![-2_500, -750, 250]));
    let all = |body: &str| answer(&[("a.gsky", &format!("def score(job, node):\n    return {body}"))]);
    assert_eq!(all("50"), Ok(vec![-10_000; 3]));
    assert_eq!(all("-1e300"), Ok(vec![10_000; 3]));
    let bad = "def score(job, node):\n    return 8";
    assert_eq!(answer(&[("a.gsky", bad), ("b.gsky", bad)]), Ok(vec![-10_000; 3]), "the sum is clamped");
    let (huge, less) = ("def score(job, node):\n    return 1e300", "def score(job, node):\n    return -3");
    assert_eq!(
        answer(&[("a.gsky", huge), ("b.gsky", less)]),
        Ok(vec![-7_000; 3]),
        "each file is clamped before the sum"
    );
    for body in ["'much'", "True", "float('nan')", "[1]"] {
        assert!(all(body).unwrap_err().to_string().contains("it must return a number or None"), "{body}");
    }
    assert!(all("getattr(node, 'node')").is_err(), "a node has no name");
}

#[test]
fn victims_are_the_candidates_that_every_file_allows() {
    let candidates = [candidate(1, 10_000), candidate(2, 7_200_000), candidate(3, 20_000)];
    let answer = |files: &[(&str, &str)]| victims(&program(files), &job(), &candidates);
    let ids = |numbers: &[u64]| Ok(numbers.iter().map(|number| JobId::single(*number)).collect());
    let short = ("a.gsky", "def victims(job, candidates):\n    return [c for c in candidates if c.ran_s < 3600]");
    let last = ("b.gsky", "def victims(job, candidates):\n    return [c.id for c in candidates[1:]]");
    let mute = ("c.gsky", "def victims(job, candidates):\n    return None");
    assert_eq!(answer(&[short]), ids(&[1, 3]));
    assert_eq!(answer(&[short, last, mute]), ids(&[3]));
    assert_eq!(answer(&[mute]), ids(&[1, 2, 3]));
    assert_eq!(answer(&[("a.gsky", "def victims(job, candidates):\n    return ()")]), ids(&[]));
    for (body, expected) in [
        ("['job-9']", "returned \"job-9\", which is not one of the candidates"),
        ("['nonsense']", "not one of the candidates"),
        ("[7]", "returned 7"),
        ("[{'id': 'job-8'}]", "not one of the candidates"),
        ("True", "`victims` returned True (bool); it must return a list of candidates or of their ids, or None"),
    ] {
        let answer = answer(&[("a.gsky", &format!("def victims(job, candidates):\n    return {body}"))]);
        let error = answer.unwrap_err().to_string();
        assert!(error.starts_with("a.gsky: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_failed_job_is_retried_unless_a_policy_refuses() {
    let answer = |bodies: &[&str]| {
        let files: Vec<(String, String)> = bodies
            .iter()
            .enumerate()
            .map(|(n, body)| (format!("{n}.gsky"), format!("def retry(job, failure):\n    return {body}")))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        retry(&program(&files), &job(), &failure(Exit::Signal { signal: 9 }))
    };
    let no = |why: &str| Ok(Retry::No { why: why.to_string() });
    assert_eq!(answer(&["True", "None"]), Ok(Retry::ByRestartRule));
    assert_eq!(answer(&["False"]), no("`0.gsky` forbids a retry"));
    assert_eq!(answer(&["30", "2.5", "True"]), Ok(Retry::After { wait_ms: 30_000 }));
    assert_eq!(answer(&["2.5", "30"]), Ok(Retry::After { wait_ms: 30_000 }));
    assert_eq!(answer(&["30", "'out of memory'", "False"]), no("out of memory"));
    assert_eq!(
        answer(&["0 if failure.signal == 9 and failure.exit_code == None else False"]),
        Ok(Retry::After { wait_ms: 0 })
    );
    for body in ["-1", "86401", "[]", "float('inf')"] {
        let error = answer(&[body]).unwrap_err().to_string();
        assert!(error.contains("a string or seconds from 0 to 86400"), "{error}");
    }
}

#[test]
fn the_lowest_power_limit_of_all_files_applies() {
    let answer = |bodies: &[&str]| {
        let files: Vec<(String, String)> = bodies
            .iter()
            .enumerate()
            .map(|(n, body)| (format!("{n}.gsky"), format!("def power(job):\n    return {body}")))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        power(&program(&files), &job())
    };
    assert_eq!(answer(&["300", "250.5", "None"]), Ok(Some(250_500)));
    assert_eq!(answer(&["None"]), Ok(None));
    assert_eq!(answer(&[]), Ok(None));
    for body in ["0", "-5", "'300'", "True", "float('inf')"] {
        assert!(answer(&[body]).unwrap_err().to_string().contains("it must return watts above 0, or None"), "{body}");
    }
}

#[test]
fn views_expose_every_field_in_its_documented_unit() {
    let views = [
        (
            views::job(&job()),
            "struct(tenant = \"vision\", user = \"ann\", priority = 500, tasks = 2, gpus = 8, \
          gpus_per_task = 4, gpu_share = 0.5, gpu_models = [\"h100\"], gpu_memory_mib = 40000, \
          isolation = \"memory\", cpus = 16, memory_mib = 64000, time_limit_s = 91, topology = \"same-rack\", \
          pool = \"gpu_pool_prod\", labels = {\"team\": \"blue\"}, node_labels = {\"zone\": \"a\"}, name = None, \
          image = \"train:1\", now = struct(unix = 1767787260, hour = 13, minute = 1, weekday = 2))",
        ),
        (
            views::tenant(&tenant()),
            "struct(id = \"vision\", priority = 500, weight = 3, gpus_held = 2.5, \
          gpus_guaranteed = 0, gpus_max = 16, jobs = 4, labels = {})",
        ),
        (
            views::node(&node("n1", &["a10"])),
            "struct(models = [\"a10\"], gpus = 8, gpu_memory_mib = 81559, \
          partitioned = False, cpus = 64, memory_mib = 512000, labels = {}, pools = [\"gpu_pool_prod\"])",
        ),
        (
            views::cluster(&cluster()),
            "struct(gpus = 16, gpus_held = 2.5, pools = {\"fast\": 8}, \
          now = struct(unix = 1767787260, hour = 13, minute = 1, weekday = 2))",
        ),
        (
            views::candidate(&candidate(4, 1_999)),
            "struct(id = \"job-4\", tenant = \"speech\", user = \"bob\", \
          priority = 100, gpus = 2, ran_s = 1, lost_gpu_s = 7, preemptions = 1, saves = True, labels = {})",
        ),
        (
            views::failure(&failure(Exit::Code { code: 137 })),
            "struct(exit_code = 137, signal = None, why = None, \
          attempt = 2, failures = 1, ran_s = 61, nodes = [\"node-1\"])",
        ),
        (
            views::failure(&failure(Exit::Unknown { why: "gone".to_string() })),
            "struct(exit_code = None, \
          signal = None, why = \"gone\", attempt = 2, failures = 1, ran_s = 61, nodes = [\"node-1\"])",
        ),
    ];
    for (record, expected) in views {
        assert_eq!(record.to_string(), expected);
    }
}

#[test]
fn a_bundle_lists_its_hooks_and_is_identified_by_its_hash() {
    let files = [
        ("a.gsky", "def admit(job):\n    return job.image != 'x'\ngpu_ops.register_pool(gpu_pool(name = 'p'))"),
        ("a_test.gsky", "def power(job):\n    return 1\ndef admit(a, b, c):\n    pass"),
        ("b.gsky", "score = lambda job, node: 1"),
    ];
    let (it, program) = bundle(&files).unwrap();
    assert_eq!(it.hooks, BTreeSet::from([Hook::Admit, Hook::Score]));
    assert!(it.rules.pools.contains_key("p"));
    assert!(it.mentions.contains("image"));
    assert_eq!((it.files.len(), it.hash.len()), (3, 64));
    assert_eq!(HookExecutor::files_defining(&program, "power"), Vec::<String>::new());
    let borrowed =
        [("a.gsky", "load('a_test.gsky', 'HALF')"), ("a_test.gsky", "HALF = 0.5\ndef power(job):\n    return 1")];
    let (second, program) = bundle(&borrowed).unwrap();
    assert_eq!(
        (second.hooks.len(), power(&program, &job())),
        (0, Ok(None)),
        "functions of a loaded test file are no hooks"
    );
    let hash = |files: &[(&str, &str)]| bundle(files).unwrap().0.hash;
    assert_eq!(hash(&files), it.hash);
    assert_ne!(hash(&files[..2]), it.hash);
    assert_ne!(hash(&[("a.gsky", "x = 1\n"), ("b.gsky", "")]), hash(&[("a.gsky", ""), ("b.gsky", "x = 1\n")]));
    let known = hash(&[("a.gsky", "x = 1\n")]);
    assert_eq!(known, "a84f5100e3610e4d960a6bb5bc58571d39383d9804db731583c2a7329fbdf97a");
}

#[test]
fn hooks_with_wrong_parameters_are_rejected() {
    let cases = [
        ("\ndef admit():\n    pass", "a.gsky:2:5: `admit` takes 0 parameters; muster calls it as admit(job)"),
        (
            "def priority(job):\n    pass",
            "a.gsky:1:5: `priority` takes 1 parameter; muster calls it as priority(job, tenant)",
        ),
        (
            "def score(a, b, c):\n    pass",
            "a.gsky:1:5: `score` takes 3 parameters; muster calls it as score(job, node)",
        ),
        (
            "def power(a, *, b):\n    pass",
            "a.gsky:1:5: `power` takes parameters by name only; muster calls it as power(job)",
        ),
        (
            "x = 1\npower = 300",
            "a.gsky:2:1: `power` is a value of type int; the name is reserved for the hook power(job)",
        ),
        (
            "def retry(a, b, c, *d):\n    pass",
            "`retry` takes at least 3 parameters; muster calls it as retry(job, failure)",
        ),
        ("victims = lambda job: []", "a.gsky:1:1: `victims` takes 1 parameter"),
        (
            "def limit(tenant):\n    pass",
            "a.gsky:1:5: `limit` takes 1 parameter; muster calls it as limit(tenant, cluster)",
        ),
        (
            "limit = 8",
            "a.gsky:1:1: `limit` is a value of type int; the name is reserved for the hook limit(tenant, cluster)",
        ),
    ];
    for (source, expected) in cases {
        let error = bundle(&[("a.gsky", source)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let accepted =
        ["def admit(job, why = 'x'):\n    pass", "def admit(*args):\n    pass", "def admit(j, *, k = 1):\n    pass"];
    accepted.iter().for_each(|source| assert_eq!(bundle(&[("a.gsky", source)]).unwrap().0.hooks.len(), 1));
}

/// An executor that records calls and answers None.
struct RecordingExecutor(RefCell<Vec<String>>);

impl HookExecutor for RecordingExecutor {
    fn files_defining(&self, function: &str) -> Vec<String> {
        vec![format!("{function}.gsky")]
    }

    fn call_each(&self, file: &str, function: &str, calls: &CallBatch) -> Vec<Result<PolicyValue, PolicyError>> {
        let recorded = calls.iter().map(|args| format!("{file} {function}/{}", args.len()));
        self.0.borrow_mut().extend(recorded);
        calls.iter().map(|_| Ok(PolicyValue::None)).collect()
    }
}

#[test]
fn hooks_work_with_any_executor() {
    let executor = RecordingExecutor(RefCell::default());
    assert_eq!(admit(&executor, &job()), Ok(Admission::Yes));
    assert_eq!(priority(&executor, &job(), &tenant()), Ok(None));
    assert_eq!(score(&executor, &job(), &[node("n1", &[]), node("n2", &[])]), Ok(vec![0, 0]));
    assert_eq!(victims(&executor, &job(), &[]), Ok(BTreeSet::new()));
    assert_eq!(retry(&executor, &job(), &failure(Exit::Code { code: 1 })), Ok(Retry::ByRestartRule));
    assert_eq!(power(&executor, &job()), Ok(None));
    assert_eq!(limit(&executor, &tenant(), &cluster()), Ok(GpuLimit::default()));
    let expected = "admit.gsky admit/1, priority.gsky priority/2, score.gsky score/2, score.gsky score/2, \
                 victims.gsky victims/2, retry.gsky retry/2, power.gsky power/1, limit.gsky limit/2";
    assert_eq!(executor.0.into_inner().join(", "), expected);
}
