//! Policies as people write them, right and wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use muster_core::rules::{Fact, PowerPolicy, Rule, Rules};

use crate::{Calls, Gpu, Limits, Plain, PolicyEngine, PolicyError, Program, Requirements, load_file};

/// A folder of its own, gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("muster-policy-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(source: &str) -> Result<Rules, PolicyError> {
    let folder = Folder::with(&[("policy.gsky", source)]);
    load_file(&folder.0.join("policy.gsky"), &Limits::default())
}

/// The message without the folder.
fn wrong(source: &str) -> String {
    let said = run(source).unwrap_err().to_string();
    said.split_once("policy.gsky").map_or(said.clone(), |(_, rest)| format!("policy.gsky{rest}"))
}

/// The policies that come with the product.
fn shipped() -> PolicyEngine {
    let mut engine = PolicyEngine::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies"));
    let (count, errors) = engine.load_all_policies();
    assert_eq!((count, errors), (3, Vec::new()));
    engine
}

/// That of the commissioning document.
fn gpu() -> Gpu {
    Gpu { tags: vec!["high-perf".to_string()], ..Gpu::synthetic(0) }
}

fn needs(min_memory: f64, tags: &[&str]) -> Requirements {
    let tags = tags.iter().map(ToString::to_string).collect();
    Requirements { min_memory: Some(min_memory), max_temp: None, tags }
}

#[test]
fn the_shipped_policies_register_three_pools_and_three_rulesets() {
    let engine = shipped();
    let rules = engine.rules();
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(names(rules.pools.keys().collect()), ["gpu_pool_basic", "gpu_pool_dev", "gpu_pool_prod"]);
    assert_eq!(
        names(rules.schedules.keys().collect()),
        ["basic_scheduling", "dev_scheduling", "prod_scheduling"]
    );
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
fn the_example_of_the_commissioning_document_is_true() {
    assert!(shipped().evaluate_allocation(&gpu(), &needs(16.0, &["high-perf"])));
}

#[test]
fn bounds_are_kept_to_the_letter() {
    let engine = shipped();
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
        (
            Gpu { pool: "gpu_pool_prod".to_string(), temperature_c: 88.0, ..gpu() },
            Requirements::default(),
            false,
        ),
    ];
    for (gpu, requirements, expected) in cases {
        assert_eq!(engine.evaluate_allocation(&gpu, &requirements), expected, "{gpu:?} {requirements:?}");
    }
}

#[test]
fn the_best_gpu_comes_first_and_equals_as_they_came() {
    let engine = shipped();
    let gpus = [
        Gpu { id: 0, temperature_c: 82.0, ..gpu() },
        Gpu { id: 1, memory_gb: 12.0, ..gpu() },
        Gpu { id: 2, ..gpu() },
        Gpu { id: 3, ..gpu() },
        Gpu { id: 4, name: "A10".to_string(), ..gpu() },
        Gpu { id: 5, online: false, ..gpu() },
    ];
    let best: Vec<u32> =
        engine.recommended(&gpus, &Requirements::default()).iter().map(|gpu| gpu.id).collect();
    assert_eq!(best, [2, 3, 1, 0, 5]);
}

#[test]
fn a_policy_is_a_program() {
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
fn the_same_name_again_replaces() {
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
fn what_is_wrong_is_told_with_its_line() {
    let cases = [
        ("x = 1\ny = = 2\n", "policy.gsky:2:5: ", "unexpected"),
        (
            "p = gpu_pool(\n  name = 'p',\n  gpu_typ = 'A100')",
            "policy.gsky:1:5: ",
            "did you mean `gpu_type`?",
        ),
        (
            "\ngpu_pool(min_memory_gb = '16')",
            "policy.gsky:2:1: ",
            "`min_memory_gb` is \"16\" (string); it must be a number",
        ),
        ("gpu_pool(min_memory_gb = True)", "policy.gsky:1:1: ", "must be a number"),
        ("gpu_pool(max_temp_c = 1e300)", "policy.gsky:1:1: ", "from -273 to 1000"),
        ("gpu_pool(power_policy = 'perfomance')", "policy.gsky:1:1: ", "did you mean `performance`?"),
        ("gpu_pool(gpu_type = ['A100', 3])", "policy.gsky:1:1: ", "a text or a list of texts"),
        ("gpu_pool(opt_strategies = ['fast'])", "policy.gsky:1:1: ", "make them with optimize_clock"),
        ("gpu_pool(health_checks = [{'interval': 3}])", "policy.gsky:1:1: ", "make them with check"),
        ("gpu_ops.register_pool({'name': 'p'})", "policy.gsky:1:1: ", "make one with gpu_pool"),
        ("gpu_ops.register_schedule(gpu_pool())", "policy.gsky:1:1: ", "make one with schedule_ruleset"),
        ("balance_rule(metric = 'temprature')", "policy.gsky:1:1: ", "did you mean `temperature`?"),
        ("priority_rule(values = ['a'])", "policy.gsky:1:1: ", "`label` is missing"),
        ("schedule_ruleset(name = 's', rules = [1])", "policy.gsky:1:1: ", "which is no rule"),
        ("gpu_poll()", "policy.gsky:1:1: ", "gpu_pool"),
        ("def f():\n  return 1 // 0\nf()", "policy.gsky:2:10: ", "zero"),
        ("while True:\n  pass", "policy.gsky:1:1: ", "while"),
        (
            "def f(n):\n  return f(n)",
            "policy.gsky:1:5: ",
            "`f` calls itself (f -> f), and Starlark has no recursion",
        ),
        (
            "def f(n):\n  return g(n)\ndef g(n):\n  return [f(i) for i in n]",
            "policy.gsky:1:5: ",
            "(f -> g -> f)",
        ),
        ("f = lambda g: g(g)\nf(f)", "policy.gsky:2:3: ", "cannot be handed on itself"),
        (
            "def f(g):\n  return g(g)\ndef h(x):\n  return f(f)",
            "policy.gsky:4:12: ",
            "cannot be handed on itself",
        ),
        ("def a(g, h):\n  return g(h, h)\nb = [a]", "policy.gsky:3:6: ", "cannot be handed on itself"),
        ("(lambda g: g(g))(lambda g: g(g))", "policy.gsky:1:18: ", "cannot be handed on itself"),
        (
            "def make():\n  def r(g):\n    return g[0](g)\n  return r",
            "policy.gsky:4:10: ",
            "cannot be handed on itself",
        ),
        (
            "def f():\n  g = []\n  def h():\n    return g[0]()\n  g.append(h)\n  h()\nf()",
            "policy.gsky:4:12: ",
            "call stack overflow",
        ),
    ];
    for (source, place, expected) in cases {
        let said = wrong(source);
        assert!(said.starts_with(place) && said.contains(expected), "{source}\n  says: {said}");
    }
}

#[test]
fn a_name_that_is_ones_own_is_no_recursion() {
    let fine = [
        "def f(f):\n  return f\nf(1)",
        "def f(x):\n  for f in x:\n    pass\n  return f\nf([1])",
        "def f():\n  return 1\ndef g():\n  return f() + f()\ng()",
        "def outer():\n  def inner():\n    return 1\n  return inner()\nouter()",
        "def apply(f, x):\n  return f(x)\napply(lambda x: x + 1, 2)",
        "def both(f, g):\n  return lambda x: f(g(x))\nboth(len, list)([1])",
        "def get(d, k):\n  return d.get(k)\nsorted([1], key = lambda k: get({}, k) or 0)\nf = get",
    ];
    fine.into_iter().for_each(|source| drop(run(source).unwrap()));
}

#[test]
fn a_function_that_hands_on_is_known_in_other_files_too() {
    let library = ("library.gsky", "def apply(f, x):\n  return f(x)");
    let fine = ("fine.gsky", "load('library.gsky', call = 'apply')\ncall(len, [])");
    let wrong = ("wrong.gsky", "load('library.gsky', call = 'apply')\nfs = [call]");
    let folder = Folder::with(&[library, fine, wrong]);
    let load = |name: &str| load_file(&folder.0.join(name), &Limits::default());
    load("fine.gsky").unwrap();
    let said = load("wrong.gsky").unwrap_err().to_string();
    assert!(said.contains("wrong.gsky:2:7: ") && said.ends_with("cannot be handed on itself"), "{said}");
}

#[test]
fn what_never_ends_is_ended() {
    let cases = [
        "for i in range(100000000):\n  x = i",
        "x = [i for i in range(100000000)]",
        "def f():\n  for i in range(10000):\n    for j in range(10000):\n      pass\nf()",
    ];
    let few = Limits { steps: 20_000, load_time: Duration::from_secs(60), ..Limits::default() };
    for source in cases {
        let folder = Folder::with(&[("policy.gsky", source)]);
        let said = load_file(&folder.0.join("policy.gsky"), &few).unwrap_err().to_string();
        assert!(said.contains("more steps than it may"), "{source}: {said}");
    }
    let deep = format!("x = {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(wrong(&deep).contains("nested more than 100 deep"));
    assert!(wrong(&format!("x = {}1", "-".repeat(100_000))).contains("nested"));
    assert!(wrong(&format!("x = {}1", "not ".repeat(100_000))).contains("nested"));
    assert!(wrong(&format!("x = '{}'", "a".repeat(2 << 20))).contains("1048576 are the most"));
    assert!(
        wrong("for i in range(100000):\n  print('all work and no play')").contains("prints more than it may")
    );
}

#[test]
fn only_files_beside_it_can_be_loaded() {
    let shared = (
        "shared.gsky",
        "load('deeper.gsky', 'LEAST')\ndef pool(name):\n  return gpu_pool(name = name, min_memory_gb = LEAST)",
    );
    let deeper = ("deeper.gsky", "LEAST = 12");
    let policy = ("policy.gsky", "load('shared.gsky', 'pool')\ngpu_ops.register_pool(pool('loaded'))");
    let ring = ("ring.gsky", "load('ring.gsky', 'x')");
    let folder = Folder::with(&[shared, deeper, policy, ring]);
    let load = |name: &str| load_file(&folder.0.join(name), &Limits::default());
    assert_eq!(load("policy.gsky").unwrap().pools["loaded"].min_memory_milli_gb, 12_000);
    assert!(load("ring.gsky").unwrap_err().to_string().contains("loads itself: ring.gsky -> ring.gsky"));
    for id in ["/etc/passwd", "../x.gsky", "a/b.gsky", "x.star", "./x.gsky", "", "//a:x.gsky", "@a//x.gsky"] {
        let said = wrong(&format!("load('{id}', 'x')"));
        assert!(said.contains("cannot be loaded"), "{id}: {said}");
    }
    assert!(wrong("load('gone.gsky', 'x')").contains("there is no file `gone.gsky` beside this one"));
}

#[test]
fn a_link_that_leads_out_of_the_folder_is_not_followed() {
    let outside = Folder::with(&[("secret.gsky", "x = 1")]);
    let policy = ("policy.gsky", "load('linked.gsky', 'x')");
    let folder = Folder::with(&[policy, ("inside.gsky", "x = 2")]);
    let link = folder.0.join("linked.gsky");
    std::os::unix::fs::symlink(outside.0.join("secret.gsky"), &link).unwrap();
    let said = load_file(&folder.0.join("policy.gsky"), &Limits::default()).unwrap_err().to_string();
    assert!(said.contains("there is no file `linked.gsky` beside this one"), "{said}");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("inside.gsky", &link).unwrap();
    load_file(&folder.0.join("policy.gsky"), &Limits::default()).unwrap();
}

#[test]
fn files_that_are_none_are_refused() {
    let folder =
        Folder::with(&[("policy.gsky", "load('x.gsky', 'x')"), ("crlf.gsky", "x = 1\r\ny = [\r\n2]\r\n")]);
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
    let said = load("policy.gsky").unwrap_err().to_string();
    assert!(
        said.contains("cannot read") && said.contains("1048576 are the most"),
        "it is not even read: {said}"
    );
    std::fs::write(&x, "\u{feff}x = 1").unwrap();
    assert!(
        load("policy.gsky").unwrap_err().to_string().contains("invalid input"),
        "a mark of order is no blank"
    );
}

#[test]
fn an_answer_that_is_small_for_the_interpreter_and_large_for_us_is_refused() {
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
    let program = Program::of_files(&files, Limits::default()).unwrap();
    for function in ["shared", "texts"] {
        let said = program.call(function, &[]).unwrap_err().to_string();
        assert!(said.contains("it holds more than 1048576"), "{function}: {said}");
    }
    let said = program.call("loud", &[]).unwrap_err().to_string();
    assert!(said.len() < 2_100 && said.ends_with('…'), "{}", said.len());
}

#[test]
fn only_policies_are_loaded_and_errors_do_not_hide_the_others() {
    let folder = Folder::with(&[
        ("a.gsky", "gpu_ops.register_pool(gpu_pool(name = 'a'))"),
        ("b.gsky", "nonsense("),
        ("c.star", "gpu_ops.register_pool(gpu_pool(name = 'c'))"),
        ("d_test.gsky", "gpu_ops.register_pool(gpu_pool(name = 'd'))"),
    ]);
    let mut engine = PolicyEngine::new(&folder.0);
    let (count, errors) = engine.load_all_policies();
    assert_eq!((count, errors.len()), (1, 1));
    assert_eq!(engine.rules().pools.keys().collect::<Vec<_>>(), ["a"]);
    let mut nowhere = PolicyEngine::new("/no/such/folder");
    assert_eq!(nowhere.load_all_policies(), (0, Vec::new()));
    engine.load_policy(Path::new("a.gsky")).unwrap();
    assert_eq!(engine.loaded().len(), 2, "the path as it is, then inside the folder");
    let gone = engine.load_policy(Path::new("gone.gsky")).unwrap_err().to_string();
    assert!(gone.contains("cannot read the policy `gone.gsky`"), "{gone}");
}

fn program(source: &str) -> Result<Program, PolicyError> {
    program_of(&[("a.gsky", source)])
}

fn program_of(files: &[(&str, &str)]) -> Result<Program, PolicyError> {
    let files = files.iter().map(|(name, source)| (name.to_string(), source.to_string())).collect();
    // Time is no measure on a machine that does other things as well.
    let limits =
        Limits { time: Duration::from_secs(10), load_time: Duration::from_secs(60), ..Limits::default() };
    Program::of_files(&files, limits)
}

#[test]
fn a_function_is_called_with_plain_values_and_answers_with_them() {
    let it = program("def same(x):\n    return x\ndef gpus(job):\n    return job.gpus * 2").unwrap();
    let values = [
        Plain::None,
        Plain::Bool(true),
        Plain::Int(-7),
        Plain::Float(1.5),
        Plain::text("ä\n"),
        Plain::List(vec![Plain::Int(1), Plain::text("x")]),
        Plain::Tuple(vec![Plain::Int(1)]),
        Plain::Dict(vec![(Plain::text("k"), Plain::List(Vec::new()))]),
    ];
    for value in values {
        assert_eq!(it.call("same", std::slice::from_ref(&value)), Ok(value));
    }
    let job = Plain::Record(vec![("gpus", Plain::Int(8))]);
    assert_eq!(it.call("gpus", &[job]), Ok(Plain::Int(16)));
    let lacking = it.call("gpus", &[Plain::Record(Vec::new())]).unwrap_err().to_string();
    assert!(lacking.starts_with("a.gsky:4:") && lacking.contains("gpus"), "{lacking}");
    assert!(it.call("nobody", &[]).unwrap_err().to_string().contains("no function `nobody`"));
}

#[test]
fn a_call_that_goes_on_for_ever_is_ended_and_the_next_one_answers() {
    let source = "def f(n):\n    x = 0\n    for a in range(n):\n        for b in range(10000):\n            x += b\n    return x";
    let it = program(source).unwrap();
    let (long, short) = (Plain::Int(1_000_000), Plain::Int(1));
    let said = it.call_each("a.gsky", "f", &Calls::of_rows([[short.clone()], [long.clone()], [short]]));
    assert_eq!(said[0], Ok(Plain::Int(49_995_000)));
    let ended = said[1].clone().unwrap_err().to_string();
    assert!(ended.contains("more steps than it may"), "{ended}");
    assert_eq!(said[2], said[0]);
    let files = BTreeMap::from([("a.gsky".to_string(), source.to_string())]);
    let hurried = Limits { time: Duration::from_millis(1), steps: u64::MAX / 2, ..Limits::default() };
    let ended = Program::of_files(&files, hurried).unwrap().call("f", &[long]).unwrap_err().to_string();
    assert!(ended.contains("longer than it may"), "{ended}");
}

#[test]
fn many_calls_share_what_they_are_asked_about() {
    let it = program("def f(a, b):\n    return a.n * 1000 + b").unwrap();
    let (one, two) = (Plain::Record(vec![("n", Plain::Int(1))]), Plain::Record(vec![("n", Plain::Int(2))]));
    let numbers: Vec<Plain> = (0..1_000).map(Plain::Int).collect();
    let calls = Calls::of_pairs(vec![one, two], numbers);
    let said = it.call_each("a.gsky", "f", &calls);
    let expected = (1_000..2_000).chain(2_000..3_000).map(|n| Ok(Plain::Int(n)));
    assert!(said.into_iter().eq(expected));
}

#[test]
fn nobody_changes_what_others_are_given() {
    let sources = ["job.labels[\"seen\"] = 1", "job.models.append(1)", "job[\"gpus\"] = 1", "job.gpus = 1"];
    let dict = Plain::Dict(vec![(Plain::text("gpus"), Plain::Int(4))]);
    let record = Plain::Record(vec![("labels", dict.clone()), ("models", Plain::List(Vec::new()))]);
    for source in sources {
        let it = program(&format!("def f(job, n):\n    {source}\n    return n")).unwrap();
        for given in [&record, &dict] {
            let calls = Calls::of_pairs(vec![given.clone()], vec![Plain::Int(1), Plain::Int(2)]);
            let said = it.call_each("a.gsky", "f", &calls);
            assert!(said.iter().all(Result::is_err), "{source}: {said:?}");
        }
    }
    let it = program("def f(job):\n    mine = dict(job)\n    mine[\"gpus\"] += 1\n    return mine[\"gpus\"]");
    let said = it.unwrap().call_each("a.gsky", "f", &Calls::of_rows([[dict.clone()], [dict]]));
    assert_eq!(said, [Ok(Plain::Int(5)), Ok(Plain::Int(5))]);
}

#[test]
fn what_a_program_mentions_is_all_it_can_look_at() {
    let source = "KEY = \"team\"\ndef f(job):\n    return [x.image for x in [job] if job.labels.get(KEY)]";
    let it = program(source).unwrap();
    let mentions: Vec<&str> = it.mentions().iter().map(String::as_str).collect();
    assert_eq!(mentions, ["get", "image", "labels", "team"]);
}

#[test]
fn files_of_a_bundle_load_each_other_and_run_once() {
    let lib = "gpu_ops.register_pool(gpu_pool(name = \"p\"))\ndef twice(n):\n    return 2 * n";
    let policy = "load(\"lib.gsky\", \"twice\")\ndef admit(job):\n    return twice(job)";
    let test = "this is no Starlark, and nobody runs it";
    let it = program_of(&[("lib.gsky", lib), ("a.gsky", policy), ("a_test.gsky", test)]).unwrap();
    assert_eq!(it.call("admit", &[Plain::Int(4)]), Ok(Plain::Int(8)));
    assert_eq!(it.files_with("admit"), ["a.gsky"]);
    assert_eq!(it.files_with("twice"), ["lib.gsky"]);
    assert!(it.rules().pools.contains_key("p"));
    let escape = program_of(&[("a.gsky", "load(\"../lib.gsky\", \"twice\")")]).unwrap_err();
    assert!(escape.to_string().starts_with("a.gsky:1:6: `../lib.gsky` cannot be loaded"), "{escape}");
}
