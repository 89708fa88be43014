//! The exposition of the metrics: name, help text and value of each.

use std::fmt;

use muster_core::facts::plan::Rejection;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::MetricValues;
use super::event_counters::WAIT_BOUNDS_S;
use crate::policies::PolicyCallTotals;
use crate::round_stats::ROUND_BUCKETS_US;

impl Collector for MetricValues {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut out = MetricWriter(encoder);
        self.encode_muster_metrics(&mut out)?;
        self.encode_compat_metrics(&mut out)
    }
}

impl MetricValues {
    fn encode_muster_metrics(&self, out: &mut MetricWriter) -> Result<(), fmt::Error> {
        let events = &self.event_counts;
        out.gauges("muster_jobs", "Jobs by state", &labelled("state", &self.jobs))?;
        out.gauges(
            "muster_pending_jobs",
            "Waiting jobs by their first reason",
            &labelled("reason", &self.waiting_by_reason),
        )?;
        let gpus: Vec<(Vec<(String, String)>, f64)> =
            self.gpus.iter().map(|(labels, count)| (labels.to_vec(), *count as f64)).collect();
        out.gauges("muster_gpus", "GPUs by model and state", &gpus)?;
        out.gauge("muster_gpu_allocated_ratio", "Fraction of all GPUs that is allocated", self.allocated_ratio)?;
        out.gauges("muster_node_state", "Nodes by state", &labelled("state", &self.nodes))?;
        out.gauge("muster_leader_epoch", "Leader epoch of this server; 0 if it is not the leader", self.epoch as f64)?;
        out.gauge("muster_journal_seq", "Number of the newest journal entry", self.seq as f64)?;
        let help = "How far the wall clock of this server is ahead of the time of the cluster";
        out.gauge("muster_wall_clock_ahead_seconds", help, self.wall_clock_ahead_ms as f64 / 1e3)?;
        let used: Vec<(Vec<(String, String)>, f64)> =
            self.gpu_seconds.iter().map(|(tenant, used)| (label("tenant", tenant), *used)).collect();
        out.counters("muster_tenant_gpu_seconds", "GPU-seconds held by each tenant", &used)?;
        let shares: Vec<(Vec<(String, String)>, f64)> =
            self.fair_shares.iter().map(|(tenant, factor)| (label("tenant", tenant), *factor)).collect();
        out.gauges("muster_fairshare_ratio", "Fair-share factor of each tenant, 1 is best", &shares)?;
        let decisions = [("placed".to_string(), events.placed), ("preempted".to_string(), events.preempted)];
        out.counters(
            "muster_decisions",
            "Planner decisions adopted, since the start",
            &labelled("result", &decisions),
        )?;
        let rejections = Rejection::ALL.map(|reason| {
            let count = self.rounds.rejections.get(&reason).copied().unwrap_or_default();
            (reason.code().to_string(), count)
        });
        let help = "Parts of plans that adoption rejected, since the start";
        out.counters("muster_plan_rejections", help, &labelled("reason", &rejections))?;
        let ended: Vec<(String, u64)> = ["completed", "failed", "cancelled"]
            .iter()
            .zip(events.ended)
            .map(|(outcome, count)| (outcome.to_string(), count))
            .collect();
        out.counters("muster_jobs_ended", "Jobs that ended, since the start", &labelled("outcome", &ended))?;
        out.counter(
            "muster_health_events",
            "Changes of a GPU's health, since the start",
            events.health_changes as f64,
        )?;
        out.counter(
            "muster_metrics_missed_batches",
            "Batches of events that were not counted",
            events.missed_batches as f64,
        )?;
        self.policies(out)?;
        let (open, refused) = self.connections_open_and_refused;
        out.gauge("muster_connections_open", "Open connections", open as f64)?;
        let help = "Connections refused because a limit was reached, since the start";
        out.counter("muster_connections_refused", help, refused as f64)?;
        let denied = self.denied_requests.map(|(reason, count)| (reason.to_string(), count));
        let help = "Requests denied for lack of a valid token or role, since the start";
        out.counters("muster_refused_requests", help, &labelled("reason", &denied))?;
        self.evaluations(out)?;
        self.histograms(out)?;
        let version = vec![("version".to_string(), env!("CARGO_PKG_VERSION").to_string())];
        out.gauges("muster_build_info", "Version of this server", &[(version, 1.0)])
    }

    fn policies(&self, out: &mut MetricWriter) -> Result<(), fmt::Error> {
        let each = |value: fn(&PolicyCallTotals) -> f64| -> Vec<(Vec<(String, String)>, f64)> {
            self.policy_calls.iter().map(|(hook, totals)| (label("hook", hook.as_str()), value(totals))).collect()
        };
        let calls = each(|totals| totals.calls as f64);
        out.counters("muster_policy_calls", "Policy hook calls, since the start", &calls)?;
        let failures = each(|totals| totals.failures as f64);
        out.counters("muster_policy_failures", "Policy hook calls that failed, since the start", &failures)?;
        let seconds = each(|totals| totals.duration.as_secs_f64());
        out.counters("muster_policy_seconds", "Duration of policy hook calls, since the start", &seconds)?;
        let suspended = |(scope, is): &(String, bool)| (label("scope", scope), f64::from(u8::from(*is)));
        let suspended: Vec<_> = self.bundles.iter().map(suspended).collect();
        out.gauges("muster_policy_suspended", "Whether the active bundle is suspended", &suspended)
    }

    fn evaluations(&self, out: &mut MetricWriter) -> Result<(), fmt::Error> {
        let counts = &self.evaluations;
        let help = "Evaluations of `why` and `plan`, since the start";
        out.counter("muster_reader_evaluations", help, counts.evaluations as f64)?;
        let help = "Evaluations of `why` and `plan` that run now";
        out.gauge("muster_reader_evaluations_running", help, counts.running as f64)?;
        let help = "Most evaluations of `why` and `plan` that ran at once, since the start";
        out.gauge("muster_reader_evaluations_running_max", help, counts.running_max as f64)?;
        let help = "Requests for `why` and `plan` refused because a limit was reached, since the start";
        out.counter("muster_reader_evaluations_refused", help, counts.refused as f64)?;
        let help = "Copies of the state made for `why` and `plan`, since the start";
        out.counter("muster_reader_state_copies", help, counts.copies as f64)
    }

    fn histograms(&self, out: &mut MetricWriter) -> Result<(), fmt::Error> {
        let bounds_s = ROUND_BUCKETS_US.iter().map(|us| *us as f64 / 1e6);
        let rounds = (self.rounds.total_time.as_secs_f64(), self.rounds.rounds);
        let buckets = buckets(bounds_s, &self.rounds.bucket_counts, self.rounds.rounds);
        out.histogram("muster_schedule_round_seconds", "Duration of planning rounds", rounds, &buckets)?;
        let events = &self.event_counts;
        let waits = (events.waited_ms as f64 / 1e3, events.waits);
        let bounds_s = WAIT_BOUNDS_S.iter().map(|s| *s as f64);
        let buckets = self::buckets(bounds_s, &events.waits_within, events.waits);
        out.histogram("muster_queue_wait_seconds", "Wait of jobs until their first placement", waits, &buckets)
    }

    /// The compatibility metrics, under the configured prefix.
    fn encode_compat_metrics(&self, out: &mut MetricWriter) -> Result<(), fmt::Error> {
        let name = |rest: &str| format!("{}_{rest}", self.namespace);
        let total: u64 = self.jobs.iter().map(|(_, count)| count).sum();
        out.counter(&name("jobs"), "Jobs accepted", total as f64)?;
        out.gauge(&name("queue_size"), "Jobs in the queue", self.queue_length as f64)?;
        out.gauge(&name("gpu_utilization"), "Fraction of all GPUs that is allocated", self.allocated_ratio)?;
        let last_s = self.rounds.last_round.as_secs_f64();
        out.gauge(&name("scheduling_latency"), "Duration of the last planning round in seconds", last_s)?;
        out.counter(&name("preemptions"), "Attempts preempted, since the start", self.event_counts.preempted as f64)
    }
}

fn label(key: &str, value: &str) -> Vec<(String, String)> {
    vec![(key.to_string(), value.to_string())]
}

fn labelled(key: &str, counts: &[(String, u64)]) -> Vec<(Vec<(String, String)>, f64)> {
    counts.iter().map(|(value, count)| (label(key, value), *count as f64)).collect()
}

/// The buckets of a histogram, with the values beyond the last bound in a bucket of their own.
fn buckets(bounds: impl Iterator<Item = f64>, within: &[u64], all: u64) -> Vec<(f64, u64)> {
    let beyond = all.saturating_sub(within.iter().sum());
    bounds.zip(within.iter().copied()).chain([(f64::MAX, beyond)]).collect()
}

struct MetricWriter<'a>(DescriptorEncoder<'a>);

impl MetricWriter<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn counter(&mut self, name: &str, help: &str, value: f64) -> Result<(), fmt::Error> {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    fn gauges<L: EncodeLabelSet>(&mut self, name: &str, help: &str, rows: &[(L, f64)]) -> Result<(), fmt::Error> {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        rows.iter().try_for_each(|(labels, value)| encoder.encode_family(labels)?.encode_gauge(value))
    }

    fn counters<L: EncodeLabelSet>(&mut self, name: &str, help: &str, rows: &[(L, f64)]) -> Result<(), fmt::Error> {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        rows.iter().try_for_each(|(labels, value)| {
            encoder.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(value, None)
        })
    }

    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        (sum, count): (f64, u64),
        buckets: &[(f64, u64)],
    ) -> Result<(), fmt::Error> {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        encoder.encode_histogram::<NoLabelSet>(sum, count, buckets, None)
    }
}
