//! What is told to Prometheus: computed from the state when it is asked, and counted from the events since the
//! start where the state does not remember.
//!
//! Names follow the conventions of Prometheus; no job, user or node is a label, so their number stays small.

mod seen;
mod text;

use std::collections::BTreeMap;
use std::fmt;

use muster_core::job::Phase;
use muster_core::plan::fair_shares;
use muster_core::policy::{Hook, Version};
use muster_core::{State, Timestamp};
use muster_store::rows::{CountRow, JobState};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::cluster::Role;
use crate::http::{Door, factor};
use crate::policies::Heard;
use crate::rounds::Tally;

pub use seen::Seen;

/// Everything that is told, at one moment.
#[derive(Debug)]
struct Facts {
    /// Prefix of the names that the commissioning document promises.
    namespace: String,
    jobs: Vec<(String, u64)>,
    waiting_by_reason: Vec<(String, u64)>,
    gpus: Vec<([(String, String); 2], u64)>,
    allocated_ratio: f64,
    nodes: Vec<(String, u64)>,
    gpu_seconds: Vec<(String, f64)>,
    fair_shares: Vec<(String, f64)>,
    queue: u64,
    epoch: u64,
    seq: u64,
    rounds: Tally,
    seen: seen::Counts,
    questions: BTreeMap<Hook, Heard>,
    connections: (u64, u64),
    refusals: [(&'static str, u64); 2],
    evaluations: crate::evaluations::Counts,
    /// Bundles in force by their scope, and whether each is suspended.
    bundles: Vec<(String, bool)>,
}

/// All metrics in the text format of OpenMetrics.
pub fn text(door: &Door, counts: &[CountRow]) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(facts(door, counts)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn facts(door: &Door, counts: &[CountRow]) -> Facts {
    let epoch = match door.cluster.role() {
        Role::Leading { epoch } => epoch,
        _ => 0,
    };
    door.cluster.read(|state| Facts {
        namespace: door.metrics.namespace.to_string(),
        jobs: jobs(counts),
        waiting_by_reason: waiting_by_reason(door, state),
        gpus: gpus(state),
        allocated_ratio: allocated_ratio(state),
        nodes: counted(state.nodes.values().map(|node| node.state.word.word().to_string())),
        gpu_seconds: gpu_seconds(state, door.cluster.now()),
        fair_shares: fair_shares(state, door.cluster.now().max(state.clock))
            .into_iter()
            .map(|(tenant, share)| (tenant.to_string(), factor(share)))
            .collect(),
        queue: state.queue.len(),
        epoch,
        seq: state.seq,
        rounds: door.rounds.tally(),
        seen: door.seen.counts(),
        questions: door.questions.tally(),
        connections: (door.connections.open() as u64, door.connections.refused()),
        refusals: door.refusals.counts(),
        evaluations: door.evaluations.counts(),
        bundles: bundles(door, state),
    })
}

fn bundles(door: &Door, state: &State) -> Vec<(String, bool)> {
    let is_suspended = |version: &Version| {
        door.interpreter.as_ref().is_some_and(|interpreter| interpreter.suspended(version).is_some())
    };
    let in_force = state.policies.in_force().into_iter();
    in_force.map(|version| (version.scope.to_string(), is_suspended(version))).collect()
}

fn jobs(counts: &[CountRow]) -> Vec<(String, u64)> {
    let sum = |state: JobState| counts.iter().filter(|row| row.state == state).map(|row| row.jobs).sum();
    JobState::ALL.iter().map(|state| (state.word().to_string(), sum(*state))).collect()
}

fn counted<K: Ord>(words: impl Iterator<Item = K>) -> Vec<(K, u64)> {
    let mut counts = std::collections::BTreeMap::new();
    for word in words {
        *counts.entry(word).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// Jobs that are ready, by the most telling reason of their bucket; others by what keeps them.
fn waiting_by_reason(door: &Door, state: &State) -> Vec<(String, u64)> {
    let verdicts = door.cluster.verdicts();
    let mut counts = std::collections::BTreeMap::new();
    let mut ready = 0;
    for (bucket, places) in state.queue.buckets() {
        let verdict = verdicts.of_bucket(bucket);
        let word =
            verdict.and_then(|verdict| verdict.reasons.first()).map_or("Considering", |reason| reason.word());
        *counts.entry(word.to_string()).or_insert(0) += places.len() as u64;
        ready += places.len() as u64;
    }
    let held = state.jobs.values().filter(|job| matches!(job.phase, Phase::Held { .. })).count() as u64;
    counts.insert("Held".to_string(), held);
    counts.insert("NotReady".to_string(), state.queue.len().saturating_sub(ready));
    counts.into_iter().collect()
}

fn gpus(state: &State) -> Vec<([(String, String); 2], u64)> {
    let each = state.nodes.values().flat_map(|node| {
        (0..node.facts.gpus.len()).map(move |index| {
            let word = crate::http::gpu_state(state, node, index).to_string();
            [("model".to_string(), node.facts.gpus[index].model.clone()), ("state".to_string(), word)]
        })
    });
    counted(each)
}

fn allocated_ratio(state: &State) -> f64 {
    let all: usize = state.nodes.values().map(|node| node.holders.len()).sum();
    let held_milli: u64 = state.tenants.values().map(|tenant| tenant.held.gpu_milli).sum();
    if all == 0 { 0.0 } else { held_milli as f64 / 1_000.0 / all as f64 }
}

/// What each tenant used: attempts that ended, and what is held until now. So the counter grows steadily.
fn gpu_seconds(state: &State, now: Timestamp) -> Vec<(String, f64)> {
    let mut used: std::collections::BTreeMap<String, u64> =
        state.ledger.accounts().map(|(tenant, account)| (tenant.to_string(), account.used.gpu_ms)).collect();
    for job in state.jobs.values() {
        if let Some(attempt) = job.attempt() {
            let ms = now.since(attempt.placed_at) as u64;
            *used.entry(job.spec.tenant.to_string()).or_default() += attempt.gpu_milli() * ms / 1_000;
        }
    }
    used.into_iter().map(|(tenant, ms)| (tenant, ms as f64 / 1_000.0)).collect()
}
