//! What may be said of a tenant when it is made or changed.

use std::collections::BTreeMap;

use clap::Args;
use muster_protocol::tenant::{TenantChange, TenantSpec};

use crate::units;

/// Quotas, priority, price and contact.
#[derive(Debug, Clone, Default, Args)]
pub struct Terms {
    /// Most GPUs at one time; `none` is without limit
    #[arg(long, value_name = "N", value_parser = limit)]
    max_gpus: Option<Limit>,
    /// Most GPU memory asked for at one time, for example 640G
    #[arg(long, value_name = "SIZE", value_parser = memory_limit)]
    max_gpu_memory: Option<Limit>,
    /// Most CPU cores at one time
    #[arg(long, value_name = "N", value_parser = limit)]
    max_cpus: Option<Limit>,
    /// Most main memory at one time
    #[arg(long, value_name = "SIZE", value_parser = memory_limit)]
    max_mem: Option<Limit>,
    /// Most jobs running at one time
    #[arg(long, value_name = "N", value_parser = limit)]
    max_jobs: Option<Limit>,
    /// Most GPUs that each user may hold at one time; `none` is without limit
    #[arg(long, value_name = "N", value_parser = limit)]
    max_gpus_per_user: Option<Limit>,
    /// Most GPU memory that each user may ask for at one time
    #[arg(long, value_name = "SIZE", value_parser = memory_limit)]
    max_gpu_memory_per_user: Option<Limit>,
    /// Most CPU cores that each user may hold at one time
    #[arg(long, value_name = "N", value_parser = limit)]
    max_cpus_per_user: Option<Limit>,
    /// Most main memory that each user may hold at one time
    #[arg(long, value_name = "SIZE", value_parser = memory_limit)]
    max_mem_per_user: Option<Limit>,
    /// Most jobs that each user may have running at one time
    #[arg(long, value_name = "N", value_parser = limit)]
    max_jobs_per_user: Option<Limit>,
    /// Most GPUs of single models at one time, for example h100=4,a100=8; all others are without such a limit
    #[arg(long, value_name = "MODEL=N,…", value_parser = by_model)]
    max_gpus_by_model: Option<ByModel>,
    /// GPUs it can count on
    #[arg(long, value_name = "N", value_parser = limit)]
    guaranteed_gpus: Option<Limit>,
    /// GPU memory it can count on
    #[arg(long, value_name = "SIZE", value_parser = memory_limit)]
    guaranteed_gpu_memory: Option<Limit>,
    /// CPU cores it can count on
    #[arg(long, value_name = "N", value_parser = limit)]
    guaranteed_cpus: Option<Limit>,
    /// Main memory it can count on
    #[arg(long, value_name = "SIZE", value_parser = memory_limit)]
    guaranteed_mem: Option<Limit>,
    /// Running jobs it can count on
    #[arg(long, value_name = "N", value_parser = limit)]
    guaranteed_jobs: Option<Limit>,
    /// GPUs of single models it can count on, for example h100=2; `none` is of no model
    #[arg(long, value_name = "MODEL=N,…", value_parser = by_model)]
    guaranteed_gpus_by_model: Option<ByModel>,
    /// GPU-hours it may use in all; `none` is without limit
    #[arg(long, value_name = "X", value_parser = amount)]
    budget_gpu_hours: Option<Amount>,
    /// The same in kWh, at the power limits of the GPUs
    #[arg(long, value_name = "X", value_parser = amount)]
    budget_kwh: Option<Amount>,
    /// The same in money
    #[arg(long, value_name = "X", value_parser = amount)]
    budget_cost: Option<Amount>,
    /// Default priority of its jobs, and the highest its members may give: 100, 500, 1000 or 5000
    #[arg(long, alias = "priority", value_parser = ["low", "medium", "high", "critical"])]
    tier: Option<String>,
    /// Highest priority its members may give, above the tier; `none` takes the grant away
    #[arg(long, value_name = "N", value_parser = limit)]
    max_priority: Option<Limit>,
    /// Share against other tenants; 1 is the usual one
    #[arg(long, value_name = "X")]
    weight: Option<f64>,
    /// Part of its past usage that is forgotten each day, 0 to 1; 0 is as usual in the cluster
    #[arg(long, value_name = "X")]
    decay: Option<f64>,
    /// Whether its running jobs may be displaced
    #[arg(long, value_name = "BOOL")]
    may_be_preempted: Option<bool>,
    /// Whether its jobs may displace others
    #[arg(long, value_name = "BOOL")]
    may_preempt: Option<bool>,
    /// GPU-hours of its running work that others may destroy within a day; `none` is without limit
    #[arg(long, value_name = "X", value_parser = amount)]
    damage_gpu_hours_per_day: Option<Amount>,
    /// Price of one GPU-hour; 0 ends billing
    #[arg(long, value_name = "X")]
    price: Option<f64>,
    /// Contact
    #[arg(long)]
    email: Option<String>,
    /// Where it belongs
    #[arg(long, value_name = "TEXT")]
    organization: Option<String>,
}

/// A number, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(Option<u64>);

/// A number for each model that is named; for none of them is a number too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByModel(BTreeMap<String, u64>);

/// A number that may have a fraction, or no limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amount(Option<f64>);

impl Terms {
    /// For a new tenant: no limit is the same as saying nothing.
    pub fn into_spec(self) -> TenantSpec {
        let number = |limit: Option<Limit>| limit.and_then(|limit| limit.0);
        TenantSpec {
            max_gpus: number(self.max_gpus),
            max_gpu_memory_mb: number(self.max_gpu_memory),
            max_cpu_cores: number(self.max_cpus),
            max_memory_mb: number(self.max_mem),
            max_concurrent_jobs: number(self.max_jobs),
            max_gpus_per_user: number(self.max_gpus_per_user),
            max_gpu_memory_mb_per_user: number(self.max_gpu_memory_per_user),
            max_cpu_cores_per_user: number(self.max_cpus_per_user),
            max_memory_mb_per_user: number(self.max_mem_per_user),
            max_concurrent_jobs_per_user: number(self.max_jobs_per_user),
            max_gpus_by_model: models(self.max_gpus_by_model).unwrap_or_default(),
            guaranteed_gpus: number(self.guaranteed_gpus),
            guaranteed_gpu_memory_mb: number(self.guaranteed_gpu_memory),
            guaranteed_cpu_cores: number(self.guaranteed_cpus),
            guaranteed_memory_mb: number(self.guaranteed_mem),
            guaranteed_concurrent_jobs: number(self.guaranteed_jobs),
            guaranteed_gpus_by_model: models(self.guaranteed_gpus_by_model).unwrap_or_default(),
            budget_gpu_hours: self.budget_gpu_hours.and_then(|amount| amount.0),
            budget_kwh: self.budget_kwh.and_then(|amount| amount.0),
            budget_cost: self.budget_cost.and_then(|amount| amount.0),
            priority_tier: self.tier,
            max_priority: number(self.max_priority).map(priority),
            fair_share_weight: self.weight,
            priority_decay: self.decay,
            allow_preemption: self.may_be_preempted,
            can_preempt_others: self.may_preempt,
            damage_gpu_hours_per_day: self.damage_gpu_hours_per_day.and_then(|amount| amount.0),
            billing_enabled: self.price.map(|price| price > 0.0),
            cost_per_gpu_hour: self.price,
            email: self.email,
            organization: self.organization,
            ..TenantSpec::default()
        }
    }

    /// For one that exists: no limit lifts the one it has, nothing said leaves it.
    pub fn into_change(self) -> TenantChange {
        let number = |limit: Option<Limit>| limit.map(|limit| limit.0);
        TenantChange {
            max_gpus: number(self.max_gpus),
            max_gpu_memory_mb: number(self.max_gpu_memory),
            max_cpu_cores: number(self.max_cpus),
            max_memory_mb: number(self.max_mem),
            max_concurrent_jobs: number(self.max_jobs),
            max_gpus_per_user: number(self.max_gpus_per_user),
            max_gpu_memory_mb_per_user: number(self.max_gpu_memory_per_user),
            max_cpu_cores_per_user: number(self.max_cpus_per_user),
            max_memory_mb_per_user: number(self.max_mem_per_user),
            max_concurrent_jobs_per_user: number(self.max_jobs_per_user),
            max_gpus_by_model: models(self.max_gpus_by_model),
            guaranteed_gpus: number(self.guaranteed_gpus),
            guaranteed_gpu_memory_mb: number(self.guaranteed_gpu_memory),
            guaranteed_cpu_cores: number(self.guaranteed_cpus),
            guaranteed_memory_mb: number(self.guaranteed_mem),
            guaranteed_concurrent_jobs: number(self.guaranteed_jobs),
            guaranteed_gpus_by_model: models(self.guaranteed_gpus_by_model),
            budget_gpu_hours: self.budget_gpu_hours.map(|amount| amount.0),
            budget_kwh: self.budget_kwh.map(|amount| amount.0),
            budget_cost: self.budget_cost.map(|amount| amount.0),
            priority_tier: self.tier,
            max_priority: number(self.max_priority).map(|granted| granted.map(priority)),
            fair_share_weight: self.weight,
            priority_decay: self.decay,
            allow_preemption: self.may_be_preempted,
            can_preempt_others: self.may_preempt,
            damage_gpu_hours_per_day: self.damage_gpu_hours_per_day.map(|amount| amount.0),
            billing_enabled: self.price.map(|price| price > 0.0),
            cost_per_gpu_hour: self.price,
            email: self.email,
            organization: self.organization,
            ..TenantChange::default()
        }
    }
}

/// A priority too large for the wire is too large for the server, which says so.
fn priority(granted: u64) -> u32 {
    u32::try_from(granted).unwrap_or(u32::MAX)
}

fn models(said: Option<ByModel>) -> Option<BTreeMap<String, u64>> {
    said.map(|models| models.0)
}

/// `h100=4,a100=8`, or `none`.
fn by_model(text: &str) -> Result<ByModel, String> {
    if text == "none" {
        return Ok(ByModel(BTreeMap::new()));
    }
    let mut models = BTreeMap::new();
    for part in text.split(',') {
        let pair = part.split_once('=').map(|(model, count)| (model.trim(), count.trim().parse::<u64>()));
        let Some((model, Ok(count))) = pair.filter(|(model, _)| !model.is_empty()) else {
            return Err(format!("`{part}` is not MODEL=N; write for example h100=4,a100=8, or `none`"));
        };
        if models.insert(model.to_string(), count).is_some() {
            return Err(format!("`{model}` is there twice"));
        }
    }
    Ok(ByModel(models))
}

fn amount(text: &str) -> Result<Amount, String> {
    if text == "none" {
        return Ok(Amount(None));
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number
        .map(|number| Amount(Some(number)))
        .ok_or_else(|| "write a number that is not negative, or `none`".to_string())
}

fn limit(text: &str) -> Result<Limit, String> {
    let number = || text.parse().map_err(|_| format!("`{text}` is neither a number nor `none`"));
    if text == "none" { Ok(Limit(None)) } else { number().map(|number| Limit(Some(number))) }
}

fn memory_limit(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { units::memory_mib(text).map(|mib| Limit(Some(mib))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_said_or_lifted() {
        let terms = || Terms { max_gpus: Some(Limit(None)), max_mem: limit("8").ok(), ..Terms::default() };
        assert_eq!((terms().into_spec().max_gpus, terms().into_spec().max_memory_mb), (None, Some(8)));
        assert_eq!((terms().into_change().max_gpus, terms().into_change().max_cpu_cores), (Some(None), None));
    }

    #[test]
    fn models_are_named_with_a_number_each() {
        let said = |text: &str| by_model(text).map(|models| models.0.into_iter().collect::<Vec<_>>());
        let two = vec![("a100".to_string(), 8), ("h100".to_string(), 4)];
        assert_eq!(said("h100=4, a100=8"), Ok(two));
        assert_eq!(said("none"), Ok(Vec::new()));
        for wrong in ["", "h100", "h100=", "=4", "h100=few", "h100=1,", "h100=1,h100=2"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_models_are_said_anew_or_left() {
        let terms = |text: &str| Terms { guaranteed_gpus_by_model: by_model(text).ok(), ..Terms::default() };
        let change = terms("none").into_change();
        assert_eq!(
            (change.guaranteed_gpus_by_model, change.max_gpus_by_model),
            (Some(BTreeMap::new()), None)
        );
        assert_eq!(terms("h100=2").into_spec().guaranteed_gpus_by_model["h100"], 2);
    }

    #[test]
    fn limits_are_numbers_sizes_or_none() {
        assert_eq!(memory_limit("4G"), Ok(Limit(Some(4_096))));
        assert_eq!(limit("none"), Ok(Limit(None)));
        assert!(limit("many").is_err() && memory_limit("much").is_err());
    }
}
