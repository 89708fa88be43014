//! The tally of a history, counted from its events: the same code for the real and the simulated histories.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::facts::event::{Event, NextPhase, RequeueCause};
use muster_core::objects::job::{Job, JobSpec, PlacedTask};
use muster_core::{JobId, NodeId, State, TenantId, Timestamp};
use muster_protocol::whatif::{WhatIfFigures, WhatIfJob, WhatIfTenant, WhatIfTimes};
use muster_server::http::rfc3339;

use super::NOTICEABLE_SHIFT_MS;
use crate::job_log::jobs_of_submission;

/// Thousandths of a GPU × milliseconds in a GPU-hour.
const MILLI_MS_PER_GPU_HOUR: f64 = 3.6e9;
/// GPU-milliseconds in a GPU-hour.
const MS_PER_HOUR: f64 = 3.6e6;

/// The starts, ends and GPU time of the jobs of a history.
#[derive(Debug, Clone)]
pub struct HistoryTally {
    jobs: BTreeMap<JobId, JobTally>,
    /// The number of GPUs of each node.
    gpus_by_node: BTreeMap<NodeId, u64>,
    available_gpu_ms: u128,
    counted_to: Timestamp,
}

/// The start, end and GPU time of one job.
#[derive(Debug, Clone, PartialEq)]
struct JobTally {
    name: String,
    tenant: TenantId,
    submitted_at: Timestamp,
    /// The job ran before the start of the history.
    started_before: bool,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    /// The thousandths of GPUs that the job holds, and since when.
    held_since: Option<(u64, Timestamp)>,
    gpu_milli_ms: u128,
    preemptions: u64,
    lost_gpu_ms: u64,
}

impl HistoryTally {
    /// A tally from `since` on.
    pub fn new(state: &State, since: Timestamp) -> HistoryTally {
        let gpus = state.nodes.values().map(|node| (node.id.clone(), node.facts.gpus.len() as u64));
        let jobs = state.jobs.values().map(|job| (job.id, JobTally::from_job(job, since)));
        HistoryTally { jobs: jobs.collect(), gpus_by_node: gpus.collect(), available_gpu_ms: 0, counted_to: since }
    }

    pub fn add_event(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { job, spec, array, at, .. } => {
                for member in jobs_of_submission(*job, array.as_ref().map(|array| &array.indexes[..])) {
                    self.jobs.insert(member, JobTally::new(spec, *at));
                }
            }
            Event::JobPlaced { job, tasks, at, .. } => {
                let gpu_milli = tasks.iter().map(PlacedTask::gpu_milli).sum();
                self.update_job(*job, |job_tally| {
                    job_tally.started_at.get_or_insert(*at);
                    job_tally.held_since = Some((gpu_milli, *at));
                });
            }
            Event::AttemptEnded { job, next, receipt, at, .. } => {
                let lost_gpu_ms = receipt.as_ref().map_or(0, |receipt| receipt.lost_gpu_ms);
                self.update_job(*job, |job_tally| {
                    job_tally.release_gpus(*at);
                    job_tally.lost_gpu_ms += lost_gpu_ms;
                    match next {
                        NextPhase::Ended { .. } => job_tally.ended_at = Some(*at),
                        NextPhase::Queued { cause: RequeueCause::Preempted, .. } => job_tally.preemptions += 1,
                        _ => {}
                    }
                });
            }
            Event::JobEnded { job, at, .. } => self.update_job(*job, |job_tally| job_tally.ended_at = Some(*at)),
            Event::NodeRegistered { node, facts, at } => {
                self.count_gpus(*at);
                self.gpus_by_node.insert(node.clone(), facts.gpus.len() as u64);
            }
            Event::NodeRemoved { node, at } => {
                self.count_gpus(*at);
                self.gpus_by_node.remove(node);
            }
            _ => {}
        }
    }

    /// Counts the GPUs that are still held at the end.
    pub fn close(&mut self, until: Timestamp) {
        self.count_gpus(until);
        self.jobs.values_mut().for_each(|job_tally| job_tally.release_gpus(until));
    }

    /// The number of jobs that started in this history and not in `other`; their runtimes here are guessed.
    pub fn count_started_only_here(&self, other: &HistoryTally) -> u64 {
        let started = |tally: &HistoryTally, job| {
            tally.jobs.get(job).is_some_and(|job_tally| job_tally.started_before || job_tally.started_at.is_some())
        };
        self.jobs.keys().filter(|job| started(self, job) && !started(other, job)).count() as u64
    }

    fn update_job(&mut self, job: JobId, change: impl FnOnce(&mut JobTally)) {
        if let Some(job_tally) = self.jobs.get_mut(&job) {
            change(job_tally);
        }
    }

    fn count_gpus(&mut self, at: Timestamp) {
        let ms = at.since(self.counted_to).max(0).unsigned_abs();
        self.available_gpu_ms += u128::from(self.gpus_by_node.values().sum::<u64>()) * u128::from(ms);
        self.counted_to = self.counted_to.max(at);
    }
}

impl JobTally {
    fn new(spec: &JobSpec, at: Timestamp) -> JobTally {
        JobTally {
            name: spec.name.clone(),
            tenant: spec.tenant.clone(),
            submitted_at: at,
            started_before: false,
            started_at: None,
            ended_at: None,
            held_since: None,
            gpu_milli_ms: 0,
            preemptions: 0,
            lost_gpu_ms: 0,
        }
    }

    /// The tally of a live job; the GPUs it holds count from `since`.
    fn from_job(job: &Job, since: Timestamp) -> JobTally {
        JobTally {
            started_before: job.attempts > 0,
            held_since: job.attempt().map(|attempt| (attempt.gpu_milli(), since)),
            ..JobTally::new(&job.spec, job.submitted_at)
        }
    }

    fn release_gpus(&mut self, at: Timestamp) {
        if let Some((gpu_milli, since)) = self.held_since.take() {
            self.gpu_milli_ms += u128::from(gpu_milli) * u128::from(at.since(since).max(0).unsigned_abs());
        }
    }

    fn times(&self) -> WhatIfTimes {
        WhatIfTimes {
            started_at: self.started_at.map(|at| rfc3339(at.0)),
            ended_at: self.ended_at.map(|at| rfc3339(at.0)),
            preemptions: self.preemptions,
        }
    }
}

/// The real history, its simulation, and the simulation under the change.
pub struct Comparison<'a> {
    pub really: &'a HistoryTally,
    /// The real history, simulated from the fork on.
    pub replayed: &'a HistoryTally,
    /// The history under the change.
    pub changed: &'a HistoryTally,
    pub until: Timestamp,
}

impl Comparison<'_> {
    /// The figures of one history, for all jobs or for those of a tenant.
    pub fn figures(&self, of: &HistoryTally, tenant: Option<&TenantId>) -> WhatIfFigures {
        let is_of_tenant = |job_tally: &&JobTally| tenant.is_none_or(|tenant| job_tally.tenant == *tenant);
        let jobs: Vec<&JobTally> = of.jobs.values().filter(is_of_tenant).collect();
        let seconds = |from: Timestamp, to: Option<Timestamp>| to.unwrap_or(self.until).since(from).max(0) as f64 / 1e3;
        let new = jobs.iter().filter(|job_tally| !job_tally.started_before);
        // A job that ended without a start waited until its end.
        let wait = |job_tally: &&JobTally| seconds(job_tally.submitted_at, job_tally.started_at.or(job_tally.ended_at));
        let mut waits: Vec<f64> = new.map(wait).collect();
        waits.sort_by(f64::total_cmp);
        let times: Vec<f64> =
            jobs.iter().map(|job_tally| seconds(job_tally.submitted_at, job_tally.ended_at)).collect();
        let held: u128 = jobs.iter().map(|job_tally| job_tally.gpu_milli_ms).sum();
        let all_gpu_ms = of.available_gpu_ms as f64;
        let lost_gpu_ms: u64 = jobs.iter().map(|job_tally| job_tally.lost_gpu_ms).sum();
        WhatIfFigures {
            jobs: jobs.len() as u64,
            started: jobs.iter().filter(|job_tally| !job_tally.started_before && job_tally.started_at.is_some()).count()
                as u64,
            ended: jobs.iter().filter(|job_tally| job_tally.ended_at.is_some()).count() as u64,
            wait_mean_s: mean(&waits),
            wait_p95_s: percentile_95(&waits),
            wait_max_s: waits.last().copied().unwrap_or(0.0),
            time_mean_s: mean(&times),
            gpu_hours: round_to_3_decimals(held as f64 / MILLI_MS_PER_GPU_HOUR),
            utilisation: tenant.is_none().then(|| round_to_3_decimals(held as f64 / 1e3 / all_gpu_ms.max(1.0))),
            preemptions: jobs.iter().map(|job_tally| job_tally.preemptions).sum(),
            lost_gpu_hours: round_to_3_decimals(lost_gpu_ms as f64 / MS_PER_HOUR),
        }
    }

    /// The figures of every tenant with jobs.
    pub fn tenants(&self, jobs: &[WhatIfJob]) -> Vec<WhatIfTenant> {
        let tallies = [self.really, self.replayed, self.changed];
        let all_jobs = tallies.iter().flat_map(|tally| tally.jobs.values());
        let tenants: BTreeSet<&TenantId> = all_jobs.map(|job_tally| &job_tally.tenant).collect();
        let tenant_comparison = |tenant: &TenantId| {
            let tenant_jobs = || jobs.iter().filter(|job| job.tenant_id == tenant.as_str());
            WhatIfTenant {
                tenant_id: tenant.to_string(),
                really: self.figures(self.really, Some(tenant)),
                replayed: self.figures(self.replayed, Some(tenant)),
                changed: self.figures(self.changed, Some(tenant)),
                sooner: tenant_jobs().filter(|job| job.gained_s > 0.0).count() as u64,
                later: tenant_jobs().filter(|job| job.gained_s < 0.0).count() as u64,
            }
        };
        tenants.into_iter().map(tenant_comparison).collect()
    }

    /// Every job that gains or loses.
    pub fn jobs(&self) -> Vec<WhatIfJob> {
        let jobs_compared = self.changed.jobs.iter().filter_map(|(job, changed)| {
            let (really, replayed) = (self.really.jobs.get(job)?, self.replayed.jobs.get(job)?);
            let gained_ms = self.gained_ms(replayed, changed);
            (gained_ms.abs() > NOTICEABLE_SHIFT_MS).then(|| WhatIfJob {
                job_id: job.to_string(),
                name: changed.name.clone(),
                tenant_id: changed.tenant.to_string(),
                gained_s: gained_ms as f64 / 1e3,
                really: really.times(),
                replayed: replayed.times(),
                changed: changed.times(),
            })
        });
        jobs_compared.collect()
    }

    /// How much sooner a job ends, or starts if its end does not differ.
    fn gained_ms(&self, before: &JobTally, after: &JobTally) -> i64 {
        let sooner = |before: Option<Timestamp>, after: Option<Timestamp>| {
            before.unwrap_or(self.until).0 - after.unwrap_or(self.until).0
        };
        match sooner(before.ended_at, after.ended_at) {
            // A job that was cancelled before its start waited until its end and no longer.
            0 => sooner(before.started_at.or(before.ended_at), after.started_at.or(after.ended_at)),
            gained_ms => gained_ms,
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    // The sum of no floats is -0.
    round_to_3_decimals(values.iter().sum::<f64>().abs() / values.len().max(1) as f64)
}

fn percentile_95(sorted: &[f64]) -> f64 {
    let index = (sorted.len() * 19).div_ceil(20).max(1) - 1;
    sorted.get(index).copied().unwrap_or(0.0)
}

fn round_to_3_decimals(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job submitted at 0, with a start and an end in seconds.
    fn tally(started: Option<i64>, ended: Option<i64>) -> HistoryTally {
        let at = |seconds: i64| Timestamp(seconds * 1_000);
        let job_tally = JobTally {
            name: "train".to_string(),
            tenant: "red".parse().unwrap(),
            submitted_at: at(0),
            started_before: false,
            started_at: started.map(at),
            ended_at: ended.map(at),
            held_since: None,
            gpu_milli_ms: 0,
            preemptions: 0,
            lost_gpu_ms: 0,
        };
        let jobs = BTreeMap::from([(JobId::single(1), job_tally)]);
        HistoryTally { jobs, gpus_by_node: BTreeMap::new(), available_gpu_ms: 0, counted_to: at(0) }
    }

    /// The seconds that the job gains, within 30 seconds.
    fn gained_s(before: &HistoryTally, after: &HistoryTally) -> f64 {
        let comparison = Comparison { really: before, replayed: before, changed: after, until: Timestamp(30_000) };
        comparison.jobs().first().map_or(0.0, |job| job.gained_s)
    }

    #[test]
    fn a_job_gains_nothing_after_it_was_cancelled() {
        let never_started = tally(None, Some(3));
        assert_eq!(gained_s(&never_started, &tally(Some(0), Some(3))), 3.0, "it waited for 3 s, not for 30");
        assert_eq!(gained_s(&tally(Some(0), Some(3)), &never_started), -3.0);
        assert_eq!(
            gained_s(&tally(None, None), &tally(Some(10), None)),
            20.0,
            "a job that still waits has waited until the end"
        );
        assert_eq!(gained_s(&tally(Some(5), Some(25)), &tally(Some(1), Some(21))), 4.0);
    }
}
