//! Pools and rulesets as plain dicts, with the keys that policies use.

use std::collections::BTreeMap;

use muster_core::objects::policy::rules::{
    BalanceStrategy, Check, DistributionStrategy, Fact, Metric, Pool, Rule, Rules, Ruleset, Strategy,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The pools, by name.
pub fn pools<'py>(py: Python<'py>, rules: &Rules) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in &rules.pools {
        dict.set_item(name, pool(py, value)?)?;
    }
    Ok(dict)
}

/// The rulesets, by name.
pub fn schedules<'py>(py: Python<'py>, rules: &Rules) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in &rules.schedules {
        dict.set_item(name, ruleset(py, value)?)?;
    }
    Ok(dict)
}

fn pool<'py>(py: Python<'py>, pool: &Pool) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &pool.name)?;
    dict.set_item("gpu_types", &pool.gpu_types)?;
    dict.set_item("min_memory_gb", milli_to_float(pool.min_memory_milli_gb))?;
    dict.set_item("max_temp_c", milli_to_float(pool.max_temp_milli_c))?;
    dict.set_item("power_policy", pool.power_policy.as_str())?;
    dict.set_item("health_threshold", milli_to_float(pool.health_threshold_milli))?;
    let strategies = pool.opt_strategies.iter().map(|one: &Strategy| (("type", one.kind.as_str()), &one.fields));
    dict.set_item("opt_strategies", dicts_with_key(py, strategies)?)?;
    let checks = pool.health_checks.iter().map(|one: &Check| (("name", one.name.as_str()), &one.fields));
    dict.set_item("health_checks", dicts_with_key(py, checks)?)?;
    Ok(dict)
}

/// One dict for each item: a first entry, then the fields that the policy gave.
fn dicts_with_key<'py, 'a>(
    py: Python<'py>,
    items: impl Iterator<Item = ((&'static str, &'a str), &'a BTreeMap<String, Fact>)>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for ((key, value), fields) in items {
        let dict = PyDict::new(py);
        dict.set_item(key, value)?;
        for (name, value) in fields {
            dict.set_item(name, fact(py, value)?)?;
        }
        list.append(dict)?;
    }
    Ok(list)
}

fn ruleset<'py>(py: Python<'py>, ruleset: &Ruleset) -> PyResult<Bound<'py, PyDict>> {
    let rules: Vec<Bound<PyDict>> = ruleset.rules.iter().map(|value| rule(py, value)).collect::<PyResult<_>>()?;
    let dict = PyDict::new(py);
    dict.set_item("name", &ruleset.name)?;
    dict.set_item("rules", rules)?;
    Ok(dict)
}

fn rule<'py>(py: Python<'py>, rule: &Rule) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    match rule {
        Rule::Priority { label, values } => {
            dict.set_item("type", "priority")?;
            dict.set_item("label", label)?;
            dict.set_item("values", values)?;
        }
        Rule::Balance { metric, strategy } => {
            dict.set_item("type", "balance")?;
            dict.set_item("metric", spelling_of(&Metric::ALL, metric))?;
            dict.set_item("strategy", spelling_of(&BalanceStrategy::ALL, strategy))?;
        }
        Rule::Distribution { strategy } => {
            dict.set_item("type", "distribution")?;
            dict.set_item("strategy", spelling_of(&DistributionStrategy::ALL, strategy))?;
        }
        Rule::Preemption { allow, priority_threshold } => {
            dict.set_item("type", "preemption")?;
            dict.set_item("allow", allow)?;
            dict.set_item("priority_threshold", priority_threshold)?;
        }
    }
    Ok(dict)
}

/// The spelling of a value in policies.
fn spelling_of<T: PartialEq>(spellings: &[(&'static str, T)], value: &T) -> &'static str {
    spellings.iter().find(|(_, known)| known == value).map_or("", |(spelling, _)| spelling)
}

fn milli_to_float(milli: i64) -> f64 {
    milli as f64 / 1_000.0
}

fn fact<'py>(py: Python<'py>, value: &Fact) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Fact::Nothing => Ok(py.None().into_bound(py)),
        Fact::Flag(flag) => flag.into_bound_py_any(py),
        Fact::Milli(milli) if milli % 1_000 == 0 => (milli / 1_000).into_bound_py_any(py),
        Fact::Milli(milli) => milli_to_float(*milli).into_bound_py_any(py),
        Fact::Text(text) => text.into_bound_py_any(py),
        Fact::List(facts) => {
            let facts = facts.iter().map(|value| fact(py, value)).collect::<PyResult<Vec<_>>>()?;
            facts.into_bound_py_any(py)
        }
    }
}
