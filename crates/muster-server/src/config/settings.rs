//! The keys that decisions depend on, and where each goes in the settings of the core.

use muster_core::Settings;
use muster_core::settings::{Objective, PolicyFailure, Repartition};

use super::keys::{self, KEYS};
use super::problem::Place;
use super::said::{self, Said};
use super::value::Raw;
use super::{RawConfig, nearest};

/// All of them, as they were said.
pub(super) fn all(said: &Said) -> Settings {
    let mut settings = Settings::default();
    for key in KEYS {
        put(&mut settings, key.name, said);
    }
    settings
}

/// Set one key in settings that exist already: `amend(&mut settings, "scheduler.objective", "fast")`. The error says
/// what would be right.
pub fn amend(settings: &mut Settings, key: &str, value: &str) -> Result<(), String> {
    let known = keys::names().filter(|name| name.starts_with("scheduler."));
    let Some(found) = keys::find(key).filter(|found| found.name.starts_with("scheduler.")) else {
        let meant = nearest(key, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        return Err(format!("there is no setting `{key}`{meant}"));
    };
    let (mut raw, mut problems) = (RawConfig::default(), Vec::new());
    raw.say(found.name, Raw::One(value.to_string()), Place::Flag("--set".to_string()));
    let said = said::merge(&raw, &mut problems);
    match problems.first() {
        Some(problem) => Err(problem.wrong.to_string()),
        None if put(settings, found.name, &said) => Ok(()),
        None => Err(format!("`{key}` changes no decision")),
    }
}

/// Put one key where it belongs; false if decisions do not depend on it.
fn put(settings: &mut Settings, key: &str, said: &Said) -> bool {
    match key {
        "scheduler.objective" => {
            settings.objective = match said.text(key) {
                Some("fast") => Objective::Fast,
                _ => Objective::Fair,
            }
        }
        "scheduler.default_priority" => settings.default_priority = said.number(key),
        "scheduler.max_queue_size" => settings.queue_size_max = said.number(key),
        "scheduler.max_jobs_per_tenant" => settings.tenant_jobs_max = said.number(key),
        "scheduler.aging_after" => settings.aging_after_ms = said.number(key),
        "scheduler.aging_per_minute" => settings.aging_per_minute = said.number(key),
        "scheduler.aging_max" => settings.aging_max = said.number(key),
        "scheduler.fair_share_max" => settings.fair_share_max = said.number(key),
        "scheduler.usage_half_life" => settings.usage_half_life_ms = said.number(key),
        "scheduler.max_wait" => settings.max_wait_ms = said.number(key),
        "scheduler.reservations" => settings.reservations = said.number(key),
        "scheduler.reserve_one_node_in" => settings.reserve_one_node_in = said.number(key),
        "scheduler.default_runtime" => settings.default_runtime_ms = said.number(key),
        "scheduler.enable_preemption" => settings.preemption = said.flag(key),
        "scheduler.min_runtime" => settings.preemption_min_runtime_ms = said.number(key),
        "scheduler.preemption_cooldown" => settings.preemption_cooldown_ms = said.number(key),
        "scheduler.stop_grace" => settings.stop_grace_ms = said.number(key),
        "scheduler.claim" => settings.claim_ms = said.number(key),
        "scheduler.launch_backoff" => settings.launch_backoff_ms = said.number(key),
        "scheduler.memory" => settings.memory_ms = said.number(key),
        "scheduler.max_remembered_jobs" => settings.remembered_max = said.number(key),
        "scheduler.enable_gang_scheduling" => settings.gangs = said.flag(key),
        "scheduler.enable_thermal_aware" => settings.thermal = said.flag(key),
        "scheduler.thermal_threshold" => settings.thermal_limit_c = said.celsius(key),
        "scheduler.cooling" => settings.cooling_ms = said.number(key),
        "scheduler.defragment" => settings.defragment = said.flag(key),
        "scheduler.weight_waste" => settings.weights.waste = said.number(key),
        "scheduler.weight_locality" => settings.weights.locality = said.number(key),
        "scheduler.weight_health" => settings.weights.health = said.number(key),
        "scheduler.ruleset" => {
            settings.ruleset = said.text(key).filter(|name| !name.is_empty()).map(str::to_string);
        }
        "scheduler.policy_failure" => {
            settings.policy_failure = match said.text(key) {
                Some("open") => PolicyFailure::Open,
                _ => PolicyFailure::Closed,
            }
        }
        "scheduler.utc_offset_minutes" => settings.utc_offset_minutes = said.number(key),
        "scheduler.repartition" => {
            settings.repartition = match said.text(key) {
                Some("off") => Repartition::Off,
                Some("apply") => Repartition::Apply,
                _ => Repartition::Propose,
            }
        }
        "scheduler.repartition_after" => settings.repartition_after_ms = said.number(key),
        "scheduler.repartition_cooldown" => settings.repartition_cooldown_ms = said.number(key),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_scheduler_has_its_place() {
        let said = said::merge(&RawConfig::default(), &mut Vec::new());
        let of_scheduler = KEYS.iter().filter(|key| key.name.starts_with("scheduler."));
        let homeless = of_scheduler.filter(|key| !put(&mut Settings::default(), key.name, &said));
        // How often the planner looks is no rule of its decisions.
        assert_eq!(homeless.map(|key| key.name).collect::<Vec<_>>(), ["scheduler.scheduling_interval_ms"]);
    }

    #[test]
    fn one_key_is_amended_and_the_others_stay() {
        let before = Settings { max_wait_ms: 7, ..Settings::default() };
        let mut settings = before.clone();
        amend(&mut settings, "scheduler.objective", "fast").unwrap();
        assert_eq!(settings, Settings { objective: Objective::Fast, ..before.clone() });
        let wrong = |key, value| amend(&mut before.clone(), key, value).unwrap_err();
        assert_eq!(
            wrong("scheduler.objectiv", "fast"),
            "there is no setting `scheduler.objectiv`; did you mean `scheduler.objective`?"
        );
        assert!(wrong("scheduler.objective", "slow").contains("`fair` or `fast`"));
        assert!(wrong("scheduler.scheduling_interval_ms", "5").contains("changes no decision"));
        assert!(wrong("listen", "127.0.0.1:1").contains("no setting `listen`"));
    }
}
