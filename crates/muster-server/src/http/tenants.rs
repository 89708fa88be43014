//! Tenants: create, list, get, replace, change, delete.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use muster_core::accounting::tenant::Tenant;
use muster_core::facts::verdict::FairShare;
use muster_core::gpu::model;
use muster_core::objects::budget::Spent;
use muster_core::objects::tenant::TenantConfig;
use muster_core::planner::fair_shares;
use muster_core::{Command, Refusal, State as Core, TenantId, Timestamp};
use muster_protocol::gpu_amount::GpuAmount;
use muster_protocol::submit::Acknowledgement;
use muster_protocol::tenant::{self as wire, TenantChange, TenantList, TenantSpec};

use crate::conversions::{fair_share_factor, micro_to_money, mj_to_kwh, ms_to_hours};
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::json::Json;
use crate::http::query::PathId;
use crate::identity::Caller;
use crate::tenant_config::{WEIGHT_OF_SHARE_ONE, apply_change, tenant_config};

/// Create a tenant
#[utoipa::path(post, path = "/api/v1/tenants", tag = "tenants", request_body = TenantSpec,
    responses((status = 201, description = "Created", body = wire::Tenant)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    Json(spec): Json<TenantSpec>,
) -> Result<Response, ApiError> {
    let id = match &spec.id {
        Some(id) => id.parse(),
        None => slug(spec.name.as_deref().unwrap_or_default()).parse(),
    };
    let id: TenantId = id.map_err(|error| match spec.id.is_none() && spec.name.is_none() {
        true => ApiError::invalid("name", "a tenant needs a name"),
        false => ApiError::invalid("name", format!("{error}")),
    })?;
    let config = Box::new(tenant_config(&spec, id.as_str())?);
    app.cluster.execute(caller.actor, Command::CreateTenant { id: id.clone(), config }).await?;
    let location = [(LOCATION, format!("/api/v1/tenants/{id}"))];
    Ok((StatusCode::CREATED, location, Json(read_tenant(&app, &id)?)).into_response())
}

/// List the tenants
#[utoipa::path(get, path = "/api/v1/tenants", tag = "tenants",
    responses((status = 200, description = "The tenants that the caller may see", body = TenantList)))]
pub async fn list(State(app): State<AppState>, caller: Caller) -> Result<Json<TenantList>, ApiError> {
    let tenants: Vec<wire::Tenant> = app.read_state(|state| {
        let now = app.cluster.now().max(state.clock);
        let (shares, spent) = (fair_shares(state, now), state.spent_below(now));
        let seen = state.tenants.values().filter(|tenant| caller.sees_tenant(tenant.id.as_str()));
        seen.map(|tenant| api_tenant(state, tenant, (&shares, &spent), now)).collect()
    })?;
    Ok(Json(TenantList { total: tenants.len() as u64, tenants }))
}

/// Get one tenant
#[utoipa::path(get, path = "/api/v1/tenants/{id}", tag = "tenants",
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 200, description = "The tenant", body = wire::Tenant)))]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<TenantId>,
) -> Result<Json<wire::Tenant>, ApiError> {
    if !caller.sees_tenant(id.as_str()) {
        return Err(Refusal::UnknownTenant { tenant: id }.into());
    }
    Ok(Json(read_tenant(&app, &id)?))
}

/// Replace the configuration of a tenant
///
/// Fields that are not sent get their defaults: a quota that is not given is unlimited.
#[utoipa::path(put, path = "/api/v1/tenants/{id}", tag = "tenants", request_body = TenantSpec,
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 200, description = "Replaced", body = wire::Tenant)))]
pub async fn replace(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<TenantId>,
    Json(spec): Json<TenantSpec>,
) -> Result<Json<wire::Tenant>, ApiError> {
    if spec.id.as_deref().is_some_and(|other| other != id.as_str()) {
        return Err(ApiError::invalid("id", "the id of a tenant cannot be changed"));
    }
    let config = tenant_config(&spec, id.as_str())?;
    change_tenant(&app, caller, id, config).await
}

/// Change some fields of a tenant
#[utoipa::path(patch, path = "/api/v1/tenants/{id}", tag = "tenants", request_body = TenantChange,
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 200, description = "Changed", body = wire::Tenant)))]
pub async fn change(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<TenantId>,
    Json(change): Json<TenantChange>,
) -> Result<Json<wire::Tenant>, ApiError> {
    let mut config = app.read_state(|state| state.tenant(&id).map(|tenant| tenant.config.clone()))??;
    apply_change(&mut config, change)?;
    change_tenant(&app, caller, id, config).await
}

async fn change_tenant(
    app: &AppState,
    caller: Caller,
    id: TenantId,
    config: TenantConfig,
) -> Result<Json<wire::Tenant>, ApiError> {
    let config = Box::new(config);
    app.cluster.execute(caller.actor, Command::ChangeTenant { id: id.clone(), config }).await?;
    Ok(Json(read_tenant(app, &id)?))
}

/// Remove a tenant that has no live jobs
#[utoipa::path(delete, path = "/api/v1/tenants/{id}", tag = "tenants",
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 200, description = "Removed", body = Acknowledgement)))]
pub async fn delete(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<TenantId>,
) -> Result<Json<Acknowledgement>, ApiError> {
    app.cluster.execute(caller.actor, Command::DeleteTenant { id: id.clone() }).await?;
    Ok(Json(Acknowledgement { message: format!("tenant `{id}` was removed") }))
}

fn read_tenant(app: &AppState, id: &TenantId) -> Result<wire::Tenant, ApiError> {
    let found = app.read_state(|state| {
        let now = app.cluster.now().max(state.clock);
        let (shares, spent) = (fair_shares(state, now), state.spent_below(now));
        state.tenant(id).map(|tenant| api_tenant(state, tenant, (&shares, &spent), now))
    })?;
    Ok(found?)
}

/// An id made from a name: `ML Team` becomes `ml-team`.
fn slug(name: &str) -> String {
    let kept = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_');
    let words = name.split(|letter: char| !kept(letter)).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// Thousandths of GPUs held by a tenant and all tenants below it.
fn subtree_gpu_milli(state: &muster_core::State, top: &TenantId) -> u64 {
    let is_below = |id: &TenantId| state.lineage(id).any(|above| above.id == *top);
    state.tenants.values().filter(|tenant| is_below(&tenant.id)).map(|tenant| tenant.held.gpu_milli).sum()
}

/// GPUs that a tenant and all tenants below it hold beyond the guarantee.
fn borrowed_gpus(state: &muster_core::State, tenant: &TenantId, guaranteed: u64) -> GpuAmount {
    GpuAmount::from_milli(subtree_gpu_milli(state, tenant).saturating_sub(guaranteed.saturating_mul(1_000)))
}

fn api_tenant(
    state: &Core,
    tenant: &Tenant,
    (shares, spent): (&BTreeMap<TenantId, FairShare>, &BTreeMap<&TenantId, Spent>),
    now: Timestamp,
) -> wire::Tenant {
    let TenantConfig { maximum, maximum_per_user, guaranteed, .. } = &tenant.config;
    let share = shares.get(&tenant.id).copied();
    let fraction = |milli: fn(FairShare) -> u32| share.map_or(0.0, |share| f64::from(milli(share)) / 1_000.0);
    let spent = spent.get(&tenant.id).copied().unwrap_or_default();
    let half_life_ms = tenant.half_life_ms(state.settings.usage_half_life_ms);
    let recent = tenant.decayed_usage.micro_gpus(tenant.held.gpu_milli, now, half_life_ms);
    let config = &tenant.config;
    let account = state.ledger.account(&tenant.id);
    let own = state.spent(tenant, now);
    let wants = |notices: &BTreeMap<String, bool>, name: &str| notices.get(name).copied().unwrap_or(false);
    wire::Tenant {
        id: tenant.id.to_string(),
        tenant_id: tenant.id.to_string(),
        name: config.name.clone(),
        email: config.email.clone(),
        organization: config.organization.clone(),
        parent: config.parent.as_ref().map(ToString::to_string),
        max_gpus: maximum.gpus,
        max_gpu_memory_mb: maximum.gpu_memory_mib,
        max_cpu_cores: maximum.cpus,
        max_memory_mb: maximum.memory_mib,
        max_concurrent_jobs: maximum.jobs,
        max_gpus_per_user: maximum_per_user.gpus,
        max_gpu_memory_mb_per_user: maximum_per_user.gpu_memory_mib,
        max_cpu_cores_per_user: maximum_per_user.cpus,
        max_memory_mb_per_user: maximum_per_user.memory_mib,
        max_concurrent_jobs_per_user: maximum_per_user.jobs,
        max_gpus_by_model: config.maximum_by_model.clone(),
        guaranteed_gpus: guaranteed.gpus,
        guaranteed_gpu_memory_mb: guaranteed.gpu_memory_mib,
        guaranteed_cpu_cores: guaranteed.cpus,
        guaranteed_memory_mb: guaranteed.memory_mib,
        guaranteed_concurrent_jobs: guaranteed.jobs,
        borrowed_gpus: guaranteed.gpus.map(|gpus| borrowed_gpus(state, &tenant.id, gpus)),
        guaranteed_gpus_by_model: config.guaranteed_by_model.clone(),
        budget_gpu_hours: config.budget.gpu_ms.map(ms_to_hours),
        budget_kwh: config.budget.energy_mj.map(mj_to_kwh),
        budget_cost: config.budget.cost_micro.map(micro_to_money),
        spent_gpu_hours: ms_to_hours(spent.gpu_ms),
        spent_kwh: mj_to_kwh(spent.energy_mj),
        spent_cost: micro_to_money(spent.cost_micro),
        current_gpus: GpuAmount::from_milli(tenant.held.gpu_milli),
        current_gpu_memory: tenant.held.gpu_memory_mib,
        current_cpu_cores: tenant.held.cpus,
        current_memory: tenant.held.memory_mib,
        current_power_w: tenant.held.milliwatts as f64 / 1_000.0,
        current_jobs: tenant.held.jobs,
        live_jobs: tenant.live_jobs,
        total_gpu_hours: ms_to_hours(own.gpu_ms),
        total_jobs: account.submitted,
        successful_jobs: account.done,
        failed_jobs: account.failed,
        cancelled_jobs: account.cancelled,
        total_cost: micro_to_money(own.cost_micro),
        priority_tier: config.tier.as_str().to_string(),
        fair_share_weight: f64::from(config.weight) / WEIGHT_OF_SHARE_ONE,
        fair_share_factor: share.map_or(1.0, fair_share_factor),
        fair_share: fraction(|share| share.share_milli),
        fair_share_used: fraction(|share| share.used_milli),
        recent_gpus: (recent / 1_000) as f64 / 1_000.0,
        usage_half_life_ms: half_life_ms,
        priority_decay: f64::from(config.decay_milli_per_day) / 1_000.0,
        allow_preemption: config.may_be_preempted,
        can_preempt_others: config.may_preempt,
        max_priority: config.priority_max,
        max_preemptions: config.preemptions_per_job_max,
        damage_gpu_hours_per_day: config.preemption_loss_gpu_ms_per_day.map(ms_to_hours),
        damage_gpu_hours: config
            .preemption_loss_gpu_ms_per_day
            .map(|per_day| ms_to_hours(tenant.preemption_loss.gpu_ms(per_day, now))),
        billing_enabled: config.billed,
        cost_per_gpu_hour: micro_to_money(config.price_gpu_hour_micro),
        active: config.active,
        notify_on_start: wants(&config.notify, "start"),
        notify_on_completion: wants(&config.notify, "completion"),
        notify_on_failure: wants(&config.notify, "failure"),
        notify_on_quota: wants(&config.notify, "quota"),
        labels: config.labels.clone(),
        warnings: unsatisfiable_guarantee_warnings(state, config),
    }
}

/// Warnings about guarantees above the capacity of all nodes together. Without any node there are none: the capacity is
/// not known yet.
fn unsatisfiable_guarantee_warnings(state: &Core, config: &TenantConfig) -> Vec<String> {
    if state.nodes.is_empty() {
        return Vec::new();
    }
    let gpus = || state.nodes.values().flat_map(|node| &node.facts.gpus);
    let of_model = |wanted: &str| gpus().filter(|gpu| model::matches(wanted, &gpu.model)).count() as u64;
    let cpus: u64 = state.nodes.values().map(|node| u64::from(node.facts.cpus)).sum();
    let memory_mib: u64 = state.nodes.values().map(|node| node.facts.memory_mib).sum();
    let guaranteed = &config.guaranteed;
    let amounts = [
        ("GPUs".to_string(), guaranteed.gpus, gpus().count() as u64),
        ("CPU cores".to_string(), guaranteed.cpus, cpus),
        ("MiB of memory".to_string(), guaranteed.memory_mib, memory_mib),
    ];
    let models = config.guaranteed_by_model.iter();
    let models = models.map(|(name, count)| (format!("GPUs of model {name}"), Some(*count), of_model(name)));
    let warning = |(resource, guaranteed, capacity): (String, Option<u64>, u64)| {
        let guaranteed = guaranteed.filter(|guaranteed| *guaranteed > capacity)?;
        Some(format!("{resource}: {guaranteed} guaranteed, the cluster has {capacity}"))
    };
    amounts.into_iter().chain(models).filter_map(warning).collect()
}
