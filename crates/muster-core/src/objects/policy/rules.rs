//! Rules registered by policies, as data: GPU pools, rulesets, and device tuning.
//!
//! Policies are programs; these are the values that they register. Nothing here runs a policy: the planner and device
//! control read data, so a decision can be replayed without policies. Numbers are in thousandths, because decisions use
//! integers and policies write fractions.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::gpu::model;

/// Everything that a bundle registers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rules {
    pub pools: BTreeMap<String, Pool>,
    pub schedules: BTreeMap<String, Ruleset>,
}

/// A pool: the criteria of its GPUs, and their power policy and tuning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    pub name: String,
    /// Model names as the policy wrote them; empty accepts any model.
    pub gpu_types: Vec<String>,
    /// Minimum memory of a device, in thousandths of a GB.
    pub min_memory_milli_gb: i64,
    /// Maximum temperature, in thousandths of a °C.
    pub max_temp_milli_c: i64,
    pub power_policy: PowerPolicy,
    /// Minimum health of a device, in thousandths.
    pub health_threshold_milli: i64,
    pub opt_strategies: Vec<Strategy>,
    pub health_checks: Vec<Check>,
}

/// The power policy of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerPolicy {
    /// Highest performance.
    Performance,
    Balanced,
    /// Depends on the running job.
    #[default]
    Adaptive,
    /// Lowest power.
    Efficiency,
}

impl PowerPolicy {
    /// All values with their spelling in policies.
    pub const ALL: [(&'static str, PowerPolicy); 4] = [
        ("performance", PowerPolicy::Performance),
        ("balanced", PowerPolicy::Balanced),
        ("adaptive", PowerPolicy::Adaptive),
        ("efficiency", PowerPolicy::Efficiency),
    ];

    /// The spelling in policies.
    pub fn as_str(self) -> &'static str {
        PowerPolicy::ALL.iter().find(|(_, policy)| *policy == self).map_or("", |(spelling, _)| spelling)
    }
}

/// A tuning strategy, read by device control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strategy {
    pub kind: TuningTarget,
    /// Further fields that the policy set.
    pub fields: BTreeMap<String, Fact>,
}

/// The part of a device that a strategy tunes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuningTarget {
    Clock,
    Memory,
    Power,
}

impl TuningTarget {
    /// The spelling in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            TuningTarget::Clock => "clock",
            TuningTarget::Memory => "memory",
            TuningTarget::Power => "power",
        }
    }
}

/// A health check of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    /// Further fields that the policy set.
    pub fields: BTreeMap<String, Fact>,
}

/// A named set of rules for order, placement and preemption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruleset {
    pub name: String,
    /// In order of precedence.
    pub rules: Vec<Rule>,
}

/// A rule of a ruleset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Rule {
    /// Orders jobs by the value of a label.
    Priority {
        label: String,
        /// The most urgent value first.
        values: Vec<String>,
    },
    /// Orders devices by a metric.
    Balance { metric: Metric, strategy: BalanceStrategy },
    /// Distributes tasks over nodes.
    Distribution { strategy: DistributionStrategy },
    /// Limits preemption.
    Preemption {
        allow: bool,
        /// Only jobs below this value of the first priority rule may be victims; `None` allows all.
        priority_threshold: Option<String>,
    },
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Priority { label, values } => {
                write!(f, "jobs are ordered by `{label}`: {}", values.join(", "))
            }
            Rule::Balance { metric, strategy } => {
                write!(f, "{} {} first", spelling(strategy, &BalanceStrategy::ALL), spelling(metric, &Metric::ALL))
            }
            Rule::Distribution { strategy } => write!(f, "{}", spelling(strategy, &DistributionStrategy::ALL)),
            Rule::Preemption { allow: false, .. } => f.write_str("no job is preempted"),
            Rule::Preemption { priority_threshold: Some(value), .. } => {
                write!(f, "jobs that are `{value}` or more urgent are not preempted")
            }
            Rule::Preemption { .. } => f.write_str("jobs may be preempted"),
        }
    }
}

/// The spelling of a value in policies.
fn spelling<T: PartialEq>(wanted: &T, all: &[(&'static str, T)]) -> &'static str {
    all.iter().find(|(_, one)| one == wanted).map_or("", |(spelling, _)| spelling)
}

/// A metric by which devices are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    Temperature,
    Power,
    Memory,
    /// Used part of the device.
    Utilization,
    /// Used part of the device's pool.
    PoolUtilization,
}

impl Metric {
    /// All values with their spelling in policies.
    pub const ALL: [(&'static str, Metric); 5] = [
        ("temperature", Metric::Temperature),
        ("power", Metric::Power),
        ("memory", Metric::Memory),
        ("utilization", Metric::Utilization),
        ("pool_utilization", Metric::PoolUtilization),
    ];
}

/// Which end of a metric comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalanceStrategy {
    Least,
    Most,
}

impl BalanceStrategy {
    /// Both values with their spelling in policies.
    pub const ALL: [(&'static str, BalanceStrategy); 2] =
        [("least", BalanceStrategy::Least), ("most", BalanceStrategy::Most)];
}

/// The distribution of tasks over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DistributionStrategy {
    /// One node after the other.
    RoundRobin,
    /// As few nodes as possible.
    Pack,
    /// As many nodes as possible.
    Spread,
}

impl DistributionStrategy {
    /// All values with their spelling in policies.
    pub const ALL: [(&'static str, DistributionStrategy); 3] = [
        ("round_robin", DistributionStrategy::RoundRobin),
        ("pack", DistributionStrategy::Pack),
        ("spread", DistributionStrategy::Spread),
    ];
}

/// A value that a policy set and that has no field of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    Nothing,
    Flag(bool),
    /// A number, in thousandths.
    Milli(i64),
    Text(String),
    List(Vec<Fact>),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Nothing => f.write_str("none"),
            Fact::Flag(flag) => flag.fmt(f),
            Fact::Milli(milli) => f.write_str(&thousandths(*milli)),
            Fact::Text(text) => f.write_str(text),
            Fact::List(facts) => {
                let facts: Vec<String> = facts.iter().map(Fact::to_string).collect();
                write!(f, "[{}]", facts.join(", "))
            }
        }
    }
}

/// Thousandths in decimal notation: `16`, `0.3`.
pub fn thousandths(milli: i64) -> String {
    let (sign, milli) = (if milli < 0 { "-" } else { "" }, milli.unsigned_abs());
    match (milli / 1_000, milli % 1_000) {
        (whole, 0) => format!("{sign}{whole}"),
        (whole, part) => format!("{sign}{whole}.{part:03}").trim_end_matches('0').to_string(),
    }
}

/// The properties of a device that pools compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDevice<'a> {
    /// The driver's name of the model.
    pub model: &'a str,
    /// In thousandths of a GB.
    pub memory_milli_gb: i64,
    /// In thousandths of a °C.
    pub temp_milli_c: i64,
    /// The pool that an operator assigned it to, if any.
    pub pool: Option<&'a str>,
}

impl Pool {
    /// True if a device belongs to the pool.
    pub fn holds(&self, device: &PoolDevice) -> bool {
        let of_model = || self.gpu_types.iter().any(|name| model::matches(name, device.model));
        device.pool.is_none_or(|pool| pool == self.name)
            && (self.gpu_types.is_empty() || of_model())
            && device.memory_milli_gb >= self.min_memory_milli_gb
            && device.temp_milli_c <= self.max_temp_milli_c
    }
}

/// Most pools of a bundle: each change of a device's health compares it with every pool.
const POOLS_MAX: usize = 256;
/// Most models of a pool, for the same reason.
const MODELS_MAX: usize = 256;
/// Most strategies, and most checks, of a pool: its nodes receive all of them.
const STRATEGIES_MAX: usize = 256;
/// Most rulesets of a bundle.
const RULESETS_MAX: usize = 256;
/// Most rules of a ruleset, and most values of its priority rules: every bucket of jobs is compared with each of them.
const RULES_MAX: usize = 1_000;
/// Most values and bytes in the fields of the strategies and checks of a pool.
const FIELDS_MAX: usize = 100_000;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 1_000;

impl Rules {
    /// The first limit that the rules exceed, as a message. Policies are programs: a loop can register a million pools.
    pub fn excess(&self) -> Option<String> {
        let over = |what: &str, of: &str, count: usize, most: usize| {
            (count > most).then(|| format!("{what} at most {most} {of}, not {count}"))
        };
        over("a bundle registers", "pools", self.pools.len(), POOLS_MAX)
            .or_else(|| over("a bundle registers", "rulesets", self.schedules.len(), RULESETS_MAX))
            .or_else(|| self.pools.values().find_map(|pool| pool.excess(over)))
            .or_else(|| self.schedules.values().find_map(|ruleset| ruleset.excess(over)))
    }

    /// True if a device belongs to any pool.
    pub fn any_pool_holds(&self, device: &PoolDevice) -> bool {
        self.pools.values().any(|pool| pool.holds(device))
    }

    /// Adds the rules of another bundle; an equal name replaces the earlier entry.
    pub fn extend(&mut self, other: Rules) {
        self.pools.extend(other.pools);
        self.schedules.extend(other.schedules);
    }
}

impl Pool {
    fn excess(&self, over: impl Fn(&str, &str, usize, usize) -> Option<String>) -> Option<String> {
        let longest = self.gpu_types.iter().chain([&self.name]).map(String::len).max();
        over("the name of a pool or model has", "bytes", longest.unwrap_or(0), NAME_BYTES_MAX)
            .or_else(|| over("a pool has", "models", self.gpu_types.len(), MODELS_MAX))
            .or_else(|| over("a pool has", "strategies", self.opt_strategies.len(), STRATEGIES_MAX))
            .or_else(|| over("a pool has", "checks", self.health_checks.len(), STRATEGIES_MAX))
            .or_else(|| over("the fields of a pool have", "values and bytes", self.fields_size(), FIELDS_MAX))
    }

    fn fields_size(&self) -> usize {
        let strategies = self.opt_strategies.iter().map(|strategy| &strategy.fields);
        let fields = strategies.chain(self.health_checks.iter().map(|check| &check.fields)).flatten();
        fields.map(|(name, fact)| name.len() + fact.size()).sum()
    }
}

impl Fact {
    fn size(&self) -> usize {
        match self {
            Fact::Nothing | Fact::Flag(_) | Fact::Milli(_) => 1,
            Fact::Text(text) => 1 + text.len(),
            Fact::List(facts) => 1 + facts.iter().map(Fact::size).sum::<usize>(),
        }
    }
}

impl Ruleset {
    fn excess(&self, over: impl Fn(&str, &str, usize, usize) -> Option<String>) -> Option<String> {
        let values = |rule: &Rule| if let Rule::Priority { values, .. } = rule { values.len() } else { 0 };
        over("the name of a ruleset has", "bytes", self.name.len(), NAME_BYTES_MAX)
            .or_else(|| over("a ruleset has", "rules", self.rules.len(), RULES_MAX))
            .or_else(|| over("the rules of a ruleset have", "values", self.rules.iter().map(values).sum(), RULES_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_over_a_size_limit_are_refused_with_the_limit() {
        let rules = |pools: usize, models: usize| {
            let pool = pool(&vec!["A100"; models]);
            let named = |number| (format!("p{number}"), Pool { name: format!("p{number}"), ..pool.clone() });
            Rules { pools: (0..pools).map(named).collect(), ..Rules::default() }
        };
        assert_eq!(rules(POOLS_MAX, MODELS_MAX).excess(), None);
        assert_eq!(rules(POOLS_MAX + 1, 1).excess().as_deref(), Some("a bundle registers at most 256 pools, not 257"));
        assert_eq!(rules(1, 1_000_000).excess().as_deref(), Some("a pool has at most 256 models, not 1000000"));
        let long = Pool { name: "x".repeat(NAME_BYTES_MAX + 1), ..pool(&[]) };
        let long = Rules { pools: [("x".to_string(), long)].into(), ..Rules::default() };
        assert!(long.excess().unwrap().contains("1001"));
    }

    fn pool(gpu_types: &[&str]) -> Pool {
        Pool {
            name: "prod".to_string(),
            gpu_types: gpu_types.iter().map(ToString::to_string).collect(),
            min_memory_milli_gb: 16_000,
            max_temp_milli_c: 85_000,
            power_policy: PowerPolicy::default(),
            health_threshold_milli: 900,
            opt_strategies: Vec::new(),
            health_checks: Vec::new(),
        }
    }

    fn device(model: &str) -> PoolDevice<'_> {
        PoolDevice { model, memory_milli_gb: 24_000, temp_milli_c: 35_000, pool: None }
    }

    #[test]
    fn a_pool_holds_devices_of_its_models_within_its_limits() {
        let prod = pool(&["RTX_5070ti", "A100"]);
        let rtx_5070_ti = "NVIDIA GeForce RTX 5070 Ti";
        assert!(prod.holds(&device(rtx_5070_ti)) && prod.holds(&device("NVIDIA A100-SXM4-80GB")));
        assert!(!prod.holds(&device("NVIDIA A10")) && !prod.holds(&device("NVIDIA GeForce RTX 5070")));
        for (memory, temp, holds) in [(16_000, 85_000, true), (15_999, 85_000, false), (16_000, 85_001, false)] {
            let at = PoolDevice { memory_milli_gb: memory, temp_milli_c: temp, ..device(rtx_5070_ti) };
            assert_eq!(prod.holds(&at), holds, "{memory} {temp}");
        }
        let of_other_pool = PoolDevice { pool: Some("dev"), ..device(rtx_5070_ti) };
        let of_this_pool = PoolDevice { pool: Some("prod"), ..device(rtx_5070_ti) };
        assert!(!prod.holds(&of_other_pool) && prod.holds(&of_this_pool));
        assert!(pool(&[]).holds(&device("anything")), "an empty list accepts any model");
    }

    #[test]
    fn thousandths_print_as_decimals() {
        let cases = [(16_000, "16"), (300, "0.3"), (-1_250, "-1.25"), (5, "0.005"), (0, "0")];
        cases.into_iter().for_each(|(milli, text)| assert_eq!(thousandths(milli), text));
    }
}
