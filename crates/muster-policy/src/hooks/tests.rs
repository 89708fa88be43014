//! Every kind of answer, of one file and of several.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_core::ids::{JobId, NodeId};
use muster_core::job::{Exit, Topology};
use muster_core::policy::{
    Admission, Bundle, CandidateView, ClusterView, FailureView, Hook, JobView, Moment, NodeView, TenantView,
};
use muster_core::time::Timestamp;

use super::*;
use crate::{Limits, compile};

fn bundle(files: &[(&str, &str)]) -> Result<(Bundle, Program), PolicyError> {
    let files = files.iter().map(|(name, source)| (name.to_string(), source.to_string())).collect();
    // Time is no measure on a machine that does other things as well.
    let limits =
        Limits { time: Duration::from_secs(10), load_time: Duration::from_secs(60), ..Limits::default() };
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

/// Thousandths of all GPUs, and of pools.
type Said = (Option<u64>, Vec<(String, u64)>);

/// What `limit` answers, of one file or of two.
fn limits(files: &[&str]) -> Result<Said, String> {
    let names = ["a.gsky", "b.gsky"];
    let files: Vec<(&str, String)> = names
        .into_iter()
        .zip(files.iter().map(|body| format!("def limit(tenant, cluster):\n    {body}")))
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, source)| (*name, source.as_str())).collect();
    let said = limit(&program(&files), &tenant(), &cluster()).map_err(|error| error.to_string())?;
    Ok((said.gpu_milli, said.pools.into_iter().collect()))
}

#[test]
fn a_limit_is_a_number_of_gpus_or_says_of_what() {
    let of_pools = |pools: &[(&str, u64)]| {
        pools.iter().map(|(pool, milli)| (pool.to_string(), *milli)).collect::<Vec<_>>()
    };
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
        (
            "return {'gpus': tenant.gpus_held, 'pools': cluster.pools}",
            (Some(2_500), of_pools(&[("fast", 8_000)])),
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(limits(&[body]), Ok(expected), "{body}");
    }
    let wanted = "it must be a number of GPUs from 0, None, or {\"gpus\": number, \"pools\": {name: number}}";
    let wrong = [
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
    for answer in wrong {
        let said = limits(&[&format!("return {answer}")]).unwrap_err();
        assert!(said.contains("a.gsky: `limit` answers") && said.contains(wanted), "{answer}: {said}");
    }
}

#[test]
fn the_least_of_each_limit_counts() {
    let of_pools = |pools: &[(&str, u64)]| {
        pools.iter().map(|(pool, milli)| (pool.to_string(), *milli)).collect::<Vec<_>>()
    };
    let both =
        ["return {'gpus': 3, 'pools': {'a': 1, 'b': 5}}", "return {'gpus': 4, 'pools': {'a': 2, 'b': 4}}"];
    assert_eq!(limits(&both), Ok((Some(3_000), of_pools(&[("a", 1_000), ("b", 4_000)]))));
    assert_eq!(limits(&["return None", "return 7"]), Ok((Some(7_000), Vec::new())));
    assert_eq!(
        limits(&["return {'pools': {'a': 2}}", "return 7"]),
        Ok((Some(7_000), of_pools(&[("a", 2_000)])))
    );
    assert!(limits(&["return 7", "return 'x'"]).unwrap_err().contains("b.gsky"), "an error is no limit");
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

fn admitted(body: &str) -> Result<Admission, String> {
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
fn admit_answers_yes_not_now_or_never() {
    assert_eq!(admitted("True"), Ok(Admission::Yes));
    assert_eq!(admitted("None"), Ok(Admission::Yes));
    assert_eq!(admitted("False"), Ok(wait("`a.gsky` does not let it start now")));
    assert_eq!(admitted("'only\\nat night '"), Ok(wait("only at night")));
    assert_eq!(admitted("refuse('no such image')"), Ok(refuse("no such image")));
    let long = admitted("'x' * 1000");
    assert!(matches!(long, Ok(Admission::Wait { why }) if why.chars().count() == 300));
    for (body, kind) in [("3", "3 (int)"), ("[]", "[] (list)"), ("{'refuse': 1}", "(dict)")] {
        let said = admitted(body).unwrap_err();
        assert!(said.starts_with("a.gsky: `admit` answers ") && said.contains(kind), "{said}");
        assert!(said.contains("it must be True, False, None, a text or refuse(text)"), "{said}");
    }
    assert!(admitted("refuse('')").unwrap_err().contains("a text must say why"));
    assert!(admitted("getattr(job, 'gpu')").unwrap_err().starts_with("a.gsky:2:"));
}

#[test]
fn the_strictest_file_wins_and_all_are_asked() {
    let yes = ("a.gsky", "def admit(job):\n    return True");
    let late = ("b.gsky", "def admit(job):\n    return 'later'");
    let later = ("c.gsky", "def admit(job):\n    return 'much later'");
    let never = ("d.gsky", "def admit(job):\n    return refuse('never')");
    let none = ("e.gsky", "def helper(job):\n    return 1");
    let wrong = ("f.gsky", "def admit(job):\n    return 1");
    let asked = |files: &[(&str, &str)]| admit(&program(files), &job());
    assert_eq!(asked(&[yes, none]), Ok(Admission::Yes));
    assert_eq!(asked(&[yes, late, later]), Ok(wait("later")));
    assert_eq!(asked(&[yes, late, later, never]), Ok(refuse("never")));
    assert!(asked(&[late, wrong]).is_err());
    assert!(asked(&[("0.gsky", wrong.1), never]).is_err(), "an error is not outdone by an answer");
    assert_eq!(asked(&[none]), Ok(Admission::Yes));
}

#[test]
fn many_jobs_are_asked_about_at_once_and_one_error_is_one_jobs() {
    let it = program(&[("a.gsky", "def admit(job):\n    return 8 // (job.gpus - 3) > 1")]);
    let of = |gpus| JobView { gpus, ..job() };
    let said = admit_each(&it, &[&of(4), &of(3), &of(99), &of(7)]);
    assert_eq!(said[0], Ok(Admission::Yes));
    assert!(said[1].as_ref().unwrap_err().to_string().starts_with("a.gsky:2:"));
    assert_eq!(said[2], Ok(wait("`a.gsky` does not let it start now")));
    assert_eq!(said[3], Ok(Admission::Yes));
    assert_eq!(admit_each(&it, &[]), []);
}

#[test]
fn of_many_jobs_each_has_its_own_priority_costs_and_cap() {
    let it = program(&[
        (
            "a.gsky",
            "def priority(job, tenant):\n    return job.priority + 8 // (job.gpus - 3)\n\
             def score(job, node):\n    return 8 // (job.gpus - node.gpus)\n\
             def power(job):\n    return 100 * (8 // (job.gpus - 3))",
        ),
        (
            "b.gsky",
            "def priority(job, tenant):\n    return job.priority * 2\ndef power(job):\n    return 500",
        ),
    ]);
    let all = [4, 3, 5].map(|gpus| JobView { gpus, priority: 10, ..job() });
    let jobs: Vec<&JobView> = all.iter().collect();
    let tenant = tenant();
    let pairs: Vec<(&JobView, &TenantView)> = jobs.iter().map(|job| (*job, &tenant)).collect();
    let said = priority_each(&it, &pairs);
    assert_eq!((&said[0], &said[2]), (&Ok(Some(36)), &Ok(Some(28))));
    assert!(said[1].is_err(), "{said:?}");
    let said = power_each(&it, &jobs);
    assert_eq!((&said[0], &said[2]), (&Ok(Some(500_000)), &Ok(Some(400_000))));
    assert!(said[1].is_err(), "{said:?}");
    let of = |gpus| NodeView { gpus, ..node("n", &[]) };
    // The second fails on its first node: the rest of its row is not the next one's.
    let said = score_each(&it, &jobs, &[of(3), of(1), of(2)]);
    assert_eq!(said[0], Ok(vec![-8_000, -2_000, -4_000]));
    assert!(said[1].is_err(), "{said:?}");
    assert_eq!(said[2], Ok(vec![-4_000, -2_000, -2_000]));
    assert_eq!(score_each(&it, &jobs, &[]), vec![Ok(Vec::new()); 3]);
}

#[test]
fn priorities_go_through_the_files_one_after_the_other() {
    let twice = ("b.gsky", "def priority(job, tenant):\n    return job.priority * 2");
    let more = ("a.gsky", "def priority(job, tenant):\n    return job.priority + tenant.weight");
    let none = ("c.gsky", "def priority(job, tenant):\n    pass");
    let asked = |files: &[(&str, &str)]| priority(&program(files), &job(), &tenant());
    assert_eq!(asked(&[more, twice, none]), Ok(Some(1_006)));
    assert_eq!(asked(&[none]), Ok(None));
    assert_eq!(asked(&[("a.gsky", "def priority(job, tenant):\n    return job.priority")]), Ok(None));
    for body in ["-1", "10001", "1.5", "True", "'high'"] {
        let said = asked(&[("a.gsky", &format!("def priority(job, tenant):\n    return {body}"))]);
        let said = said.unwrap_err().to_string();
        assert!(said.contains("a whole number from 0 to 10000, or None"), "{said}");
    }
    assert_eq!(asked(&[("a.gsky", "def priority(job, tenant):\n    return 10000")]), Ok(Some(10_000)));
    assert_eq!(asked(&[("a.gsky", "def priority(job, tenant):\n    return 0")]), Ok(Some(0)));
}

#[test]
fn what_is_welcome_costs_less() {
    let nodes = [node("n1", &["h100-80gb-hbm3"]), node("n2", &["a10"]), node("n3", &[])];
    let model =
        "def score(job, node):\n    return 1.5 if any([is_model(m, 'H100') for m in node.models]) else -0.25";
    let asked = |files: &[(&str, &str)]| score(&program(files), &job(), &nodes);
    assert_eq!(asked(&[("a.gsky", model)]), Ok(vec![-1_500, 250, 250]));
    let one = "def score(job, node):\n    return len(node.models) or None";
    assert_eq!(asked(&[("a.gsky", model), ("b.gsky", one)]), Ok(vec![-2_500, -750, 250]));
    let all = |body: &str| asked(&[("a.gsky", &format!("def score(job, node):\n    return {body}"))]);
    assert_eq!(all("50"), Ok(vec![-10_000; 3]));
    assert_eq!(all("-1e300"), Ok(vec![10_000; 3]));
    let bad = "def score(job, node):\n    return 8";
    assert_eq!(asked(&[("a.gsky", bad), ("b.gsky", bad)]), Ok(vec![-10_000; 3]), "not more than one alone");
    let (huge, less) = ("def score(job, node):\n    return 1e300", "def score(job, node):\n    return -3");
    assert_eq!(asked(&[("a.gsky", huge), ("b.gsky", less)]), Ok(vec![-7_000; 3]), "others still count");
    for body in ["'much'", "True", "float('nan')", "[1]"] {
        assert!(all(body).unwrap_err().to_string().contains("it must be a number or None"), "{body}");
    }
    assert!(all("getattr(node, 'node')").is_err(), "a node has no name");
}

#[test]
fn victims_are_whom_every_file_lets_go() {
    let candidates = [candidate(1, 10_000), candidate(2, 7_200_000), candidate(3, 20_000)];
    let asked = |files: &[(&str, &str)]| victims(&program(files), &job(), &candidates);
    let ids = |numbers: &[u64]| Ok(numbers.iter().map(|number| JobId::single(*number)).collect());
    let short =
        ("a.gsky", "def victims(job, candidates):\n    return [c for c in candidates if c.ran_s < 3600]");
    let last = ("b.gsky", "def victims(job, candidates):\n    return [c.id for c in candidates[1:]]");
    let mute = ("c.gsky", "def victims(job, candidates):\n    return None");
    assert_eq!(asked(&[short]), ids(&[1, 3]));
    assert_eq!(asked(&[short, last, mute]), ids(&[3]));
    assert_eq!(asked(&[mute]), ids(&[1, 2, 3]));
    assert_eq!(asked(&[("a.gsky", "def victims(job, candidates):\n    return ()")]), ids(&[]));
    for (body, said) in [
        ("['job-9']", "names \"job-9\", which is none of the candidates"),
        ("['nonsense']", "none of the candidates"),
        ("[7]", "names 7"),
        ("[{'id': 'job-8'}]", "none of the candidates"),
        ("True", "`victims` answers True (bool); it must be a list of candidates or of their ids, or None"),
    ] {
        let wrong = asked(&[("a.gsky", &format!("def victims(job, candidates):\n    return {body}"))]);
        let wrong = wrong.unwrap_err().to_string();
        assert!(wrong.starts_with("a.gsky: ") && wrong.contains(said), "{wrong}");
    }
}

#[test]
fn a_failed_job_starts_again_unless_someone_says_no() {
    let asked = |bodies: &[&str]| {
        let files: Vec<(String, String)> = bodies
            .iter()
            .enumerate()
            .map(|(n, body)| (format!("{n}.gsky"), format!("def retry(job, failure):\n    return {body}")))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        retry(&program(&files), &job(), &failure(Exit::Signal { signal: 9 }))
    };
    let no = |why: &str| Ok(Retry::No { why: why.to_string() });
    assert_eq!(asked(&["True", "None"]), Ok(Retry::AsAsked));
    assert_eq!(asked(&["False"]), no("`0.gsky` does not start it again"));
    assert_eq!(asked(&["30", "2.5", "True"]), Ok(Retry::After { wait_ms: 30_000 }));
    assert_eq!(asked(&["2.5", "30"]), Ok(Retry::After { wait_ms: 30_000 }));
    assert_eq!(asked(&["30", "'out of memory'", "False"]), no("out of memory"));
    assert_eq!(
        asked(&["0 if failure.signal == 9 and failure.exit_code == None else False"]),
        Ok(Retry::After { wait_ms: 0 })
    );
    for body in ["-1", "86401", "[]", "float('inf')"] {
        let said = asked(&[body]).unwrap_err().to_string();
        assert!(said.contains("a text or seconds from 0 to 86400"), "{said}");
    }
}

#[test]
fn the_least_power_counts() {
    let asked = |bodies: &[&str]| {
        let files: Vec<(String, String)> = bodies
            .iter()
            .enumerate()
            .map(|(n, body)| (format!("{n}.gsky"), format!("def power(job):\n    return {body}")))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        power(&program(&files), &job())
    };
    assert_eq!(asked(&["300", "250.5", "None"]), Ok(Some(250_500)));
    assert_eq!(asked(&["None"]), Ok(None));
    assert_eq!(asked(&[]), Ok(None));
    for body in ["0", "-5", "'300'", "True", "float('inf')"] {
        assert!(
            asked(&[body]).unwrap_err().to_string().contains("it must be watts above 0, or None"),
            "{body}"
        );
    }
}

#[test]
fn every_field_is_there_in_its_unit() {
    let told = [
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
    for (record, expected) in told {
        assert_eq!(record.to_string(), expected);
    }
}

#[test]
fn a_bundle_says_what_it_answers_and_is_named_by_its_contents() {
    let files = [
        (
            "a.gsky",
            "def admit(job):\n    return job.image != 'x'\ngpu_ops.register_pool(gpu_pool(name = 'p'))",
        ),
        ("a_test.gsky", "def power(job):\n    return 1\ndef admit(a, b, c):\n    pass"),
        ("b.gsky", "score = lambda job, node: 1"),
    ];
    let (it, program) = bundle(&files).unwrap();
    assert_eq!(it.hooks, BTreeSet::from([Hook::Admit, Hook::Score]));
    assert!(it.rules.pools.contains_key("p"));
    assert!(it.mentions.contains("image"));
    assert_eq!((it.files.len(), it.hash.len()), (3, 64));
    assert_eq!(Caller::files_with(&program, "power"), Vec::<String>::new());
    let borrowed = [
        ("a.gsky", "load('a_test.gsky', 'HALF')"),
        ("a_test.gsky", "HALF = 0.5\ndef power(job):\n    return 1"),
    ];
    let (it_too, program) = bundle(&borrowed).unwrap();
    assert_eq!((it_too.hooks.len(), power(&program, &job())), (0, Ok(None)), "a policy loads a test");
    let hash = |files: &[(&str, &str)]| bundle(files).unwrap().0.hash;
    assert_eq!(hash(&files), it.hash);
    assert_ne!(hash(&files[..2]), it.hash);
    assert_ne!(
        hash(&[("a.gsky", "x = 1\n"), ("b.gsky", "")]),
        hash(&[("a.gsky", ""), ("b.gsky", "x = 1\n")])
    );
    let known = hash(&[("a.gsky", "x = 1\n")]);
    assert_eq!(known, "a84f5100e3610e4d960a6bb5bc58571d39383d9804db731583c2a7329fbdf97a");
}

#[test]
fn a_question_has_its_parameters() {
    let cases = [
        ("\ndef admit():\n    pass", "a.gsky:2:5: `admit` takes 0 parameters; it is asked as admit(job)"),
        (
            "def priority(job):\n    pass",
            "a.gsky:1:5: `priority` takes 1 parameter; it is asked as priority(job, tenant)",
        ),
        (
            "def score(a, b, c):\n    pass",
            "a.gsky:1:5: `score` takes 3 parameters; it is asked as score(job, node)",
        ),
        (
            "def power(a, *, b):\n    pass",
            "a.gsky:1:5: `power` takes parameters by name only; it is asked as power(job)",
        ),
        (
            "x = 1\npower = 300",
            "a.gsky:2:1: `power` is of kind int; the name stands for a function power(job)",
        ),
        (
            "def retry(a, b, c, *d):\n    pass",
            "`retry` takes at least 3 parameters; it is asked as retry(job, failure)",
        ),
        ("victims = lambda job: []", "a.gsky:1:1: `victims` takes 1 parameter"),
        (
            "def limit(tenant):\n    pass",
            "a.gsky:1:5: `limit` takes 1 parameter; it is asked as limit(tenant, cluster)",
        ),
        (
            "limit = 8",
            "a.gsky:1:1: `limit` is of kind int; the name stands for a function limit(tenant, cluster)",
        ),
    ];
    for (source, expected) in cases {
        let said = bundle(&[("a.gsky", source)]).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
    let fine = [
        "def admit(job, why = 'x'):\n    pass",
        "def admit(*args):\n    pass",
        "def admit(j, *, k = 1):\n    pass",
    ];
    fine.iter().for_each(|source| assert_eq!(bundle(&[("a.gsky", source)]).unwrap().0.hooks.len(), 1));
}

/// One that is no program: it remembers what it was asked.
struct Parrot(RefCell<Vec<String>>);

impl Caller for Parrot {
    fn files_with(&self, function: &str) -> Vec<String> {
        vec![format!("{function}.gsky")]
    }

    fn call_each(&self, file: &str, function: &str, calls: &Calls) -> Vec<Result<Plain, PolicyError>> {
        let asked = calls.iter().map(|args| format!("{file} {function}/{}", args.len()));
        self.0.borrow_mut().extend(asked);
        calls.iter().map(|_| Ok(Plain::None)).collect()
    }
}

#[test]
fn whoever_can_call_can_be_asked() {
    let parrot = Parrot(RefCell::default());
    assert_eq!(admit(&parrot, &job()), Ok(Admission::Yes));
    assert_eq!(priority(&parrot, &job(), &tenant()), Ok(None));
    assert_eq!(score(&parrot, &job(), &[node("n1", &[]), node("n2", &[])]), Ok(vec![0, 0]));
    assert_eq!(victims(&parrot, &job(), &[]), Ok(BTreeSet::new()));
    assert_eq!(retry(&parrot, &job(), &failure(Exit::Code { code: 1 })), Ok(Retry::AsAsked));
    assert_eq!(power(&parrot, &job()), Ok(None));
    assert_eq!(limit(&parrot, &tenant(), &cluster()), Ok(GpuLimit::default()));
    let asked = "admit.gsky admit/1, priority.gsky priority/2, score.gsky score/2, score.gsky score/2, \
                 victims.gsky victims/2, retry.gsky retry/2, power.gsky power/1, limit.gsky limit/2";
    assert_eq!(parrot.0.into_inner().join(", "), asked);
}
