//! Random tenants, settings and windows of stories.

use std::collections::BTreeMap;

use muster_core::objects::settings::{Objective, Repartition};
use muster_core::objects::tenant::TenantConfig;
use muster_core::objects::window::Window;
use muster_core::time::{HOUR, MINUTE};
use muster_core::{Settings, Timestamp};

use super::{node_name, tenant_name};

pub(super) fn tenant_config(name: &str, variant: usize) -> TenantConfig {
    let mut config = TenantConfig::unlimited(name);
    config.maximum.gpus = [Some(4), None, None, Some(6)][variant % 4];
    config.maximum.jobs = (variant == 5).then_some(2);
    config.maximum_per_user.gpus = [Some(3), None, None, Some(2), None, None, None, None][variant % 8];
    config.maximum_per_user.jobs = (variant == 6).then_some(1);
    config.maximum_per_user.cpus = (variant == 2).then_some(2);
    config.may_preempt = variant != 3;
    config.may_be_preempted = variant != 2;
    config.preemptions_per_job_max = (variant > 4).then_some(1);
    config.weight = [100, 300, 100, 1][variant % 4];
    config.decay_milli_per_day = [0, 999, 500, 0, 1_000, 0, 900, 250][variant % 8];
    config.guaranteed.gpus = [None, Some(2), None, None, Some(4), None, Some(1), None][variant % 8];
    config.guaranteed.jobs = (variant == 6).then_some(1);
    if [0, 4, 5].contains(&variant) {
        config.maximum_by_model.insert("H100".to_string(), [2, 1][variant % 2]);
    }
    config.guaranteed_by_model = guaranteed_by_model(variant);
    config.preemption_loss_gpu_ms_per_day = (variant == 1).then_some(10 * MINUTE as u64);
    config.budget.gpu_ms = (variant == 7).then_some(30 * MINUTE as u64);
    config.budget.energy_mj = (variant == 3).then_some(300_000_000);
    // `blue` is sometimes a child of `red`, never the other way round: a cycle is refused.
    config.parent = (name == "blue" && variant % 3 == 1).then(|| tenant_name(1));
    config
}

pub(super) fn guaranteed_by_model(variant: usize) -> BTreeMap<String, u64> {
    let models: &[(&str, u64)] = match variant % 8 {
        2 => &[("H100", 2)],
        3 => &[("H100", 1), ("A100", 2)],
        5 => &[("H100-80GB", 2), ("H100", 3)],
        6 => &[("H100", 4)],
        7 => &[("A100", 1), ("H200", 0)],
        _ => &[],
    };
    models.iter().map(|(model, count)| (model.to_string(), *count)).collect()
}

/// A window on one or two nodes, from now or later, for maintenance or for a tenant.
pub(super) fn window(index: usize, kind: usize, now: Timestamp) -> Window {
    let from = now.plus([0, 5 * MINUTE, HOUR, 4 * HOUR][kind % 4]);
    Window {
        name: format!("w{}", index % 4),
        nodes: (0..=kind % 2).map(|more| node_name((index + more) % 4)).collect(),
        from,
        until: from.plus([MINUTE, 30 * MINUTE, 3 * HOUR][kind % 3]),
        tenant: kind.is_multiple_of(3).then(|| tenant_name(1)),
        why: String::new(),
        by: String::new(),
    }
}

pub(super) fn settings(variant: usize) -> Settings {
    Settings {
        objective: if [3, 4].contains(&variant) { Objective::Fast } else { Objective::Fair },
        aging_per_minute: [10, 0, 100][variant % 3],
        fair_share_max: [400, 0, 5_000][variant % 3],
        usage_half_life_ms: [7 * 24 * HOUR, 10 * MINUTE][variant % 2],
        max_wait_ms: [12 * HOUR, 5 * MINUTE][variant % 2],
        reservations: [16, 16, 1, 0][variant % 4],
        reserve_one_node_in: [1, 1, 8][variant % 3],
        default_runtime_ms: [HOUR, 5 * MINUTE][variant % 2],
        preemption: variant != 5,
        preemption_min_runtime_ms: [0, MINUTE][usize::from(variant == 6)],
        preemption_cooldown_ms: [10 * MINUTE, 0, MINUTE][variant % 3],
        queue_size_max: [1_000_000, 6][usize::from(variant == 7)],
        repartition: [Repartition::Propose, Repartition::Apply, Repartition::Off][variant % 3],
        defragment: variant == 2,
        gang_start_timeout_ms: [5 * MINUTE, MINUTE][variant % 2],
        repartition_after_ms: [MINUTE, 0][variant % 2],
        repartition_cooldown_ms: [10 * MINUTE, 0][usize::from(variant == 1)],
        ..Settings::default()
    }
}
