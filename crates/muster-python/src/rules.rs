//! What policies registered, as plain dicts. The names are those that policies write.

use std::collections::BTreeMap;

use muster_core::rules::{Check, Extreme, Fact, Layout, Metric, Pool, Rule, Rules, Ruleset, Strategy};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Pools, by name.
pub fn pools<'py>(py: Python<'py>, rules: &Rules) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, one) in &rules.pools {
        dict.set_item(name, pool(py, one)?)?;
    }
    Ok(dict)
}

/// Rulesets, by name.
pub fn schedules<'py>(py: Python<'py>, rules: &Rules) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, one) in &rules.schedules {
        dict.set_item(name, ruleset(py, one)?)?;
    }
    Ok(dict)
}

fn pool<'py>(py: Python<'py>, pool: &Pool) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &pool.name)?;
    dict.set_item("gpu_types", &pool.gpu_types)?;
    dict.set_item("min_memory_gb", whole(pool.min_memory_milli_gb))?;
    dict.set_item("max_temp_c", whole(pool.max_temp_milli_c))?;
    dict.set_item("power_policy", pool.power_policy.word())?;
    dict.set_item("health_threshold", whole(pool.health_threshold_milli))?;
    let strategies =
        pool.opt_strategies.iter().map(|one: &Strategy| (("type", one.kind.word()), &one.fields));
    dict.set_item("opt_strategies", all_said(py, strategies)?)?;
    let checks = pool.health_checks.iter().map(|one: &Check| (("name", one.name.as_str()), &one.fields));
    dict.set_item("health_checks", all_said(py, checks)?)?;
    Ok(dict)
}

/// A key of ours and all else that was said, of each.
fn all_said<'py, 'a>(
    py: Python<'py>,
    each: impl Iterator<Item = ((&'static str, &'a str), &'a BTreeMap<String, Fact>)>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for ((key, word), fields) in each {
        let dict = PyDict::new(py);
        dict.set_item(key, word)?;
        for (name, value) in fields {
            dict.set_item(name, fact(py, value)?)?;
        }
        list.append(dict)?;
    }
    Ok(list)
}

fn ruleset<'py>(py: Python<'py>, ruleset: &Ruleset) -> PyResult<Bound<'py, PyDict>> {
    let rules: Vec<Bound<PyDict>> = ruleset.rules.iter().map(|one| rule(py, one)).collect::<PyResult<_>>()?;
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
            dict.set_item("metric", word(&Metric::ALL, metric))?;
            dict.set_item("strategy", word(&Extreme::ALL, strategy))?;
        }
        Rule::Distribution { strategy } => {
            dict.set_item("type", "distribution")?;
            dict.set_item("strategy", word(&Layout::ALL, strategy))?;
        }
        Rule::Preemption { allow, priority_threshold } => {
            dict.set_item("type", "preemption")?;
            dict.set_item("allow", allow)?;
            dict.set_item("priority_threshold", priority_threshold)?;
        }
    }
    Ok(dict)
}

/// As policies write it.
fn word<T: PartialEq>(all: &[(&'static str, T)], one: &T) -> &'static str {
    all.iter().find(|(_, other)| other == one).map_or("", |(word, _)| word)
}

fn whole(milli: i64) -> f64 {
    milli as f64 / 1_000.0
}

fn fact<'py>(py: Python<'py>, fact_: &Fact) -> PyResult<Bound<'py, PyAny>> {
    match fact_ {
        Fact::Nothing => Ok(py.None().into_bound(py)),
        Fact::Flag(flag) => flag.into_bound_py_any(py),
        Fact::Milli(milli) if milli % 1_000 == 0 => (milli / 1_000).into_bound_py_any(py),
        Fact::Milli(milli) => whole(*milli).into_bound_py_any(py),
        Fact::Text(text) => text.into_bound_py_any(py),
        Fact::List(facts) => {
            let facts = facts.iter().map(|one| fact(py, one)).collect::<PyResult<Vec<_>>>()?;
            facts.into_bound_py_any(py)
        }
    }
}
