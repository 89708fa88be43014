//! Every setting changes a decision: for each setting some scenario ends differently without it.

use std::fs;

use muster_core::objects::policy::rules::{Rule, Rules, Ruleset};
use muster_core::objects::policy::{PolicyBundle, PolicyScope};
use muster_core::policy::Moment;
use muster_core::{Settings, Timestamp};

use crate::builders::bundle;
use crate::scenarios::{play, scenario_files};
use crate::world::World;

/// Which test shows the effect of a setting.
enum Shown {
    /// Some scenario ends differently without this option in its `settings` lines.
    Scenario(&'static str),
    /// This test.
    Test(fn()),
    /// Another file, which contains this text.
    File(&'static str, &'static str),
    /// No key of the configuration sets it in this version.
    NoKey,
}

/// The table of all settings. A setting that is missing here fails the test.
fn table(field: &str) -> Option<Shown> {
    use Shown::{File, NoKey, Scenario, Test};
    Some(match field {
        "objective" => Scenario("objective"),
        "queue_size_max" => Scenario("queue_size"),
        "aging_after_ms" => Scenario("aging_after"),
        "aging_per_minute" => Scenario("aging_per_minute"),
        "claim_ms" => Scenario("claim"),
        "tenant_jobs_max" => File("muster-server/tests/it/server_limits.rs", "max_jobs_per_tenant"),
        "remembered_max" => File("muster-server/tests/it/server_limits.rs", "max_remembered_jobs"),
        // Random stories switch it on and off, and the naive planner migrates jobs by its own computation.
        "defragment" => File("muster-core/tests/it/naive_planner/defragment.rs", "settings.defragment"),
        "aging_max" => Scenario("aging_max"),
        "fair_share_max" => Scenario("fair_share"),
        "usage_half_life_ms" => Scenario("half_life"),
        "max_wait_ms" => Scenario("max_wait"),
        "reservations" => Scenario("reservations"),
        "reserve_one_node_in" => Scenario("reserve_one_node_in"),
        "default_runtime_ms" => Scenario("default_runtime"),
        "preemption" => Scenario("preemption"),
        "preemption_min_runtime_ms" => Scenario("min_runtime"),
        "preemption_cooldown_ms" => Scenario("cooldown"),
        "stop_grace_ms" => Scenario("grace"),
        "master_ports.first" | "master_ports.last" => Scenario("master_ports"),
        "gang_start_timeout_ms" => Scenario("gang_start"),
        "self_fence_ms" => Scenario("self_fence"),
        "fence_drift_per_mille" => Scenario("fence_drift"),
        "fence_margin_ms" => Scenario("fence_margin"),
        "health_resumes" => Scenario("health_resumes"),
        "launch_backoff_ms" => Scenario("backoff"),
        "memory_ms" => Scenario("memory"),
        "gangs" => Scenario("gangs"),
        "repartition" => Scenario("repartition"),
        "repartition_after_ms" => Scenario("repartition_after"),
        "repartition_cooldown_ms" => Scenario("repartition_cooldown"),
        "weights.fragmentation" => Scenario("fragmentation"),
        "weights.locality" => Scenario("locality"),
        "weights.health" => Scenario("health"),
        "weights.policy" => NoKey,
        "default_priority" => File("muster-server/tests/it/config_keys.rs", "default_priority"),
        "thermal" => File("muster-server/src/agents.rs", "thermal: false"),
        "thermal_limit_c" => File("muster-server/src/agents.rs", "thermal_limit_c: 85"),
        "cooling_ms" => File("muster-server/src/agents.rs", "cooling_ms: 7_000"),
        "policy_failure" => File("muster/tests/it/policies.rs", "policy_failure"),
        "ruleset" => Test(the_named_ruleset_is_active),
        "utc_offset_minutes" => Test(policies_see_the_hour_of_the_configured_time_zone),
        _ => return None,
    })
}

#[test]
fn every_setting_changes_a_decision() {
    let fields = fields(&format!("{:#?}", Settings::default()));
    assert!(fields.len() > 30, "{fields:?}");
    let wrong: Vec<String> = fields.iter().filter_map(|field| problem(field)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The names of the fields from the debug output; nested fields as `weights.fragmentation`.
fn fields(printed: &str) -> Vec<String> {
    let (mut fields, mut inside) = (Vec::new(), String::new());
    for line in printed.lines().skip(1) {
        match line.trim().split_once(": ") {
            Some((name, value)) if value.ends_with('{') => inside = format!("{name}."),
            Some((name, _)) => fields.push(format!("{inside}{name}")),
            None => inside.clear(),
        }
    }
    fields
}

fn problem(field: &str) -> Option<String> {
    match table(field) {
        None => Some(format!("`{field}`: no test is named for it")),
        Some(Shown::Scenario(option)) if !matters(option) => {
            Some(format!("`{field}`: no scenario depends on `{option}=`"))
        }
        Some(Shown::File(file, text)) if !contains(file, text) => Some(format!("`{text}` is not in {file}")),
        Some(Shown::Test(test)) => {
            test();
            None
        }
        Some(_) => None,
    }
}

/// True if some scenario ends differently without this option.
fn matters(option: &str) -> bool {
    scenario_files().iter().any(|file| {
        let text = fs::read_to_string(file).unwrap();
        let without = without(&text, option);
        let result = |text: &str| -> Option<String> {
            let played = std::panic::catch_unwind(|| play(text)).ok()?.ok()?;
            Some(played.lines().filter(|line| !line.starts_with("settings")).collect::<Vec<_>>().join("\n"))
        };
        without != text && result(&without) != result(&text)
    })
}

fn without(text: &str, option: &str) -> String {
    let option = format!("{option}=");
    let line = |line: &str| match line.starts_with("settings ") {
        true => line.split(' ').filter(|part| !part.starts_with(&option)).collect::<Vec<_>>().join(" "),
        false => line.to_string(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

/// True if a file of the workspace contains a text.
fn contains(file: &str, expected: &str) -> bool {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    fs::read_to_string(format!("{path}/{file}")).is_ok_and(|text| text.contains(expected))
}

#[test]
fn the_named_ruleset_is_active() {
    let mut world = World::new();
    let rule = |allow| Rule::Preemption { allow, priority_threshold: None };
    let ruleset = |name: &str, allow| Ruleset { name: name.to_string(), rules: vec![rule(allow)] };
    let schedules = [("day", true), ("night", false)].map(|(name, allow)| (name.to_string(), ruleset(name, allow)));
    let rules = Rules { schedules: schedules.into(), ..Rules::default() };
    world.apply_policy(PolicyScope::Cluster, PolicyBundle { rules, ..bundle("two", &[]) });
    let active = |ruleset: Option<&str>| {
        let settings = Settings { ruleset: ruleset.map(str::to_string), ..Settings::default() };
        world.state.policies.ruleset(&settings).map(|ruleset| ruleset.name.clone())
    };
    assert_eq!((active(None), active(Some("night"))), (None, Some("night".to_string())));
}

#[test]
fn policies_see_the_hour_of_the_configured_time_zone() {
    let hour = |settings: Settings| Moment::of(Timestamp(0), settings.utc_offset_minutes).hour;
    let ahead = Settings { utc_offset_minutes: 120, ..Settings::default() };
    assert_eq!((hour(Settings::default()), hour(ahead)), (0, 2));
}
