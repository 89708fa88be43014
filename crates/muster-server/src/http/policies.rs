//! Policies: put into force, go back, look.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use muster_core::policy::{Bundle, Scope, Version};
use muster_core::queue::Bucket;
use muster_core::rules::{Check, Fact, Pool, Rule, Ruleset, Strategy, thousandths};
use muster_core::settings::PolicyFailure;
use muster_core::{Command, Refusal, TenantId};
use muster_protocol::policy::{
    PolicyApply, PolicyFailing, PolicyList, PolicyPool, PolicyRollback, PolicyRuleset, PolicyVersion,
};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::Door;
use crate::http::access::put_on_record;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::query::{Id, Named, Query};
use crate::http::who::Reach;
use crate::http::written::stamp;
use crate::identity::{Verb, Who};
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
    State(door): State<Door>,
    who: Who,
    Json(ask): Json<PolicyApply>,
) -> Result<Json<PolicyVersion>, Fault> {
    let Some(interpreter) = door.interpreter.clone() else { return Err(nobody()) };
    let scope = scope_of(&door, &who, ask.tenant_id.as_deref(), "/api/v1/policies")?;
    let (speaks_for, force) = (scope.clone(), ask.force);
    let compiling =
        tokio::task::spawn_blocking(move || compiled(&*interpreter, &speaks_for, ask.files, force));
    let bundle = compiling.await.map_err(|_| Fault::internal("compiling the policies ended early"))??;
    let bundle = std::sync::Arc::new(bundle);
    let (why, now) = (ask.why.clone(), door.cluster.now());
    let command = Command::ApplyPolicy { scope: scope.clone(), bundle: bundle.clone(), why };
    if ask.shadow && scope != Scope::Cluster {
        return Err(Fault::invalid("shadow", "only policies of the whole cluster run as a shadow"));
    }
    if ask.dry_run || ask.shadow {
        door.state(|state| state.decide(&who.actor, &command, now).map(drop))??;
        return door.state(|state| {
            let version = Version {
                number: state.policies.next_number(),
                scope,
                bundle,
                by: who.actor.name,
                why: ask.why,
                at: now,
            };
            let answer = Json(shown(state, &version, false));
            if !ask.dry_run {
                door.shadow.begin(version);
            }
            answer
        });
    }
    door.cluster.ask(who.actor, command).await?;
    newest(&door, &scope)
}

/// Compile files, and unless forced refuse those whose tests fail.
fn compiled(
    interpreter: &dyn Interpreter,
    scope: &Scope,
    files: BTreeMap<String, String>,
    force: bool,
) -> Result<Bundle, Fault> {
    let wrong = |code, what: String| Fault::new(StatusCode::UNPROCESSABLE_ENTITY, code, what);
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
fn scope_of(door: &Door, who: &Who, tenant: Option<&str>, path: &str) -> Result<Scope, Fault> {
    if tenant.is_some() {
        return who.acts_for(tenant).map(Scope::Tenant);
    }
    if who.may(Verb::Administer, None) {
        return Ok(Scope::Cluster);
    }
    put_on_record(door, who, format!("POST {path}"), path);
    let (name, role, least) = (&who.actor.name, who.role.word(), Verb::Administer.needs().word());
    let detail = format!("policies for the whole cluster need role {least}, `{name}` has {role}");
    Err(Fault::forbidden(detail)
        .hint("name the tenant whose jobs they are for, by `tenant_id` or `--tenant`"))
}

/// Go back to earlier policies
///
/// Of the tenant that is named; else a tenant-admin goes back to those of its tenant, and an admin to those of the
/// cluster.
#[utoipa::path(post, path = "/api/v1/policies/rollback", tag = "policies", request_body = PolicyRollback,
    responses((status = 200, description = "In force", body = PolicyVersion)))]
pub async fn roll_back(
    State(door): State<Door>,
    who: Who,
    Json(ask): Json<PolicyRollback>,
) -> Result<Json<PolicyVersion>, Fault> {
    // A role of one tenant has only its own policies to go back to.
    let own = who.confined_to().map(ToString::to_string);
    let tenant = ask.tenant_id.or(own);
    let scope = scope_of(&door, &who, tenant.as_deref(), "/api/v1/policies/rollback")?;
    let (number, why) = (ask.version, ask.why);
    let command = Command::RollBackPolicy { scope: scope.clone(), number, why };
    door.cluster.ask(who.actor, command).await?;
    newest(&door, &scope)
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
    State(door): State<Door>,
    who: Who,
    Query(query): Query<PolicyQuery>,
) -> Result<Json<PolicyList>, Fault> {
    let wanted = |version: &Version| {
        sees(&who, &version.scope)
            && query.tenant_id.as_ref().is_none_or(|tenant| is_of(&version.scope, tenant))
    };
    let sees_jobs = |tenant: &TenantId| {
        who.sees(tenant) && query.tenant_id.as_ref().is_none_or(|wanted| wanted == tenant.as_str())
    };
    door.state(|state| {
        let versions = state.policies.versions().into_iter().rev().filter(|version| wanted(version));
        let policies: Vec<PolicyVersion> = versions.map(|one| told(&door, state, one, false)).collect();
        let failures = failures(state, sees_jobs);
        Json(PolicyList { total: policies.len() as u64, policies, failures })
    })
}

/// What went wrong with policies in force, of the jobs that a caller sees.
fn failures(state: &muster_core::State, sees: impl Fn(&TenantId) -> bool) -> Vec<PolicyFailing> {
    let mut jobs: BTreeMap<&str, u64> = BTreeMap::new();
    let waiting = state.queue.buckets().filter(|_| !state.policies.is_empty());
    for (bucket, places) in waiting.filter(|(bucket, _)| sees(&bucket.tenant)) {
        if let Some(error) = failure_before_start(state, bucket) {
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
    let failing = |(error, jobs): (&str, u64)| PolicyFailing { error: error.to_string(), jobs, blocks };
    jobs.into_iter().map(failing).collect()
}

/// What went wrong when policies were asked about the jobs of a bucket, or about how much their tenants may hold.
fn failure_before_start<'a>(state: &'a muster_core::State, bucket: &Bucket) -> Option<&'a str> {
    let of_jobs = state.policies.answers.of(bucket).and_then(|answer| answer.failed.as_deref());
    let limits = &state.policies.limits;
    let of_tenants =
        || state.lineage(&bucket.tenant).find_map(|tenant| limits.get(&tenant.id)?.failed.as_deref());
    of_jobs.or_else(of_tenants)
}

/// A version as [`shown`], with what became of it when it was asked.
fn told(door: &Door, state: &muster_core::State, version: &Version, with_sources: bool) -> PolicyVersion {
    let shown = shown(state, version, with_sources);
    let interpreter = door.interpreter.as_ref().filter(|_| shown.active);
    PolicyVersion { suspended: interpreter.and_then(|one| one.suspended(version)), ..shown }
}

/// Look at one version, with its files
#[utoipa::path(get, path = "/api/v1/policies/{version}", tag = "policies",
    params(("version" = u64, Path, description = "Its number")),
    responses((status = 200, description = "All of it", body = PolicyVersion)))]
pub async fn get(
    State(door): State<Door>,
    who: Who,
    Id(Number(number)): Id<Number>,
) -> Result<Json<PolicyVersion>, Fault> {
    let scope = who.confined_to().cloned().map_or(Scope::Cluster, Scope::Tenant);
    let unknown = || Refusal::UnknownPolicy { number: Some(number), scope };
    let found = door.state(|state| {
        let version = state.policies.version(number).filter(|version| sees(&who, &version.scope));
        version.map(|version| told(&door, state, version, true))
    })?;
    Ok(Json(found.ok_or_else(unknown)?))
}

/// Whether versions of a scope exist for a caller.
fn sees(who: &Who, scope: &Scope) -> bool {
    match scope {
        Scope::Cluster => who.role.is_cluster_wide(),
        Scope::Tenant(tenant) => who.sees(tenant),
    }
}

fn is_of(scope: &Scope, tenant: &str) -> bool {
    matches!(scope, Scope::Tenant(own) if own.as_str() == tenant)
}

/// The number of a version.
pub struct Number(u64);

impl std::str::FromStr for Number {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Number, std::num::ParseIntError> {
        text.parse().map(Number)
    }
}

impl Named for Number {
    const UNKNOWN: &'static str = "unknown-policy";
}

fn nobody() -> Fault {
    Fault::new(StatusCode::NOT_IMPLEMENTED, "no-interpreter", "this server runs no policies")
}

fn newest(door: &Door, scope: &Scope) -> Result<Json<PolicyVersion>, Fault> {
    door.state(|state| {
        let newest = state.policies.versions().into_iter().rfind(|version| version.scope == *scope);
        Json(newest.map(|version| told(door, state, version, false)).unwrap_or_default())
    })
}

pub fn shown(state: &muster_core::State, version: &Version, with_sources: bool) -> PolicyVersion {
    let bundle = &version.bundle;
    let active = state.policies.active(&version.scope).is_some_and(|active| active.number == version.number);
    let counts = state.policies.ruleset(&state.settings).filter(|_| active).map(|ruleset| &ruleset.name);
    PolicyVersion {
        version: version.number,
        scope: version.scope.to_string(),
        tenant_id: match &version.scope {
            Scope::Cluster => None,
            Scope::Tenant(tenant) => Some(tenant.to_string()),
        },
        active,
        suspended: None,
        hash: bundle.hash.clone(),
        applied_by: version.by.clone(),
        applied_at: stamp(version.at.0),
        why: version.why.clone(),
        hooks: bundle.hooks.iter().map(|hook| hook.word().to_string()).collect(),
        pools: bundle.rules.pools.values().map(|pool| shown_pool(state, pool, active)).collect(),
        rulesets: bundle.rules.schedules.values().map(|one| shown_ruleset(one, counts)).collect(),
        files: bundle.files.keys().cloned().collect(),
        sources: if with_sources { bundle.files.clone() } else { BTreeMap::new() },
    }
}

fn shown_pool(state: &muster_core::State, pool: &Pool, active: bool) -> PolicyPool {
    let devices = state.nodes.values().filter(|_| active).flat_map(|node| &node.pools);
    let of_pool: Vec<bool> = devices.filter_map(|pools| pools.get(&pool.name).copied()).collect();
    PolicyPool {
        name: pool.name.clone(),
        gpu_types: pool.gpu_types.clone(),
        min_memory_gb: thousandths(pool.min_memory_milli_gb),
        max_temp_c: thousandths(pool.max_temp_milli_c),
        health_threshold: thousandths(pool.health_threshold_milli),
        power_policy: pool.power_policy.word().to_string(),
        opt_strategies: pool.opt_strategies.iter().map(strategy).collect(),
        health_checks: pool.health_checks.iter().map(check).collect(),
        gpus: of_pool.len() as u32,
        gpus_open: of_pool.iter().filter(|open| **open).count() as u32,
    }
}

fn strategy(strategy: &Strategy) -> String {
    format!("{}{}", strategy.kind.word(), fields(&strategy.fields))
}

fn check(check: &Check) -> String {
    format!("{}{}", check.name, fields(&check.fields))
}

fn fields(fields: &BTreeMap<String, Fact>) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, fact)| format!("{name} = {fact}")).collect();
    if fields.is_empty() { String::new() } else { format!("({})", fields.join(", ")) }
}

fn shown_ruleset(ruleset: &Ruleset, counts: Option<&String>) -> PolicyRuleset {
    PolicyRuleset {
        name: ruleset.name.clone(),
        active: counts == Some(&ruleset.name),
        rules: ruleset.rules.iter().map(Rule::to_string).collect(),
    }
}
