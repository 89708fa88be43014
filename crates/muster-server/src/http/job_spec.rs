//! Step 2, receive: convert a submission into the job spec of the core. Values are parsed here; the core validates
//! them.

use muster_core::gpu::gpu_share::Isolation;
use muster_core::gpu::model;
use muster_core::objects::job::{
    CheckpointRule, EarlySignal, Mount, OnNodeLost, Resources, RestartRule, Run, TaskGroup, Topology,
};
use muster_core::objects::secret::SecretUse;
use muster_core::{JobSpec, TenantId};
use muster_protocol::submit::{self as wire, SubmitTask};

use crate::conversions::{parse_dependency, parse_duration_ms, parse_early_signal, parse_timestamp};
use crate::http::api_error::ApiError;
use crate::identity::Caller;

/// Cores of a task that requests none.
const CPUS_DEFAULT: u32 = 1;
/// Main memory of a task that requests none.
const MEMORY_MIB_DEFAULT: u64 = 1_024;

/// The job spec of a submission, with defaults for absent fields.
pub fn job_spec(
    submission: &wire::SubmitJob,
    caller: &Caller,
    tenant: TenantId,
    priority: u32,
) -> Result<JobSpec, ApiError> {
    Ok(JobSpec {
        name: submission.name.clone().unwrap_or_else(|| "job".to_string()),
        tenant,
        user: job_user(submission, caller)?,
        priority,
        tasks: tasks(submission)?,
        topology: topology(submission)?,
        allow_cross_numa: submission.allow_cross_numa,
        prefer_nvlink: submission.prefer_nvlink.unwrap_or(false),
        gang_scheduling: submission.gang_scheduling,
        time_limit_ms: time_limit_ms(submission)?,
        early_signal: early_signal(submission)?,
        restart: restart_rule(submission),
        on_node_lost: on_node_lost(submission)?,
        checkpoint: checkpoint_rule(submission)?,
        after: submission.after.iter().map(parse_dependency).collect::<Result<_, _>>()?,
        start_after: submission.start_after.as_ref().map(|at| parse_timestamp("start_after", at)).transpose()?,
        pool: submission.pool.clone(),
        node_labels: submission.node_labels.clone(),
        run: run(submission)?,
        labels: submission.labels.clone(),
        annotations: submission.annotations.clone(),
    })
}

fn job_user(submission: &wire::SubmitJob, caller: &Caller) -> Result<String, ApiError> {
    match &submission.user {
        None => Ok(caller.actor.name.clone()),
        Some(user) if *user == caller.actor.name || caller.role.is_cluster_wide() => Ok(user.clone()),
        Some(user) => Err(ApiError::forbidden(format!("only operators may submit for `{user}`"))),
    }
}

fn tasks(submission: &wire::SubmitJob) -> Result<Vec<TaskGroup>, ApiError> {
    if submission.tasks.is_empty() {
        let gpus = submission.gpu_count.unwrap_or(1);
        if gpus == 0 {
            return Err(ApiError::invalid("gpu_count", "must be at least 1").hint("a job without GPUs uses `tasks`"));
        }
        let task = SubmitTask { gpus: Some(gpus), ..SubmitTask::default() };
        return Ok(vec![task_group(submission, &task)?]);
    }
    if submission.gpu_count.is_some() {
        return Err(ApiError::invalid("gpu_count", "give `gpu_count` or `tasks`, not both"));
    }
    submission.tasks.iter().map(|task| task_group(submission, task)).collect()
}

/// One task group of the gang. Fields that the group does not set come from the job.
fn task_group(submission: &wire::SubmitJob, task: &SubmitTask) -> Result<TaskGroup, ApiError> {
    let own_models = !task.gpu_models.is_empty();
    let job_models = submission.gpu_model.iter().chain(&submission.gpu_models);
    let models: Vec<&String> = if own_models { task.gpu_models.iter().collect() } else { job_models.collect() };
    let gpu_memory_mib = task.gpu_memory_mb.or(submission.gpu_memory_mb).unwrap_or(0);
    Ok(TaskGroup {
        name: task.name.clone().unwrap_or_else(|| "task".to_string()),
        count: task.count.unwrap_or(1),
        count_max: task.max_count,
        each: Resources {
            gpus: task.gpus.unwrap_or(1),
            gpu_models: models.into_iter().map(|name| model_name(name)).collect::<Result<_, _>>()?,
            gpu_memory_mib,
            gpu_compute_milli: share_milli(task.gpu_share.or(submission.gpu_share))?,
            isolation: isolation(task.isolation.as_deref().or(submission.isolation.as_deref()))?,
            cpus: task.cpu_cores.or(submission.cpu_cores).unwrap_or(CPUS_DEFAULT),
            memory_mib: task.memory_mb.or(submission.memory_mb).unwrap_or(MEMORY_MIB_DEFAULT),
        },
    })
}

fn model_name(name: &str) -> Result<String, ApiError> {
    let canonical = model::canonical(name);
    match canonical.is_empty() {
        true => Err(ApiError::invalid("gpu_models", format!("`{name}` is not a GPU model"))),
        false => Ok(canonical),
    }
}

fn share_milli(share: Option<f64>) -> Result<u32, ApiError> {
    match share {
        None => Ok(1_000),
        // Rounded up, never below the request; the small constant absorbs float errors such as 0.1 + 0.2 > 0.3.
        Some(share) if share > 0.0 && share <= 1.0 => Ok((share * 1_000.0 - 1e-6).ceil() as u32),
        Some(_) => Err(ApiError::invalid("gpu_share", "must be above 0 and at most 1")),
    }
}

fn isolation(name: Option<&str>) -> Result<Isolation, ApiError> {
    match name.unwrap_or("none") {
        "none" => Ok(Isolation::None),
        "memory" => Ok(Isolation::Memory),
        "full" => Ok(Isolation::Full),
        other => Err(ApiError::invalid("isolation", format!("`{other}` is none of none, memory, full"))),
    }
}

fn topology(submission: &wire::SubmitJob) -> Result<Topology, ApiError> {
    match submission.topology.as_deref().unwrap_or("any") {
        "any" => Ok(Topology::Any),
        "same-numa" => Ok(Topology::SameNuma),
        "nvlink" => Ok(Topology::Nvlink),
        "same-rack" => Ok(Topology::SameRack),
        other => Err(ApiError::invalid("topology", format!("`{other}` is none of any, same-numa, nvlink, same-rack"))),
    }
}

/// The early signal, which needs a time limit to come before.
fn early_signal(submission: &wire::SubmitJob) -> Result<Option<EarlySignal>, ApiError> {
    let Some(text) = &submission.signal else { return Ok(None) };
    let early = parse_early_signal(text)?;
    match time_limit_ms(submission)? {
        None => Err(ApiError::invalid("signal", "needs a time limit, before which it is sent")),
        Some(limit_ms) if limit_ms <= early.before_ms => {
            Err(ApiError::invalid("signal", "would be sent before the job starts: its time limit is not longer"))
        }
        Some(_) => Ok(Some(early)),
    }
}

fn time_limit_ms(submission: &wire::SubmitJob) -> Result<Option<i64>, ApiError> {
    match (&submission.time_limit, submission.max_runtime_minutes) {
        (Some(_), Some(1..)) => {
            Err(ApiError::invalid("time_limit", "give `time_limit` or `max_runtime_minutes`, not both"))
        }
        (Some(span), _) => Ok(Some(parse_duration_ms("time_limit", span)?)),
        // Clients of the specification send 0 for no limit.
        (None, None | Some(0)) => Ok(None),
        (None, Some(minutes)) => {
            let ms = i64::try_from(minutes).ok().and_then(|minutes| minutes.checked_mul(60_000));
            ms.map(Some).ok_or_else(|| ApiError::invalid("max_runtime_minutes", "is too long"))
        }
    }
}

fn restart_rule(submission: &wire::SubmitJob) -> RestartRule {
    let default = RestartRule::default();
    RestartRule {
        max_restarts: submission.max_restarts.unwrap_or(default.max_restarts),
        max_requeues: submission.max_requeues.unwrap_or(default.max_requeues),
    }
}

fn on_node_lost(submission: &wire::SubmitJob) -> Result<OnNodeLost, ApiError> {
    match submission.on_node_lost.as_deref().unwrap_or("wait") {
        "wait" => Ok(OnNodeLost::Wait),
        "requeue" => Ok(OnNodeLost::Requeue),
        "requeue-unsafe" => Ok(OnNodeLost::RequeueUnsafe),
        other => Err(ApiError::invalid("on_node_lost", format!("`{other}` is none of wait, requeue, requeue-unsafe"))),
    }
}

/// The checkpoint rule. A path alone enables checkpoints; an explicit `checkpoint_enabled: false` takes precedence.
fn checkpoint_rule(submission: &wire::SubmitJob) -> Result<Option<CheckpointRule>, ApiError> {
    let path = submission.checkpoint_path.clone();
    // An invalid interval is refused even if checkpoints are disabled.
    let every = submission.checkpoint_interval.as_ref();
    let every_ms = every.map(|span| parse_duration_ms("checkpoint_interval", span)).transpose()?;
    if !submission.checkpoint_enabled.unwrap_or(path.is_some()) {
        return Ok(None);
    }
    Ok(Some(CheckpointRule { path: path.unwrap_or_default(), every_ms }))
}

/// The longest name of an image that registries accept.
const IMAGE_LETTERS_MAX: usize = 255;

fn run(submission: &wire::SubmitJob) -> Result<Run, ApiError> {
    let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if submission.image.as_ref().is_some_and(|image| image.chars().count() > IMAGE_LETTERS_MAX) {
        return Err(ApiError::invalid("image", format!("must have at most {IMAGE_LETTERS_MAX} letters")));
    }
    Ok(Run {
        image: non_empty(&submission.image),
        script: non_empty(&submission.script),
        command: submission.command.clone(),
        args: submission.args.clone(),
        env: submission.environment.clone(),
        directory: non_empty(&submission.directory),
        mounts: submission.mounts.iter().map(|text| mount(text)).collect::<Result<_, _>>()?,
        secrets: submission.secrets.iter().map(|text| secret_use(text)).collect(),
    })
}

/// `NAME`, or `NAME=FILE`; the core knows which there are.
fn secret_use(text: &str) -> SecretUse {
    let (name, file) = text.split_once('=').unwrap_or((text, text));
    SecretUse { name: name.to_string(), file: file.to_string() }
}

/// `SOURCE:TARGET` or `SOURCE:TARGET:ro`.
fn mount(text: &str) -> Result<Mount, ApiError> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, read_only) = match parts[..] {
        [source, target] | [source, target, "rw"] => (source, target, false),
        [source, target, "ro"] => (source, target, true),
        _ => return Err(wrong_mount(text)),
    };
    let is_path =
        |path: &str| path.starts_with('/') && !path.contains([',', '\n']) && !path.split('/').any(|part| part == "..");
    if !is_path(source) || !is_path(target) || target == "/" {
        return Err(wrong_mount(text));
    }
    Ok(Mount { source: source.to_string(), target: target.to_string(), read_only })
}

fn wrong_mount(text: &str) -> ApiError {
    ApiError::invalid("mounts", format!("`{text}` is not a mount"))
        .hint("write `/path/on/the/node:/path/in/the/container`, with `:ro` if the job only reads; no path contains `..` or a comma")
}
