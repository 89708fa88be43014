//! A pool, as policies hold it.

use std::fmt;

use allocative::Allocative;
use anyhow::anyhow;
use muster_core::rules::{Fact, Pool};
use starlark::starlark_simple_value;
use starlark::values::dict::AllocDict;
use starlark::values::list::AllocList;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
    starlark_value,
};

use super::{POOL_FIELDS, number, value_of};

/// A pool, as policies hold it. Its fields can be read.
#[derive(Debug, Clone, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagablePanic)]
pub struct PoolValue(#[allocative(skip)] pub Pool);

starlark_simple_value!(PoolValue);

impl fmt::Display for PoolValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<pool {}>", self.0.name)
    }
}

#[starlark_value(type = "pool")]
impl<'v> StarlarkValue<'v> for PoolValue {
    fn get_attr(&self, name: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let pool = &self.0;
        let texts = |texts: &[String]| heap.alloc(AllocList(texts.iter().map(String::as_str)));
        Some(match name {
            "name" => heap.alloc(pool.name.as_str()),
            "gpu_type" | "gpu_types" => texts(&pool.gpu_types),
            "min_memory_gb" => number(heap, pool.min_memory_milli_gb),
            "max_temp_c" => number(heap, pool.max_temp_milli_c),
            "power_policy" => heap.alloc(pool.power_policy.word()),
            "health_threshold" => number(heap, pool.health_threshold_milli),
            "opt_strategies" => {
                let one = |strategy: &muster_core::rules::Strategy| {
                    let kind = ("type".to_string(), Fact::Text(strategy.kind.word().to_string()));
                    dict(heap, std::iter::once(kind).chain(strategy.fields.clone()))
                };
                heap.alloc(AllocList(pool.opt_strategies.iter().map(one)))
            }
            "health_checks" => {
                let one = |check: &muster_core::rules::Check| {
                    let name = ("name".to_string(), Fact::Text(check.name.clone()));
                    dict(heap, std::iter::once(name).chain(check.fields.clone()))
                };
                heap.alloc(AllocList(pool.health_checks.iter().map(one)))
            }
            _ => return None,
        })
    }

    fn dir_attr(&self) -> Vec<String> {
        POOL_FIELDS.iter().map(ToString::to_string).collect()
    }
}

fn dict<'v>(heap: Heap<'v>, fields: impl Iterator<Item = (String, Fact)>) -> Value<'v> {
    heap.alloc(AllocDict(fields.map(|(name, fact)| (name, value_of(heap, &fact))).collect::<Vec<_>>()))
}

/// The pool that a value is.
pub fn pool_of(value: Value) -> anyhow::Result<Pool> {
    let pool = value.downcast_ref::<PoolValue>().map(|value| value.0.clone());
    pool.ok_or_else(|| {
        anyhow!("gpu_ops.register_pool: {} is no pool; make one with gpu_pool", value.to_repr())
    })
}
