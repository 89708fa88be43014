//! Tenants: make, list, look, change, remove.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use muster_core::budget::{Budget, Spent};
use muster_core::plan::{FairShare, fair_shares};
use muster_core::tenant::{Quota, Tenant, TenantConfig};
use muster_core::{Command, Refusal, State as Core, TenantId, Timestamp, model};
use muster_protocol::amount::Amount;
use muster_protocol::submit::Done;
use muster_protocol::tenant::{self as wire, TenantChange, TenantList, TenantSpec};

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::query::Id;
use crate::http::show::factor;
use crate::http::who::Reach;
use crate::http::written::{hours, kwh, micro, money, tier};
use crate::identity::Who;

/// The fields that are given in GPU-hours.
const BUDGET: &str = "budget_gpu_hours";
const DAMAGE: &str = "damage_gpu_hours_per_day";
/// The fields that are given by model.
const MOST_BY_MODEL: &str = "max_gpus_by_model";
const GUARANTEED_BY_MODEL: &str = "guaranteed_gpus_by_model";
/// The share that counts as 1.
const USUAL_WEIGHT: f64 = 100.0;
/// The notices a tenant may want, in the order of the fields.
const NOTICES: [&str; 4] = ["start", "completion", "failure", "quota"];

/// Make a tenant
#[utoipa::path(post, path = "/api/v1/tenants", tag = "tenants", request_body = TenantSpec,
    responses((status = 201, description = "Made", body = wire::Tenant)))]
pub async fn create(
    State(door): State<Door>,
    who: Who,
    Json(spec): Json<TenantSpec>,
) -> Result<Response, Fault> {
    let id = match &spec.id {
        Some(id) => id.parse(),
        None => slug(spec.name.as_deref().unwrap_or_default()).parse(),
    };
    let id: TenantId = id.map_err(|error| match spec.id.is_none() && spec.name.is_none() {
        true => Fault::invalid("name", "a tenant needs a name"),
        false => Fault::invalid("name", format!("{error}")),
    })?;
    let config = Box::new(config(&spec, id.as_str())?);
    door.cluster.ask(who.actor, Command::CreateTenant { id: id.clone(), config }).await?;
    let location = [(LOCATION, format!("/api/v1/tenants/{id}"))];
    Ok((StatusCode::CREATED, location, Json(look(&door, &id)?)).into_response())
}

/// List the tenants
#[utoipa::path(get, path = "/api/v1/tenants", tag = "tenants",
    responses((status = 200, description = "Those the caller may see", body = TenantList)))]
pub async fn list(State(door): State<Door>, who: Who) -> Result<Json<TenantList>, Fault> {
    let tenants: Vec<wire::Tenant> = door.state(|state| {
        let now = door.cluster.now().max(state.clock);
        let (shares, spent) = (fair_shares(state, now), state.spent_below(now));
        let seen = state.tenants.values().filter(|tenant| who.sees_tenant(tenant.id.as_str()));
        seen.map(|tenant| shown(state, tenant, (&shares, &spent), now)).collect()
    })?;
    Ok(Json(TenantList { total: tenants.len() as u64, tenants }))
}

/// Look at one tenant
#[utoipa::path(get, path = "/api/v1/tenants/{id}", tag = "tenants",
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 200, description = "The tenant", body = wire::Tenant)))]
pub async fn get(
    State(door): State<Door>,
    who: Who,
    Id(id): Id<TenantId>,
) -> Result<Json<wire::Tenant>, Fault> {
    if !who.sees_tenant(id.as_str()) {
        return Err(Refusal::UnknownTenant { tenant: id }.into());
    }
    Ok(Json(look(&door, &id)?))
}

/// Replace all of what may change of a tenant
///
/// What is not sent gets its usual value: a quota that is not given is unlimited.
#[utoipa::path(put, path = "/api/v1/tenants/{id}", tag = "tenants", request_body = TenantSpec,
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 200, description = "Replaced", body = wire::Tenant)))]
pub async fn replace(
    State(door): State<Door>,
    who: Who,
    Id(id): Id<TenantId>,
    Json(spec): Json<TenantSpec>,
) -> Result<Json<wire::Tenant>, Fault> {
    if spec.id.as_deref().is_some_and(|other| other != id.as_str()) {
        return Err(Fault::invalid("id", "a tenant keeps its id for ever"));
    }
    let config = config(&spec, id.as_str())?;
    set(&door, who, id, config).await
}

/// Change some of what may change of a tenant
#[utoipa::path(patch, path = "/api/v1/tenants/{id}", tag = "tenants", request_body = TenantChange,
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 200, description = "Changed", body = wire::Tenant)))]
pub async fn change(
    State(door): State<Door>,
    who: Who,
    Id(id): Id<TenantId>,
    Json(change): Json<TenantChange>,
) -> Result<Json<wire::Tenant>, Fault> {
    let mut config = door.state(|state| state.tenant(&id).map(|tenant| tenant.config.clone()))??;
    apply(&mut config, change)?;
    set(&door, who, id, config).await
}

async fn set(door: &Door, who: Who, id: TenantId, config: TenantConfig) -> Result<Json<wire::Tenant>, Fault> {
    let config = Box::new(config);
    door.cluster.ask(who.actor, Command::ChangeTenant { id: id.clone(), config }).await?;
    Ok(Json(look(door, &id)?))
}

/// Remove a tenant that has no live jobs
#[utoipa::path(delete, path = "/api/v1/tenants/{id}", tag = "tenants",
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 200, description = "Removed", body = Done)))]
pub async fn delete(State(door): State<Door>, who: Who, Id(id): Id<TenantId>) -> Result<Json<Done>, Fault> {
    door.cluster.ask(who.actor, Command::DeleteTenant { id: id.clone() }).await?;
    Ok(Json(Done { message: format!("tenant `{id}` was removed") }))
}

fn look(door: &Door, id: &TenantId) -> Result<wire::Tenant, Fault> {
    let found = door.state(|state| {
        let now = door.cluster.now().max(state.clock);
        let (shares, spent) = (fair_shares(state, now), state.spent_below(now));
        state.tenant(id).map(|tenant| shown(state, tenant, (&shares, &spent), now))
    })?;
    Ok(found?)
}

/// A name that people wrote, as an id: `ML Team` becomes `ml-team`.
fn slug(name: &str) -> String {
    let kept = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_');
    let words = name.split(|letter: char| !kept(letter)).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

fn config(spec: &TenantSpec, id: &str) -> Result<TenantConfig, Fault> {
    let usual = TenantConfig::unlimited(spec.name.as_deref().unwrap_or(id));
    let notices =
        [spec.notify_on_start, spec.notify_on_completion, spec.notify_on_failure, spec.notify_on_quota];
    Ok(TenantConfig {
        email: spec.email.clone().unwrap_or_default(),
        organization: spec.organization.clone().unwrap_or_default(),
        parent: spec.parent.as_deref().map(parent).transpose()?,
        maximum: Quota {
            gpus: spec.max_gpus,
            gpu_memory_mib: spec.max_gpu_memory_mb,
            cpus: spec.max_cpu_cores,
            memory_mib: spec.max_memory_mb,
            jobs: spec.max_concurrent_jobs,
        },
        maximum_per_user: Quota {
            gpus: spec.max_gpus_per_user,
            gpu_memory_mib: spec.max_gpu_memory_mb_per_user,
            cpus: spec.max_cpu_cores_per_user,
            memory_mib: spec.max_memory_mb_per_user,
            jobs: spec.max_concurrent_jobs_per_user,
        },
        guaranteed: Quota {
            gpus: spec.guaranteed_gpus,
            gpu_memory_mib: spec.guaranteed_gpu_memory_mb,
            cpus: spec.guaranteed_cpu_cores,
            memory_mib: spec.guaranteed_memory_mb,
            jobs: spec.guaranteed_concurrent_jobs,
        },
        maximum_by_model: by_model(MOST_BY_MODEL, &spec.max_gpus_by_model)?,
        guaranteed_by_model: by_model(GUARANTEED_BY_MODEL, &spec.guaranteed_gpus_by_model)?,
        budget: Budget {
            gpu_ms: spec.budget_gpu_hours.map(|hours| gpu_ms(BUDGET, hours)).transpose()?,
            cost_micro: spec.budget_cost.map(|cost| micro("budget_cost", cost)).transpose()?,
            energy_mj: spec.budget_kwh.map(|kwh| energy_mj("budget_kwh", kwh)).transpose()?,
        },
        tier: spec
            .priority_tier
            .as_deref()
            .map(|name| tier("priority_tier", name))
            .transpose()?
            .unwrap_or_default(),
        weight: spec.fair_share_weight.map(weight).transpose()?.unwrap_or(usual.weight),
        decay_milli_per_day: spec.priority_decay.map(decay_milli).transpose()?.unwrap_or(0),
        may_be_preempted: spec.allow_preemption.unwrap_or(true),
        may_preempt: spec.can_preempt_others.unwrap_or(true),
        priority_max: spec.max_priority,
        preemptions_per_job_max: spec.max_preemptions,
        damage_gpu_ms_per_day: spec
            .damage_gpu_hours_per_day
            .map(|hours| gpu_ms(DAMAGE, hours))
            .transpose()?,
        billed: spec.billing_enabled.unwrap_or(false),
        price_gpu_hour_micro: spec
            .cost_per_gpu_hour
            .map(|price| micro("cost_per_gpu_hour", price))
            .transpose()?
            .unwrap_or(0),
        active: spec.active.unwrap_or(true),
        notify: wanted_notices(notices).collect(),
        labels: spec.labels.clone(),
        ..usual
    })
}

/// Take over what was sent.
pub fn apply(config: &mut TenantConfig, change: TenantChange) -> Result<(), Fault> {
    fn put<T>(place: &mut T, sent: Option<T>) {
        if let Some(value) = sent {
            *place = value;
        }
    }
    put(&mut config.name, change.name);
    put(&mut config.email, change.email);
    put(&mut config.organization, change.organization);
    put(&mut config.parent, change.parent.map(|id| id.as_deref().map(parent).transpose()).transpose()?);
    put(&mut config.maximum.gpus, change.max_gpus);
    put(&mut config.maximum.gpu_memory_mib, change.max_gpu_memory_mb);
    put(&mut config.maximum.cpus, change.max_cpu_cores);
    put(&mut config.maximum.memory_mib, change.max_memory_mb);
    put(&mut config.maximum.jobs, change.max_concurrent_jobs);
    put(&mut config.maximum_per_user.gpus, change.max_gpus_per_user);
    put(&mut config.maximum_per_user.gpu_memory_mib, change.max_gpu_memory_mb_per_user);
    put(&mut config.maximum_per_user.cpus, change.max_cpu_cores_per_user);
    put(&mut config.maximum_per_user.memory_mib, change.max_memory_mb_per_user);
    put(&mut config.maximum_per_user.jobs, change.max_concurrent_jobs_per_user);
    let models = |field, sent: Option<BTreeMap<_, _>>| sent.map(|sent| by_model(field, &sent)).transpose();
    put(&mut config.maximum_by_model, models(MOST_BY_MODEL, change.max_gpus_by_model)?);
    put(&mut config.guaranteed.gpus, change.guaranteed_gpus);
    put(&mut config.guaranteed.gpu_memory_mib, change.guaranteed_gpu_memory_mb);
    put(&mut config.guaranteed.cpus, change.guaranteed_cpu_cores);
    put(&mut config.guaranteed.memory_mib, change.guaranteed_memory_mb);
    put(&mut config.guaranteed.jobs, change.guaranteed_concurrent_jobs);
    put(&mut config.guaranteed_by_model, models(GUARANTEED_BY_MODEL, change.guaranteed_gpus_by_model)?);
    let all_ms = |field, hours: Option<f64>| hours.map(|hours| gpu_ms(field, hours)).transpose();
    let hours = change.budget_gpu_hours.map(|hours| all_ms(BUDGET, hours)).transpose()?;
    put(&mut config.budget.gpu_ms, hours);
    let cost = change.budget_cost.map(|cost| cost.map(|cost| micro("budget_cost", cost)).transpose());
    put(&mut config.budget.cost_micro, cost.transpose()?);
    let energy = change.budget_kwh.map(|kwh| kwh.map(|kwh| energy_mj("budget_kwh", kwh)).transpose());
    put(&mut config.budget.energy_mj, energy.transpose()?);
    put(
        &mut config.tier,
        change.priority_tier.as_deref().map(|name| tier("priority_tier", name)).transpose()?,
    );
    put(&mut config.weight, change.fair_share_weight.map(weight).transpose()?);
    put(&mut config.decay_milli_per_day, change.priority_decay.map(decay_milli).transpose()?);
    put(&mut config.may_be_preempted, change.allow_preemption);
    put(&mut config.may_preempt, change.can_preempt_others);
    put(&mut config.priority_max, change.max_priority);
    put(&mut config.preemptions_per_job_max, change.max_preemptions);
    let damage = change.damage_gpu_hours_per_day.map(|hours| all_ms(DAMAGE, hours)).transpose()?;
    put(&mut config.damage_gpu_ms_per_day, damage);
    put(&mut config.billed, change.billing_enabled);
    let price = change.cost_per_gpu_hour.map(|price| micro("cost_per_gpu_hour", price)).transpose()?;
    put(&mut config.price_gpu_hour_micro, price);
    put(&mut config.active, change.active);
    let notices = [
        change.notify_on_start,
        change.notify_on_completion,
        change.notify_on_failure,
        change.notify_on_quota,
    ];
    config.notify.extend(wanted_notices(notices));
    put(&mut config.labels, change.labels);
    Ok(())
}

/// The notices that were sent, in the order of [`NOTICES`].
fn wanted_notices(sent: [Option<bool>; 4]) -> impl Iterator<Item = (String, bool)> {
    NOTICES.iter().zip(sent).filter_map(|(word, wanted)| Some((word.to_string(), wanted?)))
}

fn parent(id: &str) -> Result<TenantId, Fault> {
    id.parse().map_err(|error| Fault::invalid("parent", format!("{error}")))
}

/// GPUs by model, with the models as the core calls them: one that is said in two spellings would count twice.
fn by_model(field: &'static str, sent: &BTreeMap<String, u64>) -> Result<BTreeMap<String, u64>, Fault> {
    let mut models = BTreeMap::new();
    for (name, count) in sent {
        let model = model::canonical(name);
        if model.is_empty() {
            return Err(Fault::invalid(field, format!("`{name}` names no model")));
        }
        if models.insert(model, *count).is_some() {
            return Err(Fault::invalid(field, format!("`{name}` is there in two spellings")));
        }
    }
    Ok(models)
}

fn gpu_ms(field: &'static str, hours: f64) -> Result<u64, Fault> {
    match hours.is_finite() && (0.0..=1e12).contains(&hours) {
        true => Ok((hours * 3_600_000.0).round() as u64),
        false => Err(Fault::invalid(field, "must be from 0 to 1,000,000,000,000")),
    }
}

/// Thousandths of GPUs that a tenant holds with all below it.
fn held_below(state: &muster_core::State, top: &TenantId) -> u64 {
    let below = |id: &TenantId| state.lineage(id).any(|above| above.id == *top);
    state.tenants.values().filter(|one| below(&one.id)).map(|one| one.held.gpu_milli).sum()
}

/// What it holds with all below it beyond what it can count on.
fn borrowed(state: &muster_core::State, tenant: &TenantId, guaranteed: u64) -> Amount {
    Amount::of_milli(held_below(state, tenant).saturating_sub(guaranteed.saturating_mul(1_000)))
}

fn energy_mj(field: &'static str, kwh: f64) -> Result<u64, Fault> {
    match kwh.is_finite() && (0.0..=1e9).contains(&kwh) {
        true => Ok((kwh * 3.6e9).round() as u64),
        false => Err(Fault::invalid(field, "must be from 0 to 1,000,000,000")),
    }
}

fn weight(share: f64) -> Result<u32, Fault> {
    match (0.01..=1e6).contains(&share) {
        true => Ok((share * USUAL_WEIGHT).round() as u32),
        false => Err(Fault::invalid("fair_share_weight", "must be from 0.01 to 1,000,000")),
    }
}

fn decay_milli(part: f64) -> Result<u32, Fault> {
    match (0.0..=1.0).contains(&part) {
        true => Ok((part * 1_000.0).round() as u32),
        false => Err(Fault::invalid("priority_decay", "must be from 0 to 1")),
    }
}

fn shown(
    state: &Core,
    tenant: &Tenant,
    (shares, spent): (&BTreeMap<TenantId, FairShare>, &BTreeMap<&TenantId, Spent>),
    now: Timestamp,
) -> wire::Tenant {
    let TenantConfig { maximum, maximum_per_user, guaranteed, .. } = &tenant.config;
    let share = shares.get(&tenant.id).copied();
    let part = |milli: fn(FairShare) -> u32| share.map_or(0.0, |share| f64::from(milli(share)) / 1_000.0);
    let spent = spent.get(&tenant.id).copied().unwrap_or_default();
    let half_life_ms = tenant.half_life_ms(state.settings.usage_half_life_ms);
    let recent = tenant.recent.micro_gpus(tenant.held.gpu_milli, now, half_life_ms);
    let config = &tenant.config;
    let account = state.ledger.account(&tenant.id);
    let own = state.spent(tenant, now);
    let wants = |notices: &BTreeMap<String, bool>, word: &str| notices.get(word).copied().unwrap_or(false);
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
        borrowed_gpus: guaranteed.gpus.map(|gpus| borrowed(state, &tenant.id, gpus)),
        guaranteed_gpus_by_model: config.guaranteed_by_model.clone(),
        budget_gpu_hours: config.budget.gpu_ms.map(hours),
        budget_kwh: config.budget.energy_mj.map(kwh),
        budget_cost: config.budget.cost_micro.map(money),
        spent_gpu_hours: hours(spent.gpu_ms),
        spent_kwh: kwh(spent.energy_mj),
        spent_cost: money(spent.cost_micro),
        current_gpus: Amount::of_milli(tenant.held.gpu_milli),
        current_gpu_memory: tenant.held.gpu_memory_mib,
        current_cpu_cores: tenant.held.cpus,
        current_memory: tenant.held.memory_mib,
        current_power_w: tenant.held.milliwatts as f64 / 1_000.0,
        current_jobs: tenant.held.jobs,
        live_jobs: tenant.live_jobs,
        total_gpu_hours: hours(own.gpu_ms),
        total_jobs: account.submitted,
        successful_jobs: account.done,
        failed_jobs: account.failed,
        cancelled_jobs: account.cancelled,
        total_cost: money(own.cost_micro),
        priority_tier: config.tier.word().to_string(),
        fair_share_weight: f64::from(config.weight) / USUAL_WEIGHT,
        fair_share_factor: share.map_or(1.0, factor),
        fair_share: part(|share| share.share_milli),
        fair_share_used: part(|share| share.used_milli),
        recent_gpus: (recent / 1_000) as f64 / 1_000.0,
        usage_half_life_ms: half_life_ms,
        priority_decay: f64::from(config.decay_milli_per_day) / 1_000.0,
        allow_preemption: config.may_be_preempted,
        can_preempt_others: config.may_preempt,
        max_priority: config.priority_max,
        max_preemptions: config.preemptions_per_job_max,
        damage_gpu_hours_per_day: config.damage_gpu_ms_per_day.map(hours),
        damage_gpu_hours: config
            .damage_gpu_ms_per_day
            .map(|per_day| hours(tenant.damage.gpu_ms(per_day, now))),
        billing_enabled: config.billed,
        cost_per_gpu_hour: money(config.price_gpu_hour_micro),
        active: config.active,
        notify_on_start: wants(&config.notify, "start"),
        notify_on_completion: wants(&config.notify, "completion"),
        notify_on_failure: wants(&config.notify, "failure"),
        notify_on_quota: wants(&config.notify, "quota"),
        labels: config.labels.clone(),
        warnings: beyond_the_cluster(state, config),
    }
}

/// Guarantees that all nodes together could not keep. Without any node nothing is known yet.
fn beyond_the_cluster(state: &Core, config: &TenantConfig) -> Vec<String> {
    if state.nodes.is_empty() {
        return Vec::new();
    }
    let gpus = || state.nodes.values().flat_map(|node| &node.facts.gpus);
    let of_model = |wish: &str| gpus().filter(|gpu| model::matches(wish, &gpu.model)).count() as u64;
    let cpus: u64 = state.nodes.values().map(|node| u64::from(node.facts.cpus)).sum();
    let memory_mib: u64 = state.nodes.values().map(|node| node.facts.memory_mib).sum();
    let sure = &config.guaranteed;
    let amounts = [
        ("GPUs".to_string(), sure.gpus, gpus().count() as u64),
        ("CPU cores".to_string(), sure.cpus, cpus),
        ("MiB of memory".to_string(), sure.memory_mib, memory_mib),
    ];
    let models = config.guaranteed_by_model.iter();
    let models = models.map(|(name, count)| (format!("GPUs of model {name}"), Some(*count), of_model(name)));
    let beyond = |(what, sure, there): (String, Option<u64>, u64)| {
        let sure = sure.filter(|sure| *sure > there)?;
        Some(format!("{what}: {sure} guaranteed, the cluster has {there}"))
    };
    amounts.into_iter().chain(models).filter_map(beyond).collect()
}
