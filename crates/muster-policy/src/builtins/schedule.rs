//! Rules and rulesets, as policies hold them.

use std::fmt;

use allocative::Allocative;
use anyhow::anyhow;
use muster_core::rules::{Extreme, Layout, Metric, Rule, Ruleset};
use starlark::starlark_simple_value;
use starlark::values::list::AllocList;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
    starlark_value,
};

/// A rule, as policies hold it. Its fields can be read.
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
            ("values", Rule::Priority { values, .. }) => {
                heap.alloc(AllocList(values.iter().map(String::as_str)))
            }
            ("metric", Rule::Balance { metric, .. }) => heap.alloc(word(&Metric::ALL, *metric)),
            ("strategy", Rule::Balance { strategy, .. }) => heap.alloc(word(&Extreme::ALL, *strategy)),
            ("strategy", Rule::Distribution { strategy }) => heap.alloc(word(&Layout::ALL, *strategy)),
            ("allow", Rule::Preemption { allow, .. }) => Value::new_bool(*allow),
            ("priority_threshold", Rule::Preemption { priority_threshold: Some(word), .. }) => {
                heap.alloc(word.as_str())
            }
            // A field of another kind of rule is there, and nothing.
            ("label" | "values" | "metric" | "strategy" | "allow" | "priority_threshold", _) => {
                Value::new_none()
            }
            _ => return None,
        })
    }
}

/// A ruleset, as policies hold it.
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

fn word<T: PartialEq>(words: &[(&'static str, T)], meaning: T) -> &'static str {
    words.iter().find(|(_, known)| *known == meaning).map_or("", |(word, _)| word)
}

/// The rule that a value is.
pub fn rule_of(value: Value) -> anyhow::Result<Rule> {
    let rule = value.downcast_ref::<RuleValue>().map(|value| value.0.clone());
    rule.ok_or_else(|| anyhow!("schedule_ruleset: `rules` has {}, which is no rule", value.to_repr()))
}

/// The ruleset that a value is.
pub fn ruleset_of(value: Value) -> anyhow::Result<Ruleset> {
    let ruleset = value.downcast_ref::<RulesetValue>().map(|value| value.0.clone());
    ruleset.ok_or_else(|| {
        let what = value.to_repr();
        anyhow!("gpu_ops.register_schedule: {what} is no ruleset; make one with schedule_ruleset")
    })
}
