//! Policies as people write them, right and wrong.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use muster_core::rules::{Fact, PowerPolicy, Rule, Rules};

use crate::{Gpu, Limits, PolicyEngine, PolicyError, Requirements, load_file};

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
        ("f = lambda g: g(g)\nf(f)", "policy.gsky:1:15: ", "call stack overflow"),
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
    ];
    fine.into_iter().for_each(|source| drop(run(source).unwrap()));
}

#[test]
fn what_never_ends_is_ended() {
    let cases = [
        "for i in range(100000000):\n  x = i",
        "x = [i for i in range(100000000)]",
        "def f():\n  for i in range(10000):\n    for j in range(10000):\n      pass\nf()",
    ];
    let few = Limits { steps: 20_000, ..Limits::default() };
    for source in cases {
        let folder = Folder::with(&[("policy.gsky", source)]);
        let said = load_file(&folder.0.join("policy.gsky"), &few).unwrap_err().to_string();
        assert!(said.contains("tick"), "{source}: {said}");
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
