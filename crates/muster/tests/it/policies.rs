//! Policies of a live server: their decisions take effect, and the history replays without calling them.

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

fn apply_policies(session: &Session, files: &[(&str, &str)]) -> String {
    write_policies(session, files);
    session.run_ok("policy apply mine --why test")
}

/// Writes policy files into the folder `mine`.
fn write_policies(session: &Session, files: &[(&str, &str)]) {
    let folder = session.folder.join("mine");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
}

fn json(text: &str) -> Value {
    muster_json::from_str(text).unwrap()
}

fn submit(session: &Session, words: &str) -> String {
    session.run_ok(&format!("submit {words} -- work")).trim().to_string()
}

/// The value of a metric of `admit`; `None` before the first call.
pub fn admit_metric(session: &Session, metric: &str) -> Option<f64> {
    let (_, metrics) = http::request(session.url(), "GET", "/metrics", "").unwrap();
    let name = format!("muster_policy_{metric}_total{{hook=\"admit\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
}

#[test]
fn policy_decisions_take_effect_and_replay_identically() {
    // Without a cooldown a victim may be preempted again at once: on a machine that stalls for seconds nodes are lost and
    // return, and a job may have to be preempted twice.
    let file = std::env::temp_dir().join(format!("muster-it-{}-policies.yaml", std::process::id()));
    fs::write(&file, "scheduler:\n  preemption_cooldown: 0s\n").unwrap();
    let session = Session::new("policies", &["--config", file.to_str().unwrap()]);
    fs::remove_file(&file).unwrap();
    let applied = apply_policies(&session, &[("rules.gsky", RULES), ("hooks.gsky", HOOKS)]);
    assert!(applied.contains("2 files; 2 pools; 1 ruleset; hooks admit, priority, victims"), "{applied}");

    // One job is refused at submission, another is delayed until it has a label.
    let refused = session.run_refused("submit --gpus 1 --label team=rogue -- work");
    assert!(refused.contains("a policy refuses the job: the rogue team has no business here"), "{refused}");
    let long = "--annotation muster.sim/runtime=10m";
    let large = submit(&session, &format!("--gpus 4 {long}"));
    let why = session.wait_for_output(&format!("why {large}"), "approved=yes");
    assert!(why.contains("a policy delays the job: more than two GPUs need the label approved=yes"), "{why}");
    let approved = submit(&session, &format!("--gpus 4 --label approved=yes {long}"));
    session.wait_for_output(&format!("show {approved}"), "Running");

    // Pools by name: a misspelt one, and a registered one.
    let misspelt = session.run_refused("submit --gpus 1 --pool h10 -- work");
    assert!(misspelt.contains("there is no pool `h10`") && misspelt.contains("did you mean `h100`?"), "{misspelt}");
    let beyond = session.run_refused("submit --gpus 5 --pool h100 -- work");
    assert!(beyond.contains("no node has 5 GPUs in pool `h100`"), "{beyond}");
    let pooled = submit(&session, "--gpus 1 --pool h100 --annotation muster.sim/runtime=500ms");
    session.run_ok(&format!("wait {pooled} --timeout 30s"));

    // Spread: two jobs with one GPU each are placed on different nodes.
    session.run_ok(&format!("cancel {approved}"));
    session.wait_for_output("ps --all", "Cancelled");
    let (one, two) = (submit(&session, &format!("--gpus 1 {long}")), submit(&session, &format!("--gpus 1 {long}")));
    let node = |job: &str| {
        session.wait_for_output(&format!("show {job}"), "Running");
        json(&session.run_ok(&format!("show {job} -o json")))["nodes"].to_string()
    };
    assert_ne!(node(&one), node(&two));

    // On a full cluster jobs labelled `precious` are not preempted, others are.
    session.run_ok(&format!("cancel {one} {two} --yes"));
    let precious = submit(&session, &format!("--gpus 2 --priority low --label precious=yes {long}"));
    let also = submit(&session, &format!("--gpus 2 --priority low --label precious=yes {long}"));
    let victims = ["a", "b"].map(|_| submit(&session, &format!("--gpus 2 --priority low {long}")));
    for job in [&precious, &also, &victims[0], &victims[1]] {
        session.wait_for_output(&format!("show {job}"), "Running");
    }
    let urgent = ["a", "b", "c"].map(|_| submit(&session, &format!("--gpus 2 --priority critical {long}")));
    // Any two of the three: of equal jobs the one whose answers arrive first may be placed first.
    let runs = |job: &&String| session.run_ok(&format!("show {job}")).contains("Running");
    let begin = std::time::Instant::now();
    while urgent.iter().filter(runs).count() < 2 {
        assert!(begin.elapsed().as_secs() < 60, "{}", session.run_ok("ps --all"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    for job in [&precious, &also] {
        assert!(session.run_ok(&format!("show {job}")).contains("Running"), "{job} was preempted");
    }
    for job in &victims {
        assert!(!session.run_ok(&format!("show {job}")).contains("Running"), "{job} was not preempted");
    }
    assert_eq!(urgent.iter().filter(runs).count(), 2);

    // The journal alone reproduces every decision, without calling a policy.
    let same = session.whatif("");
    assert!(same["decisions"].as_u64().unwrap() > 5, "{same}");
    assert_eq!(same["decisions_different"], 0, "{same}");

    // A diverging history calls the policies again: with more nodes all jobs start but the unapproved one.
    let more = session.whatif("--add-nodes 4x8xH100");
    let count = |figure: &str| more["changed"][figure].as_u64().unwrap();
    assert_eq!(count("jobs") - count("started"), 1, "{more}");
    assert_eq!(count("preemptions"), 0, "{more}");
    assert!(more["really"]["preemptions"].as_u64().unwrap() >= 2, "{more}");

    // Under other policies: the jobs that would have been refused.
    let strict = "def admit(job):\n    return refuse(\"too large\") if job.gpus > 3 else True\n";
    fs::create_dir_all(session.folder.join("strict")).unwrap();
    fs::write(session.folder.join("strict/a.gsky"), format!("{strict}{RULES}")).unwrap();
    let stricter = session.whatif("--policies strict");
    let refused: Vec<&Value> = stricter["refused"].as_array().unwrap().iter().collect();
    assert_eq!(refused.len(), 2, "{stricter}");
    assert!(refused.iter().all(|one| one["why"].as_str().unwrap().contains("too large")), "{stricter}");
    assert_eq!(stricter["changes"][0], "policies: a.gsky", "{stricter}");
    let wrong = session.run_refused("sim whatif --policies nowhere");
    assert!(wrong.contains("cannot read"), "{wrong}");

    // Policies that remove a pool are refused while a job waits for the pool; afterwards they can be applied and rolled back.
    let cold = submit(&session, &format!("--gpus 4 --pool cold --hold {long}"));
    let kept = session.run_refused("policy apply --none");
    assert!(kept.contains(&format!("`{cold}` waits for the pool `cold`")), "{kept}");
    session.run_ok(&format!("cancel {cold}"));
    session.run_ok("policy apply --none");
    assert!(session.run_refused("policy show").contains("no policies are active"));
    session.run_ok("policy rollback 1");
    let versions = json(&session.run_ok("policy ls -o json"));
    let hashes: Vec<&Value> = versions["policies"].as_array().unwrap().iter().map(|one| &one["hash"]).collect();
    assert_eq!(hashes.len(), 3);
    assert_eq!(hashes[0], hashes[2]);
    session.stop_and_remove();
}

const AFTERWARDS: &str = r#"
def retry(job, failure):
    if failure.exit_code == 137:
        return "out of memory"
    return 0.1

def power(job):
    return 250.5 if job.labels.get("kind") == "background" else None
"#;

#[test]
fn policies_control_retries_and_gpu_power() {
    let session = Session::new("afterwards", &[]);
    apply_policies(&session, &[("rules.gsky", RULES), ("afterwards.gsky", AFTERWARDS)]);
    let failing = "--gpus 1 --restarts 2 --annotation muster.sim/runtime=100ms";
    let not_retried = submit(&session, &format!("{failing} --annotation muster.sim/exit-code=137"));
    let retried = submit(&session, &format!("{failing} --annotation muster.sim/exit-code=1"));
    let shown = session.wait_for_output(&format!("show {not_retried}"), "Failed");
    let message = "exit code 137; a policy refused the restart: out of memory";
    let attempts = |job: &str| json(&session.run_ok(&format!("show {job} -o json")))["attempts"].clone();
    assert!(shown.contains(message) && attempts(&not_retried) == 1, "{shown}");
    let shown = session.wait_for_output(&format!("show {retried}"), "Failed");
    assert!(!shown.contains("policy"), "{shown}");
    assert_eq!(attempts(&retried), 3, "{shown}");

    let long = "--gpus 1 --annotation muster.sim/runtime=10m";
    let background = submit(&session, &format!("{long} --label kind=background"));
    session.wait_for_output(&format!("show {background}"), "at most 250.5 W each");
    let unlimited = submit(&session, long);
    assert!(!session.wait_for_output(&format!("show {unlimited}"), "Running").contains(" W each"));
    let same = session.whatif("");
    assert_eq!(same["decisions_different"], 0, "{same}");
    session.stop_and_remove();
}

/// Shadow policies have no effect; the decisions in which they differ are reported.
#[test]
fn shadow_policies_report_divergent_decisions() {
    let session = Session::new("shadow", &[]);
    assert!(session.run_refused("policy shadow").contains("no policies run as a shadow"));
    apply_policies(&session, &[("rules.gsky", RULES), ("hooks.gsky", HOOKS)]);
    let beside = session.folder.join("beside");
    fs::create_dir_all(&beside).unwrap();
    let strict = "def admit(job):\n    return job.gpus < 2 or \"one GPU will do\"\n";
    fs::write(beside.join("a.gsky"), format!("{RULES}{strict}")).unwrap();
    let applied = session.run_ok("policy apply beside --shadow");
    assert!(applied.contains("the active policies stay") && applied.contains("1 file; 2 pools"), "{applied}");
    let long = "--annotation muster.sim/runtime=10m";
    // Both delay this job. The shadow is evaluated every second: at the first evaluation its worker runs.
    let unapproved = submit(&session, &format!("--gpus 4 {long}"));
    let looks = || json(&session.run_ok("policy shadow -o json"))["looks"].as_u64().unwrap();
    session.wait_until("the shadow is evaluated", || looks() > 0);
    let (small, large) = (submit(&session, &format!("--gpus 1 {long}")), submit(&session, &format!("--gpus 2 {long}")));
    for job in [&small, &large] {
        session.wait_for_output(&format!("show {job}"), "Running");
    }
    let shadow = session.wait_for_output("policy shadow", &format!("{large} "));
    assert!(
        shadow.contains("starts on") && shadow.contains("waits: a policy delays the job: one GPU will do"),
        "{shadow}"
    );
    assert!(!shadow.contains(&format!("{unapproved} ")), "both delay the job: {shadow}");

    // A refusal is reported as a refusal.
    let refusing = "def admit(job):\n    return refuse(\"three are too many\") if job.gpus == 3 else True\n";
    fs::write(beside.join("a.gsky"), format!("{RULES}{refusing}")).unwrap();
    session.run_ok("policy apply beside --shadow");
    session.wait_until("the shadow is evaluated", || looks() > 0);
    let three = submit(&session, &format!("--gpus 3 --label approved=yes {long}"));
    let shadow = session.wait_for_output("policy shadow", &format!("{three} "));
    assert!(shadow.contains("refused: three are too many"), "{shadow}");
    fs::write(beside.join("a.gsky"), format!("{RULES}{strict}")).unwrap();
    session.run_ok(&format!("cancel {three}"));

    // The same over the recorded history: the strict policies would have delayed the large job.
    let history = session.wait_for_output("policy apply beside --shadow --since 1h", &large);
    assert!(history.contains("effect") && !history.contains(&small), "{history}");
    assert!(session.run_refused("policy apply beside --since 1h").contains("--shadow"));
    let shadow = json(&session.run_ok("policy shadow --end -o json"));
    let jobs: Vec<&str> =
        shadow["jobs"].as_array().unwrap().iter().map(|one| one["job_id"].as_str().unwrap()).collect();
    assert!(jobs.contains(&three.as_str()) && !jobs.contains(&small.as_str()), "{shadow}");
    assert!(shadow["looks"].as_u64().unwrap() > 0, "{shadow}");
    assert_eq!(json(&session.run_ok("policy ls -o json"))["total"], 1);
    assert!(session.run_refused("policy shadow").contains("--shadow"));
    session.stop_and_remove();
}

/// The folder that the configuration names is applied, and again when it changes; a rollback stays in effect.
#[test]
fn the_policy_folder_is_applied_when_it_changes() {
    let name = format!("muster-it-{}-dir", std::process::id());
    let (file, dir) = (std::env::temp_dir().join(format!("{name}.yaml")), std::env::temp_dir().join(name));
    fs::create_dir_all(&dir).unwrap();
    fs::write(&file, format!("policies:\n  dir: {}\n", dir.display())).unwrap();
    let write = |text: &str| fs::write(dir.join("a.gsky"), text).unwrap();
    write("def admit(job):\n    return job.gpus < 4\n");
    let session = Session::new("folder", &["--config", file.to_str().unwrap()]);
    let first = session.wait_for_output("policy ls", "policies.dir");
    assert!(first.contains("has changed"), "{first}");
    write("def admit(job):\n    return job.gpus <\n");
    let log = || fs::read_to_string(session.folder.join("server.log")).unwrap();
    session.wait_until("the error is logged", || log().contains("a.gsky:2"));
    assert_eq!(json(&session.run_ok("policy ls -o json"))["total"], 1);
    write("def admit(job):\n    return job.gpus < 5\n");
    session.wait_until("the next version is active", || json(&session.run_ok("policy ls -o json"))["total"] == 2);
    // A rollback stays in effect, because the folder has not changed.
    session.run_ok("policy rollback");
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(json(&session.run_ok("policy ls -o json"))["total"], 3);
    session.stop_and_remove();
    fs::remove_dir_all(&dir).unwrap();
    fs::remove_file(&file).unwrap();
}

/// A failing policy is reported, and its jobs wait or start according to `scheduler.policy_failure`.
#[test]
fn policy_failures_are_reported_and_fail_open_or_closed_as_configured() {
    let broken = "def admit(job):\n    return 1 // (job.gpus - 1) > 0\n";
    for (mode, starts) in [("closed", false), ("open", true)] {
        let file = std::env::temp_dir().join(format!("muster-it-{}-{mode}.yaml", std::process::id()));
        fs::write(&file, format!("scheduler:\n  policy_failure: {mode}\n")).unwrap();
        let session = Session::new(&format!("failing-{mode}"), &["--config", file.to_str().unwrap()]);
        let wrong = session.folder.join("wrong");
        fs::create_dir_all(&wrong).unwrap();
        fs::write(wrong.join("a.gsky"), "def admit(job):\n    return job.gpuz(\n").unwrap();
        let refused = session.run_refused("policy apply wrong");
        assert!(refused.contains("a.gsky:") && refused.contains("policy check"), "{refused}");
        apply_policies(&session, &[("a.gsky", broken)]);
        assert!(session.run_ok("doctor").contains("1 active"), "no job waits for its answer yet");
        let fails = submit(&session, "--gpus 1 --annotation muster.sim/runtime=200ms");
        let works = submit(&session, "--gpus 2 --annotation muster.sim/runtime=200ms");
        session.run_ok(&format!("wait {works} --timeout 30s"));
        match starts {
            true => drop(session.run_ok(&format!("wait {fails} --timeout 30s"))),
            false => {
                let why = session.wait_for_output(&format!("why {fails}"), "a policy failed: a.gsky:2");
                assert!(why.contains("division by zero") || why.contains("ivi"), "{why}");
                session.run_refused("doctor");
                let doctor = session.run_stdout("doctor");
                assert!(doctor.contains("a failing policy blocks 1 job: a.gsky:2"), "{doctor}");
            }
        }
        let log = fs::read_to_string(session.folder.join("server.log")).unwrap();
        assert!(log.contains("a policy failed"), "{log}");
        // The policy was also called for the other job, at its submission and before it started.
        let of_admit = |metric: &str| admit_metric(&session, metric).unwrap();
        assert!(of_admit("failures") >= 1.0 && of_admit("calls") >= of_admit("failures") + 2.0);
        assert!(of_admit("seconds") > 0.0);
        session.stop_and_remove();
        fs::remove_file(&file).unwrap();
    }
}

const RED: &str = r#"
def admit(job):
    if job.labels.get("kind") == "toy":
        return refuse("toy jobs are not allowed")
    return job.gpus < 2 or "red starts small"

def priority(job, tenant):
    return 10000
"#;

/// The policies of a tenant apply to its jobs only, and never run in the process of the server.
#[test]
fn tenant_policies_apply_only_to_the_tenants_own_jobs() {
    let session = Session::new("policies-red", &[]);
    ["red", "blue"].iter().for_each(|name| drop(session.run_ok(&format!("tenant create {name}"))));
    apply_policies(&session, &[("power.gsky", "def power(job):\n    return 300\n")]);
    assert_eq!(session.policy_workers(), 0, "no policy was called yet");
    write_policies(&session, &[("rules.gsky", RULES)]);
    let refused = session.run_refused("policy apply mine --tenant red");
    assert!(refused.contains("may not register") && refused.contains("the pool `cold`"), "{refused}");
    write_policies(&session, &[("red.gsky", RED)]);
    let applied = session.run_ok("policy apply mine --tenant red");
    assert!(applied.contains("active for tenant red: 1 file; hooks admit, priority"), "{applied}");
    assert!(session.run_refused("policy apply mine --tenant nobody").contains("nobody"));

    let long = "--annotation muster.sim/runtime=600s";
    let large = submit(&session, &format!("--tenant red --gpus 2 {long}"));
    let why = session.wait_for_output(&format!("why {large}"), "red starts small");
    assert!(why.contains("a policy delays the job"), "{why}");
    let refused = session.run_refused("submit --tenant red --gpus 1 --label kind=toy -- work");
    assert!(refused.contains("a policy refuses the job: toy jobs are not allowed"), "{refused}");
    let others = submit(&session, &format!("--tenant blue --gpus 2 --label kind=toy {long}"));
    let small = submit(&session, &format!("--tenant red --gpus 1 {long}"));
    for job in [&others, &small] {
        session.wait_for_output(&format!("show {job}"), "Running");
    }
    assert_eq!(session.policy_workers(), 2, "one of the cluster and one of red");

    // The journal reproduces every decision without policies; a diverging history calls them, and red still starts small.
    assert_eq!(session.whatif("")["decisions_different"], 0);
    let more = session.whatif("--add-nodes 4x8xH100");
    let count = |figure: &str| more["changed"][figure].as_u64().unwrap();
    assert_eq!(count("jobs") - count("started"), 1, "{more}");

    // After a restart the policies are active as before and decide about new jobs.
    let session = session.restart();
    let also = submit(&session, &format!("--tenant red --gpus 3 {long}"));
    session.wait_for_output(&format!("why {also}"), "red starts small");
    assert_eq!(session.policy_workers(), 2);
    let list = session.run_ok("policy ls --tenant red --columns scope");
    assert!(list.contains("tenant red") && !list.contains("cluster"), "{list}");

    // Without them no job of red waits; the policies of the cluster stay active.
    session.run_ok("policy apply --none --tenant red");
    session.wait_for_output(&format!("show {large}"), "Running");
    assert!(session.run_refused("policy show --tenant red").contains("no policies are active"));
    assert!(session.run_ok("policy show").contains("hooks    power"));
    session.stop_and_remove();
}

/// Hostile policies of a tenant only make its own jobs wait, with the reason.
#[test]
fn hostile_tenant_policies_do_not_affect_other_tenants() {
    let session = Session::new("policies-hostile", &[]);
    let hostile = [
        ("greedy", "def admit(job):\n    return 'a' * (job.gpus << 30) == ''\n", "it exceeded its memory limit"),
        (
            "endless",
            "def admit(job):\n    for i in range(1 << 30):\n        for j in range(1 << 30):\n            pass\n",
            "a.gsky:",
        ),
        ("long", "def admit(job):\n    return ['a' * 1000] * (job.gpus << 16)\n", "a policy failed"),
    ];
    let short = "--annotation muster.sim/runtime=200ms";
    let mut delayed = Vec::new();
    session.run_ok("tenant create blue");
    for (name, source, reason) in hostile {
        session.run_ok(&format!("tenant create {name}"));
        write_policies(&session, &[("a.gsky", source)]);
        session.run_ok(&format!("policy apply mine --tenant {name}"));
        delayed.push((submit(&session, &format!("--tenant {name} --gpus 1 {short}")), reason));
    }
    for _ in 0..5 {
        let job = submit(&session, &format!("--tenant blue --gpus 1 {short}"));
        session.run_ok(&format!("wait {job} --timeout 60s"));
    }
    for (job, reason) in &delayed {
        session.wait_for_output(&format!("why {job}"), "a policy failed");
        let why = session.wait_for_output(&format!("why {job}"), reason);
        assert!(!why.contains("Running"), "{why}");
    }
    // With correct policies the job starts.
    write_policies(&session, &[("a.gsky", "def admit(job):\n    return True\n")]);
    session.run_ok("policy apply mine --tenant greedy");
    session.run_ok(&format!("wait {} --timeout 60s", delayed[0].0));
    session.stop_and_remove();
}

/// Policies whose tests fail are not applied without `--force`. A misspelt attribute is found before it is evaluated.
#[test]
fn policies_with_failing_tests_or_misspelt_attributes_are_not_applied() {
    let session = Session::new("policies-tests", &[]);
    let source = "def admit(job):\n    return job.gpus < 3\n";
    let test = "load(\"a.gsky\", \"admit\")\ndef test_small():\n    expect.true(admit(job(gpus = 4)))\n";
    write_policies(&session, &[("a.gsky", source), ("a_test.gsky", test)]);
    let refused = session.run_refused("policy apply mine");
    assert!(
        refused.contains("tests of the policies fail") && refused.contains("a_test.gsky:2 test_small"),
        "{refused}"
    );
    assert!(refused.contains("--force"), "{refused}");
    assert!(session.run_refused("policy apply mine --dry-run").contains("test_small"));
    assert_eq!(json(&session.run_ok("policy ls -o json"))["total"], 0);
    assert!(session.run_ok("policy apply mine --force").contains("version 1 is active"));

    let misspelt = "def admit(job):\n    if job.gpus > 100:\n        return job.time_limt_s < 60\n    return True\n";
    write_policies(&session, &[("a.gsky", misspelt)]);
    let error = "a.gsky:3:20: `job` has no attribute `time_limt_s`; did you mean `time_limit_s`?";
    for words in ["policy apply mine", "policy apply mine --force", "policy check mine"] {
        let refused = session.run_refused(words);
        assert!(refused.contains(error), "{words}: {refused}");
    }
    session.stop_and_remove();
}

/// Half of the GPUs for the tenant `lab` with its children, two GPUs of a pool, and no limit for other tenants.
const LIMITS: &str = r#"
gpu_ops.register_pool(gpu_pool(name = "all", gpu_type = []))

def limit(tenant, cluster):
    if tenant.id == "lab":
        return {"gpus": cluster.gpus / 2, "pools": {"all": 2}}
    return None
"#;

/// The `limit` hook: every start counts against the limit, dry runs too, and what-if and shadow evaluation call it.
#[test]
fn a_policy_limit_covers_a_tenant_and_its_subtree() {
    let session = Session::new("policies-limit", &[]);
    session.run_ok("tenant create lab");
    for team in ["red", "blue"] {
        session.run_ok(&format!("tenant create {team} --parent lab"));
    }
    let applied = apply_policies(&session, &[("a.gsky", LIMITS)]);
    assert!(applied.contains("hooks limit"), "{applied}");
    let long = "--annotation muster.sim/runtime=10m";
    let first = submit(&session, &format!("--tenant red --gpus 3 {long}"));
    session.wait_for_output(&format!("show {first}"), "Running");

    // No job of blue waits, so its limit is unknown until the dry run asks for it.
    let plan = session.run_stdout("plan --tenant blue --gpus 2 -- work");
    let reason = "PolicyLimit: a policy limits tenant `lab` to 4 GPUs; the tenant holds 3 and the job requests 2";
    assert!(plan.contains("waits") && plan.contains(reason), "{plan}");
    let second = submit(&session, &format!("--tenant blue --gpus 2 {long}"));
    let why = session.wait_for_output(&format!("why {second}"), reason);
    assert!(why.contains("It would start now with 1 GPU") && why.contains("muster ps --tenant blue"), "{why}");
    let reasons = json(&session.run_ok(&format!("why {second} -o json")))["reasons"].clone();
    assert_eq!(reasons[0]["reason"], "PolicyLimit", "{reasons}");
    let other = submit(&session, &format!("--gpus 3 {long}"));
    session.wait_for_output(&format!("show {other}"), "Running");
    assert!(!session.run_ok(&format!("show {second}")).contains("Running"));

    // The tenant may hold two GPUs of the pool: the third job waits, although the limit over all GPUs is not reached.
    session.run_ok(&format!("cancel {first} {second} --yes"));
    session.wait_for_output("ps --all", "Cancelled");
    let pooled = ["red", "blue"].map(|team| submit(&session, &format!("--tenant {team} --gpus 1 --pool all {long}")));
    for job in &pooled {
        session.wait_for_output(&format!("show {job}"), "Running");
    }
    let third = submit(&session, &format!("--tenant red --gpus 1 --pool all {long}"));
    let reason = "a policy limits tenant `lab` to 2 GPUs of pool `all`; the tenant holds 2 and the job requests 1";
    session.wait_for_output(&format!("why {third}"), reason);
    let plain = submit(&session, &format!("--tenant red --gpus 1 {long}"));
    session.wait_for_output(&format!("show {plain}"), "Running");

    // The unchanged history replays without calling the policies; other policies, in a what-if or as a shadow, are called.
    assert_eq!(session.whatif("")["decisions_different"], 0);
    let none = LIMITS.replace("cluster.gpus / 2", "0");
    fs::create_dir_all(session.folder.join("none")).unwrap();
    fs::write(session.folder.join("none/a.gsky"), &none).unwrap();
    let changed = session.whatif("--policies none");
    let started = |result: &str| changed[result]["started"].as_u64().unwrap();
    assert_eq!((started("really"), started("changed")), (5, 1), "{changed}");
    session.run_ok("policy apply none --shadow");
    let looks = || json(&session.run_ok("policy shadow -o json"))["looks"].as_u64().unwrap();
    session.wait_until("the shadow is evaluated", || looks() > 0);
    let fourth = submit(&session, &format!("--tenant blue --gpus 1 {long}"));
    let shadow = session.wait_for_output("policy shadow", &format!("{fourth} "));
    assert!(shadow.contains("waits: a policy limits tenant `lab` to 0 GPUs"), "{shadow}");
    session.run_ok("policy shadow --end");

    // A restarted server knows the limit from the journal; other policies are called.
    let session = session.restart();
    session.wait_for_output(&format!("why {third}"), "a policy limits tenant `lab` to 2 GPUs of pool `all`");
    let pool = "gpu_ops.register_pool(gpu_pool(name = \"all\", gpu_type = []))\n";
    let broken = format!("{pool}def limit(tenant, cluster):\n    return 1 // (cluster.gpus - cluster.gpus)\n");
    apply_policies(&session, &[("a.gsky", &broken)]);
    session.wait_for_output(&format!("why {third}"), "a policy failed: a.gsky:3");
    session.run_refused("doctor");
    assert!(session.run_stdout("doctor").contains("a failing policy blocks 1 job: a.gsky:3"));
    apply_policies(&session, &[("a.gsky", pool)]);
    session.wait_for_output(&format!("show {third}"), "Running");
    session.stop_and_remove();
}
