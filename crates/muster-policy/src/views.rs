//! The arguments of hooks: views as records, with units in the field names. `docs/policies.md` documents every field.

use std::collections::BTreeMap;

use muster_core::objects::job::Exit;
use muster_core::objects::policy::{FailureView, Hook};
use muster_core::policy::{CandidateView, ClusterView, JobView, Moment, NodeView, TenantView};
use muster_core::time::SECOND;

use crate::policy_value::PolicyValue;

/// The names of a hook's parameters. Each is called with the view of that name.
pub fn hook_parameters(hook: Hook) -> &'static [&'static str] {
    match hook {
        Hook::Admit | Hook::Power => &["job"],
        Hook::Priority => &["job", "tenant"],
        Hook::Score => &["job", "node"],
        Hook::Victims => &["job", "candidates"],
        Hook::Retry => &["job", "failure"],
        Hook::Limit => &["tenant", "cluster"],
    }
}

pub fn job(view: &JobView) -> PolicyValue {
    PolicyValue::Record(vec![
        ("tenant", view.tenant.to_string().into()),
        ("user", view.user.as_str().into()),
        ("priority", view.priority.into()),
        ("tasks", view.tasks.into()),
        ("gpus", view.gpus.into()),
        ("gpus_per_task", view.gpus_per_task.into()),
        ("gpu_share", milli_to_float(u64::from(view.gpu_milli))),
        ("gpu_models", text_list(&view.gpu_models)),
        ("gpu_memory_mib", view.gpu_memory_mib.into()),
        ("isolation", view.isolation.into()),
        ("cpus", view.cpus.into()),
        ("memory_mib", view.memory_mib.into()),
        ("time_limit_s", PolicyValue::from_option(view.time_limit_ms.map(seconds_rounded_up))),
        ("topology", view.topology.as_str().into()),
        ("pool", PolicyValue::from_option(view.pool.as_deref())),
        ("labels", labels(&view.labels)),
        ("node_labels", labels(&view.node_labels)),
        ("name", PolicyValue::from_option(view.name.as_deref())),
        ("image", PolicyValue::from_option(view.image.as_deref())),
        ("now", moment(view.now)),
    ])
}

pub fn moment(now: Moment) -> PolicyValue {
    PolicyValue::Record(vec![
        ("unix", now.unix.into()),
        ("hour", now.hour.into()),
        ("minute", now.minute.into()),
        ("weekday", now.weekday.into()),
    ])
}

pub fn tenant(view: &TenantView) -> PolicyValue {
    PolicyValue::Record(vec![
        ("id", view.id.to_string().into()),
        ("priority", view.priority.into()),
        ("weight", view.weight.into()),
        ("gpus_held", milli_to_float(view.gpu_milli_held)),
        ("gpus_guaranteed", view.gpus_guaranteed.unwrap_or(0).into()),
        ("gpus_max", PolicyValue::from_option(view.gpus_max)),
        ("jobs", view.jobs.into()),
        ("labels", labels(&view.labels)),
    ])
}

pub fn cluster(view: &ClusterView) -> PolicyValue {
    let pools = view.pools.iter().map(|(pool, gpus)| (pool.as_str().into(), (*gpus).into()));
    PolicyValue::Record(vec![
        ("gpus", view.gpus.into()),
        ("gpus_held", milli_to_float(view.gpu_milli_held)),
        ("pools", PolicyValue::Dict(pools.collect())),
        ("now", moment(view.now)),
    ])
}

/// A node without its name: policies cannot tell nodes of one kind apart, so one call scores all of them.
pub fn node(view: &NodeView) -> PolicyValue {
    PolicyValue::Record(vec![
        ("models", text_list(&view.models)),
        ("gpus", view.gpus.into()),
        ("gpu_memory_mib", view.gpu_memory_mib.into()),
        ("partitioned", view.partitioned.into()),
        ("cpus", view.cpus.into()),
        ("memory_mib", view.memory_mib.into()),
        ("labels", labels(&view.labels)),
        ("pools", text_list(&view.pools)),
    ])
}

/// A running job that might be preempted.
pub fn candidate(view: &CandidateView) -> PolicyValue {
    PolicyValue::Record(vec![
        ("id", view.id.to_string().into()),
        ("tenant", view.tenant.to_string().into()),
        ("user", view.user.as_str().into()),
        ("priority", view.priority.into()),
        ("gpus", view.gpus.into()),
        ("ran_s", (view.ran_ms / SECOND).into()),
        ("lost_gpu_s", (view.lost_gpu_ms / SECOND.unsigned_abs()).into()),
        ("preemptions", view.preemptions.into()),
        ("saves", view.saves.into()),
        ("labels", labels(&view.labels)),
    ])
}

/// The signal by which the kernel ends a task that is out of memory.
const SIGKILL: i64 = 9;

/// An attempt that failed by itself.
pub fn failure(view: &FailureView) -> PolicyValue {
    let (code, signal, reason) = match &view.exit {
        Exit::Code { code } => (Some(i64::from(*code)), None, None),
        Exit::Signal { signal } => (None, Some(i64::from(*signal)), None),
        Exit::OutOfMemory { .. } => (None, Some(SIGKILL), Some("out of memory")),
        Exit::NotStarted { why } | Exit::InvalidJob { why } | Exit::Unknown { why } => (None, None, Some(why.as_str())),
    };
    PolicyValue::Record(vec![
        ("exit_code", PolicyValue::from_option(code)),
        ("signal", PolicyValue::from_option(signal)),
        ("why", PolicyValue::from_option(reason)),
        ("attempt", view.attempt.into()),
        ("failures", view.failures.into()),
        ("ran_s", (view.ran_ms / SECOND).into()),
        ("nodes", text_list(&view.nodes)),
    ])
}

fn milli_to_float(milli: u64) -> PolicyValue {
    PolicyValue::Float(milli as f64 / 1_000.0)
}

fn seconds_rounded_up(ms: i64) -> i64 {
    ms.saturating_add(SECOND - 1) / SECOND
}

fn text_list<T: ToString>(items: impl IntoIterator<Item = T>) -> PolicyValue {
    PolicyValue::List(items.into_iter().map(|item| item.to_string().into()).collect())
}

fn labels(labels: &BTreeMap<String, String>) -> PolicyValue {
    PolicyValue::Dict(labels.iter().map(|(label, value)| (label.as_str().into(), value.as_str().into())).collect())
}
