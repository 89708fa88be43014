//! What functions of policies are given: views as records, with their units in the names. `docs/policies.md` tells every
//! field.

use std::collections::BTreeMap;

use muster_core::job::Exit;
use muster_core::policy::{CandidateView, ClusterView, FailureView, JobView, Moment, NodeView, TenantView};
use muster_core::time::SECOND;

use crate::plain::Plain;

/// A job.
pub fn job(view: &JobView) -> Plain {
    Plain::Record(vec![
        ("tenant", view.tenant.to_string().into()),
        ("user", view.user.as_str().into()),
        ("priority", view.priority.into()),
        ("tasks", view.tasks.into()),
        ("gpus", view.gpus.into()),
        ("gpus_per_task", view.gpus_per_task.into()),
        ("gpu_share", parts(u64::from(view.gpu_milli))),
        ("gpu_models", texts(&view.gpu_models)),
        ("gpu_memory_mib", view.gpu_memory_mib.into()),
        ("isolation", view.isolation.into()),
        ("cpus", view.cpus.into()),
        ("memory_mib", view.memory_mib.into()),
        ("time_limit_s", Plain::maybe(view.time_limit_ms.map(seconds_up))),
        ("topology", view.topology.word().into()),
        ("pool", Plain::maybe(view.pool.as_deref())),
        ("labels", labels(&view.labels)),
        ("node_labels", labels(&view.node_labels)),
        ("name", Plain::maybe(view.name.as_deref())),
        ("image", Plain::maybe(view.image.as_deref())),
        ("now", moment(view.now)),
    ])
}

/// A moment.
pub fn moment(now: Moment) -> Plain {
    Plain::Record(vec![
        ("unix", now.unix.into()),
        ("hour", now.hour.into()),
        ("minute", now.minute.into()),
        ("weekday", now.weekday.into()),
    ])
}

/// A tenant.
pub fn tenant(view: &TenantView) -> Plain {
    Plain::Record(vec![
        ("id", view.id.to_string().into()),
        ("priority", view.priority.into()),
        ("weight", view.weight.into()),
        ("gpus_held", parts(view.gpu_milli_held)),
        ("gpus_guaranteed", view.gpus_guaranteed.unwrap_or(0).into()),
        ("gpus_max", Plain::maybe(view.gpus_max)),
        ("jobs", view.jobs.into()),
        ("labels", labels(&view.labels)),
    ])
}

/// The whole cluster.
pub fn cluster(view: &ClusterView) -> Plain {
    let pools = view.pools.iter().map(|(pool, gpus)| (pool.as_str().into(), (*gpus).into()));
    Plain::Record(vec![
        ("gpus", view.gpus.into()),
        ("gpus_held", parts(view.gpu_milli_held)),
        ("pools", Plain::Dict(pools.collect())),
        ("now", moment(view.now)),
    ])
}

/// A node, without its name: nodes of one kind are the same to a policy.
pub fn node(view: &NodeView) -> Plain {
    Plain::Record(vec![
        ("models", texts(&view.models)),
        ("gpus", view.gpus.into()),
        ("gpu_memory_mib", view.gpu_memory_mib.into()),
        ("partitioned", view.partitioned.into()),
        ("cpus", view.cpus.into()),
        ("memory_mib", view.memory_mib.into()),
        ("labels", labels(&view.labels)),
        ("pools", texts(&view.pools)),
    ])
}

/// A running job that might be displaced.
pub fn candidate(view: &CandidateView) -> Plain {
    Plain::Record(vec![
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

/// An attempt that failed by itself.
pub fn failure(view: &FailureView) -> Plain {
    let (code, signal, why) = match &view.exit {
        Exit::Code { code } => (Some(i64::from(*code)), None, None),
        Exit::Signal { signal } => (None, Some(i64::from(*signal)), None),
        Exit::NotStarted { why } | Exit::Unknown { why } => (None, None, Some(why.as_str())),
    };
    Plain::Record(vec![
        ("exit_code", Plain::maybe(code)),
        ("signal", Plain::maybe(signal)),
        ("why", Plain::maybe(why)),
        ("attempt", view.attempt.into()),
        ("failures", view.failures.into()),
        ("ran_s", (view.ran_ms / SECOND).into()),
        ("nodes", texts(&view.nodes)),
    ])
}

/// Thousandths as a number.
fn parts(milli: u64) -> Plain {
    Plain::Float(milli as f64 / 1_000.0)
}

fn seconds_up(ms: i64) -> i64 {
    ms.saturating_add(SECOND - 1) / SECOND
}

fn texts<T: ToString>(items: impl IntoIterator<Item = T>) -> Plain {
    Plain::List(items.into_iter().map(|item| item.to_string().into()).collect())
}

fn labels(labels: &BTreeMap<String, String>) -> Plain {
    Plain::Dict(labels.iter().map(|(label, value)| (label.as_str().into(), value.as_str().into())).collect())
}
