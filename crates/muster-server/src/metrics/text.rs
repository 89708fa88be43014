//! The metrics one by one: name, sentence, value.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Facts;
use super::seen::WAIT_BOUNDS_S;
use crate::policies::Heard;
use crate::rounds::BUCKETS_US;

impl Collector for Facts {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut out = Out(encoder);
        self.ours(&mut out)?;
        self.promised(&mut out)
    }
}

impl Facts {
    fn ours(&self, out: &mut Out) -> Result<(), fmt::Error> {
        let seen = &self.seen;
        out.gauges("muster_jobs", "Jobs by state", &labelled("state", &self.jobs))?;
        out.gauges(
            "muster_pending_jobs",
            "Waiting jobs by their first reason",
            &labelled("reason", &self.waiting_by_reason),
        )?;
        let gpus: Vec<(Vec<(String, String)>, f64)> =
            self.gpus.iter().map(|(labels, count)| (labels.to_vec(), *count as f64)).collect();
        out.gauges("muster_gpus", "GPUs by model and state", &gpus)?;
        out.gauge("muster_gpu_allocated_ratio", "Part of all GPUs that is held", self.allocated_ratio)?;
        out.gauges("muster_node_state", "Nodes by state", &labelled("state", &self.nodes))?;
        out.gauge(
            "muster_leader_epoch",
            "The turn of this leader; 0 when it does not lead",
            self.epoch as f64,
        )?;
        out.gauge("muster_journal_seq", "Number of the newest journal entry", self.seq as f64)?;
        let used: Vec<(Vec<(String, String)>, f64)> =
            self.gpu_seconds.iter().map(|(tenant, used)| (label("tenant", tenant), *used)).collect();
        out.counters("muster_tenant_gpu_seconds", "GPU-seconds held by each tenant", &used)?;
        let shares: Vec<(Vec<(String, String)>, f64)> =
            self.fair_shares.iter().map(|(tenant, factor)| (label("tenant", tenant), *factor)).collect();
        out.gauges("muster_fairshare_ratio", "Fair-share factor of each tenant, 1 is best", &shares)?;
        let decisions = [("placed".to_string(), seen.placed), ("preempted".to_string(), seen.preempted)];
        out.counters(
            "muster_decisions",
            "Decisions of the planner that came true, since the start",
            &labelled("result", &decisions),
        )?;
        let ended: Vec<(String, u64)> = ["completed", "failed", "cancelled"]
            .iter()
            .zip(seen.ended)
            .map(|(word, count)| (word.to_string(), count))
            .collect();
        out.counters("muster_jobs_ended", "Jobs that ended, since the start", &labelled("outcome", &ended))?;
        out.counter(
            "muster_health_events",
            "Changes of a GPU's health, since the start",
            seen.health_changes as f64,
        )?;
        out.counter(
            "muster_metrics_missed_batches",
            "Batches of events that were not counted",
            seen.missed as f64,
        )?;
        self.policies(out)?;
        let (open, refused) = self.connections;
        out.gauge("muster_connections_open", "Connections that are open", open as f64)?;
        let help = "Connections refused because a bound was reached, since the start";
        out.counter("muster_connections_refused", help, refused as f64)?;
        let refusals = self.refusals.map(|(reason, count)| (reason.to_string(), count));
        let help = "Requests refused before they reached the cluster, since the start";
        out.counters("muster_refused_requests", help, &labelled("reason", &refusals))?;
        self.evaluations(out)?;
        self.histograms(out)?;
        let version = vec![("version".to_string(), env!("CARGO_PKG_VERSION").to_string())];
        out.gauges("muster_build_info", "What is running", &[(version, 1.0)])
    }

    fn policies(&self, out: &mut Out) -> Result<(), fmt::Error> {
        let each = |value: fn(&Heard) -> f64| -> Vec<(Vec<(String, String)>, f64)> {
            self.questions.iter().map(|(hook, heard)| (label("hook", hook.word()), value(heard))).collect()
        };
        let asked = each(|heard| heard.asked as f64);
        out.counters("muster_policy_calls", "Questions that policies were asked, since the start", &asked)?;
        let failed = each(|heard| heard.failed as f64);
        out.counters(
            "muster_policy_failures",
            "Questions at which a policy failed, since the start",
            &failed,
        )?;
        let took = each(|heard| heard.took.as_secs_f64());
        out.counters("muster_policy_seconds", "Time that policies took to answer, since the start", &took)?;
        let suspended = |(scope, is): &(String, bool)| (label("scope", scope), f64::from(u8::from(*is)));
        let suspended: Vec<_> = self.bundles.iter().map(suspended).collect();
        out.gauges("muster_policy_suspended", "Whether the bundle in force is suspended", &suspended)
    }

    /// Planning for readers.
    fn evaluations(&self, out: &mut Out) -> Result<(), fmt::Error> {
        let counts = &self.evaluations;
        let help = "Evaluations of `why` and `plan`, since the start";
        out.counter("muster_reader_evaluations", help, counts.evaluations as f64)?;
        let help = "Evaluations of `why` and `plan` that run now";
        out.gauge("muster_reader_evaluations_running", help, counts.running as f64)?;
        let help = "Most evaluations of `why` and `plan` that ran at once, since the start";
        out.gauge("muster_reader_evaluations_running_max", help, counts.running_max as f64)?;
        let help = "Requests for `why` and `plan` refused because a bound was reached, since the start";
        out.counter("muster_reader_evaluations_refused", help, counts.refused as f64)?;
        let help = "Copies of the state made for `why` and `plan`, since the start";
        out.counter("muster_reader_state_copies", help, counts.copies as f64)
    }

    fn histograms(&self, out: &mut Out) -> Result<(), fmt::Error> {
        let bounds_s = BUCKETS_US.iter().map(|us| *us as f64 / 1e6);
        let rounds = (self.rounds.total.as_secs_f64(), self.rounds.rounds);
        let buckets = buckets(bounds_s, &self.rounds.within, self.rounds.rounds);
        out.histogram(
            "muster_schedule_round_seconds",
            "Time that a round of planning takes",
            rounds,
            &buckets,
        )?;
        let seen = &self.seen;
        let waits = (seen.waited_ms as f64 / 1e3, seen.waits);
        let bounds_s = WAIT_BOUNDS_S.iter().map(|s| *s as f64);
        let buckets = self::buckets(bounds_s, &seen.waits_within, seen.waits);
        out.histogram(
            "muster_queue_wait_seconds",
            "Wait of jobs until their first placement",
            waits,
            &buckets,
        )
    }

    /// The names that the commissioning document promises.
    fn promised(&self, out: &mut Out) -> Result<(), fmt::Error> {
        let name = |rest: &str| format!("{}_{rest}", self.namespace);
        let total: u64 = self.jobs.iter().map(|(_, count)| count).sum();
        out.counter(&name("jobs"), "Jobs accepted", total as f64)?;
        out.gauge(&name("queue_size"), "Jobs that wait", self.queue as f64)?;
        out.gauge(&name("gpu_utilization"), "Part of all GPUs that is held", self.allocated_ratio)?;
        let last_s = self.rounds.last.as_secs_f64();
        out.gauge(&name("scheduling_latency"), "Seconds that the newest round of planning took", last_s)?;
        out.counter(
            &name("preemptions"),
            "Attempts told to make room, since the start",
            self.seen.preempted as f64,
        )
    }
}

fn label(key: &str, value: &str) -> Vec<(String, String)> {
    vec![(key.to_string(), value.to_string())]
}

fn labelled(key: &str, counts: &[(String, u64)]) -> Vec<(Vec<(String, String)>, f64)> {
    counts.iter().map(|(word, count)| (label(key, word), *count as f64)).collect()
}

/// Buckets as the format wants them: those beyond the last bound at the end.
fn buckets(bounds: impl Iterator<Item = f64>, within: &[u64], all: u64) -> Vec<(f64, u64)> {
    let beyond = all.saturating_sub(within.iter().sum());
    bounds.zip(within.iter().copied()).chain([(f64::MAX, beyond)]).collect()
}

/// Writes one metric at a time.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn counter(&mut self, name: &str, help: &str, value: f64) -> Result<(), fmt::Error> {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: &[(L, f64)],
    ) -> Result<(), fmt::Error> {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        rows.iter().try_for_each(|(labels, value)| encoder.encode_family(labels)?.encode_gauge(value))
    }

    fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: &[(L, f64)],
    ) -> Result<(), fmt::Error> {
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
