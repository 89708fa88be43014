//! A job as it was written, in the words of the core. Values are read here; the core decides about them.

use muster_core::job::{
    CheckpointRule, Isolation, OnNodeLost, Resources, RestartRule, Run, TaskGroup, Topology,
};
use muster_core::{JobSpec, TenantId, model};
use muster_protocol::submit::{self as wire, SubmitTask};

use crate::http::fault::Fault;
use crate::http::written::{dependency, moment, span_ms};
use crate::identity::Who;

/// What a task gets that does not say.
const CPUS_DEFAULT: u32 = 1;
/// The same for main memory.
const MEMORY_MIB_DEFAULT: u64 = 1_024;

/// All that was asked, with what was not said filled in.
pub fn spec(written: &wire::SubmitJob, who: &Who, tenant: TenantId, priority: u32) -> Result<JobSpec, Fault> {
    Ok(JobSpec {
        name: written.name.clone().unwrap_or_else(|| "job".to_string()),
        tenant,
        user: user(written, who)?,
        priority,
        tasks: tasks(written)?,
        topology: topology(written)?,
        allow_cross_numa: written.allow_cross_numa,
        prefer_nvlink: written.prefer_nvlink.unwrap_or(false),
        gang_scheduling: written.gang_scheduling,
        time_limit_ms: time_limit_ms(written)?,
        restart: restart(written),
        on_node_lost: on_node_lost(written)?,
        checkpoint: checkpoint(written)?,
        after: written.after.iter().map(dependency).collect::<Result<_, _>>()?,
        start_after: written.start_after.as_ref().map(|at| moment("start_after", at)).transpose()?,
        pool: written.pool.clone(),
        node_labels: written.node_labels.clone(),
        run: run(written),
        labels: written.labels.clone(),
        annotations: written.annotations.clone(),
    })
}

fn user(written: &wire::SubmitJob, who: &Who) -> Result<String, Fault> {
    match &written.user {
        None => Ok(who.actor.name.clone()),
        Some(user) if *user == who.actor.name || who.role.is_cluster_wide() => Ok(user.clone()),
        Some(user) => Err(Fault::forbidden(format!("only operators may submit for `{user}`"))),
    }
}

fn tasks(written: &wire::SubmitJob) -> Result<Vec<TaskGroup>, Fault> {
    if written.tasks.is_empty() {
        let gpus = written.gpu_count.unwrap_or(1);
        if gpus == 0 {
            return Err(
                Fault::invalid("gpu_count", "must be at least 1").hint("a job without GPUs uses `tasks`")
            );
        }
        let task = SubmitTask { gpus: Some(gpus), ..SubmitTask::default() };
        return Ok(vec![group(written, &task)?]);
    }
    if written.gpu_count.is_some() {
        return Err(Fault::invalid("gpu_count", "give `gpu_count` or `tasks`, not both"));
    }
    written.tasks.iter().map(|task| group(written, task)).collect()
}

/// One group of the gang; what it does not say it takes from the job.
fn group(written: &wire::SubmitJob, task: &SubmitTask) -> Result<TaskGroup, Fault> {
    let own_models = !task.gpu_models.is_empty();
    let job_models = written.gpu_model.iter().chain(&written.gpu_models);
    let models: Vec<&String> =
        if own_models { task.gpu_models.iter().collect() } else { job_models.collect() };
    let gpu_memory_mib = task.gpu_memory_mb.or(written.gpu_memory_mb).unwrap_or(0);
    Ok(TaskGroup {
        name: task.name.clone().unwrap_or_else(|| "task".to_string()),
        count: task.count.unwrap_or(1),
        count_max: task.max_count,
        each: Resources {
            gpus: task.gpus.unwrap_or(1),
            gpu_models: models.into_iter().map(|name| model_name(name)).collect::<Result<_, _>>()?,
            gpu_memory_mib,
            gpu_compute_milli: share_milli(task.gpu_share.or(written.gpu_share))?,
            isolation: isolation(task.isolation.as_deref().or(written.isolation.as_deref()))?,
            cpus: task.cpu_cores.or(written.cpu_cores).unwrap_or(CPUS_DEFAULT),
            memory_mib: task.memory_mb.or(written.memory_mb).unwrap_or(MEMORY_MIB_DEFAULT),
        },
    })
}

fn model_name(name: &str) -> Result<String, Fault> {
    let canonical = model::canonical(name);
    match canonical.is_empty() {
        true => Err(Fault::invalid("gpu_models", format!("`{name}` names no model"))),
        false => Ok(canonical),
    }
}

fn share_milli(share: Option<f64>) -> Result<u32, Fault> {
    match share {
        None => Ok(1_000),
        // Never less than was asked; but 0.1 + 0.2 is a hair more than 0.3.
        Some(share) if share > 0.0 && share <= 1.0 => Ok((share * 1_000.0 - 1e-6).ceil() as u32),
        Some(_) => Err(Fault::invalid("gpu_share", "must be above 0 and at most 1")),
    }
}

fn isolation(word: Option<&str>) -> Result<Isolation, Fault> {
    match word.unwrap_or("none") {
        "none" => Ok(Isolation::None),
        "memory" => Ok(Isolation::Memory),
        "full" => Ok(Isolation::Full),
        other => Err(Fault::invalid("isolation", format!("`{other}` is none of none, memory, full"))),
    }
}

fn topology(written: &wire::SubmitJob) -> Result<Topology, Fault> {
    match written.topology.as_deref().unwrap_or("any") {
        "any" => Ok(Topology::Any),
        "same-numa" => Ok(Topology::SameNuma),
        "nvlink" => Ok(Topology::Nvlink),
        "same-rack" => Ok(Topology::SameRack),
        other => {
            Err(Fault::invalid("topology", format!("`{other}` is none of any, same-numa, nvlink, same-rack")))
        }
    }
}

fn time_limit_ms(written: &wire::SubmitJob) -> Result<Option<i64>, Fault> {
    match (&written.time_limit, written.max_runtime_minutes) {
        (Some(_), Some(1..)) => {
            Err(Fault::invalid("time_limit", "give `time_limit` or `max_runtime_minutes`, not both"))
        }
        (Some(span), _) => span_ms("time_limit", span).map(Some),
        // The seed's clients send 0 when they mean nothing.
        (None, None | Some(0)) => Ok(None),
        (None, Some(minutes)) => {
            let ms = i64::try_from(minutes).ok().and_then(|minutes| minutes.checked_mul(60_000));
            ms.map(Some)
                .ok_or_else(|| Fault::invalid("max_runtime_minutes", "is longer than any machine lives"))
        }
    }
}

fn restart(written: &wire::SubmitJob) -> RestartRule {
    let usual = RestartRule::default();
    RestartRule {
        max_restarts: written.max_restarts.unwrap_or(usual.max_restarts),
        max_requeues: written.max_requeues.unwrap_or(usual.max_requeues),
    }
}

fn on_node_lost(written: &wire::SubmitJob) -> Result<OnNodeLost, Fault> {
    match written.on_node_lost.as_deref().unwrap_or("wait") {
        "wait" => Ok(OnNodeLost::Wait),
        "requeue" => Ok(OnNodeLost::Requeue),
        "requeue-unsafe" => Ok(OnNodeLost::RequeueUnsafe),
        other => {
            Err(Fault::invalid("on_node_lost", format!("`{other}` is none of wait, requeue, requeue-unsafe")))
        }
    }
}

/// A path alone says that it saves its work; an explicit `false` wins.
fn checkpoint(written: &wire::SubmitJob) -> Result<Option<CheckpointRule>, Fault> {
    let path = written.checkpoint_path.clone();
    // Nonsense is refused where it is not used, too.
    let every = written.checkpoint_interval.as_ref();
    let every_ms = every.map(|span| span_ms("checkpoint_interval", span)).transpose()?;
    if !written.checkpoint_enabled.unwrap_or(path.is_some()) {
        return Ok(None);
    }
    Ok(Some(CheckpointRule { path: path.unwrap_or_default(), every_ms }))
}

fn run(written: &wire::SubmitJob) -> Run {
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    Run {
        image: said(&written.image),
        script: said(&written.script),
        command: written.command.clone(),
        args: written.args.clone(),
        env: written.environment.clone(),
        directory: said(&written.directory),
    }
}
