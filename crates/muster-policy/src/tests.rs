//! Policies that load, and policies that are rejected with a position and a message.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use muster_core::objects::policy::rules::{Fact, PowerPolicy, Rule, Rules};

use crate::{CallBatch, Gpu, Limits, PolicyEngine, PolicyError, PolicyValue, Program, Requirements, load_file};

/// A temporary folder, removed when it is dropped.
struct TempPolicyDir(PathBuf);

impl TempPolicyDir {
    fn with(files: &[(&str, &str)]) -> TempPolicyDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("muster-policy-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
        TempPolicyDir(folder)
    }
}

impl Drop for TempPolicyDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(source: &str) -> Result<Rules, PolicyError> {
    let folder = TempPolicyDir::with(&[("policy.gsky", source)]);
    load_file(&folder.0.join("policy.gsky"), &Limits::default())
}

/// The error of a policy, without the folder.
fn load_error(source: &str) -> String {
    let error = run(source).unwrap_err().to_string();
    error.split_once("policy.gsky").map_or(error.clone(), |(_, rest)| format!("policy.gsky{rest}"))
}

/// The policies of the folder `policies`.
fn shipped_policies() -> PolicyEngine {
    let mut engine = PolicyEngine::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies"));
    let (count, errors) = engine.load_all_policies();
    assert_eq!((count, errors), (3, Vec::new()));
    engine
}

/// The GPU of the example in the specification.
fn gpu() -> Gpu {
    Gpu { tags: vec!["high-perf".to_string()], ..Gpu::synthetic(0) }
}

fn needs(min_memory: f64, tags: &[&str]) -> Requirements {
    let tags = tags.iter().map(ToString::to_string).collect();
    Requirements { min_memory: Some(min_memory), max_temp: None, tags }
}

#[test]
fn the_shipped_policies_register_three_pools_and_three_rulesets() {
    let engine = shipped_policies();
    let rules = engine.rules();
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(names(rules.pools.keys().collect()), ["gpu_pool_basic", "gpu_pool_dev", "gpu_pool_prod"]);
    assert_eq!(names(rules.schedules.keys().collect()), ["basic_scheduling", "dev_scheduling", "prod_scheduling"]);
    let prod = &rules.pools["gpu_pool_prod"];
    assert_eq!(prod.gpu_types, ["RTX_5070ti", "A100", "H100"]);
    assert_eq!((prod.min_memory_milli_gb, prod.max_temp_milli_c), (16_000, 85_000));
    assert_eq!((prod.power_policy, prod.health_threshold_milli), (PowerPolicy::Performance, 950));
    assert_eq!(prod.opt_strategies[1].fields["waste_threshold"], Fact::Milli(200));
    assert_eq!(prod.health_checks[0].fields["interval_sec"], Fact::Milli(10_000));
    let dev = &rules.schedules["dev_scheduling"].rules[1];
    assert_eq!(*dev, Rule::Preemption { allow: true, priority_threshold: Some("normal".to_string()) });
}

#[test]
fn the_example_of_the_specification_is_allocated() {
    assert!(shipped_policies().evaluate_allocation(&gpu(), &needs(16.0, &["high-perf"])));
}

#[test]
fn allocation_bounds_are_inclusive() {
    let engine = shipped_policies();
    let cases = [
        (gpu(), needs(24.0, &[]), true),
        (gpu(), needs(24.001, &[]), false),
        (gpu(), needs(16.0, &["slow"]), false),
        (gpu(), Requirements { max_temp: Some(30.0), ..Requirements::default() }, false),
        (Gpu { memory_gb: 8.0, ..gpu() }, Requirements::default(), true),
        (Gpu { memory_gb: 7.9, ..gpu() }, Requirements::default(), false),
        (Gpu { temperature_c: 90.0, ..gpu() }, Requirements::default(), true),
        (Gpu { temperature_c: 90.5, ..gpu() }, Requirements::default(), false),
        (Gpu { name: "NVIDIA A10".to_string(), ..gpu() }, Requirements::default(), false),
        (Gpu { pool: "gpu_pool_prod".to_string(), temperature_c: 88.0, ..gpu() }, Requirements::default(), false),
    ];
    for (gpu, requirements, expected) in cases {
        assert_eq!(engine.evaluate_allocation(&gpu, &requirements), expected, "{gpu:?} {requirements:?}");
    }
}

#[test]
fn recommended_gpus_are_sorted_by_score_and_stable() {
    let engine = shipped_policies();
    let gpus = [
        Gpu { id: 0, temperature_c: 82.0, ..gpu() },
        Gpu { id: 1, memory_gb: 12.0, ..gpu() },
        Gpu { id: 2, ..gpu() },
        Gpu { id: 3, ..gpu() },
        Gpu { id: 4, name: "A10".to_string(), ..gpu() },
        Gpu { id: 5, online: false, ..gpu() },
    ];
    let best: Vec<u32> = engine.recommended_gpus(&gpus, &Requirements::default()).iter().map(|gpu| gpu.id).collect();
    assert_eq!(best, [2, 3, 1, 0, 5]);
}

#[test]
fn policies_may_use_functions_loops_and_lookups() {
    let rules = run("
def pool(model, least):
    return gpu_pool(name = 'pool_' + model.lower(), gpu_type = model, min_memory_gb = least)

for model, least in {'A100': 40, 'H100': 80}.items():
    if least > 16:
        gpu_ops.register_pool(pool(model, least))

names = [p.name for p in gpu_ops.get_all_pools()]
gpu_ops.register_schedule(schedule_ruleset(name = ','.join(names), rules = []))
a100 = gpu_ops.get_pool('pool_a100')
if a100.min_memory_gb != 40 or a100.gpu_types != ['A100'] or gpu_ops.get_pool('none') != None:
    fail('a pool can be read')
if gpu_ops.get_schedule('pool_a100,pool_h100').rules:
    fail('a ruleset can be read')
if optimize_clock(target = 'maximum')['type'] != 'clock' or check('power', interval_sec = 5)['name'] != 'power':
    fail('they are dicts')
")
    .unwrap();
    assert_eq!(rules.pools.len(), 2);
    assert!(rules.schedules.contains_key("pool_a100,pool_h100"));
}

#[test]
fn registering_a_pool_name_again_replaces_the_pool() {
    let rules = run("
gpu_ops.register_pool(gpu_pool(name = 'p', min_memory_gb = 1))
gpu_ops.register_pool(gpu_pool(name = 'p', min_memory_gb = 2.5))
gpu_ops.register_pool(gpu_pool())
")
    .unwrap();
    assert_eq!(rules.pools["p"].min_memory_milli_gb, 2_500);
    let plain = &rules.pools["default"];
    assert_eq!((plain.max_temp_milli_c, plain.health_threshold_milli), (100_000, 900));
    assert_eq!(plain.power_policy, PowerPolicy::Adaptive);
}

#[test]
fn load_errors_carry_file_line_and_column() {
    let cases = [
        ("x = 1\ny = = 2\n", "policy.gsky:2:5: ", "unexpected"),
        ("p = gpu_pool(\n  name = 'p',\n  gpu_typ = 'A100')", "policy.gsky:1:5: ", "did you mean `gpu_type`?"),
        (
            "\ngpu_pool(min_memory_gb = '16')",
            "policy.gsky:2:1: ",
            "`min_memory_gb` is \"16\" (string); it must be a number",
        ),
        ("gpu_pool(min_memory_gb = True)", "policy.gsky:1:1: ", "must be a number"),
        ("gpu_pool(max_temp_c = 1e300)", "policy.gsky:1:1: ", "from -273 to 1000"),
        ("gpu_pool(power_policy = 'perfomance')", "policy.gsky:1:1: ", "did you mean `performance`?"),
        ("gpu_pool(gpu_type = ['A100', 3])", "policy.gsky:1:1: ", "a string or a list of strings"),
        ("gpu_pool(opt_strategies = ['fast'])", "policy.gsky:1:1: ", "create strategies with optimize_clock"),
        ("gpu_pool(health_checks = [{'interval': 3}])", "policy.gsky:1:1: ", "create checks with check"),
        ("gpu_ops.register_pool({'name': 'p'})", "policy.gsky:1:1: ", "create one with gpu_pool"),
        ("gpu_ops.register_schedule(gpu_pool())", "policy.gsky:1:1: ", "create one with schedule_ruleset"),
        ("balance_rule(metric = 'temprature')", "policy.gsky:1:1: ", "did you mean `temperature`?"),
        ("priority_rule(values = ['a'])", "policy.gsky:1:1: ", "`label` is missing"),
        ("schedule_ruleset(name = 's', rules = [1])", "policy.gsky:1:1: ", "which is not a rule"),
        ("gpu_poll()", "policy.gsky:1:1: ", "gpu_pool"),
        ("def f():\n  return 1 // 0\nf()", "policy.gsky:2:10: ", "zero"),
        ("while True:\n  pass", "policy.gsky:1:1: ", "while"),
        ("def f(n):\n  return f(n)", "policy.gsky:1:5: ", "`f` calls itself (f -> f), and Starlark has no recursion"),
        ("def f(n):\n  return g(n)\ndef g(n):\n  return [f(i) for i in n]", "policy.gsky:1:5: ", "(f -> g -> f)"),
        ("f = lambda g: g(g)\nf(f)", "policy.gsky:2:3: ", "cannot be used as a value"),
        ("def f(g):\n  return g(g)\ndef h(x):\n  return f(f)", "policy.gsky:4:12: ", "cannot be used as a value"),
        ("def a(g, h):\n  return g(h, h)\nb = [a]", "policy.gsky:3:6: ", "cannot be used as a value"),
        ("(lambda g: g(g))(lambda g: g(g))", "policy.gsky:1:18: ", "cannot be used as a value"),
        ("def make():\n  def r(g):\n    return g[0](g)\n  return r", "policy.gsky:4:10: ", "cannot be used as a value"),
        (
            "def f():\n  g = []\n  def h():\n    return g[0]()\n  g.append(h)\n  h()\nf()",
            "policy.gsky:4:12: ",
            "call stack overflow",
        ),
    ];
    for (source, position, expected) in cases {
        let error = load_error(source);
        assert!(error.starts_with(position) && error.contains(expected), "{source}\n  error: {error}");
    }
}

#[test]
fn shadowed_function_names_are_not_recursion() {
    let accepted = [
        "def f(f):\n  return f\nf(1)",
        "def f(x):\n  for f in x:\n    pass\n  return f\nf([1])",
        "def f():\n  return 1\ndef g():\n  return f() + f()\ng()",
        "def outer():\n  def inner():\n    return 1\n  return inner()\nouter()",
        "def apply(f, x):\n  return f(x)\napply(lambda x: x + 1, 2)",
        "def both(f, g):\n  return lambda x: f(g(x))\nboth(len, list)([1])",
        "def get(d, k):\n  return d.get(k)\nsorted([1], key = lambda k: get({}, k) or 0)\nf = get",
    ];
    accepted.into_iter().for_each(|source| drop(run(source).unwrap()));
}

#[test]
fn self_applying_functions_are_detected_across_files() {
    let library = ("library.gsky", "def apply(f, x):\n  return f(x)");
    let by_name = ("by_name.gsky", "load('library.gsky', call = 'apply')\ncall(len, [])");
    let as_value = ("as_value.gsky", "load('library.gsky', call = 'apply')\nfs = [call]");
    let folder = TempPolicyDir::with(&[library, by_name, as_value]);
    let load = |name: &str| load_file(&folder.0.join(name), &Limits::default());
    load("by_name.gsky").unwrap();
    let error = load("as_value.gsky").unwrap_err().to_string();
    assert!(error.contains("as_value.gsky:2:7: ") && error.contains("cannot be used as a value"), "{error}");
}

#[test]
fn endless_and_oversized_files_are_stopped() {
    let cases = [
        "for i in range(100000000):\n  x = i",
        "x = [i for i in range(100000000)]",
        "def f():\n  for i in range(10000):\n    for j in range(10000):\n      pass\nf()",
    ];
    let limits = Limits { steps: 20_000, load_time: Duration::from_secs(60), ..Limits::default() };
    for source in cases {
        let folder = TempPolicyDir::with(&[("policy.gsky", source)]);
        let error = load_file(&folder.0.join("policy.gsky"), &limits).unwrap_err().to_string();
        assert!(error.contains("it exceeded the step limit"), "{source}: {error}");
    }
    let deep = format!("x = {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(load_error(&deep).contains("nested more than 100 levels deep"));
    assert!(load_error(&format!("x = {}1", "-".repeat(100_000))).contains("nested"));
    assert!(load_error(&format!("x = {}1", "not ".repeat(100_000))).contains("nested"));
    assert!(load_error(&format!("x = '{}'", "a".repeat(2 << 20))).contains("the limit is 1048576"));
    let loud = "for i in range(100000):\n  print('all work and no play')";
    assert!(load_error(loud).contains("print exceeds the output limit"));
}

#[test]
fn load_accepts_only_files_of_the_same_folder() {
    let shared = (
        "shared.gsky",
        "load('deeper.gsky', 'LEAST')\ndef pool(name):\n  return gpu_pool(name = name, min_memory_gb = LEAST)",
    );
    let deeper = ("deeper.gsky", "LEAST = 12");
    let policy = ("policy.gsky", "load('shared.gsky', 'pool')\ngpu_ops.register_pool(pool('loaded'))");
    let cycle = ("cycle.gsky", "load('cycle.gsky', 'x')");
    let folder = TempPolicyDir::with(&[shared, deeper, policy, cycle]);
    let load = |name: &str| load_file(&folder.0.join(name), &Limits::default());
    assert_eq!(load("policy.gsky").unwrap().pools["loaded"].min_memory_milli_gb, 12_000);
    assert!(load("cycle.gsky").unwrap_err().to_string().contains("loads itself: cycle.gsky -> cycle.gsky"));
    for id in ["/etc/passwd", "../x.gsky", "a/b.gsky", "x.star", "./x.gsky", "", "//a:x.gsky", "@a//x.gsky"] {
        let error = load_error(&format!("load('{id}', 'x')"));
        assert!(error.contains("cannot be loaded"), "{id}: {error}");
    }
    assert!(load_error("load('gone.gsky', 'x')").contains("there is no file `gone.gsky` in the same folder"));
}

#[test]
fn symlinks_out_of_the_folder_are_rejected() {
    let outside = TempPolicyDir::with(&[("secret.gsky", "x = 1")]);
    let policy = ("policy.gsky", "load('linked.gsky', 'x')");
    let folder = TempPolicyDir::with(&[policy, ("inside.gsky", "x = 2")]);
    let link = folder.0.join("linked.gsky");
    std::os::unix::fs::symlink(outside.0.join("secret.gsky"), &link).unwrap();
    let error = load_file(&folder.0.join("policy.gsky"), &Limits::default()).unwrap_err().to_string();
    assert!(error.contains("there is no file `linked.gsky` in the same folder"), "{error}");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("inside.gsky", &link).unwrap();
    load_file(&folder.0.join("policy.gsky"), &Limits::default()).unwrap();
}

#[test]
fn folders_devices_and_invalid_text_are_not_loaded() {
    let folder =
        TempPolicyDir::with(&[("policy.gsky", "load('x.gsky', 'x')"), ("crlf.gsky", "x = 1\r\ny = [\r\n2]\r\n")]);
    let load = |name: &str| load_file(&folder.0.join(name), &Limits::default());
    load("crlf.gsky").unwrap();
    let x = folder.0.join("x.gsky");
    std::fs::create_dir(&x).unwrap();
    assert!(load("policy.gsky").unwrap_err().to_string().contains("there is no file `x.gsky`"));
    std::fs::remove_dir(&x).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &x).unwrap();
    assert!(load("policy.gsky").unwrap_err().to_string().contains("there is no file `x.gsky`"));
    std::fs::remove_file(&x).unwrap();
    std::fs::write(&x, b"x = '\xff\xfe'").unwrap();
    assert!(load("policy.gsky").unwrap_err().to_string().contains("cannot read the policy"));
    std::fs::write(&x, "#".repeat((1 << 20) + 1)).unwrap();
    let error = load("policy.gsky").unwrap_err().to_string();
    assert!(
        error.contains("cannot read") && error.contains("the limit is 1048576"),
        "rejected before it is read: {error}"
    );
    std::fs::write(&x, "\u{feff}x = 1").unwrap();
    assert!(
        load("policy.gsky").unwrap_err().to_string().contains("invalid input"),
        "a byte order mark is no white space"
    );
}

#[test]
fn answers_over_the_size_limit_are_rejected() {
    let files = BTreeMap::from([(
        "p.gsky".to_string(),
        "
def shared():
    x = [1]
    for i in range(30):
        x = [x, x]
    return x
def texts():
    return ['a' * 1000] * 2000
def loud():
    fail('a' * 100000)
"
        .to_string(),
    )]);
    let program = Program::compile_files(&files, Limits::default()).unwrap();
    for function in ["shared", "texts"] {
        let error = program.call(function, &[]).unwrap_err().to_string();
        assert!(error.contains("it exceeds 1048576 values and bytes"), "{function}: {error}");
    }
    let error = program.call("loud", &[]).unwrap_err().to_string();
    assert!(error.len() < 2_100 && error.ends_with('…'), "{}", error.len());
}

#[test]
fn load_all_skips_tests_and_reports_errors_per_file() {
    let folder = TempPolicyDir::with(&[
        ("a.gsky", "gpu_ops.register_pool(gpu_pool(name = 'a'))"),
        ("b.gsky", "nonsense("),
        ("c.star", "gpu_ops.register_pool(gpu_pool(name = 'c'))"),
        ("d_test.gsky", "gpu_ops.register_pool(gpu_pool(name = 'd'))"),
    ]);
    let mut engine = PolicyEngine::new(&folder.0);
    let (count, errors) = engine.load_all_policies();
    assert_eq!((count, errors.len()), (1, 1));
    assert_eq!(engine.rules().pools.keys().collect::<Vec<_>>(), ["a"]);
    let mut missing = PolicyEngine::new("/no/such/folder");
    assert_eq!(missing.load_all_policies(), (0, Vec::new()));
    engine.load_policy(Path::new("a.gsky")).unwrap();
    assert_eq!(engine.loaded().len(), 2, "the path is tried as given, then inside the folder");
    let gone = engine.load_policy(Path::new("gone.gsky")).unwrap_err().to_string();
    assert!(gone.contains("cannot read the policy `gone.gsky`"), "{gone}");
}

fn program(source: &str) -> Result<Program, PolicyError> {
    program_of(&[("a.gsky", source)])
}

fn program_of(files: &[(&str, &str)]) -> Result<Program, PolicyError> {
    let files = files.iter().map(|(name, source)| (name.to_string(), source.to_string())).collect();
    // Generous: a busy machine must not fail the test.
    let limits = Limits { call_time: Duration::from_secs(10), load_time: Duration::from_secs(60), ..Limits::default() };
    Program::compile_files(&files, limits)
}

#[test]
fn calls_take_and_return_policy_values() {
    let it = program("def same(x):\n    return x\ndef gpus(job):\n    return job.gpus * 2").unwrap();
    let values = [
        PolicyValue::None,
        PolicyValue::Bool(true),
        PolicyValue::Int(-7),
        PolicyValue::Float(1.5),
        PolicyValue::text("ä\n"),
        PolicyValue::List(vec![PolicyValue::Int(1), PolicyValue::text("x")]),
        PolicyValue::Tuple(vec![PolicyValue::Int(1)]),
        PolicyValue::Dict(vec![(PolicyValue::text("k"), PolicyValue::List(Vec::new()))]),
    ];
    for value in values {
        assert_eq!(it.call("same", std::slice::from_ref(&value)), Ok(value));
    }
    let job = PolicyValue::Record(vec![("gpus", PolicyValue::Int(8))]);
    assert_eq!(it.call("gpus", &[job]), Ok(PolicyValue::Int(16)));
    let error = it.call("gpus", &[PolicyValue::Record(Vec::new())]).unwrap_err().to_string();
    assert!(error.starts_with("a.gsky:4:") && error.contains("gpus"), "{error}");
    assert!(it.call("nobody", &[]).unwrap_err().to_string().contains("no function `nobody`"));
}

#[test]
fn an_endless_call_is_stopped_and_the_next_call_succeeds() {
    let source = "def f(n):\n    x = 0\n    for a in range(n):\n        for b in range(10000):\n            x += b\n    return x";
    let it = program(source).unwrap();
    let (long, short) = (PolicyValue::Int(1_000_000), PolicyValue::Int(1));
    let answers = it.call_each("a.gsky", "f", &CallBatch::from_rows([[short.clone()], [long.clone()], [short]]));
    assert_eq!(answers[0], Ok(PolicyValue::Int(49_995_000)));
    let error = answers[1].clone().unwrap_err().to_string();
    assert!(error.contains("it exceeded the step limit"), "{error}");
    assert_eq!(answers[2], answers[0]);
    let files = BTreeMap::from([("a.gsky".to_string(), source.to_string())]);
    let hurried = Limits { call_time: Duration::from_millis(1), steps: u64::MAX / 2, ..Limits::default() };
    let error = Program::compile_files(&files, hurried).unwrap().call("f", &[long]).unwrap_err().to_string();
    assert!(error.contains("it exceeded the time limit"), "{error}");
}

#[test]
fn batched_calls_share_their_argument_values() {
    let it = program("def f(a, b):\n    return a.n * 1000 + b").unwrap();
    let record = |n| PolicyValue::Record(vec![("n", PolicyValue::Int(n))]);
    let numbers: Vec<PolicyValue> = (0..1_000).map(PolicyValue::Int).collect();
    let calls = CallBatch::from_pairs(vec![record(1), record(2)], numbers);
    let answers = it.call_each("a.gsky", "f", &calls);
    let expected = (1_000..2_000).chain(2_000..3_000).map(|n| Ok(PolicyValue::Int(n)));
    assert!(answers.into_iter().eq(expected));
}

#[test]
fn call_arguments_are_immutable() {
    let sources = ["job.labels[\"seen\"] = 1", "job.models.append(1)", "job[\"gpus\"] = 1", "job.gpus = 1"];
    let dict = PolicyValue::Dict(vec![(PolicyValue::text("gpus"), PolicyValue::Int(4))]);
    let record = PolicyValue::Record(vec![("labels", dict.clone()), ("models", PolicyValue::List(Vec::new()))]);
    for source in sources {
        let it = program(&format!("def f(job, n):\n    {source}\n    return n")).unwrap();
        for value in [&record, &dict] {
            let calls = CallBatch::from_pairs(vec![value.clone()], vec![PolicyValue::Int(1), PolicyValue::Int(2)]);
            let answers = it.call_each("a.gsky", "f", &calls);
            assert!(answers.iter().all(Result::is_err), "{source}: {answers:?}");
        }
    }
    let it = program("def f(job):\n    mine = dict(job)\n    mine[\"gpus\"] += 1\n    return mine[\"gpus\"]");
    let answers = it.unwrap().call_each("a.gsky", "f", &CallBatch::from_rows([[dict.clone()], [dict]]));
    assert_eq!(answers, [Ok(PolicyValue::Int(5)), Ok(PolicyValue::Int(5))]);
}

#[test]
fn mentions_list_every_attribute_and_string() {
    let source = "KEY = \"team\"\ndef f(job):\n    return [x.image for x in [job] if job.labels.get(KEY)]";
    let it = program(source).unwrap();
    let mentions: Vec<&str> = it.mentions().iter().map(String::as_str).collect();
    assert_eq!(mentions, ["get", "image", "labels", "team"]);
}

#[test]
fn bundle_files_load_each_other_and_run_once() {
    let lib = "gpu_ops.register_pool(gpu_pool(name = \"p\"))\ndef twice(n):\n    return 2 * n";
    let policy = "load(\"lib.gsky\", \"twice\")\ndef admit(job):\n    return twice(job)";
    let test = "this is no Starlark and never runs";
    let it = program_of(&[("lib.gsky", lib), ("a.gsky", policy), ("a_test.gsky", test)]).unwrap();
    assert_eq!(it.call("admit", &[PolicyValue::Int(4)]), Ok(PolicyValue::Int(8)));
    assert_eq!(it.files_defining("admit"), ["a.gsky"]);
    assert_eq!(it.files_defining("twice"), ["lib.gsky"]);
    assert!(it.rules().pools.contains_key("p"));
    let escape = program_of(&[("a.gsky", "load(\"../lib.gsky\", \"twice\")")]).unwrap_err();
    assert!(escape.to_string().starts_with("a.gsky:1:6: `../lib.gsky` cannot be loaded"), "{escape}");
}
