//! Policies: put into force, go back, look.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use muster_core::policy::{Scope, Version};
use muster_core::rules::{Check, Fact, Pool, Rule, Ruleset, Strategy, thousandths};
use muster_core::{Command, Refusal};
use muster_protocol::policy::{
    PolicyApply, PolicyList, PolicyPool, PolicyRollback, PolicyRuleset, PolicyVersion,
};

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::query::{Id, Named};
use crate::http::written::stamp;
use crate::identity::Who;

/// Put policies into force
///
/// All files of a bundle at once, or none: they are compiled first, and an error names file, line and column. From the
/// next round on they count. What was in force before is kept to go back to.
#[utoipa::path(post, path = "/api/v1/policies", tag = "policies", request_body = PolicyApply,
    responses((status = 200, description = "In force, or what would be", body = PolicyVersion)))]
pub async fn apply(
    State(door): State<Door>,
    who: Who,
    Json(ask): Json<PolicyApply>,
) -> Result<Json<PolicyVersion>, Fault> {
    let Some(interpreter) = door.interpreter.clone() else { return Err(nobody()) };
    let compiling = tokio::task::spawn_blocking(move || interpreter.compile(ask.files));
    let compiled = compiling.await.map_err(|_| Fault::internal("compiling the policies ended early"))?;
    let bundle = compiled.map_err(|errors| {
        Fault::new(StatusCode::UNPROCESSABLE_ENTITY, "bad-policy", errors.join("\n"))
            .hint("`muster policy check` says the same without a server")
    })?;
    let (scope, bundle) = (Scope::Cluster, std::sync::Arc::new(bundle));
    if ask.dry_run {
        return door.state(|state| {
            let version = Version {
                number: state.policies.next_number(),
                scope,
                bundle,
                by: who.actor.name,
                why: ask.why,
                at: door.cluster.now(),
            };
            Json(shown(state, &version, false))
        });
    }
    door.cluster.ask(who.actor, Command::ApplyPolicy { scope, bundle, why: ask.why }).await?;
    newest(&door)
}

/// Go back to earlier policies
#[utoipa::path(post, path = "/api/v1/policies/rollback", tag = "policies", request_body = PolicyRollback,
    responses((status = 200, description = "In force", body = PolicyVersion)))]
pub async fn roll_back(
    State(door): State<Door>,
    who: Who,
    Json(ask): Json<PolicyRollback>,
) -> Result<Json<PolicyVersion>, Fault> {
    let (scope, number) = (Scope::Cluster, ask.version);
    door.cluster.ask(who.actor, Command::RollBackPolicy { scope, number, why: ask.why }).await?;
    newest(&door)
}

/// List the policies that were put into force
#[utoipa::path(get, path = "/api/v1/policies", tag = "policies",
    responses((status = 200, description = "The newest first", body = PolicyList)))]
pub async fn list(State(door): State<Door>) -> Result<Json<PolicyList>, Fault> {
    let policies: Vec<PolicyVersion> = door.state(|state| {
        let versions = state.policies.versions();
        versions.into_iter().rev().map(|version| shown(state, version, false)).collect()
    })?;
    Ok(Json(PolicyList { total: policies.len() as u64, policies }))
}

/// Look at one version, with its files
#[utoipa::path(get, path = "/api/v1/policies/{version}", tag = "policies",
    params(("version" = u64, Path, description = "Its number")),
    responses((status = 200, description = "All of it", body = PolicyVersion)))]
pub async fn get(
    State(door): State<Door>,
    Id(Number(number)): Id<Number>,
) -> Result<Json<PolicyVersion>, Fault> {
    let unknown = || Refusal::UnknownPolicy { number: Some(number), scope: Scope::Cluster };
    let found =
        door.state(|state| state.policies.version(number).map(|version| shown(state, version, true)))?;
    Ok(Json(found.ok_or_else(unknown)?))
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

fn newest(door: &Door) -> Result<Json<PolicyVersion>, Fault> {
    door.state(|state| {
        let newest = state.policies.versions().into_iter().next_back();
        Json(newest.map(|version| shown(state, version, false)).unwrap_or_default())
    })
}

fn shown(state: &muster_core::State, version: &Version, with_sources: bool) -> PolicyVersion {
    let bundle = &version.bundle;
    let active = state.policies.active(&version.scope).is_some_and(|active| active.number == version.number);
    let counts = state.policies.ruleset(&state.settings).filter(|_| active).map(|ruleset| &ruleset.name);
    PolicyVersion {
        version: version.number,
        scope: version.scope.to_string(),
        active,
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
