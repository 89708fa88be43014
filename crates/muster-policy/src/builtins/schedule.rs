//! Rules and rulesets as Starlark values.

use std::fmt;

use allocative::Allocative;
use anyhow::anyhow;
use muster_core::objects::policy::rules::{BalanceStrategy, DistributionStrategy, Metric, Rule, Ruleset};
use starlark::starlark_simple_value;
use starlark::values::list::AllocList;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike, starlark_value,
};

/// A rule as a Starlark value with readable fields.
#[derive(Debug, Clone, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagablePanic)]
pub struct RuleValue(#[allocative(skip)] pub Rule);

starlark_simple_value!(RuleValue);

impl RuleValue {
    fn kind(&self) -> &'static str {
        match self.0 {
            Rule::Priority { .. } => "priority",
            Rule::Balance { .. } => "balance",
            Rule::Distribution { .. } => "distribution",
            Rule::Preemption { .. } => "preemption",
        }
    }
}

impl fmt::Display for RuleValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} rule>", self.kind())
    }
}

#[starlark_value(type = "rule")]
impl<'v> StarlarkValue<'v> for RuleValue {
    fn get_attr(&self, name: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        Some(match (name, &self.0) {
            ("type", _) => heap.alloc(self.kind()),
            ("label", Rule::Priority { label, .. }) => heap.alloc(label.as_str()),
            ("values", Rule::Priority { values, .. }) => heap.alloc(AllocList(values.iter().map(String::as_str))),
            ("metric", Rule::Balance { metric, .. }) => heap.alloc(spelling_of(&Metric::ALL, *metric)),
            ("strategy", Rule::Balance { strategy, .. }) => heap.alloc(spelling_of(&BalanceStrategy::ALL, *strategy)),
            ("strategy", Rule::Distribution { strategy }) => {
                heap.alloc(spelling_of(&DistributionStrategy::ALL, *strategy))
            }
            ("allow", Rule::Preemption { allow, .. }) => Value::new_bool(*allow),
            ("priority_threshold", Rule::Preemption { priority_threshold: Some(label), .. }) => {
                heap.alloc(label.as_str())
            }
            // Every rule has the fields of all kinds; those of other kinds are None.
            ("label" | "values" | "metric" | "strategy" | "allow" | "priority_threshold", _) => Value::new_none(),
            _ => return None,
        })
    }
}

/// A ruleset as a Starlark value with readable fields.
#[derive(Debug, Clone, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagablePanic)]
pub struct RulesetValue(#[allocative(skip)] pub Ruleset);

starlark_simple_value!(RulesetValue);

impl fmt::Display for RulesetValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<ruleset {}>", self.0.name)
    }
}

#[starlark_value(type = "ruleset")]
impl<'v> StarlarkValue<'v> for RulesetValue {
    fn get_attr(&self, name: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        Some(match name {
            "name" => heap.alloc(self.0.name.as_str()),
            "rules" => heap.alloc(AllocList(self.0.rules.iter().cloned().map(RuleValue))),
            _ => return None,
        })
    }
}

fn spelling_of<T: PartialEq>(spellings: &[(&'static str, T)], value: T) -> &'static str {
    spellings.iter().find(|(_, known)| *known == value).map_or("", |(spelling, _)| spelling)
}

pub fn rule_of(value: Value) -> anyhow::Result<Rule> {
    let rule = value.downcast_ref::<RuleValue>().map(|value| value.0.clone());
    rule.ok_or_else(|| anyhow!("schedule_ruleset: `rules` contains {}, which is not a rule", value.to_repr()))
}

pub fn ruleset_of(value: Value) -> anyhow::Result<Ruleset> {
    let ruleset = value.downcast_ref::<RulesetValue>().map(|value| value.0.clone());
    ruleset.ok_or_else(|| {
        let repr = value.to_repr();
        anyhow!("gpu_ops.register_schedule: {repr} is not a ruleset; create one with schedule_ruleset")
    })
}
