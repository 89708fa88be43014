//! Policies: apply, roll back, list, get.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use muster_core::objects::policy::rules::{Check, Fact, Pool, Rule, Ruleset, Strategy, thousandths};
use muster_core::objects::policy::{BundleVersion, PolicyBundle, PolicyScope};
use muster_core::objects::settings::PolicyFailure;
use muster_core::queue::Bucket;
use muster_core::{Command, Refusal, TenantId};
use muster_protocol::policy::{
    PolicyApply, PolicyCallFailure, PolicyList, PolicyPool, PolicyRollback, PolicyRuleset, PolicyVersion,
};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::access::record_denial;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::json::Json;
use crate::http::query::{PathId, PathParam, Query};
use crate::identity::{Caller, Permission};
use crate::policies::Interpreter;

/// Apply a policy bundle
///
/// All files of a bundle become active together, or none: they are compiled first, and an error names file, line and
/// column; then the tests of the bundle must pass, unless `force` is set. The bundle takes effect with the next round.
/// The version before is kept for a rollback. Admins apply bundles for the whole cluster, tenant-admins for the jobs of
/// their tenant. With `shadow` a bundle of the whole cluster runs beside the active policies and decides nothing. The
/// server keeps the differences in memory until the shadow ends or the server stops.
#[utoipa::path(post, path = "/api/v1/policies", tag = "policies", request_body = PolicyApply,
    responses((status = 200, description = "The active version, or that of a dry run", body = PolicyVersion)))]
pub async fn apply(
    State(app): State<AppState>,
    caller: Caller,
    Json(request): Json<PolicyApply>,
) -> Result<Json<PolicyVersion>, ApiError> {
    let Some(interpreter) = app.interpreter.clone() else { return Err(no_interpreter()) };
    let scope = policy_scope(&app, &caller, request.tenant_id.as_deref(), "/api/v1/policies")?;
    let (bundle_scope, force) = (scope.clone(), request.force);
    let compiling =
        tokio::task::spawn_blocking(move || compile_and_test(&*interpreter, &bundle_scope, request.files, force));
    let bundle = compiling.await.map_err(|_| ApiError::internal("compiling the policies was aborted"))??;
    let bundle = std::sync::Arc::new(bundle);
    let (why, now) = (request.why.clone(), app.cluster.now());
    let command = Command::ApplyPolicy { scope: scope.clone(), bundle: bundle.clone(), why };
    if request.shadow && scope != PolicyScope::Cluster {
        return Err(ApiError::invalid("shadow", "only policies of the whole cluster can run as a shadow"));
    }
    if request.dry_run || request.shadow {
        app.read_state(|state| state.decide(&caller.actor, &command, now).map(drop))??;
        return app.read_state(|state| {
            let version = BundleVersion {
                number: state.policies.next_number(),
                scope,
                bundle,
                by: caller.actor.name,
                why: request.why,
                at: now,
            };
            let response = Json(api_policy_version(state, &version, false));
            if !request.dry_run {
                app.shadow.start(version);
            }
            response
        });
    }
    app.cluster.execute(caller.actor, command).await?;
    newest_version(&app, &scope)
}

/// Compile the files, and unless forced refuse a bundle whose tests fail.
fn compile_and_test(
    interpreter: &dyn Interpreter,
    scope: &PolicyScope,
    files: BTreeMap<String, String>,
    force: bool,
) -> Result<PolicyBundle, ApiError> {
    let refused = |code, detail: String| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail);
    let bundle = interpreter.compile(scope, files).map_err(|errors| {
        refused("bad-policy", errors.join("\n")).hint("`muster policy check` reports the same errors without a server")
    })?;
    let failing = if force { Ok(Vec::new()) } else { interpreter.failing_tests(scope, &bundle.files) };
    let failing = failing.unwrap_or_else(|error| vec![error]);
    match failing.is_empty() {
        true => Ok(bundle),
        false => Err(refused("policy-tests-fail", format!("tests of the policies fail:\n{}", failing.join("\n")))
            .hint("`muster policy test` runs them without a server; `--force` applies the policies anyway")),
    }
}

/// The scope of a bundle: a tenant that the caller may see, or the whole cluster, which needs role admin.
fn policy_scope(app: &AppState, caller: &Caller, tenant: Option<&str>, path: &str) -> Result<PolicyScope, ApiError> {
    if tenant.is_some() {
        return caller.target_tenant(tenant).map(PolicyScope::Tenant);
    }
    if caller.may(Permission::Administer, None) {
        return Ok(PolicyScope::Cluster);
    }
    record_denial(app, caller, format!("POST {path}"), path);
    let (name, role) = (&caller.actor.name, caller.role.as_str());
    let needed = Permission::Administer.minimum_role().as_str();
    let detail = format!("policies for the whole cluster need role {needed}; `{name}` has role {role}");
    Err(ApiError::forbidden(detail).hint("name the tenant of the policies, with `tenant_id` or `--tenant`"))
}

/// Roll back to an earlier policy version
///
/// Rolls back the policies of the named tenant; without `tenant_id`, those of the caller's tenant for a tenant-admin
/// and those of the cluster for an admin.
#[utoipa::path(post, path = "/api/v1/policies/rollback", tag = "policies", request_body = PolicyRollback,
    responses((status = 200, description = "The active version", body = PolicyVersion)))]
pub async fn roll_back(
    State(app): State<AppState>,
    caller: Caller,
    Json(request): Json<PolicyRollback>,
) -> Result<Json<PolicyVersion>, ApiError> {
    // A role of one tenant can roll back only the policies of its tenant.
    let own = caller.tenant_scope().map(ToString::to_string);
    let tenant = request.tenant_id.or(own);
    let scope = policy_scope(&app, &caller, tenant.as_deref(), "/api/v1/policies/rollback")?;
    let (number, why) = (request.version, request.why);
    let command = Command::RollBackPolicy { scope: scope.clone(), number, why };
    app.cluster.execute(caller.actor, command).await?;
    newest_version(&app, &scope)
}

/// Which versions to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PolicyQuery {
    /// Only versions of this tenant.
    tenant_id: Option<String>,
}

/// List applied policy versions
///
/// Operators see all versions; other callers those of their tenant.
#[utoipa::path(get, path = "/api/v1/policies", tag = "policies", params(PolicyQuery),
    responses((status = 200, description = "Newest first", body = PolicyList)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    Query(query): Query<PolicyQuery>,
) -> Result<Json<PolicyList>, ApiError> {
    let wanted = |version: &BundleVersion| {
        sees_scope(&caller, &version.scope)
            && query.tenant_id.as_ref().is_none_or(|tenant| is_scope_of(&version.scope, tenant))
    };
    let sees_jobs = |tenant: &TenantId| {
        caller.sees(tenant) && query.tenant_id.as_ref().is_none_or(|wanted| wanted == tenant.as_str())
    };
    app.read_state(|state| {
        let versions = state.policies.versions().into_iter().rev().filter(|version| wanted(version));
        let policies: Vec<PolicyVersion> =
            versions.map(|one| api_policy_version_with_suspension(&app, state, one, false)).collect();
        let failures = policy_failures(state, sees_jobs);
        Json(PolicyList { total: policies.len() as u64, policies, failures })
    })
}

/// Failed calls of the active policies, for the jobs that the caller sees.
fn policy_failures(state: &muster_core::State, sees: impl Fn(&TenantId) -> bool) -> Vec<PolicyCallFailure> {
    let mut jobs: BTreeMap<&str, u64> = BTreeMap::new();
    let waiting = state.queue.buckets().filter(|_| !state.policies.is_empty());
    for (bucket, queued) in waiting.filter(|(bucket, _)| sees(&bucket.tenant)) {
        if let Some(error) = bucket_policy_failure(state, bucket) {
            *jobs.entry(error).or_default() += queued.len() as u64;
        }
    }
    for (job, failure) in &state.policies.failures {
        let is_seen = state.jobs.get(job).is_some_and(|job| sees(&job.spec.tenant));
        if let Some(error) = failure.failed.as_ref().filter(|_| is_seen) {
            *jobs.entry(error).or_default() += 1;
        }
    }
    let blocks = state.settings.policy_failure == PolicyFailure::Closed;
    let api_failure = |(error, jobs): (&str, u64)| PolicyCallFailure { error: error.to_string(), jobs, blocks };
    jobs.into_iter().map(api_failure).collect()
}

/// The error of a hook call about the jobs of a bucket, or about the limits of its tenant and the tenants above.
fn bucket_policy_failure<'a>(state: &'a muster_core::State, bucket: &Bucket) -> Option<&'a str> {
    let of_jobs = state.policies.answers.of(bucket).and_then(|answer| answer.failed.as_deref());
    let limits = &state.policies.limits;
    let of_tenants = || state.lineage(&bucket.tenant).find_map(|tenant| limits.get(&tenant.id)?.failed.as_deref());
    of_jobs.or_else(of_tenants)
}

/// A version as in [`api_policy_version`], with its suspension if its worker was killed too often.
fn api_policy_version_with_suspension(
    app: &AppState,
    state: &muster_core::State,
    version: &BundleVersion,
    with_sources: bool,
) -> PolicyVersion {
    let shown = api_policy_version(state, version, with_sources);
    let interpreter = app.interpreter.as_ref().filter(|_| shown.active);
    PolicyVersion { suspended: interpreter.and_then(|one| one.suspension_reason(version)), ..shown }
}

/// Get one version with its files
#[utoipa::path(get, path = "/api/v1/policies/{version}", tag = "policies",
    params(("version" = u64, Path, description = "The number of the version")),
    responses((status = 200, description = "The version", body = PolicyVersion)))]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathId(PolicyVersionNumber(number)): PathId<PolicyVersionNumber>,
) -> Result<Json<PolicyVersion>, ApiError> {
    let scope = caller.tenant_scope().cloned().map_or(PolicyScope::Cluster, PolicyScope::Tenant);
    let unknown = || Refusal::UnknownPolicy { number: Some(number), scope };
    let found = app.read_state(|state| {
        let version = state.policies.version(number).filter(|version| sees_scope(&caller, &version.scope));
        version.map(|version| api_policy_version_with_suspension(&app, state, version, true))
    })?;
    Ok(Json(found.ok_or_else(unknown)?))
}

/// Whether the caller sees versions of a scope.
fn sees_scope(caller: &Caller, scope: &PolicyScope) -> bool {
    match scope {
        PolicyScope::Cluster => caller.role.is_cluster_wide(),
        PolicyScope::Tenant(tenant) => caller.sees(tenant),
    }
}

fn is_scope_of(scope: &PolicyScope, tenant: &str) -> bool {
    matches!(scope, PolicyScope::Tenant(own) if own.as_str() == tenant)
}

pub struct PolicyVersionNumber(u64);

impl std::str::FromStr for PolicyVersionNumber {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<PolicyVersionNumber, std::num::ParseIntError> {
        text.parse().map(PolicyVersionNumber)
    }
}

impl PathParam for PolicyVersionNumber {
    const UNKNOWN_CODE: &'static str = "unknown-policy";
}

fn no_interpreter() -> ApiError {
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "no-interpreter", "this server has no policy interpreter")
}

fn newest_version(app: &AppState, scope: &PolicyScope) -> Result<Json<PolicyVersion>, ApiError> {
    app.read_state(|state| {
        let newest = state.policies.versions().into_iter().rfind(|version| version.scope == *scope);
        Json(newest.map(|version| api_policy_version_with_suspension(app, state, version, false)).unwrap_or_default())
    })
}

pub fn api_policy_version(state: &muster_core::State, version: &BundleVersion, with_sources: bool) -> PolicyVersion {
    let bundle = &version.bundle;
    let active = state.policies.active(&version.scope).is_some_and(|active| active.number == version.number);
    let counts = state.policies.ruleset(&state.settings).filter(|_| active).map(|ruleset| &ruleset.name);
    PolicyVersion {
        version: version.number,
        scope: version.scope.to_string(),
        tenant_id: match &version.scope {
            PolicyScope::Cluster => None,
            PolicyScope::Tenant(tenant) => Some(tenant.to_string()),
        },
        active,
        suspended: None,
        hash: bundle.hash.clone(),
        applied_by: version.by.clone(),
        applied_at: rfc3339(version.at.0),
        why: version.why.clone(),
        hooks: bundle.hooks.iter().map(|hook| hook.as_str().to_string()).collect(),
        pools: bundle.rules.pools.values().map(|pool| api_pool(state, pool, active)).collect(),
        rulesets: bundle.rules.schedules.values().map(|one| api_ruleset(one, counts)).collect(),
        files: bundle.files.keys().cloned().collect(),
        sources: if with_sources { bundle.files.clone() } else { BTreeMap::new() },
    }
}

fn api_pool(state: &muster_core::State, pool: &Pool, active: bool) -> PolicyPool {
    let devices = state.nodes.values().filter(|_| active).flat_map(|node| &node.pools);
    let of_pool: Vec<bool> = devices.filter_map(|pools| pools.get(&pool.name).copied()).collect();
    PolicyPool {
        name: pool.name.clone(),
        gpu_types: pool.gpu_types.clone(),
        min_memory_gb: thousandths(pool.min_memory_milli_gb),
        max_temp_c: thousandths(pool.max_temp_milli_c),
        health_threshold: thousandths(pool.health_threshold_milli),
        power_policy: pool.power_policy.as_str().to_string(),
        opt_strategies: pool.opt_strategies.iter().map(strategy_text).collect(),
        health_checks: pool.health_checks.iter().map(health_check_text).collect(),
        gpus: of_pool.len() as u32,
        gpus_open: of_pool.iter().filter(|open| **open).count() as u32,
    }
}

fn strategy_text(strategy: &Strategy) -> String {
    format!("{}{}", strategy.kind.as_str(), fields_text(&strategy.fields))
}

fn health_check_text(check: &Check) -> String {
    format!("{}{}", check.name, fields_text(&check.fields))
}

fn fields_text(fields: &BTreeMap<String, Fact>) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, fact)| format!("{name} = {fact}")).collect();
    if fields.is_empty() { String::new() } else { format!("({})", fields.join(", ")) }
}

fn api_ruleset(ruleset: &Ruleset, counts: Option<&String>) -> PolicyRuleset {
    PolicyRuleset {
        name: ruleset.name.clone(),
        active: counts == Some(&ruleset.name),
        rules: ruleset.rules.iter().map(Rule::to_string).collect(),
    }
}
