//! Tenants of the API as tenants of the core: a [`TenantSpec`] becomes a [`TenantConfig`], a [`TenantChange`] changes one.

use std::collections::BTreeMap;

use muster_core::gpu::model;
use muster_core::objects::budget::Budget;
use muster_core::objects::tenant::{Quota, TenantConfig};
use muster_core::{Refusal, TenantId};
use muster_protocol::tenant::{TenantChange, TenantSpec};

use crate::conversions::{invalid, money_to_micro, parse_tier};

/// The weight in the core of a `fair_share_weight` of 1.
pub const WEIGHT_OF_SHARE_ONE: f64 = 100.0;
/// Fields in GPU-hours.
const BUDGET_FIELD: &str = "budget_gpu_hours";
const PREEMPTION_LOSS_LIMIT_FIELD: &str = "damage_gpu_hours_per_day";
/// Fields by GPU model.
const MAX_BY_MODEL_FIELD: &str = "max_gpus_by_model";
const GUARANTEED_BY_MODEL_FIELD: &str = "guaranteed_gpus_by_model";
/// The notices of a tenant, in the order of the fields.
const NOTICE_NAMES: [&str; 4] = ["start", "completion", "failure", "quota"];

/// The configuration of a new tenant. Fields that are not sent get their defaults.
pub fn tenant_config(spec: &TenantSpec, id: &str) -> Result<TenantConfig, Refusal> {
    let defaults = TenantConfig::unlimited(spec.name.as_deref().unwrap_or(id));
    let notices = [spec.notify_on_start, spec.notify_on_completion, spec.notify_on_failure, spec.notify_on_quota];
    Ok(TenantConfig {
        email: spec.email.clone().unwrap_or_default(),
        organization: spec.organization.clone().unwrap_or_default(),
        parent: spec.parent.as_deref().map(parse_parent).transpose()?,
        maximum: Quota {
            gpus: spec.max_gpus,
            gpu_memory_mib: spec.max_gpu_memory_mb,
            cpus: spec.max_cpu_cores,
            memory_mib: spec.max_memory_mb,
            jobs: spec.max_concurrent_jobs,
        },
        maximum_per_user: Quota {
            gpus: spec.max_gpus_per_user,
            gpu_memory_mib: spec.max_gpu_memory_mb_per_user,
            cpus: spec.max_cpu_cores_per_user,
            memory_mib: spec.max_memory_mb_per_user,
            jobs: spec.max_concurrent_jobs_per_user,
        },
        guaranteed: Quota {
            gpus: spec.guaranteed_gpus,
            gpu_memory_mib: spec.guaranteed_gpu_memory_mb,
            cpus: spec.guaranteed_cpu_cores,
            memory_mib: spec.guaranteed_memory_mb,
            jobs: spec.guaranteed_concurrent_jobs,
        },
        maximum_by_model: by_canonical_model(MAX_BY_MODEL_FIELD, &spec.max_gpus_by_model)?,
        guaranteed_by_model: by_canonical_model(GUARANTEED_BY_MODEL_FIELD, &spec.guaranteed_gpus_by_model)?,
        budget: Budget {
            gpu_ms: spec.budget_gpu_hours.map(|hours| hours_to_gpu_ms(BUDGET_FIELD, hours)).transpose()?,
            cost_micro: spec.budget_cost.map(|cost| money_to_micro("budget_cost", cost)).transpose()?,
            energy_mj: spec.budget_kwh.map(|kwh| kwh_to_mj("budget_kwh", kwh)).transpose()?,
        },
        tier: spec
            .priority_tier
            .as_deref()
            .map(|name| parse_tier("priority_tier", name))
            .transpose()?
            .unwrap_or_default(),
        weight: spec.fair_share_weight.map(parse_weight).transpose()?.unwrap_or(defaults.weight),
        decay_milli_per_day: spec.priority_decay.map(parse_decay_milli).transpose()?.unwrap_or(0),
        may_be_preempted: spec.allow_preemption.unwrap_or(true),
        may_preempt: spec.can_preempt_others.unwrap_or(true),
        priority_max: spec.max_priority,
        preemptions_per_job_max: spec.max_preemptions,
        preemption_loss_gpu_ms_per_day: spec
            .damage_gpu_hours_per_day
            .map(|hours| hours_to_gpu_ms(PREEMPTION_LOSS_LIMIT_FIELD, hours))
            .transpose()?,
        billed: spec.billing_enabled.unwrap_or(false),
        price_gpu_hour_micro: spec
            .cost_per_gpu_hour
            .map(|price| money_to_micro("cost_per_gpu_hour", price))
            .transpose()?
            .unwrap_or(0),
        active: spec.active.unwrap_or(true),
        notify: notice_settings(notices).collect(),
        labels: spec.labels.clone(),
        ..defaults
    })
}

/// Apply the fields that were sent.
pub fn apply_change(config: &mut TenantConfig, change: TenantChange) -> Result<(), Refusal> {
    fn put<T>(field: &mut T, sent: Option<T>) {
        if let Some(value) = sent {
            *field = value;
        }
    }
    put(&mut config.name, change.name);
    put(&mut config.email, change.email);
    put(&mut config.organization, change.organization);
    put(&mut config.parent, change.parent.map(|id| id.as_deref().map(parse_parent).transpose()).transpose()?);
    put(&mut config.maximum.gpus, change.max_gpus);
    put(&mut config.maximum.gpu_memory_mib, change.max_gpu_memory_mb);
    put(&mut config.maximum.cpus, change.max_cpu_cores);
    put(&mut config.maximum.memory_mib, change.max_memory_mb);
    put(&mut config.maximum.jobs, change.max_concurrent_jobs);
    put(&mut config.maximum_per_user.gpus, change.max_gpus_per_user);
    put(&mut config.maximum_per_user.gpu_memory_mib, change.max_gpu_memory_mb_per_user);
    put(&mut config.maximum_per_user.cpus, change.max_cpu_cores_per_user);
    put(&mut config.maximum_per_user.memory_mib, change.max_memory_mb_per_user);
    put(&mut config.maximum_per_user.jobs, change.max_concurrent_jobs_per_user);
    let models = |field, sent: Option<BTreeMap<_, _>>| sent.map(|sent| by_canonical_model(field, &sent)).transpose();
    put(&mut config.maximum_by_model, models(MAX_BY_MODEL_FIELD, change.max_gpus_by_model)?);
    put(&mut config.guaranteed.gpus, change.guaranteed_gpus);
    put(&mut config.guaranteed.gpu_memory_mib, change.guaranteed_gpu_memory_mb);
    put(&mut config.guaranteed.cpus, change.guaranteed_cpu_cores);
    put(&mut config.guaranteed.memory_mib, change.guaranteed_memory_mb);
    put(&mut config.guaranteed.jobs, change.guaranteed_concurrent_jobs);
    put(&mut config.guaranteed_by_model, models(GUARANTEED_BY_MODEL_FIELD, change.guaranteed_gpus_by_model)?);
    let gpu_ms = |field, hours: Option<f64>| hours.map(|hours| hours_to_gpu_ms(field, hours)).transpose();
    let budget_gpu_ms = change.budget_gpu_hours.map(|hours| gpu_ms(BUDGET_FIELD, hours)).transpose()?;
    put(&mut config.budget.gpu_ms, budget_gpu_ms);
    let cost = change.budget_cost.map(|cost| cost.map(|cost| money_to_micro("budget_cost", cost)).transpose());
    put(&mut config.budget.cost_micro, cost.transpose()?);
    let energy = change.budget_kwh.map(|kwh| kwh.map(|kwh| kwh_to_mj("budget_kwh", kwh)).transpose());
    put(&mut config.budget.energy_mj, energy.transpose()?);
    put(&mut config.tier, change.priority_tier.as_deref().map(|name| parse_tier("priority_tier", name)).transpose()?);
    put(&mut config.weight, change.fair_share_weight.map(parse_weight).transpose()?);
    put(&mut config.decay_milli_per_day, change.priority_decay.map(parse_decay_milli).transpose()?);
    put(&mut config.may_be_preempted, change.allow_preemption);
    put(&mut config.may_preempt, change.can_preempt_others);
    put(&mut config.priority_max, change.max_priority);
    put(&mut config.preemptions_per_job_max, change.max_preemptions);
    let loss_gpu_ms = change.damage_gpu_hours_per_day.map(|hours| gpu_ms(PREEMPTION_LOSS_LIMIT_FIELD, hours));
    put(&mut config.preemption_loss_gpu_ms_per_day, loss_gpu_ms.transpose()?);
    put(&mut config.billed, change.billing_enabled);
    let price = change.cost_per_gpu_hour.map(|price| money_to_micro("cost_per_gpu_hour", price)).transpose()?;
    put(&mut config.price_gpu_hour_micro, price);
    put(&mut config.active, change.active);
    let notices =
        [change.notify_on_start, change.notify_on_completion, change.notify_on_failure, change.notify_on_quota];
    config.notify.extend(notice_settings(notices));
    put(&mut config.labels, change.labels);
    Ok(())
}

/// The notices that were sent, in the order of [`NOTICE_NAMES`].
fn notice_settings(sent: [Option<bool>; 4]) -> impl Iterator<Item = (String, bool)> {
    NOTICE_NAMES.iter().zip(sent).filter_map(|(name, wanted)| Some((name.to_string(), wanted?)))
}

fn parse_parent(id: &str) -> Result<TenantId, Refusal> {
    id.parse().map_err(|error| invalid("parent", format!("{error}")))
}

/// GPUs by model, with canonical model names. A model given in two spellings is refused: it would count twice.
fn by_canonical_model(field: &'static str, sent: &BTreeMap<String, u64>) -> Result<BTreeMap<String, u64>, Refusal> {
    let mut models = BTreeMap::new();
    for (name, count) in sent {
        let model = model::canonical(name);
        if model.is_empty() {
            return Err(invalid(field, format!("`{name}` is not a GPU model")));
        }
        if models.insert(model, *count).is_some() {
            return Err(invalid(field, format!("model `{name}` is given twice under different spellings")));
        }
    }
    Ok(models)
}

fn hours_to_gpu_ms(field: &'static str, hours: f64) -> Result<u64, Refusal> {
    match hours.is_finite() && (0.0..=1e12).contains(&hours) {
        true => Ok((hours * 3_600_000.0).round() as u64),
        false => Err(invalid(field, "must be from 0 to 1,000,000,000,000")),
    }
}

fn kwh_to_mj(field: &'static str, kwh: f64) -> Result<u64, Refusal> {
    match kwh.is_finite() && (0.0..=1e9).contains(&kwh) {
        true => Ok((kwh * 3.6e9).round() as u64),
        false => Err(invalid(field, "must be from 0 to 1,000,000,000")),
    }
}

fn parse_weight(share: f64) -> Result<u32, Refusal> {
    match (0.01..=1e6).contains(&share) {
        true => Ok((share * WEIGHT_OF_SHARE_ONE).round() as u32),
        false => Err(invalid("fair_share_weight", "must be from 0.01 to 1,000,000")),
    }
}

fn parse_decay_milli(part: f64) -> Result<u32, Refusal> {
    match (0.0..=1.0).contains(&part) {
        true => Ok((part * 1_000.0).round() as u32),
        false => Err(invalid("priority_decay", "must be from 0 to 1")),
    }
}
