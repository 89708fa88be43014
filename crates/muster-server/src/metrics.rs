//! Metrics for Prometheus: gauges computed from the state at each scrape, and counters since the start for what the state
//! does not keep.
//!
//! Names follow the conventions of Prometheus. No label names a job, user or node, so the number of series stays small.

mod event_counters;
mod exposition;

use std::collections::BTreeMap;
use std::fmt;

use muster_core::objects::job::Phase;
use muster_core::objects::policy::{BundleVersion, Hook};
use muster_core::planner::fair_shares;
use muster_core::{State, Timestamp};
use muster_store::rows::{CountRow, JobState};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::cluster::{Cluster, ServerRole};
use crate::conversions::fair_share_factor;
use crate::evaluations::{EvaluationCounts, EvaluationLimiter};
use crate::gpu_state::gpu_state;
use crate::policies::{Interpreter, PolicyCallMetrics, PolicyCallTotals};
use crate::round_stats::{RoundStats, RoundTotals};
use crate::tls::Connections;

pub use event_counters::EventCounters;

/// The parts of the server from which metrics are collected.
pub struct MetricSources<'a> {
    pub cluster: &'a Cluster,
    /// Prefix of the compatibility metrics.
    pub namespace: &'a str,
    /// Jobs by state, from the tables.
    pub job_counts: &'a [CountRow],
    pub rounds: &'a RoundStats,
    pub event_counters: &'a EventCounters,
    pub policy_calls: &'a PolicyCallMetrics,
    pub interpreter: Option<&'a dyn Interpreter>,
    pub connections: &'a Connections,
    pub evaluations: &'a EvaluationLimiter,
    /// Requests denied since the start, by reason.
    pub denied_requests: [(&'static str, u64); 2],
}

/// The values of all metrics at one moment.
#[derive(Debug)]
struct MetricValues {
    /// Prefix of the compatibility metrics.
    namespace: String,
    jobs: Vec<(String, u64)>,
    waiting_by_reason: Vec<(String, u64)>,
    gpus: Vec<([(String, String); 2], u64)>,
    allocated_ratio: f64,
    nodes: Vec<(String, u64)>,
    gpu_seconds: Vec<(String, f64)>,
    fair_shares: Vec<(String, f64)>,
    queue_length: u64,
    epoch: u64,
    seq: u64,
    /// How far the wall clock is ahead of the time of the cluster.
    wall_clock_ahead_ms: i64,
    rounds: RoundTotals,
    event_counts: event_counters::EventCounts,
    policy_calls: BTreeMap<Hook, PolicyCallTotals>,
    connections_open_and_refused: (u64, u64),
    denied_requests: [(&'static str, u64); 2],
    evaluations: EvaluationCounts,
    /// Active bundles by scope, and whether each is suspended.
    bundles: Vec<(String, bool)>,
}

impl MetricSources<'_> {
    /// All metrics in the OpenMetrics text format.
    pub fn openmetrics_text(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.collect()));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }

    fn collect(&self) -> MetricValues {
        let epoch = match self.cluster.role() {
            ServerRole::Leading { term } => term.epoch,
            _ => 0,
        };
        let (now, wall_clock_ahead_ms) = (self.cluster.now(), self.cluster.wall_clock_ahead_ms());
        self.cluster.read(|state| MetricValues {
            namespace: self.namespace.to_string(),
            jobs: jobs(self.job_counts),
            waiting_by_reason: self.waiting_by_reason(state),
            gpus: gpus(state),
            allocated_ratio: allocated_ratio(state),
            nodes: count_by_key(state.nodes.values().map(|node| node.status().as_str().to_string())),
            gpu_seconds: gpu_seconds(state, now),
            fair_shares: fair_shares(state, now.max(state.clock))
                .into_iter()
                .map(|(tenant, share)| (tenant.to_string(), fair_share_factor(share)))
                .collect(),
            queue_length: state.queue.len(),
            epoch,
            seq: state.seq,
            wall_clock_ahead_ms,
            rounds: self.rounds.totals(),
            event_counts: self.event_counters.counts(),
            policy_calls: self.policy_calls.totals(),
            connections_open_and_refused: (self.connections.open_count() as u64, self.connections.refused_count()),
            denied_requests: self.denied_requests,
            evaluations: self.evaluations.counts(),
            bundles: self.bundles(state),
        })
    }

    fn bundles(&self, state: &State) -> Vec<(String, bool)> {
        let is_suspended = |version: &BundleVersion| {
            self.interpreter.is_some_and(|interpreter| interpreter.suspension_reason(version).is_some())
        };
        let active = state.policies.active_versions().into_iter();
        active.map(|version| (version.scope.to_string(), is_suspended(version))).collect()
    }

    /// Ready jobs by the first reason of their bucket, held jobs, and other jobs that are not ready.
    fn waiting_by_reason(&self, state: &State) -> Vec<(String, u64)> {
        let verdicts = self.cluster.verdicts();
        let mut counts = BTreeMap::new();
        let mut ready = 0;
        for (bucket, jobs) in state.queue.buckets() {
            let first_reason = verdicts.of_bucket(bucket).and_then(|verdict| verdict.reasons.first());
            let code = first_reason.map_or("Considering", |reason| reason.code());
            *counts.entry(code.to_string()).or_insert(0) += jobs.len() as u64;
            ready += jobs.len() as u64;
        }
        let held = state.jobs.values().filter(|job| matches!(job.phase, Phase::Held { .. })).count() as u64;
        counts.insert("Held".to_string(), held);
        counts.insert("NotReady".to_string(), state.queue.len().saturating_sub(ready));
        counts.into_iter().collect()
    }
}

fn jobs(counts: &[CountRow]) -> Vec<(String, u64)> {
    let sum = |state: JobState| counts.iter().filter(|row| row.state == state).map(|row| row.jobs).sum();
    JobState::ALL.iter().map(|state| (state.as_str().to_string(), sum(*state))).collect()
}

fn count_by_key<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<(K, u64)> {
    let mut counts = BTreeMap::new();
    for key in keys {
        *counts.entry(key).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

fn gpus(state: &State) -> Vec<([(String, String); 2], u64)> {
    let each = state.nodes.values().flat_map(|node| {
        (0..node.facts.gpus.len()).map(move |index| {
            let name = gpu_state(state, node, index).to_string();
            [("model".to_string(), node.facts.gpus[index].model.clone()), ("state".to_string(), name)]
        })
    });
    count_by_key(each)
}

fn allocated_ratio(state: &State) -> f64 {
    let all: usize = state.nodes.values().map(|node| node.holders.len()).sum();
    let held_milli: u64 = state.tenants.values().map(|tenant| tenant.held.gpu_milli).sum();
    if all == 0 { 0.0 } else { held_milli as f64 / 1_000.0 / all as f64 }
}

/// GPU-seconds of each tenant: ended attempts, and running attempts until now, so that the counter grows steadily.
fn gpu_seconds(state: &State, now: Timestamp) -> Vec<(String, f64)> {
    let mut used: BTreeMap<String, u64> =
        state.ledger.accounts().map(|(tenant, account)| (tenant.to_string(), account.used.gpu_ms)).collect();
    for job in state.jobs.values() {
        if let Some(attempt) = job.attempt() {
            let ms = now.since(attempt.placed_at) as u64;
            *used.entry(job.spec.tenant.to_string()).or_default() += attempt.gpu_milli() * ms / 1_000;
        }
    }
    used.into_iter().map(|(tenant, ms)| (tenant, ms as f64 / 1_000.0)).collect()
}
