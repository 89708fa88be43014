//! GPUs: list, look, and an operator's word about their health and what they are partitioned into.

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use muster_core::command::JobsOnGpu;
use muster_core::node::{GpuFacts, GpuWord, Node};
use muster_core::{Command, GpuId, JobId, NodeId, Refusal, State as Core, model, partition};
use muster_protocol::gpu::{Gpu, GpuChange, GpuHealthChange, GpuHealthDeclared, GpuList, GpuPartition};
use muster_protocol::submit::Done;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::query::{Query, window};
use crate::http::share;
use crate::http::who::Reach;
use crate::http::written::stamp;
use crate::identity::Who;

/// Which GPUs to list. All conditions must hold.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct GpuQuery {
    /// Of this model; `A10` never means an A100.
    model: Option<String>,
    /// Of this node.
    node: Option<String>,
    /// In this state: `free`, `held`, `shared`, `partitioned`, `claimed`, `cooling`, `out`.
    state: Option<String>,
    /// Of this health: `healthy`, `warning`, `degraded`, `unhealthy`.
    health: Option<String>,
    /// Most rows; all when not given.
    limit: Option<u32>,
    /// Begin after so many rows.
    offset: Option<u64>,
}

/// List the GPUs
#[utoipa::path(get, path = "/api/v1/gpus", tag = "gpus", params(GpuQuery),
    responses((status = 200, description = "Those that match", body = GpuList)))]
pub async fn list(
    State(door): State<Door>,
    who: Who,
    Query(query): Query<GpuQuery>,
) -> Result<Json<GpuList>, Fault> {
    let health = query.health.as_deref().map(health_of).transpose()?;
    let (offset, limit) = window(query.offset, query.limit)?;
    let list = door.state(|state| {
        let of_node = |node: &&Node| query.node.as_deref().is_none_or(|name| node.id.as_str() == name);
        let each = state
            .nodes
            .values()
            .filter(of_node)
            .flat_map(|node| (0..node.facts.gpus.len()).map(move |index| (node, index)));
        let wanted = |(node, index): &(&Node, usize)| {
            query.model.as_deref().is_none_or(|wish| model::matches(wish, &node.facts.gpus[*index].model))
                && query.state.as_deref().is_none_or(|word| state_word(state, node, *index) == word)
                && health.is_none_or(|word| node.gpu_health[*index].word == word)
        };
        // Only the page is built: commits wait while we look.
        let found: Vec<(&Node, usize)> = each.filter(wanted).collect();
        let page = found.iter().skip(offset).take(limit);
        GpuList {
            total: found.len() as u64,
            gpus: page.map(|(node, index)| shown(&door, state, &who, node, *index)).collect(),
        }
    })?;
    Ok(Json(list))
}

/// The GPU a path names.
pub struct At(NodeId, u8);

impl<S: Send + Sync> FromRequestParts<S> for At {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<At, Fault> {
        let unknown = |detail: String| Fault::new(StatusCode::NOT_FOUND, "unknown-gpu", detail);
        let named = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((node, index)) = named.map_err(|_| Fault::malformed("the path is not UTF-8"))?;
        let node = node.parse().map_err(|error| unknown(format!("{error}")))?;
        match index.strip_prefix("gpu-").unwrap_or(&index).parse() {
            Ok(gpu) => Ok(At(node, gpu)),
            Err(_) => Err(unknown(format!("`{index}` is not the place of a GPU; write `3` or `gpu-3`"))),
        }
    }
}

/// Look at one GPU
#[utoipa::path(get, path = "/api/v1/gpus/{node}/{index}", tag = "gpus",
    params(("node" = String, Path, description = "Its node"),
        ("index" = String, Path, description = "Its place in the node, `3` or `gpu-3`")),
    responses((status = 200, description = "The GPU", body = Gpu)))]
pub async fn get(State(door): State<Door>, who: Who, At(node, gpu): At) -> Result<Json<Gpu>, Fault> {
    Ok(Json(look(&door, &who, &node, gpu)?))
}

fn look(door: &Door, who: &Who, node: &NodeId, gpu: u8) -> Result<Gpu, Fault> {
    let found = door.state(|state| {
        let known = state.node(node)?;
        let shown = of_node(door, state, who, known).into_iter().nth(usize::from(gpu));
        shown.ok_or_else(|| Refusal::UnknownGpu { node: node.clone(), gpu })
    })?;
    Ok(found?)
}

/// Change the health or the partition of a GPU
///
/// The model, memory, UUID and links of a GPU are what the agent of its node reports; they cannot be changed here.
#[utoipa::path(patch, path = "/api/v1/gpus/{node}/{index}", tag = "gpus", request_body = GpuChange,
    params(("node" = String, Path, description = "Its node"),
        ("index" = String, Path, description = "Its place in the node, `3` or `gpu-3`")),
    responses((status = 200, description = "Changed", body = Gpu)))]
pub async fn change(
    State(door): State<Door>,
    who: Who,
    At(node, gpu): At,
    Json(GpuChange { health, profiles, why }): Json<GpuChange>,
) -> Result<Json<Gpu>, Fault> {
    let health = health.as_deref().map(health_of).transpose()?;
    if let Some(profiles) = profiles {
        let command = Command::PartitionGpu { node: node.clone(), gpu, profiles, why: why.clone() };
        door.cluster.ask(who.actor.clone(), command).await?;
    }
    if let Some(word) = health {
        ask_health(&door, &who, (&node, gpu), (word, JobsOnGpu::Keep), why).await?;
    }
    Ok(Json(look(&door, &who, &node, gpu)?))
}

/// Take a GPU out of a declared node
///
/// Only while the agent of the node has not joined; afterwards its GPUs are those that the agent reports.
#[utoipa::path(delete, path = "/api/v1/gpus/{node}/{index}", tag = "gpus",
    params(("node" = String, Path, description = "Its node"),
        ("index" = String, Path, description = "Its place in the node, `3` or `gpu-3`")),
    responses((status = 200, description = "Removed; the GPUs behind it move up", body = Done)))]
pub async fn remove(State(door): State<Door>, who: Who, At(node, gpu): At) -> Result<Json<Done>, Fault> {
    door.cluster.ask(who.actor, Command::RemoveGpu { node: node.clone(), gpu }).await?;
    Ok(Json(Done { message: format!("`{node}/gpu-{gpu}` was removed") }))
}

async fn ask_health(
    door: &Door,
    who: &Who,
    (node, gpu): (&NodeId, u8),
    (word, jobs): (GpuWord, JobsOnGpu),
    why: String,
) -> Result<(), Fault> {
    let node = node.clone();
    let command =
        Command::SetGpuHealth { node, gpu, word, why, cooling_until: None, temperature_c: None, jobs };
    door.cluster.ask(who.actor.clone(), command).await?;
    Ok(())
}

/// Say how a GPU is doing
///
/// A declaration of `warning`, `degraded` or `unhealthy` stands until the GPU is declared `healthy`; no reading of its
/// agent erases it, and a worse reading counts. The answer names the jobs on it and what happens to them.
#[utoipa::path(post, path = "/api/v1/gpus/{node}/{index}/health", tag = "gpus", request_body = GpuHealthChange,
    params(("node" = String, Path, description = "Its node"),
        ("index" = String, Path, description = "Its place in the node, `3` or `gpu-3`")),
    responses((status = 200, description = "Noted", body = GpuHealthDeclared)))]
pub async fn set_health(
    State(door): State<Door>,
    who: Who,
    At(node, gpu): At,
    Json(change): Json<GpuHealthChange>,
) -> Result<Json<GpuHealthDeclared>, Fault> {
    let word = health_of(&change.health)?;
    let rule = change.jobs.as_deref().map(jobs_rule_of).transpose()?.unwrap_or_default();
    let jobs = door.state(|state| {
        let seen =
            |job: &JobId| state.jobs.get(job).is_some_and(|job| who.sees_tenant(job.spec.tenant.as_str()));
        let jobs = state.jobs_on_gpu(&node, gpu).into_iter().filter(seen);
        jobs.map(|job| job.to_string()).collect()
    })?;
    ask_health(&door, &who, (&node, gpu), (word, rule), change.why).await?;
    let gpu = look(&door, &who, &node, gpu)?;
    Ok(Json(GpuHealthDeclared { gpu, jobs_rule: rule.word().to_string(), jobs }))
}

fn jobs_rule_of(text: &str) -> Result<JobsOnGpu, Fault> {
    let known = JobsOnGpu::ALL.into_iter().find(|rule| rule.word() == text);
    known.ok_or_else(|| Fault::invalid("jobs", format!("`{text}` is none of keep, requeue, stop")))
}

/// Partition a GPU that nobody uses
///
/// Its instances are laid where they spoil least for what may come. Without profiles it is made whole again.
#[utoipa::path(post, path = "/api/v1/gpus/{node}/{index}/partition", tag = "gpus", request_body = GpuPartition,
    params(("node" = String, Path, description = "Its node"),
        ("index" = String, Path, description = "Its place in the node, `3` or `gpu-3`")),
    responses((status = 200, description = "Partitioned, or whole again", body = Gpu)))]
pub async fn partition(
    State(door): State<Door>,
    who: Who,
    At(node, gpu): At,
    Json(GpuPartition { profiles, why }): Json<GpuPartition>,
) -> Result<Json<Gpu>, Fault> {
    let command = Command::PartitionGpu { node: node.clone(), gpu, profiles, why };
    door.cluster.ask(who.actor.clone(), command).await?;
    Ok(Json(look(&door, &who, &node, gpu)?))
}

fn health_of(text: &str) -> Result<GpuWord, Fault> {
    let words = [GpuWord::Healthy, GpuWord::Warning, GpuWord::Degraded, GpuWord::Unhealthy];
    words.into_iter().find(|word| word.word() == text).ok_or_else(|| {
        Fault::invalid("health", format!("`{text}` is none of healthy, warning, degraded, unhealthy"))
    })
}

/// The GPUs of a node, by index.
pub fn of_node(door: &Door, state: &Core, who: &Who, node: &Node) -> Vec<Gpu> {
    (0..node.facts.gpus.len()).map(|index| shown(door, state, who, node, index)).collect()
}

fn shown(door: &Door, state: &Core, who: &Who, node: &Node, index: usize) -> Gpu {
    let reading = door.readings.of_gpu(&node.id, index as u8);
    let facts = &node.facts.gpus[index];
    let health = &node.gpu_health[index];
    let holder = node.sole_holder(index).and_then(|id| state.jobs.get(&id));
    let seen = holder.filter(|job| who.sees_tenant(job.spec.tenant.as_str()));
    let attempt = seen.and_then(|job| job.attempt().map(|attempt| format!("{}:{}", job.id, attempt.number)));
    let known = model::of_device(&facts.model, facts.memory_mib);
    let capability = known.and_then(|model| model.compute_capability);
    let holders = share::holders(state, node, index).into_iter();
    let holders = holders.filter(|(job, _)| who.sees_tenant(job.spec.tenant.as_str()));
    Gpu {
        id: GpuId { node: node.id.clone(), index: index as u8 }.to_string(),
        node_id: node.id.to_string(),
        index: index as u8,
        uuid: facts.uuid.clone(),
        model: facts.model.clone(),
        compute_capability: capability.map(|(major, minor)| format!("{major}.{minor}")),
        cuda_cores: known.and_then(|model| model.cuda_cores()),
        tensor_cores: known.and_then(|model| model.tensor_cores()),
        state: state_word(state, node, index).to_string(),
        memory_total_mb: facts.memory_mib,
        memory_used_mb: None,
        memory_free_mb: None,
        allocated: node.is_held(index),
        used_milli: share::used_milli(state, node, index),
        holders: holders.map(|(job, share)| share::holder(job, share, facts.memory_mib)).collect(),
        allocation_id: attempt,
        job_id: seen.map(|job| job.id.to_string()),
        tenant_id: seen.map(|job| job.spec.tenant.to_string()),
        health: health.word.word().to_string(),
        health_why: health.why.clone(),
        health_declared_by: health.declared.as_ref().map(|declared| declared.by.clone()),
        health_since: stamp(health.since.0),
        cooling_until: health.cooling_until.map(|at| stamp(at.0)),
        thermal_throttle: health.cooling_until.is_some(),
        max_temperature: state.settings.thermal_limit_c,
        cooling_period: state.settings.cooling_ms / 1_000,
        utilization: None,
        temperature: reading.as_ref().and_then(|reading| reading.temperature_c).map(f64::from),
        error_count: reading.as_ref().map(|reading| reading.errors),
        last_health_check: reading.as_ref().map(|reading| stamp(reading.at.0)),
        last_error: reading.and_then(|reading| reading.last_error),
        last_heartbeat: door.readings.heard_at(&node.id).map(|at| stamp(at.0)),
        power_usage: None,
        power_limit_w: facts.power_limit_milliwatts.map(|milliwatts| milliwatts as f64 / 1_000.0),
        numa_node: facts.numa_node,
        nvlink: facts.nvlink.clone(),
        socket: facts.socket.or_else(|| socket_of_numa_node(node, facts)),
        pcie_switch: facts.pcie_switch,
        mig: share::instances(node, index as u8),
        mig_profiles: mig_profiles(facts),
    }
}

/// The processor socket that the NUMA node of a GPU belongs to.
fn socket_of_numa_node(node: &Node, facts: &GpuFacts) -> Option<u32> {
    let numa_node = usize::try_from(facts.numa_node?).ok()?;
    node.facts.numa.get(numa_node).map(|numa| numa.socket)
}

/// What a GPU could be partitioned into.
fn mig_profiles(facts: &GpuFacts) -> Vec<String> {
    let profiles = partition::table_of(facts).map_or(&[][..], |table| table.profiles);
    profiles.iter().map(|profile| profile.name.to_string()).collect()
}

/// Where a GPU stands, in one word.
pub fn state_word(state: &Core, node: &Node, index: usize) -> &'static str {
    let claimed = || state.claims.values().any(|claim| claim.holds(&node.id, index as u8));
    match node.is_held(index) {
        true if node.sole_holder(index).is_none() => "shared",
        true => "held",
        false if node.gpu_health[index].cooling_until.is_some() => "cooling",
        false if !node.takes_work() || !node.gpu_usable(index) => "out",
        false if claimed() => "claimed",
        false if !node.instances(index as u8).is_empty() => "partitioned",
        false => "free",
    }
}
