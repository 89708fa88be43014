//! The builtins of policies beside the language itself: thirteen names.
//!
//! `gpu_pool`, `optimize_clock`, `optimize_memory`, `optimize_power`, `check`, `priority_rule`, `balance_rule`,
//! `distribution_rule`, `preemption_rule`, `schedule_ruleset`, `refuse`, `is_model`, and `gpu_ops` with its five
//! methods. Every argument is checked: a misspelt field or an invalid type is an error at the line of the call.

// The interpreter's derive macros implement an unsafe marker trait; this module contains no other unsafe code.
#![allow(unsafe_code)]

mod pool;
mod schedule;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use anyhow::anyhow;
use muster_core::objects::policy::rules::{
    BalanceStrategy, Check, DistributionStrategy, Fact, Metric, Pool, PowerPolicy, Rule, Rules, Ruleset, Strategy,
    TuningTarget,
};
use starlark::any::ProvidesStaticType;
use starlark::collections::SmallMap;
use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension};
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::list::AllocList;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::structs::AllocStruct;
use starlark::values::{Heap, Value};

use crate::keyword_args::KeywordArgs;
pub use pool::PoolValue;
pub use schedule::{RuleValue, RulesetValue};

/// The field of the struct that `refuse` returns.
pub const REFUSAL_FIELD: &str = "refuse";

/// What an evaluation has registered so far, and the counters of the test runner.
#[derive(Debug, Default, ProvidesStaticType)]
pub struct Registry {
    rules: RefCell<Rules>,
    /// Expectations that a test has checked.
    expectation_count: Cell<u32>,
    /// Coverage marks that were reached.
    reached_marks: RefCell<BTreeSet<u32>>,
}

impl Registry {
    pub fn into_rules(self) -> Rules {
        self.rules.into_inner()
    }

    /// A registry with the same rules and fresh counters.
    pub fn with_same_rules(&self) -> Registry {
        Registry { rules: self.rules.clone(), ..Registry::default() }
    }

    pub fn count_expectation(&self) {
        self.expectation_count.set(self.expectation_count.get().saturating_add(1));
    }

    pub fn expectation_count(&self) -> u32 {
        self.expectation_count.get()
    }

    pub fn mark_reached(&self, mark: u32) {
        self.reached_marks.borrow_mut().insert(mark);
    }

    pub fn take_reached_marks(&self) -> BTreeSet<u32> {
        self.reached_marks.take()
    }
}

/// The language with the builtins of policies.
pub fn policy_globals() -> Globals {
    policy_globals_builder().build()
}

/// The same as a builder, for further builtins.
pub fn policy_globals_builder() -> GlobalsBuilder {
    GlobalsBuilder::extended_by(&[LibraryExtension::Print]).with(policy_builtins).with_namespace("gpu_ops", gpu_ops)
}

const POOL_FIELDS: [&str; 8] = [
    "name",
    "gpu_type",
    "min_memory_gb",
    "max_temp_c",
    "power_policy",
    "health_threshold",
    "opt_strategies",
    "health_checks",
];
/// Up to more GB than any device has.
const MEMORY_GB_RANGE: (i64, i64) = (0, 100_000);
/// From absolute zero to above the melting point of a device.
const TEMPERATURE_C_RANGE: (i64, i64) = (-273, 1_000);

#[starlark_module]
fn policy_builtins(builder: &mut GlobalsBuilder) {
    fn gpu_pool<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>) -> anyhow::Result<PoolValue> {
        let mut fields = KeywordArgs::new("gpu_pool", kwargs, &POOL_FIELDS)?;
        let strategies = fields.items("opt_strategies")?.unwrap_or_default();
        let checks = fields.items("health_checks")?.unwrap_or_default();
        Ok(PoolValue(Pool {
            name: fields.text("name")?.unwrap_or_else(|| "default".to_string()),
            gpu_types: fields.texts("gpu_type")?.unwrap_or_default(),
            min_memory_milli_gb: fields.milli("min_memory_gb", MEMORY_GB_RANGE)?.unwrap_or(0),
            max_temp_milli_c: fields.milli("max_temp_c", TEMPERATURE_C_RANGE)?.unwrap_or(100_000),
            power_policy: fields.choice("power_policy", &PowerPolicy::ALL)?.unwrap_or_default(),
            health_threshold_milli: fields.milli("health_threshold", (0, 1))?.unwrap_or(900),
            opt_strategies: strategies.into_iter().map(strategy_from_dict).collect::<anyhow::Result<_>>()?,
            health_checks: checks.into_iter().map(check_from_dict).collect::<anyhow::Result<_>>()?,
        }))
    }

    fn optimize_clock<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        dict_with_key(heap, ("type", "clock"), kwargs)
    }

    fn optimize_memory<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        dict_with_key(heap, ("type", "memory"), kwargs)
    }

    fn optimize_power<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        dict_with_key(heap, ("type", "power"), kwargs)
    }

    fn check<'v>(
        #[starlark(require = pos)] name: &str,
        #[starlark(kwargs)] kwargs: DictRef<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        dict_with_key(heap, ("name", name), kwargs)
    }

    fn priority_rule<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>) -> anyhow::Result<RuleValue> {
        let mut fields = KeywordArgs::new("priority_rule", kwargs, &["label", "values"])?;
        let label = fields.required_text("label")?;
        let values = fields.texts("values")?.unwrap_or_default();
        match values.is_empty() {
            true => Err(anyhow!("priority_rule: `values` is missing")),
            false => Ok(RuleValue(Rule::Priority { label, values })),
        }
    }

    fn balance_rule<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>) -> anyhow::Result<RuleValue> {
        let mut fields = KeywordArgs::new("balance_rule", kwargs, &["metric", "strategy"])?;
        let metric = fields.required_choice("metric", &Metric::ALL)?;
        let strategy = fields.choice("strategy", &BalanceStrategy::ALL)?.unwrap_or(BalanceStrategy::Least);
        Ok(RuleValue(Rule::Balance { metric, strategy }))
    }

    fn distribution_rule<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>) -> anyhow::Result<RuleValue> {
        let mut fields = KeywordArgs::new("distribution_rule", kwargs, &["strategy"])?;
        let strategy = fields.required_choice("strategy", &DistributionStrategy::ALL)?;
        Ok(RuleValue(Rule::Distribution { strategy }))
    }

    fn preemption_rule<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>) -> anyhow::Result<RuleValue> {
        let mut fields = KeywordArgs::new("preemption_rule", kwargs, &["allow", "priority_threshold"])?;
        let allow = fields.flag("allow")?.unwrap_or(true);
        let priority_threshold = fields.text("priority_threshold")?;
        Ok(RuleValue(Rule::Preemption { allow, priority_threshold }))
    }

    fn schedule_ruleset<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>) -> anyhow::Result<RulesetValue> {
        let mut fields = KeywordArgs::new("schedule_ruleset", kwargs, &["name", "rules"])?;
        let name = fields.required_text("name")?;
        let rules = fields.items("rules")?.unwrap_or_default();
        let rules = rules.into_iter().map(schedule::rule_of).collect::<anyhow::Result<_>>()?;
        Ok(RulesetValue(Ruleset { name, rules }))
    }

    /// The answer of `admit` that refuses a job for good.
    fn refuse<'v>(#[starlark(require = pos)] reason: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        match reason.trim().is_empty() {
            true => Err(anyhow!("refuse: the reason is empty")),
            false => Ok(heap.alloc(AllocStruct([(REFUSAL_FIELD, reason)]))),
        }
    }

    /// Whether a device of this model matches a requested model name.
    fn is_model(
        #[starlark(require = pos)] model: &str,
        #[starlark(require = pos)] requested: &str,
    ) -> anyhow::Result<bool> {
        Ok(muster_core::gpu::model::matches(requested, model))
    }
}

#[starlark_module]
fn gpu_ops(builder: &mut GlobalsBuilder) {
    fn register_pool<'v>(
        #[starlark(require = pos)] pool: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let pool = pool::pool_of(pool)?;
        current_registry(eval)?.rules.borrow_mut().pools.insert(pool.name.clone(), pool);
        Ok(NoneType)
    }

    fn register_schedule<'v>(
        #[starlark(require = pos)] ruleset: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let ruleset = schedule::ruleset_of(ruleset)?;
        current_registry(eval)?.rules.borrow_mut().schedules.insert(ruleset.name.clone(), ruleset);
        Ok(NoneType)
    }

    fn get_pool<'v>(
        #[starlark(require = pos)] name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneOr<PoolValue>> {
        let pool = current_registry(eval)?.rules.borrow().pools.get(name).cloned();
        Ok(NoneOr::from_option(pool.map(PoolValue)))
    }

    fn get_all_pools<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Vec<PoolValue>> {
        Ok(current_registry(eval)?.rules.borrow().pools.values().cloned().map(PoolValue).collect())
    }

    fn get_schedule<'v>(
        #[starlark(require = pos)] name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneOr<RulesetValue>> {
        let ruleset = current_registry(eval)?.rules.borrow().schedules.get(name).cloned();
        Ok(NoneOr::from_option(ruleset.map(RulesetValue)))
    }
}

/// The registry of the current evaluation. Calls of hooks have none.
pub fn current_registry<'a>(eval: &Evaluator<'_, 'a, '_>) -> anyhow::Result<&'a Registry> {
    let extra = eval.extra.and_then(|extra| extra.downcast_ref::<Registry>());
    extra.ok_or_else(|| anyhow!("register_pool and register_schedule can be called only while a policy file is loaded"))
}

/// A dict of the keyword arguments, preceded by one entry.
fn dict_with_key<'v>(heap: Heap<'v>, (key, value): (&str, &str), kwargs: DictRef<'v>) -> anyhow::Result<Value<'v>> {
    let mut entries: SmallMap<Value<'v>, Value<'v>> = SmallMap::new();
    entries.insert_hashed(heap.alloc(key).get_hashed().map_err(|error| anyhow!("{error}"))?, heap.alloc(value));
    for (name, value) in kwargs.iter() {
        entries.insert_hashed(name.get_hashed().map_err(|error| anyhow!("{error}"))?, value);
    }
    Ok(heap.alloc(AllocDict(entries)))
}

/// A strategy from the dict that an `optimize_…` builtin returned.
fn strategy_from_dict(value: Value) -> anyhow::Result<Strategy> {
    const KINDS: [(&str, TuningTarget); 3] =
        [("clock", TuningTarget::Clock), ("memory", TuningTarget::Memory), ("power", TuningTarget::Power)];
    let invalid = || {
        anyhow!(
            "gpu_pool: `opt_strategies` contains {}; create strategies with optimize_clock, optimize_memory or \
             optimize_power",
            value.to_repr()
        )
    };
    let mut fields = KeywordArgs::accepting_any("gpu_pool", DictRef::from_value(value).ok_or_else(invalid)?);
    let kind = fields.choice("type", &KINDS)?.ok_or_else(invalid)?;
    Ok(Strategy { kind, fields: fields.remaining_facts()? })
}

/// A health check from the dict that the builtin `check` returned.
fn check_from_dict(value: Value) -> anyhow::Result<Check> {
    let invalid = || anyhow!("gpu_pool: `health_checks` contains {}; create checks with check", value.to_repr());
    let mut fields = KeywordArgs::accepting_any("gpu_pool", DictRef::from_value(value).ok_or_else(invalid)?);
    let name = fields.text("name")?.ok_or_else(invalid)?;
    Ok(Check { name, fields: fields.remaining_facts()? })
}

fn fact_to_value<'v>(heap: Heap<'v>, fact: &Fact) -> Value<'v> {
    match fact {
        Fact::Nothing => Value::new_none(),
        Fact::Flag(flag) => Value::new_bool(*flag),
        Fact::Milli(milli) => milli_to_value(heap, *milli),
        Fact::Text(text) => heap.alloc(text.as_str()),
        Fact::List(facts) => heap.alloc(AllocList(facts.iter().map(|fact| fact_to_value(heap, fact)))),
    }
}

/// Thousandths as an int if the number is whole, else as a float.
fn milli_to_value<'v>(heap: Heap<'v>, milli: i64) -> Value<'v> {
    match milli % 1_000 {
        0 => heap.alloc(milli / 1_000),
        _ => heap.alloc(milli as f64 / 1_000.0),
    }
}
