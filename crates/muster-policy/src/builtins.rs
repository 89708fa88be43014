//! What a policy finds besides the language: thirteen names.
//!
//! `gpu_pool`, `optimize_clock`, `optimize_memory`, `optimize_power`, `check`, `priority_rule`, `balance_rule`,
//! `distribution_rule`, `preemption_rule`, `schedule_ruleset`, `refuse`, `is_model`, and `gpu_ops` with its five methods. Every
//! argument is looked at: a misspelt field or a wrong kind is an error at the line of the call.

// The interpreter's derives implement a marker trait that is unsafe to write by hand; no line of ours is unsafe.
#![allow(unsafe_code)]

mod pool;
mod schedule;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use anyhow::anyhow;
use muster_core::rules::{
    Check, Extreme, Fact, Layout, Metric, Pool, PowerPolicy, Rule, Rules, Ruleset, Strategy, Tuned,
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

use crate::fields::Fields;
use crate::hooks::REFUSE;
pub use pool::PoolValue;
pub use schedule::{RuleValue, RulesetValue};

/// What a run has registered so far, and what tests want to know of it.
#[derive(Debug, Default, ProvidesStaticType)]
pub struct Registry {
    rules: RefCell<Rules>,
    /// Expectations of a test that were looked at.
    expected: Cell<u32>,
    /// Marks of lines that were reached.
    ran: RefCell<BTreeSet<u32>>,
}

impl Registry {
    /// All that was registered.
    pub fn into_rules(self) -> Rules {
        self.rules.into_inner()
    }

    /// The same rules, and nothing else has happened yet.
    pub fn fresh(&self) -> Registry {
        Registry { rules: self.rules.clone(), ..Registry::default() }
    }

    /// An expectation is looked at.
    pub fn expected(&self) {
        self.expected.set(self.expected.get().saturating_add(1));
    }

    /// How many were.
    pub fn expectations(&self) -> u32 {
        self.expected.get()
    }

    /// A marked line is reached.
    pub fn reached(&self, mark: u32) {
        self.ran.borrow_mut().insert(mark);
    }

    /// The marks that were.
    pub fn take_ran(&self) -> BTreeSet<u32> {
        self.ran.take()
    }
}

/// The language and the names above. Built once: it never changes.
pub fn globals() -> Globals {
    names_of_policies().build()
}

/// The same, to add to.
pub fn names_of_policies() -> GlobalsBuilder {
    GlobalsBuilder::extended_by(&[LibraryExtension::Print]).with(names).with_namespace("gpu_ops", gpu_ops)
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
/// More GB than any device has.
const MEMORY_GB: (i64, i64) = (0, 100_000);
/// From the coldest to what melts.
const CELSIUS: (i64, i64) = (-273, 1_000);

#[starlark_module]
fn names(builder: &mut GlobalsBuilder) {
    fn gpu_pool<'v>(#[starlark(kwargs)] given: DictRef<'v>) -> anyhow::Result<PoolValue> {
        let mut fields = Fields::new("gpu_pool", given, &POOL_FIELDS)?;
        let strategies = fields.items("opt_strategies")?.unwrap_or_default();
        let checks = fields.items("health_checks")?.unwrap_or_default();
        Ok(PoolValue(Pool {
            name: fields.text("name")?.unwrap_or_else(|| "default".to_string()),
            gpu_types: fields.texts("gpu_type")?.unwrap_or_default(),
            min_memory_milli_gb: fields.milli("min_memory_gb", MEMORY_GB)?.unwrap_or(0),
            max_temp_milli_c: fields.milli("max_temp_c", CELSIUS)?.unwrap_or(100_000),
            power_policy: fields.word("power_policy", &PowerPolicy::ALL)?.unwrap_or_default(),
            health_threshold_milli: fields.milli("health_threshold", (0, 1))?.unwrap_or(900),
            opt_strategies: strategies.into_iter().map(strategy).collect::<anyhow::Result<_>>()?,
            health_checks: checks.into_iter().map(health_check).collect::<anyhow::Result<_>>()?,
        }))
    }

    fn optimize_clock<'v>(
        #[starlark(kwargs)] given: DictRef<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        kept(heap, ("type", "clock"), given)
    }

    fn optimize_memory<'v>(
        #[starlark(kwargs)] given: DictRef<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        kept(heap, ("type", "memory"), given)
    }

    fn optimize_power<'v>(
        #[starlark(kwargs)] given: DictRef<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        kept(heap, ("type", "power"), given)
    }

    fn check<'v>(
        #[starlark(require = pos)] name: &str,
        #[starlark(kwargs)] given: DictRef<'v>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        kept(heap, ("name", name), given)
    }

    fn priority_rule<'v>(#[starlark(kwargs)] given: DictRef<'v>) -> anyhow::Result<RuleValue> {
        let mut fields = Fields::new("priority_rule", given, &["label", "values"])?;
        let label = fields.required_text("label")?;
        let values = fields.texts("values")?.unwrap_or_default();
        match values.is_empty() {
            true => Err(anyhow!("priority_rule: `values` is missing")),
            false => Ok(RuleValue(Rule::Priority { label, values })),
        }
    }

    fn balance_rule<'v>(#[starlark(kwargs)] given: DictRef<'v>) -> anyhow::Result<RuleValue> {
        let mut fields = Fields::new("balance_rule", given, &["metric", "strategy"])?;
        let metric = fields.required_word("metric", &Metric::ALL)?;
        let strategy = fields.word("strategy", &Extreme::ALL)?.unwrap_or(Extreme::Least);
        Ok(RuleValue(Rule::Balance { metric, strategy }))
    }

    fn distribution_rule<'v>(#[starlark(kwargs)] given: DictRef<'v>) -> anyhow::Result<RuleValue> {
        let mut fields = Fields::new("distribution_rule", given, &["strategy"])?;
        let strategy = fields.required_word("strategy", &Layout::ALL)?;
        Ok(RuleValue(Rule::Distribution { strategy }))
    }

    fn preemption_rule<'v>(#[starlark(kwargs)] given: DictRef<'v>) -> anyhow::Result<RuleValue> {
        let mut fields = Fields::new("preemption_rule", given, &["allow", "priority_threshold"])?;
        let allow = fields.flag("allow")?.unwrap_or(true);
        let priority_threshold = fields.text("priority_threshold")?;
        Ok(RuleValue(Rule::Preemption { allow, priority_threshold }))
    }

    fn schedule_ruleset<'v>(#[starlark(kwargs)] given: DictRef<'v>) -> anyhow::Result<RulesetValue> {
        let mut fields = Fields::new("schedule_ruleset", given, &["name", "rules"])?;
        let name = fields.required_text("name")?;
        let rules = fields.items("rules")?.unwrap_or_default();
        let rules = rules.into_iter().map(schedule::rule_of).collect::<anyhow::Result<_>>()?;
        Ok(RulesetValue(Ruleset { name, rules }))
    }

    /// What `admit` answers to a job that shall never start.
    fn refuse<'v>(#[starlark(require = pos)] why: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        match why.trim().is_empty() {
            true => Err(anyhow!("refuse: a text must say why")),
            false => Ok(heap.alloc(AllocStruct([(REFUSE, why)]))),
        }
    }

    /// Whether a device of this model is what is meant by a name of one.
    fn is_model(
        #[starlark(require = pos)] model: &str,
        #[starlark(require = pos)] wish: &str,
    ) -> anyhow::Result<bool> {
        Ok(muster_core::model::matches(wish, model))
    }
}

#[starlark_module]
fn gpu_ops(builder: &mut GlobalsBuilder) {
    fn register_pool<'v>(
        #[starlark(require = pos)] pool: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let pool = pool::pool_of(pool)?;
        registry(eval)?.rules.borrow_mut().pools.insert(pool.name.clone(), pool);
        Ok(NoneType)
    }

    fn register_schedule<'v>(
        #[starlark(require = pos)] ruleset: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let ruleset = schedule::ruleset_of(ruleset)?;
        registry(eval)?.rules.borrow_mut().schedules.insert(ruleset.name.clone(), ruleset);
        Ok(NoneType)
    }

    fn get_pool<'v>(
        #[starlark(require = pos)] name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneOr<PoolValue>> {
        let pool = registry(eval)?.rules.borrow().pools.get(name).cloned();
        Ok(NoneOr::from_option(pool.map(PoolValue)))
    }

    fn get_all_pools<'v>(eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Vec<PoolValue>> {
        Ok(registry(eval)?.rules.borrow().pools.values().cloned().map(PoolValue).collect())
    }

    fn get_schedule<'v>(
        #[starlark(require = pos)] name: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneOr<RulesetValue>> {
        let ruleset = registry(eval)?.rules.borrow().schedules.get(name).cloned();
        Ok(NoneOr::from_option(ruleset.map(RulesetValue)))
    }
}

/// What the run under way registers into.
pub fn registry<'a>(eval: &Evaluator<'_, 'a, '_>) -> anyhow::Result<&'a Registry> {
    let extra = eval.extra.and_then(|extra| extra.downcast_ref::<Registry>());
    extra.ok_or_else(|| anyhow!("nothing can be registered here: only while a policy is loaded"))
}

/// A dict of what was said, with one key of ours first.
fn kept<'v>(heap: Heap<'v>, (key, word): (&str, &str), given: DictRef<'v>) -> anyhow::Result<Value<'v>> {
    let mut entries: SmallMap<Value<'v>, Value<'v>> = SmallMap::new();
    entries
        .insert_hashed(heap.alloc(key).get_hashed().map_err(|error| anyhow!("{error}"))?, heap.alloc(word));
    for (name, value) in given.iter() {
        entries.insert_hashed(name.get_hashed().map_err(|error| anyhow!("{error}"))?, value);
    }
    Ok(heap.alloc(AllocDict(entries)))
}

/// A strategy from the dict that `optimize_…` made.
fn strategy(value: Value) -> anyhow::Result<Strategy> {
    const KINDS: [(&str, Tuned); 3] =
        [("clock", Tuned::Clock), ("memory", Tuned::Memory), ("power", Tuned::Power)];
    let wrong = || {
        anyhow!(
            "gpu_pool: `opt_strategies` has {}; make them with optimize_clock, optimize_memory or optimize_power",
            value.to_repr()
        )
    };
    let mut fields = Fields::any("gpu_pool", DictRef::from_value(value).ok_or_else(wrong)?);
    let kind = fields.word("type", &KINDS)?.ok_or_else(wrong)?;
    Ok(Strategy { kind, fields: fields.rest()? })
}

/// A check from the dict that `check` made.
fn health_check(value: Value) -> anyhow::Result<Check> {
    let wrong = || anyhow!("gpu_pool: `health_checks` has {}; make them with check", value.to_repr());
    let mut fields = Fields::any("gpu_pool", DictRef::from_value(value).ok_or_else(wrong)?);
    let name = fields.text("name")?.ok_or_else(wrong)?;
    Ok(Check { name, fields: fields.rest()? })
}

/// Data as a value of the language.
fn value_of<'v>(heap: Heap<'v>, fact: &Fact) -> Value<'v> {
    match fact {
        Fact::Nothing => Value::new_none(),
        Fact::Flag(flag) => Value::new_bool(*flag),
        Fact::Milli(milli) => number(heap, *milli),
        Fact::Text(text) => heap.alloc(text.as_str()),
        Fact::List(facts) => heap.alloc(AllocList(facts.iter().map(|fact| value_of(heap, fact)))),
    }
}

/// Thousandths as a number: whole where it is.
fn number<'v>(heap: Heap<'v>, milli: i64) -> Value<'v> {
    match milli % 1_000 {
        0 => heap.alloc(milli / 1_000),
        _ => heap.alloc(milli as f64 / 1_000.0),
    }
}
