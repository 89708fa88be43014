//! Every setting changes a decision: for each there is a scenario that ends otherwise without it.

use std::fs;
use std::sync::Arc;

use muster_core::policy::{Bundle, Moment, Scope};
use muster_core::rules::{Rule, Rules, Ruleset};
use muster_core::{Command, Settings, Timestamp};

use crate::scenarios::{play, scenario_files};
use crate::world::World;

/// How a setting shows.
enum Shown {
    /// Some scenario ends otherwise when this word is taken out of its `settings` lines.
    By(&'static str),
    /// This test of this file shows it.
    Tried(fn()),
    /// Another file shows it, under this word.
    Elsewhere(&'static str, &'static str),
    /// No key of the configuration sets it in this version.
    NoKey,
}

/// Each field of the settings. One that is missing here fails the test.
fn table(field: &str) -> Option<Shown> {
    use Shown::{By, Elsewhere, NoKey, Tried};
    Some(match field {
        "objective" => By("objective"),
        "queue_size_max" => By("queue_size"),
        "aging_after_ms" => By("aging_after"),
        "aging_per_minute" => By("aging_per_minute"),
        "claim_ms" => By("claim"),
        "tenant_jobs_max" => Elsewhere("muster-server/tests/it/bounds.rs", "max_jobs_per_tenant"),
        "remembered_max" => Elsewhere("muster-server/tests/it/bounds.rs", "max_remembered_jobs"),
        // Random stories switch it on and off, and the naive planner moves jobs by its own reckoning.
        "defragment" => Elsewhere("muster-core/tests/it/model.rs", "settings.defragment"),
        "aging_max" => By("aging_max"),
        "fair_share_max" => By("fair_share"),
        "usage_half_life_ms" => By("half_life"),
        "max_wait_ms" => By("max_wait"),
        "reservations" => By("reservations"),
        "reserve_one_node_in" => By("reserve_one_node_in"),
        "default_runtime_ms" => By("default_runtime"),
        "preemption" => By("preemption"),
        "preemption_min_runtime_ms" => By("min_runtime"),
        "preemption_cooldown_ms" => By("cooldown"),
        "stop_grace_ms" => By("grace"),
        "launch_backoff_ms" => By("backoff"),
        "memory_ms" => By("memory"),
        "gangs" => By("gangs"),
        "repartition" => By("repartition"),
        "repartition_after_ms" => By("repartition_after"),
        "repartition_cooldown_ms" => By("repartition_cooldown"),
        "weights.waste" => By("waste"),
        "weights.locality" => By("locality"),
        "weights.health" => By("health"),
        "weights.learned" | "weights.policy" | "weights.power" => NoKey,
        "default_priority" => Elsewhere("muster-server/tests/it/configured.rs", "default_priority"),
        "thermal" => Elsewhere("muster-server/src/agents.rs", "thermal: false"),
        "thermal_limit_c" => Elsewhere("muster-server/src/agents.rs", "thermal_limit_c: 85"),
        "cooling_ms" => Elsewhere("muster-server/src/agents.rs", "cooling_ms: 7_000"),
        "policy_failure" => Elsewhere("muster/tests/it/policies.rs", "policy_failure"),
        "ruleset" => Tried(the_ruleset_that_the_settings_name_counts),
        "utc_offset_minutes" => Tried(policies_read_the_hour_of_the_zone),
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

/// The fields by name, `weights.waste` for one inside another, from how the settings print themselves.
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
        None => Some(format!("`{field}`: say here how it shows")),
        Some(Shown::By(word)) if !shows(word) => Some(format!("`{field}`: no scenario needs `{word}=`")),
        Some(Shown::Elsewhere(file, word)) if !names(file, word) => {
            Some(format!("`{word}` is not in {file}"))
        }
        Some(Shown::Tried(test)) => {
            test();
            None
        }
        Some(_) => None,
    }
}

/// Whether a scenario ends otherwise without this setting.
fn shows(word: &str) -> bool {
    scenario_files().iter().any(|file| {
        let text = fs::read_to_string(file).unwrap();
        let without = without(&text, word);
        let told = |text: &str| -> Option<String> {
            let played = std::panic::catch_unwind(|| play(text)).ok()?.ok()?;
            Some(played.lines().filter(|line| !line.starts_with("settings")).collect::<Vec<_>>().join("\n"))
        };
        without != text && told(&without) != told(&text)
    })
}

fn without(text: &str, word: &str) -> String {
    let option = format!("{word}=");
    let line = |line: &str| match line.starts_with("settings ") {
        true => line.split(' ').filter(|part| !part.starts_with(&option)).collect::<Vec<_>>().join(" "),
        false => line.to_string(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

/// Whether another crate's test speaks of a setting.
fn names(file: &str, word: &str) -> bool {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    fs::read_to_string(format!("{path}/{file}")).is_ok_and(|text| text.contains(word))
}

#[test]
fn the_ruleset_that_the_settings_name_counts() {
    let mut world = World::new();
    let rule = |allow| Rule::Preemption { allow, priority_threshold: None };
    let ruleset = |name: &str, allow| Ruleset { name: name.to_string(), rules: vec![rule(allow)] };
    let schedules =
        [("day", true), ("night", false)].map(|(name, allow)| (name.to_string(), ruleset(name, allow)));
    let bundle = Bundle {
        hash: "two".to_string(),
        files: [("policy.gsky".to_string(), String::new())].into(),
        rules: Rules { schedules: schedules.into(), ..Rules::default() },
        ..Bundle::default()
    };
    let apply = Command::ApplyPolicy { scope: Scope::Cluster, bundle: Arc::new(bundle), why: String::new() };
    world.ask(apply).unwrap();
    let counts = |ruleset: Option<&str>| {
        let settings = Settings { ruleset: ruleset.map(str::to_string), ..Settings::default() };
        world.state.policies.ruleset(&settings).map(|ruleset| ruleset.name.clone())
    };
    assert_eq!((counts(None), counts(Some("night"))), (None, Some("night".to_string())));
}

#[test]
fn policies_read_the_hour_of_the_zone() {
    let hour = |settings: Settings| Moment::of(Timestamp(0), settings.utc_offset_minutes).hour;
    let ahead = Settings { utc_offset_minutes: 120, ..Settings::default() };
    assert_eq!((hour(Settings::default()), hour(ahead)), (0, 2));
}
