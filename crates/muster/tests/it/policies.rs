//! Policies of a server that runs: what they say comes true, and the history can be replayed without them.

use std::fs;

use serde_json::Value;

use super::http;
use super::session::Session;

const RULES: &str = r#"
def pool(name, models, max_temp_c = 100):
    return gpu_pool(name = name, gpu_type = models, min_memory_gb = 16, max_temp_c = max_temp_c)

gpu_ops.register_pool(pool("h100", ["H100"]))
gpu_ops.register_pool(pool("cold", [], max_temp_c = 60))
gpu_ops.register_schedule(schedule_ruleset(name = "rules", rules = [
    priority_rule(label = "job_priority", values = ["high", "normal", "low"]),
    preemption_rule(allow = True, priority_threshold = "normal"),
    distribution_rule(strategy = "spread"),
]))
"#;

const HOOKS: &str = r#"
def admit(job):
    if job.labels.get("team") == "rogue":
        return refuse("the rogue team has no business here")
    if job.gpus > 2 and job.labels.get("approved") != "yes":
        return "more than two GPUs need the label approved=yes"
    return True

def priority(job, tenant):
    return 900 if job.labels.get("kind") == "interactive" else None

def victims(job, candidates):
    return [one for one in candidates if one.labels.get("precious") != "yes"]
"#;

fn with_policies(session: &Session, files: &[(&str, &str)]) -> String {
    written(session, files);
    session.says("policy apply mine --why test")
}

/// Files of policies in the folder `mine`.
fn written(session: &Session, files: &[(&str, &str)]) {
    let folder = session.folder.join("mine");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
}

fn json(text: &str) -> Value {
    muster_json::from_str(text).unwrap()
}

fn submit(session: &Session, words: &str) -> String {
    session.says(&format!("submit {words} -- work")).trim().to_string()
}

/// What the metrics say of `admit`; nothing before it was asked.
pub fn counted(session: &Session, what: &str) -> Option<f64> {
    let (_, metrics) = http::ask(session.url(), "GET", "/metrics", "").unwrap();
    let name = format!("muster_policy_{what}_total{{hook=\"admit\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
}

#[test]
fn what_policies_say_comes_true_and_can_be_replayed() {
    // Who was displaced may be displaced again at once: on a machine that stands still for seconds nodes are lost and come
    // back, and someone may have to give way twice.
    let file = std::env::temp_dir().join(format!("muster-it-{}-policies.yaml", std::process::id()));
    fs::write(&file, "scheduler:\n  preemption_cooldown: 0s\n").unwrap();
    let session = Session::new("policies", &["--config", file.to_str().unwrap()]);
    fs::remove_file(&file).unwrap();
    let applied = with_policies(&session, &[("rules.gsky", RULES), ("hooks.gsky", HOOKS)]);
    assert!(applied.contains("2 files; 2 pools; 1 ruleset; answers admit, priority, victims"), "{applied}");

    // Refused at the door, and let wait with a reason that a change of the job takes away.
    let refused = session.refuses("submit --gpus 1 --label team=rogue -- work");
    assert!(refused.contains("a policy refuses the job: the rogue team has no business here"), "{refused}");
    let long = "--annotation muster.sim/runtime=10m";
    let large = submit(&session, &format!("--gpus 4 {long}"));
    let why = session.waits_for(&format!("why {large}"), "approved=yes");
    assert!(why.contains("a policy lets it wait: more than two GPUs need the label approved=yes"), "{why}");
    let approved = submit(&session, &format!("--gpus 4 --label approved=yes {long}"));
    session.waits_for(&format!("show {approved}"), "Running");

    // Pools by name: one that is there, one that is misspelt.
    let misspelt = session.refuses("submit --gpus 1 --pool h10 -- work");
    assert!(
        misspelt.contains("there is no pool `h10`") && misspelt.contains("did you mean `h100`?"),
        "{misspelt}"
    );
    let beyond = session.refuses("submit --gpus 5 --pool h100 -- work");
    assert!(beyond.contains("no node has 5 GPUs in pool `h100`"), "{beyond}");
    let pooled = submit(&session, "--gpus 1 --pool h100 --annotation muster.sim/runtime=500ms");
    session.says(&format!("wait {pooled} --timeout 30s"));

    // Spread: the next two jobs of one GPU sit on different nodes where both have room.
    session.says(&format!("cancel {approved}"));
    session.waits_for("ps --all", "Cancelled");
    let (one, two) =
        (submit(&session, &format!("--gpus 1 {long}")), submit(&session, &format!("--gpus 1 {long}")));
    let node = |job: &str| {
        session.waits_for(&format!("show {job}"), "Running");
        json(&session.says(&format!("show {job} -o json")))["nodes"].to_string()
    };
    assert_ne!(node(&one), node(&two));

    // Everything full: who is precious is not displaced, others are.
    session.says(&format!("cancel {one} {two} --yes"));
    let precious = submit(&session, &format!("--gpus 2 --priority low --label precious=yes {long}"));
    let also = submit(&session, &format!("--gpus 2 --priority low --label precious=yes {long}"));
    let mine = submit(&session, &format!("--gpus 2 --priority low {long}"));
    let more = submit(&session, &format!("--gpus 2 --priority low {long}"));
    for job in [&precious, &also, &mine, &more] {
        session.waits_for(&format!("show {job}"), "Running");
    }
    let urgent = ["a", "b", "c"].map(|_| submit(&session, &format!("--gpus 2 --priority critical {long}")));
    // Which two of the three: of equal jobs the one whose answers arrive first may be placed first.
    let runs = |job: &&String| session.says(&format!("show {job}")).contains("Running");
    let begun = std::time::Instant::now();
    while urgent.iter().filter(runs).count() < 2 {
        assert!(begun.elapsed().as_secs() < 60, "{}", session.says("ps --all"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    for job in [&precious, &also] {
        assert!(session.says(&format!("show {job}")).contains("Running"), "{job} was displaced");
    }
    for job in [&mine, &more] {
        assert!(!session.says(&format!("show {job}")).contains("Running"), "{job} was not displaced");
    }
    assert_eq!(urgent.iter().filter(runs).count(), 2);

    // The journal alone makes every decision again: nobody asks a policy.
    let same = session.whatif("");
    assert!(same["decisions"].as_u64().unwrap() > 5, "{same}");
    assert_eq!(same["decisions_different"], 0, "{same}");

    // Where history goes another way, policies are asked anew: with more nodes all start but the one nobody approved.
    let more = session.whatif("--add-nodes 4x8xH100");
    let count = |what: &str| more["changed"][what].as_u64().unwrap();
    assert_eq!(count("jobs") - count("started"), 1, "{more}");
    assert_eq!(count("preemptions"), 0, "{more}");
    assert!(more["really"]["preemptions"].as_u64().unwrap() >= 2, "{more}");

    // Under other policies: who would not have been accepted.
    let strict = "def admit(job):\n    return refuse(\"too large\") if job.gpus > 3 else True\n";
    fs::create_dir_all(session.folder.join("strict")).unwrap();
    fs::write(session.folder.join("strict/a.gsky"), format!("{strict}{RULES}")).unwrap();
    let stricter = session.whatif("--policies strict");
    let refused: Vec<&Value> = stricter["refused"].as_array().unwrap().iter().collect();
    assert_eq!(refused.len(), 2, "{stricter}");
    assert!(refused.iter().all(|one| one["why"].as_str().unwrap().contains("too large")), "{stricter}");
    assert_eq!(stricter["changes"][0], "policies: a.gsky", "{stricter}");
    let wrong = session.refuses("sim whatif --policies nowhere");
    assert!(wrong.contains("cannot read"), "{wrong}");

    // A pool that jobs wait for cannot be taken away; without them it can, and there is a way back.
    let cold = submit(&session, &format!("--gpus 4 --pool cold --hold {long}"));
    let kept = session.refuses("policy apply --none");
    assert!(kept.contains(&format!("`{cold}` waits for the pool `cold`")), "{kept}");
    session.says(&format!("cancel {cold}"));
    session.says("policy apply --none");
    assert!(session.refuses("policy show").contains("no policies are in force"));
    session.says("policy rollback 1");
    let versions = json(&session.says("policy ls -o json"));
    let hashes: Vec<&Value> =
        versions["policies"].as_array().unwrap().iter().map(|one| &one["hash"]).collect();
    assert_eq!(hashes.len(), 3);
    assert_eq!(hashes[0], hashes[2]);
    session.end();
}

const AFTERWARDS: &str = r#"
def retry(job, failure):
    if failure.exit_code == 137:
        return "who ran out of memory does so again"
    return 0.1

def power(job):
    return 250.5 if job.labels.get("kind") == "background" else None
"#;

#[test]
fn policies_say_who_starts_again_and_how_much_its_gpus_draw() {
    let session = Session::new("afterwards", &[]);
    with_policies(&session, &[("rules.gsky", RULES), ("afterwards.gsky", AFTERWARDS)]);
    let failing = "--gpus 1 --restarts 2 --annotation muster.sim/runtime=100ms";
    let hungry = submit(&session, &format!("{failing} --annotation muster.sim/exit-code=137"));
    let clumsy = submit(&session, &format!("{failing} --annotation muster.sim/exit-code=1"));
    let over = session.waits_for(&format!("show {hungry}"), "Failed");
    let why = "exit code 137; a policy does not start it again: who ran out of memory does so again";
    assert!(
        over.contains(why) && json(&session.says(&format!("show {hungry} -o json")))["attempts"] == 1,
        "{over}"
    );
    let over = session.waits_for(&format!("show {clumsy}"), "Failed");
    assert!(!over.contains("policy"), "{over}");
    assert_eq!(json(&session.says(&format!("show {clumsy} -o json")))["attempts"], 3, "{over}");

    let long = "--gpus 1 --annotation muster.sim/runtime=10m";
    let background = submit(&session, &format!("{long} --label kind=background"));
    session.waits_for(&format!("show {background}"), "at most 250.5 W each");
    let usual = submit(&session, long);
    assert!(!session.waits_for(&format!("show {usual}"), "Running").contains(" W each"));
    let same = session.whatif("");
    assert_eq!(same["decisions_different"], 0, "{same}");
    session.end();
}

/// Policies beside those in force decide nothing, and what they would decide otherwise is told.
#[test]
fn a_shadow_says_what_it_would_decide_otherwise() {
    let session = Session::new("shadow", &[]);
    assert!(session.refuses("policy shadow").contains("no policies run as a shadow"));
    with_policies(&session, &[("rules.gsky", RULES), ("hooks.gsky", HOOKS)]);
    let beside = session.folder.join("beside");
    fs::create_dir_all(&beside).unwrap();
    let strict = "def admit(job):\n    return job.gpus < 2 or \"one GPU will do\"\n";
    fs::write(beside.join("a.gsky"), format!("{RULES}{strict}")).unwrap();
    let begun = session.says("policy apply beside --shadow");
    assert!(begun.contains("what is in force stays") && begun.contains("1 file; 2 pools"), "{begun}");
    let long = "--annotation muster.sim/runtime=10m";
    // Both let this one wait. It is looked at every second: by the first look the shadow's worker is there.
    let unapproved = submit(&session, &format!("--gpus 4 {long}"));
    let looks = || json(&session.says("policy shadow -o json"))["looks"].as_u64().unwrap();
    session.until("there is a look", || looks() > 0);
    let (small, large) =
        (submit(&session, &format!("--gpus 1 {long}")), submit(&session, &format!("--gpus 2 {long}")));
    for job in [&small, &large] {
        session.waits_for(&format!("show {job}"), "Running");
    }
    let told = session.waits_for("policy shadow", &format!("{large} "));
    assert!(
        told.contains("starts on") && told.contains("waits: a policy lets it wait: one GPU will do"),
        "{told}"
    );
    assert!(!told.contains(&format!("{unapproved} ")), "both let it wait: {told}");

    // A refusal is called one.
    let refusing = "def admit(job):\n    return refuse(\"three are too many\") if job.gpus == 3 else True\n";
    fs::write(beside.join("a.gsky"), format!("{RULES}{refusing}")).unwrap();
    session.says("policy apply beside --shadow");
    session.until("there is a look", || looks() > 0);
    let three = submit(&session, &format!("--gpus 3 --label approved=yes {long}"));
    let told = session.waits_for("policy shadow", &format!("{three} "));
    assert!(told.contains("refused: three are too many"), "{told}");
    fs::write(beside.join("a.gsky"), format!("{RULES}{strict}")).unwrap();
    session.says(&format!("cancel {three}"));

    // The same over the history, at once: the strict ones would have let it wait until they are withdrawn.
    let history = session.waits_for("policy apply beside --shadow --since 1h", &large);
    assert!(history.contains("effect") && !history.contains(&small), "{history}");
    assert!(session.refuses("policy apply beside --since 1h").contains("--shadow"));
    let shadow = json(&session.says("policy shadow --end -o json"));
    let jobs: Vec<&str> =
        shadow["jobs"].as_array().unwrap().iter().map(|one| one["job_id"].as_str().unwrap()).collect();
    assert!(jobs.contains(&three.as_str()) && !jobs.contains(&small.as_str()), "{shadow}");
    assert!(shadow["looks"].as_u64().unwrap() > 0, "{shadow}");
    assert_eq!(json(&session.says("policy ls -o json"))["total"], 1);
    assert!(session.refuses("policy shadow").contains("--shadow"));
    session.end();
}

/// The folder that the configuration names is in force, and again when it changes; a way back stays a way back.
#[test]
fn a_folder_of_policies_is_in_force_whenever_it_changes() {
    let name = format!("muster-it-{}-dir", std::process::id());
    let (file, dir) = (std::env::temp_dir().join(format!("{name}.yaml")), std::env::temp_dir().join(name));
    fs::create_dir_all(&dir).unwrap();
    fs::write(&file, format!("policies:\n  dir: {}\n", dir.display())).unwrap();
    let write = |text: &str| fs::write(dir.join("a.gsky"), text).unwrap();
    write("def admit(job):\n    return job.gpus < 4\n");
    let session = Session::new("folder", &["--config", file.to_str().unwrap()]);
    let first = session.waits_for("policy ls", "policies.dir");
    assert!(first.contains("has changed"), "{first}");
    write("def admit(job):\n    return job.gpus <\n");
    let log = || fs::read_to_string(session.folder.join("server.log")).unwrap();
    session.until("the log says what is wrong", || log().contains("a.gsky:2"));
    assert_eq!(json(&session.says("policy ls -o json"))["total"], 1);
    write("def admit(job):\n    return job.gpus < 5\n");
    session.until("the next is in force", || json(&session.says("policy ls -o json"))["total"] == 2);
    // Going back holds: the folder is as it was.
    session.says("policy rollback");
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(json(&session.says("policy ls -o json"))["total"], 3);
    session.end();
    fs::remove_dir_all(&dir).unwrap();
    fs::remove_file(&file).unwrap();
}

/// A policy that fails is loud, and jobs wait or do not, as is configured.
#[test]
fn a_policy_that_fails_is_loud_and_the_cluster_goes_on() {
    let broken = "def admit(job):\n    return 1 // (job.gpus - 1) > 0\n";
    for (word, goes_on) in [("closed", false), ("open", true)] {
        let file = std::env::temp_dir().join(format!("muster-it-{}-{word}.yaml", std::process::id()));
        fs::write(&file, format!("scheduler:\n  policy_failure: {word}\n")).unwrap();
        let session = Session::new(&format!("failing-{word}"), &["--config", file.to_str().unwrap()]);
        let wrong = session.folder.join("wrong");
        fs::create_dir_all(&wrong).unwrap();
        fs::write(wrong.join("a.gsky"), "def admit(job):\n    return job.gpuz(\n").unwrap();
        let refused = session.refuses("policy apply wrong");
        assert!(refused.contains("a.gsky:") && refused.contains("policy check"), "{refused}");
        with_policies(&session, &[("a.gsky", broken)]);
        assert!(session.says("doctor").contains("1 in force"), "nobody waits for it yet");
        let fails = submit(&session, "--gpus 1 --annotation muster.sim/runtime=200ms");
        let works = submit(&session, "--gpus 2 --annotation muster.sim/runtime=200ms");
        session.says(&format!("wait {works} --timeout 30s"));
        match goes_on {
            true => drop(session.says(&format!("wait {fails} --timeout 30s"))),
            false => {
                let why = session.waits_for(&format!("why {fails}"), "a policy failed: a.gsky:2");
                assert!(why.contains("division by zero") || why.contains("ivi"), "{why}");
                session.refuses("doctor");
                let doctor = session.prints("doctor");
                assert!(doctor.contains("a failing policy blocks 1 job: a.gsky:2"), "{doctor}");
            }
        }
        let log = fs::read_to_string(session.folder.join("server.log")).unwrap();
        assert!(log.contains("a policy failed"), "{log}");
        // The one that works was asked about too, when it was submitted and before it started.
        let of_admit = |what: &str| counted(&session, what).unwrap();
        assert!(of_admit("failures") >= 1.0 && of_admit("calls") >= of_admit("failures") + 2.0);
        assert!(of_admit("seconds") > 0.0);
        session.end();
        fs::remove_file(&file).unwrap();
    }
}

const RED: &str = r#"
def admit(job):
    if job.labels.get("kind") == "toy":
        return refuse("red does not play")
    return job.gpus < 2 or "red starts small"

def priority(job, tenant):
    return 10000
"#;

/// What a tenant's policies say holds for its jobs and for no others, and they never run in the server's own process.
#[test]
fn the_policies_of_a_tenant_speak_of_its_own_jobs() {
    let session = Session::new("policies-red", &[]);
    ["red", "blue"].iter().for_each(|name| drop(session.says(&format!("tenant create {name}"))));
    with_policies(&session, &[("power.gsky", "def power(job):\n    return 300\n")]);
    assert_eq!(session.policy_workers(), 0, "nobody was asked yet");
    written(&session, &[("rules.gsky", RULES)]);
    let refused = session.refuses("policy apply mine --tenant red");
    assert!(refused.contains("register nothing") && refused.contains("the pool `cold`"), "{refused}");
    written(&session, &[("red.gsky", RED)]);
    let applied = session.says("policy apply mine --tenant red");
    assert!(applied.contains("in force for tenant red: 1 file; answers admit, priority"), "{applied}");
    assert!(session.refuses("policy apply mine --tenant nobody").contains("nobody"));

    let long = "--annotation muster.sim/runtime=600s";
    let large = submit(&session, &format!("--tenant red --gpus 2 {long}"));
    let why = session.waits_for(&format!("why {large}"), "red starts small");
    assert!(why.contains("a policy lets it wait"), "{why}");
    let refused = session.refuses("submit --tenant red --gpus 1 --label kind=toy -- work");
    assert!(refused.contains("a policy refuses the job: red does not play"), "{refused}");
    let others = submit(&session, &format!("--tenant blue --gpus 2 --label kind=toy {long}"));
    let small = submit(&session, &format!("--tenant red --gpus 1 {long}"));
    for job in [&others, &small] {
        session.waits_for(&format!("show {job}"), "Running");
    }
    assert_eq!(session.policy_workers(), 2, "the cluster's and red's");

    // The journal needs nobody to make every decision again; another future asks them, and red still starts small.
    assert_eq!(session.whatif("")["decisions_different"], 0);
    let more = session.whatif("--add-nodes 4x8xH100");
    let count = |what: &str| more["changed"][what].as_u64().unwrap();
    assert_eq!(count("jobs") - count("started"), 1, "{more}");

    // After a restart they are in force as before, and so is what they say of new jobs.
    let session = session.restart();
    let also = submit(&session, &format!("--tenant red --gpus 3 {long}"));
    session.waits_for(&format!("why {also}"), "red starts small");
    assert_eq!(session.policy_workers(), 2);
    let list = session.says("policy ls --tenant red --columns scope");
    assert!(list.contains("tenant red") && !list.contains("cluster"), "{list}");

    // Without them nobody waits, and what the cluster has stays.
    session.says("policy apply --none --tenant red");
    session.waits_for(&format!("show {large}"), "Running");
    assert!(session.refuses("policy show --tenant red").contains("no policies are in force"));
    assert!(session.says("policy show").contains("answers  power"));
    session.end();
}

/// Whatever the policies of a tenant do, its jobs wait and say why, and the others go on.
#[test]
fn a_tenant_whose_policies_mean_no_good_harms_nobody_else() {
    let session = Session::new("policies-hostile", &[]);
    let hostile = [
        ("greedy", "def admit(job):\n    return 'a' * (job.gpus << 30) == ''\n", "it wanted more memory"),
        (
            "endless",
            "def admit(job):\n    for i in range(1 << 30):\n        for j in range(1 << 30):\n            pass\n",
            "a.gsky:",
        ),
        ("long", "def admit(job):\n    return ['a' * 1000] * (job.gpus << 16)\n", "a policy failed"),
    ];
    let short = "--annotation muster.sim/runtime=200ms";
    let mut theirs = Vec::new();
    session.says("tenant create blue");
    for (name, source, told) in hostile {
        session.says(&format!("tenant create {name}"));
        written(&session, &[("a.gsky", source)]);
        session.says(&format!("policy apply mine --tenant {name}"));
        theirs.push((submit(&session, &format!("--tenant {name} --gpus 1 {short}")), told));
    }
    for _ in 0..5 {
        let job = submit(&session, &format!("--tenant blue --gpus 1 {short}"));
        session.says(&format!("wait {job} --timeout 60s"));
    }
    for (job, told) in &theirs {
        let why = session.waits_for(&format!("why {job}"), "a policy failed");
        let why = if why.contains(told) { why } else { session.waits_for(&format!("why {job}"), told) };
        assert!(!why.contains("Running"), "{why}");
    }
    // Who writes better ones is let in.
    written(&session, &[("a.gsky", "def admit(job):\n    return True\n")]);
    session.says("policy apply mine --tenant greedy");
    session.says(&format!("wait {} --timeout 60s", theirs[0].0));
    session.end();
}

/// Tests lie beside policies so that they hold: policies whose tests fail are not applied, unless by force. An attribute
/// that no view has is found before it is read.
#[test]
fn policies_with_failing_tests_or_misspelt_attributes_are_not_applied() {
    let session = Session::new("policies-tests", &[]);
    let source = "def admit(job):\n    return job.gpus < 3\n";
    let test = "load(\"a.gsky\", \"admit\")\ndef test_small():\n    expect.true(admit(job(gpus = 4)))\n";
    written(&session, &[("a.gsky", source), ("a_test.gsky", test)]);
    let refused = session.refuses("policy apply mine");
    assert!(
        refused.contains("tests of the policies fail") && refused.contains("a_test.gsky:2 test_small"),
        "{refused}"
    );
    assert!(refused.contains("--force"), "{refused}");
    assert!(session.refuses("policy apply mine --dry-run").contains("test_small"));
    assert_eq!(json(&session.says("policy ls -o json"))["total"], 0);
    assert!(session.says("policy apply mine --force").contains("version 1 is in force"));

    let misspelt =
        "def admit(job):\n    if job.gpus > 100:\n        return job.time_limt_s < 60\n    return True\n";
    written(&session, &[("a.gsky", misspelt)]);
    let told = "a.gsky:3:20: `job` has no attribute `time_limt_s`; did you mean `time_limit_s`?";
    for words in ["policy apply mine", "policy apply mine --force", "policy check mine"] {
        let refused = session.refuses(words);
        assert!(refused.contains(told), "{words}: {refused}");
    }
    session.end();
}

/// Half of the GPUs for the tenant `lab` and all below it, two of a pool, and no limit for others.
const LIMITS: &str = r#"
gpu_ops.register_pool(gpu_pool(name = "all", gpu_type = []))

def limit(tenant, cluster):
    if tenant.id == "lab":
        return {"gpus": cluster.gpus / 2, "pools": {"all": 2}}
    return None
"#;

/// What depends on what others hold is a limit for a tenant: every start counts against it, what is only foreseen too, and it
/// is asked wherever policies are tried.
#[test]
fn a_limit_holds_for_a_tenant_and_all_below_it() {
    let session = Session::new("policies-limit", &[]);
    session.says("tenant create lab");
    for team in ["red", "blue"] {
        session.says(&format!("tenant create {team} --parent lab"));
    }
    let applied = with_policies(&session, &[("a.gsky", LIMITS)]);
    assert!(applied.contains("answers limit"), "{applied}");
    let long = "--annotation muster.sim/runtime=10m";
    let first = submit(&session, &format!("--tenant red --gpus 3 {long}"));
    session.waits_for(&format!("show {first}"), "Running");

    // Nobody of blue waits, so nothing is known of its limit before it is asked for.
    let plan = session.prints("plan --tenant blue --gpus 2 -- work");
    let told = "PolicyLimit: tenant `lab` may hold 4 GPUs by policy now, holds 3 and the job wants 2";
    assert!(plan.contains("waits") && plan.contains(told), "{plan}");
    let second = submit(&session, &format!("--tenant blue --gpus 2 {long}"));
    let why = session.waits_for(&format!("why {second}"), told);
    assert!(
        why.contains("It would start now with 1 GPU") && why.contains("muster ps --tenant blue"),
        "{why}"
    );
    let reasons = json(&session.says(&format!("why {second} -o json")))["reasons"].clone();
    assert_eq!(reasons[0]["reason"], "PolicyLimit", "{reasons}");
    let other = submit(&session, &format!("--gpus 3 {long}"));
    session.waits_for(&format!("show {other}"), "Running");
    assert!(!session.says(&format!("show {second}")).contains("Running"));

    // Of the pool the tenant may hold two: the third waits, although two more of all GPUs would be allowed.
    session.says(&format!("cancel {first} {second} --yes"));
    session.waits_for("ps --all", "Cancelled");
    let pooled =
        ["red", "blue"].map(|team| submit(&session, &format!("--tenant {team} --gpus 1 --pool all {long}")));
    for job in &pooled {
        session.waits_for(&format!("show {job}"), "Running");
    }
    let third = submit(&session, &format!("--tenant red --gpus 1 --pool all {long}"));
    let told = "tenant `lab` may hold 2 GPUs of pool `all` by policy now, holds 2 and the job wants 1";
    session.waits_for(&format!("why {third}"), told);
    let plain = submit(&session, &format!("--tenant red --gpus 1 {long}"));
    session.waits_for(&format!("show {plain}"), "Running");

    // The history is replayed without asking; other policies over it, and as a shadow beside it, are asked.
    assert_eq!(session.whatif("")["decisions_different"], 0);
    let none = LIMITS.replace("cluster.gpus / 2", "0");
    fs::create_dir_all(session.folder.join("none")).unwrap();
    fs::write(session.folder.join("none/a.gsky"), &none).unwrap();
    let nothing = session.whatif("--policies none");
    let started = |of: &str| nothing[of]["started"].as_u64().unwrap();
    assert_eq!((started("really"), started("changed")), (5, 1), "{nothing}");
    session.says("policy apply none --shadow");
    let looks = || json(&session.says("policy shadow -o json"))["looks"].as_u64().unwrap();
    session.until("there is a look", || looks() > 0);
    let fourth = submit(&session, &format!("--tenant blue --gpus 1 {long}"));
    let told = session.waits_for("policy shadow", &format!("{fourth} "));
    assert!(told.contains("waits: tenant `lab` may hold 0 GPUs by policy now"), "{told}");
    session.says("policy shadow --end");

    // A server that starts again knows it from the journal; other policies are asked anew.
    let session = session.restart();
    session.waits_for(&format!("why {third}"), "tenant `lab` may hold 2 GPUs of pool `all` by policy now");
    let pool = "gpu_ops.register_pool(gpu_pool(name = \"all\", gpu_type = []))\n";
    let broken =
        format!("{pool}def limit(tenant, cluster):\n    return 1 // (cluster.gpus - cluster.gpus)\n");
    with_policies(&session, &[("a.gsky", &broken)]);
    session.waits_for(&format!("why {third}"), "a policy failed: a.gsky:3");
    session.refuses("doctor");
    assert!(session.prints("doctor").contains("a failing policy blocks 1 job: a.gsky:3"));
    with_policies(&session, &[("a.gsky", pool)]);
    session.waits_for(&format!("show {third}"), "Running");
    session.end();
}
