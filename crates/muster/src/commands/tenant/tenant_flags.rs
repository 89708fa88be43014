//! The flags of `muster tenant create` and `muster tenant set`.

use std::collections::BTreeMap;

use clap::Args;
use muster_protocol::tenant::{TenantChange, TenantSpec};

use crate::units;

/// Quotas, guarantees, budgets, priority, price and contact of a tenant.
#[derive(Debug, Clone, Default, Args)]
pub struct TenantFlags {
    /// GPU quota: the most GPUs held at one time; `none` is without limit
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    max_gpus: Option<CountLimit>,
    /// Quota of requested GPU memory, for example 640G
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_limit)]
    max_gpu_memory: Option<CountLimit>,
    /// Quota of CPU cores
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    max_cpus: Option<CountLimit>,
    /// Quota of main memory
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_limit)]
    max_mem: Option<CountLimit>,
    /// Quota of running jobs
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    max_jobs: Option<CountLimit>,
    /// GPUs that each user may hold at one time; `none` is without limit
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    max_gpus_per_user: Option<CountLimit>,
    /// GPU memory that each user may hold at one time
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_limit)]
    max_gpu_memory_per_user: Option<CountLimit>,
    /// CPU cores that each user may hold at one time
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    max_cpus_per_user: Option<CountLimit>,
    /// Main memory that each user may hold at one time
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_limit)]
    max_mem_per_user: Option<CountLimit>,
    /// Jobs that each user may have running at one time
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    max_jobs_per_user: Option<CountLimit>,
    /// GPU quota of single models, for example h100=4,a100=8; other models have no such quota
    #[arg(long, value_name = "MODEL=N,…", value_parser = parse_by_model)]
    max_gpus_by_model: Option<ModelCounts>,
    /// Guaranteed GPUs
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    guaranteed_gpus: Option<CountLimit>,
    /// Guaranteed GPU memory
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_limit)]
    guaranteed_gpu_memory: Option<CountLimit>,
    /// Guaranteed CPU cores
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    guaranteed_cpus: Option<CountLimit>,
    /// Guaranteed main memory
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_limit)]
    guaranteed_mem: Option<CountLimit>,
    /// Guaranteed running jobs
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    guaranteed_jobs: Option<CountLimit>,
    /// Guaranteed GPUs of single models, for example h100=2; `none` removes them
    #[arg(long, value_name = "MODEL=N,…", value_parser = parse_by_model)]
    guaranteed_gpus_by_model: Option<ModelCounts>,
    /// Budget in GPU-hours; `none` is without limit
    #[arg(long, value_name = "X", value_parser = parse_amount_limit)]
    budget_gpu_hours: Option<AmountLimit>,
    /// Budget in kWh, counted at the power limits of the GPUs
    #[arg(long, value_name = "X", value_parser = parse_amount_limit)]
    budget_kwh: Option<AmountLimit>,
    /// Budget in money
    #[arg(long, value_name = "X", value_parser = parse_amount_limit)]
    budget_cost: Option<AmountLimit>,
    /// Default priority of its jobs and priority ceiling of its members: low (100), medium (500), high (1000) or critical (5000)
    #[arg(long, alias = "priority", value_parser = ["low", "medium", "high", "critical"])]
    tier: Option<String>,
    /// Priority ceiling of its members, above the tier; `none` removes it
    #[arg(long, value_name = "N", value_parser = parse_count_limit)]
    max_priority: Option<CountLimit>,
    /// Fair-share weight relative to its siblings; 1 is the default
    #[arg(long, value_name = "X")]
    weight: Option<f64>,
    /// Fraction of its past usage that decays each day, 0 to 1; 0 is the default of the cluster
    #[arg(long, value_name = "X")]
    decay: Option<f64>,
    /// Whether its running jobs may be preempted
    #[arg(long, value_name = "BOOL")]
    may_be_preempted: Option<bool>,
    /// Whether its jobs may preempt others
    #[arg(long, value_name = "BOOL")]
    may_preempt: Option<bool>,
    /// Preemption loss limit: GPU-hours of the tenant's work that preemption may cost per day; `none` is without limit
    #[arg(long, value_name = "X", value_parser = parse_amount_limit)]
    damage_gpu_hours_per_day: Option<AmountLimit>,
    /// Price of a GPU-hour; 0 disables billing
    #[arg(long, value_name = "X")]
    price: Option<f64>,
    /// Contact address
    #[arg(long)]
    email: Option<String>,
    /// Organization of the tenant
    #[arg(long, value_name = "TEXT")]
    organization: Option<String>,
}

/// A number, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountLimit(Option<u64>);

/// A number per GPU model; may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCounts(BTreeMap<String, u64>);

/// A decimal number, or no limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AmountLimit(Option<f64>);

impl TenantFlags {
    /// For a new tenant: `none` is the same as an absent flag.
    pub fn into_spec(self) -> TenantSpec {
        let number = |limit: Option<CountLimit>| limit.and_then(|limit| limit.0);
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
            max_gpus_by_model: model_counts(self.max_gpus_by_model).unwrap_or_default(),
            guaranteed_gpus: number(self.guaranteed_gpus),
            guaranteed_gpu_memory_mb: number(self.guaranteed_gpu_memory),
            guaranteed_cpu_cores: number(self.guaranteed_cpus),
            guaranteed_memory_mb: number(self.guaranteed_mem),
            guaranteed_concurrent_jobs: number(self.guaranteed_jobs),
            guaranteed_gpus_by_model: model_counts(self.guaranteed_gpus_by_model).unwrap_or_default(),
            budget_gpu_hours: self.budget_gpu_hours.and_then(|amount| amount.0),
            budget_kwh: self.budget_kwh.and_then(|amount| amount.0),
            budget_cost: self.budget_cost.and_then(|amount| amount.0),
            priority_tier: self.tier,
            max_priority: number(self.max_priority).map(saturating_priority),
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

    /// For an existing tenant: `none` removes a limit, an absent flag leaves it unchanged.
    pub fn into_change(self) -> TenantChange {
        let number = |limit: Option<CountLimit>| limit.map(|limit| limit.0);
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
            max_gpus_by_model: model_counts(self.max_gpus_by_model),
            guaranteed_gpus: number(self.guaranteed_gpus),
            guaranteed_gpu_memory_mb: number(self.guaranteed_gpu_memory),
            guaranteed_cpu_cores: number(self.guaranteed_cpus),
            guaranteed_memory_mb: number(self.guaranteed_mem),
            guaranteed_concurrent_jobs: number(self.guaranteed_jobs),
            guaranteed_gpus_by_model: model_counts(self.guaranteed_gpus_by_model),
            budget_gpu_hours: self.budget_gpu_hours.map(|amount| amount.0),
            budget_kwh: self.budget_kwh.map(|amount| amount.0),
            budget_cost: self.budget_cost.map(|amount| amount.0),
            priority_tier: self.tier,
            max_priority: number(self.max_priority).map(|granted| granted.map(saturating_priority)),
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

/// The server refuses a priority that does not fit into 32 bits, with its own message.
fn saturating_priority(granted: u64) -> u32 {
    u32::try_from(granted).unwrap_or(u32::MAX)
}

fn model_counts(flag: Option<ModelCounts>) -> Option<BTreeMap<String, u64>> {
    flag.map(|models| models.0)
}

/// `h100=4,a100=8`, or `none`.
fn parse_by_model(text: &str) -> Result<ModelCounts, String> {
    if text == "none" {
        return Ok(ModelCounts(BTreeMap::new()));
    }
    let mut models = BTreeMap::new();
    for part in text.split(',') {
        let pair = part.split_once('=').map(|(model, count)| (model.trim(), count.trim().parse::<u64>()));
        let Some((model, Ok(count))) = pair.filter(|(model, _)| !model.is_empty()) else {
            return Err(format!("`{part}` is not MODEL=N; write for example h100=4,a100=8, or `none`"));
        };
        if models.insert(model.to_string(), count).is_some() {
            return Err(format!("`{model}` is given twice"));
        }
    }
    Ok(ModelCounts(models))
}

fn parse_amount_limit(text: &str) -> Result<AmountLimit, String> {
    if text == "none" {
        return Ok(AmountLimit(None));
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number
        .map(|number| AmountLimit(Some(number)))
        .ok_or_else(|| "write a number that is not negative, or `none`".to_string())
}

fn parse_count_limit(text: &str) -> Result<CountLimit, String> {
    let number = || text.parse().map_err(|_| format!("`{text}` is neither a number nor `none`"));
    if text == "none" { Ok(CountLimit(None)) } else { number().map(|number| CountLimit(Some(number))) }
}

fn parse_memory_limit(text: &str) -> Result<CountLimit, String> {
    if text == "none" { Ok(CountLimit(None)) } else { units::parse_memory_mib(text).map(|mib| CountLimit(Some(mib))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_omits_a_limit_on_create_and_lifts_it_on_change() {
        let flags = || TenantFlags {
            max_gpus: Some(CountLimit(None)),
            max_mem: parse_count_limit("8").ok(),
            ..TenantFlags::default()
        };
        assert_eq!((flags().into_spec().max_gpus, flags().into_spec().max_memory_mb), (None, Some(8)));
        assert_eq!((flags().into_change().max_gpus, flags().into_change().max_cpu_cores), (Some(None), None));
    }

    #[test]
    fn model_counts_are_parsed_from_pairs() {
        let parsed = |text: &str| parse_by_model(text).map(|models| models.0.into_iter().collect::<Vec<_>>());
        let two = vec![("a100".to_string(), 8), ("h100".to_string(), 4)];
        assert_eq!(parsed("h100=4, a100=8"), Ok(two));
        assert_eq!(parsed("none"), Ok(Vec::new()));
        for wrong in ["", "h100", "h100=", "=4", "h100=few", "h100=1,", "h100=1,h100=2"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn model_counts_replace_the_whole_map_or_leave_it() {
        let flags =
            |text: &str| TenantFlags { guaranteed_gpus_by_model: parse_by_model(text).ok(), ..TenantFlags::default() };
        let change = flags("none").into_change();
        assert_eq!((change.guaranteed_gpus_by_model, change.max_gpus_by_model), (Some(BTreeMap::new()), None));
        assert_eq!(flags("h100=2").into_spec().guaranteed_gpus_by_model["h100"], 2);
    }

    #[test]
    fn limits_are_parsed_from_numbers_sizes_or_none() {
        assert_eq!(parse_memory_limit("4G"), Ok(CountLimit(Some(4_096))));
        assert_eq!(parse_count_limit("none"), Ok(CountLimit(None)));
        assert!(parse_count_limit("many").is_err() && parse_memory_limit("much").is_err());
    }
}
