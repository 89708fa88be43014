//! Policies: put into force, go back, look.

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

use crate::http::AppState;
use crate::http::access::record_denial;
use crate::http::api_error::ApiError;
use crate::http::json::Json;
use crate::http::query::{PathId, PathParam, Query};
use crate::http::caller::TenantVisibility;
use crate::http::conversions::rfc3339;
use crate::identity::{Permission, Caller};
use crate::policies::Interpreter;

/// Put policies into force
///
/// All files of a bundle at once, or none: they are compiled first, and an error names file, line and column; then the
/// tests among them must pass, unless `force` says otherwise. From the
/// next round on they count. What was in force before is kept to go back to. Administrators do this for everyone, and a
/// tenant's own administrators for its jobs. As a `shadow` they run beside those in force and decide nothing; the server
/// keeps what they would decide otherwise until it stops.
#[utoipa::path(post, path = "/api/v1/policies", tag = "policies", request_body = PolicyApply,
    responses((status = 200, description = "In force, or what would be", body = PolicyVersion)))]
pub async fn apply(
    State(app): State<AppState>,
    caller: Caller,
    Json(ask): Json<PolicyApply>,
) -> Result<Json<PolicyVersion>, ApiError> {
    let Some(interpreter) = app.interpreter.clone() else { return Err(no_interpreter()) };
    let scope = policy_scope(&app, &caller, ask.tenant_id.as_deref(), "/api/v1/policies")?;
    let (speaks_for, force) = (scope.clone(), ask.force);
    let compiling =
        tokio::task::spawn_blocking(move || compile_and_test(&*interpreter, &speaks_for, ask.files, force));
    let bundle = compiling.await.map_err(|_| ApiError::internal("compiling the policies ended early"))??;
    let bundle = std::sync::Arc::new(bundle);
    let (why, now) = (ask.why.clone(), app.cluster.now());
    let command = Command::ApplyPolicy { scope: scope.clone(), bundle: bundle.clone(), why };
    if ask.shadow && scope != PolicyScope::Cluster {
        return Err(ApiError::invalid("shadow", "only policies of the whole cluster run as a shadow"));
    }
    if ask.dry_run || ask.shadow {
        app.read_state(|state| state.decide(&caller.actor, &command, now).map(drop))??;
        return app.read_state(|state| {
            let version = BundleVersion {
                number: state.policies.next_number(),
                scope,
                bundle,
                by: caller.actor.name,
                why: ask.why,
                at: now,
            };
            let answer = Json(api_policy_version(state, &version, false));
            if !ask.dry_run {
                app.shadow.start(version);
            }
            answer
        });
    }
    app.cluster.execute(caller.actor, command).await?;
    newest_version(&app, &scope)
}

/// Compile files, and unless forced refuse those whose tests fail.
fn compile_and_test(
    interpreter: &dyn Interpreter,
    scope: &PolicyScope,
    files: BTreeMap<String, String>,
    force: bool,
) -> Result<PolicyBundle, ApiError> {
    let wrong = |code, what: String| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, what);
    let bundle = interpreter.compile(scope, files).map_err(|errors| {
        wrong("bad-policy", errors.join("\n")).hint("`muster policy check` says the same without a server")
    })?;
    let failing = if force { Ok(Vec::new()) } else { interpreter.failing_tests(scope, &bundle.files) };
    let failing = failing.unwrap_or_else(|error| vec![error]);
    match failing.is_empty() {
        true => Ok(bundle),
        false => Err(wrong(
            "policy-tests-fail",
            format!("tests of the policies fail:\n{}", failing.join("\n")),
        )
        .hint(
            "`muster policy test` runs them without a server; `--force` applies the policies all the same",
        )),
    }
}

/// For whom a caller speaks. Only administrators speak for everyone; others' tenants do not exist for them.
fn policy_scope(app: &AppState, caller: &Caller, tenant: Option<&str>, path: &str) -> Result<PolicyScope, ApiError> {
    if tenant.is_some() {
        return caller.target_tenant(tenant).map(PolicyScope::Tenant);
    }
    if caller.may(Permission::Administer, None) {
        return Ok(PolicyScope::Cluster);
    }
    record_denial(app, caller, format!("POST {path}"), path);
    let (name, role, least) = (&caller.actor.name, caller.role.as_str(), Permission::Administer.minimum_role().as_str());
    let detail = format!("policies for the whole cluster need role {least}, `{name}` has {role}");
    Err(ApiError::forbidden(detail)
        .hint("name the tenant whose jobs they are for, by `tenant_id` or `--tenant`"))
}

/// Go back to earlier policies
///
/// Of the tenant that is named; else a tenant-admin goes back to those of its tenant, and an admin to those of the
/// cluster.
#[utoipa::path(post, path = "/api/v1/policies/rollback", tag = "policies", request_body = PolicyRollback,
    responses((status = 200, description = "In force", body = PolicyVersion)))]
pub async fn roll_back(
    State(app): State<AppState>,
    caller: Caller,
    Json(ask): Json<PolicyRollback>,
) -> Result<Json<PolicyVersion>, ApiError> {
    // A role of one tenant has only its own policies to go back to.
    let own = caller.tenant_scope().map(ToString::to_string);
    let tenant = ask.tenant_id.or(own);
    let scope = policy_scope(&app, &caller, tenant.as_deref(), "/api/v1/policies/rollback")?;
    let (number, why) = (ask.version, ask.why);
    let command = Command::RollBackPolicy { scope: scope.clone(), number, why };
    app.cluster.execute(caller.actor, command).await?;
    newest_version(&app, &scope)
}

/// Which versions to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PolicyQuery {
    /// Only those for the jobs of this tenant.
    tenant_id: Option<String>,
}

/// List the policies that were put into force
///
/// Operators see all of them; others those of their tenant.
#[utoipa::path(get, path = "/api/v1/policies", tag = "policies", params(PolicyQuery),
    responses((status = 200, description = "The newest first", body = PolicyList)))]
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
        let policies: Vec<PolicyVersion> = versions.map(|one| api_policy_version_with_suspension(&app, state, one, false)).collect();
        let failures = policy_failures(state, sees_jobs);
        Json(PolicyList { total: policies.len() as u64, policies, failures })
    })
}

/// What went wrong with policies in force, of the jobs that a caller sees.
fn policy_failures(state: &muster_core::State, sees: impl Fn(&TenantId) -> bool) -> Vec<PolicyCallFailure> {
    let mut jobs: BTreeMap<&str, u64> = BTreeMap::new();
    let waiting = state.queue.buckets().filter(|_| !state.policies.is_empty());
    for (bucket, places) in waiting.filter(|(bucket, _)| sees(&bucket.tenant)) {
        if let Some(error) = bucket_policy_failure(state, bucket) {
            *jobs.entry(error).or_default() += places.len() as u64;
        }
    }
    for (job, failure) in &state.policies.failures {
        let is_seen = state.jobs.get(job).is_some_and(|job| sees(&job.spec.tenant));
        if let Some(error) = failure.failed.as_ref().filter(|_| is_seen) {
            *jobs.entry(error).or_default() += 1;
        }
    }
    let blocks = state.settings.policy_failure == PolicyFailure::Closed;
    let failing = |(error, jobs): (&str, u64)| PolicyCallFailure { error: error.to_string(), jobs, blocks };
    jobs.into_iter().map(failing).collect()
}

/// What went wrong when policies were asked about the jobs of a bucket, or about how much their tenants may hold.
fn bucket_policy_failure<'a>(state: &'a muster_core::State, bucket: &Bucket) -> Option<&'a str> {
    let of_jobs = state.policies.answers.of(bucket).and_then(|answer| answer.failed.as_deref());
    let limits = &state.policies.limits;
    let of_tenants =
        || state.lineage(&bucket.tenant).find_map(|tenant| limits.get(&tenant.id)?.failed.as_deref());
    of_jobs.or_else(of_tenants)
}

/// A version as [`shown`], with what became of it when it was asked.
fn api_policy_version_with_suspension(
    app: &AppState,
    state: &muster_core::State,
    version: &BundleVersion,
    with_sources: bool,
) -> PolicyVersion {
    let shown = api_policy_version(state, version, with_sources);
    let interpreter = app.interpreter.as_ref().filter(|_| api_policy_version.active);
    PolicyVersion { suspended: interpreter.and_then(|one| one.suspension_reason(version)), ..api_policy_version }
}

/// Look at one version, with its files
#[utoipa::path(get, path = "/api/v1/policies/{version}", tag = "policies",
    params(("version" = u64, Path, description = "Its number")),
    responses((status = 200, description = "All of it", body = PolicyVersion)))]
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

/// Whether versions of a scope exist for a caller.
fn sees_scope(caller: &Caller, scope: &PolicyScope) -> bool {
    match scope {
        PolicyScope::Cluster => caller.role.is_cluster_wide(),
        PolicyScope::Tenant(tenant) => caller.sees(tenant),
    }
}

fn is_scope_of(scope: &PolicyScope, tenant: &str) -> bool {
    matches!(scope, PolicyScope::Tenant(own) if own.as_str() == tenant)
}

/// The number of a version.
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
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "no-interpreter", "this server runs no policies")
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
    format!("{}{}", strategy.kind.word(), fields_text(&strategy.fields))
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
