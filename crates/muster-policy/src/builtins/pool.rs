//! Pools as Starlark values.

use std::fmt;

use allocative::Allocative;
use anyhow::anyhow;
use muster_core::objects::policy::rules::{Fact, Pool};
use starlark::starlark_simple_value;
use starlark::values::dict::AllocDict;
use starlark::values::list::AllocList;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike, starlark_value,
};

use super::{POOL_FIELDS, fact_to_value, milli_to_value};

/// A pool as a Starlark value with readable fields.
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
            "min_memory_gb" => milli_to_value(heap, pool.min_memory_milli_gb),
            "max_temp_c" => milli_to_value(heap, pool.max_temp_milli_c),
            "power_policy" => heap.alloc(pool.power_policy.as_str()),
            "health_threshold" => milli_to_value(heap, pool.health_threshold_milli),
            "opt_strategies" => {
                let to_dict = |strategy: &muster_core::objects::policy::rules::Strategy| {
                    let kind = ("type".to_string(), Fact::Text(strategy.kind.as_str().to_string()));
                    dict(heap, std::iter::once(kind).chain(strategy.fields.clone()))
                };
                heap.alloc(AllocList(pool.opt_strategies.iter().map(to_dict)))
            }
            "health_checks" => {
                let to_dict = |check: &muster_core::objects::policy::rules::Check| {
                    let name = ("name".to_string(), Fact::Text(check.name.clone()));
                    dict(heap, std::iter::once(name).chain(check.fields.clone()))
                };
                heap.alloc(AllocList(pool.health_checks.iter().map(to_dict)))
            }
            _ => return None,
        })
    }

    fn dir_attr(&self) -> Vec<String> {
        POOL_FIELDS.iter().map(ToString::to_string).collect()
    }
}

fn dict<'v>(heap: Heap<'v>, fields: impl Iterator<Item = (String, Fact)>) -> Value<'v> {
    heap.alloc(AllocDict(fields.map(|(name, fact)| (name, fact_to_value(heap, &fact))).collect::<Vec<_>>()))
}

pub fn pool_of(value: Value) -> anyhow::Result<Pool> {
    let pool = value.downcast_ref::<PoolValue>().map(|value| value.0.clone());
    pool.ok_or_else(|| anyhow!("gpu_ops.register_pool: {} is not a pool; create one with gpu_pool", value.to_repr()))
}
