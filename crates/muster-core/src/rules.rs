//! What policies say, as data: pools of GPUs, rulesets, and how devices are to be driven.
//!
//! Policies are programs, and what they register is this. Nothing here runs them: the planner and the control of devices
//! read data, so a decision can be made again without them. Numbers are thousandths, because decisions are made of whole
//! numbers and policies write fractions.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model;

/// Everything that the policies of a bundle registered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rules {
    /// Pools, by name.
    pub pools: BTreeMap<String, Pool>,
    /// Rulesets, by name.
    pub schedules: BTreeMap<String, Ruleset>,
}

/// A pool: which GPUs belong to it, and how they are driven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Models, as they were written; any where there is none.
    pub gpu_types: Vec<String>,
    /// Least memory of a device, in thousandths of a GB.
    pub min_memory_milli_gb: i64,
    /// Highest temperature, in thousandths of a degree.
    pub max_temp_milli_c: i64,
    /// How its devices are driven.
    pub power_policy: PowerPolicy,
    /// Least health of a device, in thousandths.
    pub health_threshold_milli: i64,
    /// How its devices are tuned.
    pub opt_strategies: Vec<Strategy>,
    /// What is looked at, and how often.
    pub health_checks: Vec<Check>,
}

/// How devices are driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerPolicy {
    /// As fast as they can.
    Performance,
    /// Neither.
    Balanced,
    /// By what runs on them.
    #[default]
    Adaptive,
    /// With as little power as they can.
    Efficiency,
}

impl PowerPolicy {
    /// All, with how policies write them.
    pub const ALL: [(&'static str, PowerPolicy); 4] = [
        ("performance", PowerPolicy::Performance),
        ("balanced", PowerPolicy::Balanced),
        ("adaptive", PowerPolicy::Adaptive),
        ("efficiency", PowerPolicy::Efficiency),
    ];

    /// As policies write it.
    pub fn word(self) -> &'static str {
        PowerPolicy::ALL.iter().find(|(_, policy)| *policy == self).map_or("", |(word, _)| word)
    }
}

/// How devices are tuned, for the control of devices to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strategy {
    /// What is tuned.
    pub kind: Tuned,
    /// What else was said.
    pub fields: BTreeMap<String, Fact>,
}

/// What of a device is tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tuned {
    /// Its clocks.
    Clock,
    /// How its memory is given out.
    Memory,
    /// Its power.
    Power,
}

impl Tuned {
    /// As policies write it.
    pub fn word(self) -> &'static str {
        match self {
            Tuned::Clock => "clock",
            Tuned::Memory => "memory",
            Tuned::Power => "power",
        }
    }
}

/// Something of a device that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// What else was said.
    pub fields: BTreeMap<String, Fact>,
}

/// Rules of order, spread and displacement under one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruleset {
    /// Its name.
    pub name: String,
    /// In the order in which they count.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Rule {
    /// Jobs go by the value of a label, in this order.
    Priority {
        /// Which label.
        label: String,
        /// The most urgent first.
        values: Vec<String>,
    },
    /// Devices go by something that is measured.
    Balance {
        /// What.
        metric: Metric,
        /// Whether little or much of it comes first.
        strategy: Extreme,
    },
    /// How tasks are laid out over nodes.
    Distribution {
        /// How.
        strategy: Layout,
    },
    /// Who may be displaced.
    Preemption {
        /// Whether anyone may.
        allow: bool,
        /// Only jobs below this word of the first priority rule; nobody is spared where there is none.
        priority_threshold: Option<String>,
    },
}

/// In words, for people.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Priority { label, values } => write!(f, "jobs go by `{label}`: {}", values.join(", ")),
            Rule::Balance { metric, strategy } => {
                write!(f, "{} {} first", word(strategy, &Extreme::ALL), word(metric, &Metric::ALL))
            }
            Rule::Distribution { strategy } => write!(f, "{}", word(strategy, &Layout::ALL)),
            Rule::Preemption { allow: false, .. } => f.write_str("nobody is displaced"),
            Rule::Preemption { priority_threshold: Some(word), .. } => {
                write!(f, "who is `{word}` or more urgent is not displaced")
            }
            Rule::Preemption { .. } => f.write_str("jobs may be displaced"),
        }
    }
}

/// As policies write it.
fn word<T: PartialEq>(wanted: &T, all: &[(&'static str, T)]) -> &'static str {
    all.iter().find(|(_, one)| one == wanted).map_or("", |(word, _)| word)
}

/// What of a device is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Its temperature.
    Temperature,
    /// Its power.
    Power,
    /// Its free memory.
    Memory,
    /// How much of it is in use.
    Utilization,
    /// How much of its pool is in use.
    PoolUtilization,
}

impl Metric {
    /// All, with how policies write them.
    pub const ALL: [(&'static str, Metric); 5] = [
        ("temperature", Metric::Temperature),
        ("power", Metric::Power),
        ("memory", Metric::Memory),
        ("utilization", Metric::Utilization),
        ("pool_utilization", Metric::PoolUtilization),
    ];
}

/// Whether little or much comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extreme {
    /// Little.
    Least,
    /// Much.
    Most,
}

impl Extreme {
    /// Both, with how policies write them.
    pub const ALL: [(&'static str, Extreme); 2] = [("least", Extreme::Least), ("most", Extreme::Most)];
}

/// How tasks are laid out over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One node after the other.
    RoundRobin,
    /// As few nodes as possible.
    Pack,
    /// As many nodes as possible.
    Spread,
}

impl Layout {
    /// All, with how policies write them.
    pub const ALL: [(&'static str, Layout); 3] =
        [("round_robin", Layout::RoundRobin), ("pack", Layout::Pack), ("spread", Layout::Spread)];
}

/// Something a policy said that has no field of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// Nothing.
    Nothing,
    /// Yes or no.
    Flag(bool),
    /// A number, in thousandths.
    Milli(i64),
    /// A word.
    Text(String),
    /// Several.
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

/// Thousandths as people write them: `16`, `0.3`.
pub fn thousandths(milli: i64) -> String {
    let (sign, milli) = (if milli < 0 { "-" } else { "" }, milli.unsigned_abs());
    match (milli / 1_000, milli % 1_000) {
        (whole, 0) => format!("{sign}{whole}"),
        (whole, part) => format!("{sign}{whole}.{part:03}").trim_end_matches('0').to_string(),
    }
}

/// A device, as pools see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device<'a> {
    /// What its driver calls it.
    pub model: &'a str,
    /// Its memory, in thousandths of a GB.
    pub memory_milli_gb: i64,
    /// Its temperature, in thousandths of a degree.
    pub temp_milli_c: i64,
    /// The pool it was put into by hand, if any.
    pub pool: Option<&'a str>,
}

impl Pool {
    /// Whether a device belongs to it.
    pub fn holds(&self, device: &Device) -> bool {
        let of_model = || self.gpu_types.iter().any(|wish| model::matches(wish, device.model));
        device.pool.is_none_or(|pool| pool == self.name)
            && (self.gpu_types.is_empty() || of_model())
            && device.memory_milli_gb >= self.min_memory_milli_gb
            && device.temp_milli_c <= self.max_temp_milli_c
    }
}

/// Most pools of a bundle: every device is compared with each of them whenever its health changes.
const POOLS_MAX: usize = 256;
/// Most models of a pool, for the same reason.
const MODELS_MAX: usize = 256;
/// Most strategies of a pool, and most checks: its nodes are sent all of them.
const STRATEGIES_MAX: usize = 256;
/// Most rulesets of a bundle.
const RULESETS_MAX: usize = 256;
/// Most rules of a ruleset, and most values of a priority rule: every bucket of jobs is compared with each of them.
const RULES_MAX: usize = 1_000;
/// Most values and letters in the fields of the strategies and checks of a pool.
const FIELDS_MAX: usize = 100_000;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 1_000;

impl Rules {
    /// What is too large for a cluster to go by, in a sentence. Policies are programs: a loop registers a million pools.
    pub fn excess(&self) -> Option<String> {
        let over = |what: &str, count: usize, most: usize| {
            (count > most).then(|| format!("{what} at most {most}, not {count}"))
        };
        over("pools: a bundle registers", self.pools.len(), POOLS_MAX)
            .or_else(|| over("rulesets: a bundle registers", self.schedules.len(), RULESETS_MAX))
            .or_else(|| self.pools.values().find_map(|pool| pool.excess(over)))
            .or_else(|| self.schedules.values().find_map(|ruleset| ruleset.excess(over)))
    }

    /// Whether some pool has a device.
    pub fn any_pool_holds(&self, device: &Device) -> bool {
        self.pools.values().any(|pool| pool.holds(device))
    }

    /// Take over what others registered; who comes later replaces who has the same name.
    pub fn extend(&mut self, other: Rules) {
        self.pools.extend(other.pools);
        self.schedules.extend(other.schedules);
    }
}

impl Pool {
    fn excess(&self, over: impl Fn(&str, usize, usize) -> Option<String>) -> Option<String> {
        let longest = self.gpu_types.iter().chain([&self.name]).map(String::len).max();
        over("names of pools and models have bytes:", longest.unwrap_or(0), NAME_BYTES_MAX)
            .or_else(|| over("models: a pool has", self.gpu_types.len(), MODELS_MAX))
            .or_else(|| over("strategies: a pool has", self.opt_strategies.len(), STRATEGIES_MAX))
            .or_else(|| over("checks: a pool has", self.health_checks.len(), STRATEGIES_MAX))
            .or_else(|| over("values and letters: the fields of a pool have", self.fields_size(), FIELDS_MAX))
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
    fn excess(&self, over: impl Fn(&str, usize, usize) -> Option<String>) -> Option<String> {
        let values = |rule: &Rule| if let Rule::Priority { values, .. } = rule { values.len() } else { 0 };
        over("names of rulesets have bytes:", self.name.len(), NAME_BYTES_MAX)
            .or_else(|| over("rules: a ruleset has", self.rules.len(), RULES_MAX))
            .or_else(|| {
                over("values: the rules of a ruleset have", self.rules.iter().map(values).sum(), RULES_MAX)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_loop_registers_without_end_is_too_large() {
        let rules = |pools: usize, models: usize| {
            let pool = pool(&vec!["A100"; models]);
            let named = |number| (format!("p{number}"), Pool { name: format!("p{number}"), ..pool.clone() });
            Rules { pools: (0..pools).map(named).collect(), ..Rules::default() }
        };
        assert_eq!(rules(POOLS_MAX, MODELS_MAX).excess(), None);
        assert_eq!(
            rules(POOLS_MAX + 1, 1).excess().as_deref(),
            Some("pools: a bundle registers at most 256, not 257")
        );
        assert_eq!(
            rules(1, 1_000_000).excess().as_deref(),
            Some("models: a pool has at most 256, not 1000000")
        );
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

    fn device(model: &str) -> Device<'_> {
        Device { model, memory_milli_gb: 24_000, temp_milli_c: 35_000, pool: None }
    }

    #[test]
    fn a_pool_holds_its_models_within_its_bounds() {
        let prod = pool(&["RTX_5070ti", "A100"]);
        let it = "NVIDIA GeForce RTX 5070 Ti";
        assert!(prod.holds(&device(it)) && prod.holds(&device("NVIDIA A100-SXM4-80GB")));
        assert!(!prod.holds(&device("NVIDIA A10")) && !prod.holds(&device("NVIDIA GeForce RTX 5070")));
        for (memory, temp, holds) in
            [(16_000, 85_000, true), (15_999, 85_000, false), (16_000, 85_001, false)]
        {
            let at = Device { memory_milli_gb: memory, temp_milli_c: temp, ..device(it) };
            assert_eq!(prod.holds(&at), holds, "{memory} {temp}");
        }
        let elsewhere = Device { pool: Some("dev"), ..device(it) };
        let here = Device { pool: Some("prod"), ..device(it) };
        assert!(!prod.holds(&elsewhere) && prod.holds(&here));
        assert!(pool(&[]).holds(&device("anything")), "no types are all types");
    }

    #[test]
    fn thousandths_are_written_as_people_do() {
        let cases = [(16_000, "16"), (300, "0.3"), (-1_250, "-1.25"), (5, "0.005"), (0, "0")];
        cases.into_iter().for_each(|(milli, text)| assert_eq!(thousandths(milli), text));
    }
}
