//! The configuration keys of the scheduler, and the field of the core's [`Settings`] that each sets.

use muster_core::Settings;
use muster_core::objects::settings::{Objective, PolicyFailure, Repartition};

use super::keys::{self, KEYS};
use super::merged::{self, MergedConfig};
use super::problem::ValueSource;
use super::value::{RawValue, parse_port_range};
use super::{RawConfig, nearest};

pub(super) fn settings_from(config: &MergedConfig) -> Settings {
    let mut settings = Settings::default();
    for key in KEYS {
        set_field(&mut settings, key.name, config);
    }
    settings
}

/// Override one key in existing settings: `override_setting(&mut settings, "scheduler.objective", "fast")`. The error
/// describes the valid values.
pub fn override_setting(settings: &mut Settings, key: &str, value: &str) -> Result<(), String> {
    let known = keys::names().filter(|name| name.starts_with("scheduler."));
    let Some(found) = keys::find(key).filter(|found| found.name.starts_with("scheduler.")) else {
        let meant = nearest(key, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        return Err(format!("there is no setting `{key}`{meant}"));
    };
    let (mut raw, mut problems) = (RawConfig::default(), Vec::new());
    raw.set(found.name, RawValue::One(value.to_string()), ValueSource::Flag("--set".to_string()));
    let config = merged::merge(&raw, &mut problems);
    match problems.first() {
        Some(problem) => Err(problem.kind.to_string()),
        None if set_field(settings, found.name, &config) => Ok(()),
        None => Err(format!("`{key}` does not affect scheduling")),
    }
}

/// Set the field of one key; false if the key is none of the core's settings.
fn set_field(settings: &mut Settings, key: &str, config: &MergedConfig) -> bool {
    match key {
        "scheduler.objective" => {
            settings.objective = match config.text(key) {
                Some("fast") => Objective::Fast,
                _ => Objective::Fair,
            }
        }
        "scheduler.default_priority" => settings.default_priority = config.number(key),
        "scheduler.max_queue_size" => settings.queue_size_max = config.number(key),
        "scheduler.max_jobs_per_tenant" => settings.tenant_jobs_max = config.number(key),
        "scheduler.aging_after" => settings.aging_after_ms = config.number(key),
        "scheduler.aging_per_minute" => settings.aging_per_minute = config.number(key),
        "scheduler.aging_max" => settings.aging_max = config.number(key),
        "scheduler.fair_share_max" => settings.fair_share_max = config.number(key),
        "scheduler.usage_half_life" => settings.usage_half_life_ms = config.number(key),
        "scheduler.max_wait" => settings.max_wait_ms = config.number(key),
        "scheduler.reservations" => settings.reservations = config.number(key),
        "scheduler.reserve_one_node_in" => settings.reserve_one_node_in = config.number(key),
        "scheduler.default_runtime" => settings.default_runtime_ms = config.number(key),
        "scheduler.enable_preemption" => settings.preemption = config.boolean(key),
        "scheduler.min_runtime" => settings.preemption_min_runtime_ms = config.number(key),
        "scheduler.preemption_cooldown" => settings.preemption_cooldown_ms = config.number(key),
        "scheduler.stop_grace" => settings.stop_grace_ms = config.number(key),
        "nodes.self_fence" => {
            // A node whose heartbeats are rarer must not fence itself between two of them.
            let shortest_ms: i64 = 10 * config.number::<i64>("agent.heartbeat_interval_ms");
            settings.self_fence_ms = match config.number(key) {
                0 => 0,
                after_ms => shortest_ms.max(after_ms),
            }
        }
        "nodes.master_ports" => {
            settings.master_ports = config.text(key).and_then(parse_port_range).unwrap_or(settings.master_ports);
        }
        "nodes.gang_start_timeout" => settings.gang_start_timeout_ms = config.number(key),
        "nodes.fence_clock_drift" => settings.fence_drift_per_mille = config.number(key),
        "nodes.fence_margin" => settings.fence_margin_ms = config.number(key),
        "nodes.health_resume" => settings.health_resumes = config.boolean(key),
        "scheduler.claim" => settings.claim_ms = config.number(key),
        "scheduler.launch_backoff" => settings.launch_backoff_ms = config.number(key),
        "scheduler.memory" => settings.memory_ms = config.number(key),
        "scheduler.max_remembered_jobs" => settings.remembered_max = config.number(key),
        "scheduler.enable_gang_scheduling" => settings.gangs = config.boolean(key),
        "scheduler.enable_thermal_aware" => settings.thermal = config.boolean(key),
        "scheduler.thermal_threshold" => settings.thermal_limit_c = config.celsius(key),
        "scheduler.cooling" => settings.cooling_ms = config.number(key),
        "scheduler.defragment" => settings.defragment = config.boolean(key),
        "scheduler.weight_fragmentation" => settings.weights.fragmentation = config.number(key),
        "scheduler.weight_locality" => settings.weights.locality = config.number(key),
        "scheduler.weight_health" => settings.weights.health = config.number(key),
        "scheduler.ruleset" => {
            settings.ruleset = config.text(key).filter(|name| !name.is_empty()).map(str::to_string);
        }
        "scheduler.policy_failure" => {
            settings.policy_failure = match config.text(key) {
                Some("open") => PolicyFailure::Open,
                _ => PolicyFailure::Closed,
            }
        }
        "scheduler.utc_offset_minutes" => settings.utc_offset_minutes = config.number(key),
        "scheduler.repartition" => {
            settings.repartition = match config.text(key) {
                Some("off") => Repartition::Off,
                Some("apply") => Repartition::Apply,
                _ => Repartition::Propose,
            }
        }
        "scheduler.repartition_after" => settings.repartition_after_ms = config.number(key),
        "scheduler.repartition_cooldown" => settings.repartition_cooldown_ms = config.number(key),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheduler_key_but_the_interval_sets_a_field() {
        let config = merged::merge(&RawConfig::default(), &mut Vec::new());
        let of_scheduler = KEYS.iter().filter(|key| key.name.starts_with("scheduler."));
        let without_field = of_scheduler.filter(|key| !set_field(&mut Settings::default(), key.name, &config));
        // The interval of the rounds belongs to the planner's thread, not to the core.
        assert_eq!(without_field.map(|key| key.name).collect::<Vec<_>>(), ["scheduler.scheduling_interval_ms"]);
    }

    #[test]
    fn overriding_one_setting_leaves_the_others() {
        let before = Settings { max_wait_ms: 7, ..Settings::default() };
        let mut settings = before.clone();
        override_setting(&mut settings, "scheduler.objective", "fast").unwrap();
        assert_eq!(settings, Settings { objective: Objective::Fast, ..before.clone() });
        let mut by_alias = before.clone();
        override_setting(&mut by_alias, "scheduler.weight_waste", "7").unwrap();
        assert_eq!((by_alias.weights.fragmentation, by_alias.max_wait_ms), (7, 7));
        let error = |key, value| override_setting(&mut before.clone(), key, value).unwrap_err();
        assert_eq!(
            error("scheduler.objectiv", "fast"),
            "there is no setting `scheduler.objectiv`; did you mean `scheduler.objective`?"
        );
        assert!(error("scheduler.objective", "slow").contains("`fair` or `fast`"));
        assert!(error("scheduler.scheduling_interval_ms", "5").contains("does not affect scheduling"));
        assert!(error("listen", "127.0.0.1:1").contains("no setting `listen`"));
    }
}
