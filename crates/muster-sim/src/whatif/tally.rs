//! What a stretch of history came to, counted from its events: the same for what happened and for what would have.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::event::{Back, Event, Next};
use muster_core::job::{Job, JobSpec, PlacedTask};
use muster_core::{JobId, NodeId, State, TenantId, Timestamp};
use muster_protocol::whatif::{WhatIfFigures, WhatIfJob, WhatIfTenant, WhatIfTimes};
use muster_server::http::stamp;

use super::NOTICEABLE_MS;
use super::works::members;

/// Thousandths of a GPU × milliseconds in a GPU-hour.
const MILLI_MS_PER_GPU_HOUR: f64 = 3.6e9;
/// GPU-milliseconds in a GPU-hour.
const MS_PER_HOUR: f64 = 3.6e6;

/// What became of the jobs of a stretch of history.
#[derive(Debug, Clone)]
pub struct Tally {
    jobs: BTreeMap<JobId, Seen>,
    /// GPUs of each node, and GPU-milliseconds there were until the last change.
    gpus: BTreeMap<NodeId, u64>,
    gpu_ms: u128,
    counted_to: Timestamp,
}

/// What became of one job.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    name: String,
    tenant: TenantId,
    submitted_at: Timestamp,
    /// It ran before.
    started_before: bool,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    /// Thousandths of GPUs that it holds, and since when.
    holds: Option<(u64, Timestamp)>,
    gpu_milli_ms: u128,
    preemptions: u64,
    lost_gpu_ms: u64,
}

impl Tally {
    /// From a moment on.
    pub fn new(state: &State, since: Timestamp) -> Tally {
        let gpus = state.nodes.values().map(|node| (node.id.clone(), node.facts.gpus.len() as u64));
        let jobs = state.jobs.values().map(|job| (job.id, Seen::of(job, since)));
        Tally { jobs: jobs.collect(), gpus: gpus.collect(), gpu_ms: 0, counted_to: since }
    }

    /// One more event.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { job, spec, array, at, .. } => {
                for member in members(*job, array.as_ref().map(|array| &array.indexes[..])) {
                    self.jobs.insert(member, Seen::new(spec, *at));
                }
            }
            Event::JobPlaced { job, tasks, at, .. } => {
                let gpu_milli = tasks.iter().map(PlacedTask::gpu_milli).sum();
                self.of(*job, |seen| {
                    seen.started_at.get_or_insert(*at);
                    seen.holds = Some((gpu_milli, *at));
                });
            }
            Event::AttemptEnded { job, next, receipt, at, .. } => {
                let lost_gpu_ms = receipt.as_ref().map_or(0, |receipt| receipt.lost_gpu_ms);
                self.of(*job, |seen| {
                    seen.give_back(*at);
                    seen.lost_gpu_ms += lost_gpu_ms;
                    match next {
                        Next::Ended { .. } => seen.ended_at = Some(*at),
                        Next::Queued { because: Back::Preempted, .. } => seen.preemptions += 1,
                        _ => {}
                    }
                });
            }
            Event::JobEnded { job, at, .. } => self.of(*job, |seen| seen.ended_at = Some(*at)),
            Event::NodeRegistered { node, facts, at } => {
                self.count_gpus(*at);
                self.gpus.insert(node.clone(), facts.gpus.len() as u64);
            }
            Event::NodeRemoved { node, at } => {
                self.count_gpus(*at);
                self.gpus.remove(node);
            }
            _ => {}
        }
    }

    /// Count what is still held at the end.
    pub fn close(&mut self, until: Timestamp) {
        self.count_gpus(until);
        self.jobs.values_mut().for_each(|seen| seen.give_back(until));
    }

    /// Jobs that started here and not there: how long they run there is a guess.
    pub fn started_unlike(&self, other: &Tally) -> u64 {
        let started = |tally: &Tally, job| {
            tally.jobs.get(job).is_some_and(|seen| seen.started_before || seen.started_at.is_some())
        };
        self.jobs.keys().filter(|job| started(self, job) && !started(other, job)).count() as u64
    }

    fn of(&mut self, job: JobId, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.jobs.get_mut(&job) {
            change(seen);
        }
    }

    fn count_gpus(&mut self, at: Timestamp) {
        let ms = at.since(self.counted_to).max(0).unsigned_abs();
        self.gpu_ms += u128::from(self.gpus.values().sum::<u64>()) * u128::from(ms);
        self.counted_to = self.counted_to.max(at);
    }
}

impl Seen {
    fn new(spec: &JobSpec, at: Timestamp) -> Seen {
        Seen {
            name: spec.name.clone(),
            tenant: spec.tenant.clone(),
            submitted_at: at,
            started_before: false,
            started_at: None,
            ended_at: None,
            holds: None,
            gpu_milli_ms: 0,
            preemptions: 0,
            lost_gpu_ms: 0,
        }
    }

    /// One that lives already; what it holds counts from here.
    fn of(job: &Job, since: Timestamp) -> Seen {
        Seen {
            started_before: job.attempts > 0,
            holds: job.attempt().map(|attempt| (attempt.gpu_milli(), since)),
            ..Seen::new(&job.spec, job.submitted_at)
        }
    }

    fn give_back(&mut self, at: Timestamp) {
        if let Some((gpu_milli, since)) = self.holds.take() {
            self.gpu_milli_ms += u128::from(gpu_milli) * u128::from(at.since(since).max(0).unsigned_abs());
        }
    }

    fn times(&self) -> WhatIfTimes {
        WhatIfTimes {
            started_at: self.started_at.map(|at| stamp(at.0)),
            ended_at: self.ended_at.map(|at| stamp(at.0)),
            preemptions: self.preemptions,
        }
    }
}

/// What happened, the same simulated, and what would have happened.
pub struct Compared<'a> {
    /// What happened.
    pub really: &'a Tally,
    /// The same, simulated from the fork on.
    pub replayed: &'a Tally,
    /// What would have happened.
    pub changed: &'a Tally,
    /// Until when.
    pub until: Timestamp,
}

impl Compared<'_> {
    /// The figures of one of them, of all jobs or those of a tenant.
    pub fn figures(&self, of: &Tally, tenant: Option<&TenantId>) -> WhatIfFigures {
        let mine = |seen: &&Seen| tenant.is_none_or(|tenant| seen.tenant == *tenant);
        let jobs: Vec<&Seen> = of.jobs.values().filter(mine).collect();
        let seconds =
            |from: Timestamp, to: Option<Timestamp>| to.unwrap_or(self.until).since(from).max(0) as f64 / 1e3;
        let new = jobs.iter().filter(|seen| !seen.started_before);
        // Who ended without a start waited until then.
        let wait = |seen: &&Seen| seconds(seen.submitted_at, seen.started_at.or(seen.ended_at));
        let mut waits: Vec<f64> = new.map(wait).collect();
        waits.sort_by(f64::total_cmp);
        let times: Vec<f64> = jobs.iter().map(|seen| seconds(seen.submitted_at, seen.ended_at)).collect();
        let held: u128 = jobs.iter().map(|seen| seen.gpu_milli_ms).sum();
        let all_gpu_ms = of.gpu_ms as f64;
        let lost_gpu_ms: u64 = jobs.iter().map(|seen| seen.lost_gpu_ms).sum();
        WhatIfFigures {
            jobs: jobs.len() as u64,
            started: jobs.iter().filter(|seen| !seen.started_before && seen.started_at.is_some()).count()
                as u64,
            ended: jobs.iter().filter(|seen| seen.ended_at.is_some()).count() as u64,
            wait_mean_s: mean(&waits),
            wait_p95_s: nineteen_of_twenty(&waits),
            wait_max_s: waits.last().copied().unwrap_or(0.0),
            time_mean_s: mean(&times),
            gpu_hours: rounded(held as f64 / MILLI_MS_PER_GPU_HOUR),
            utilisation: tenant.is_none().then(|| rounded(held as f64 / 1e3 / all_gpu_ms.max(1.0))),
            preemptions: jobs.iter().map(|seen| seen.preemptions).sum(),
            lost_gpu_hours: rounded(lost_gpu_ms as f64 / MS_PER_HOUR),
        }
    }

    /// Every tenant that had jobs.
    pub fn tenants(&self, jobs: &[WhatIfJob]) -> Vec<WhatIfTenant> {
        let all = [self.really, self.replayed, self.changed];
        let seen = all.iter().flat_map(|tally| tally.jobs.values());
        let tenants: BTreeSet<&TenantId> = seen.map(|seen| &seen.tenant).collect();
        let one = |tenant: &TenantId| {
            let mine = || jobs.iter().filter(|job| job.tenant_id == tenant.as_str());
            WhatIfTenant {
                tenant_id: tenant.to_string(),
                really: self.figures(self.really, Some(tenant)),
                replayed: self.figures(self.replayed, Some(tenant)),
                changed: self.figures(self.changed, Some(tenant)),
                sooner: mine().filter(|job| job.gained_s > 0.0).count() as u64,
                later: mine().filter(|job| job.gained_s < 0.0).count() as u64,
            }
        };
        tenants.into_iter().map(one).collect()
    }

    /// Every job that gains or loses.
    pub fn jobs(&self) -> Vec<WhatIfJob> {
        let compared = self.changed.jobs.iter().filter_map(|(job, changed)| {
            let (really, replayed) = (self.really.jobs.get(job)?, self.replayed.jobs.get(job)?);
            let gained_ms = self.gained_ms(replayed, changed);
            (gained_ms.abs() > NOTICEABLE_MS).then(|| WhatIfJob {
                job_id: job.to_string(),
                name: changed.name.clone(),
                tenant_id: changed.tenant.to_string(),
                gained_s: gained_ms as f64 / 1e3,
                really: really.times(),
                replayed: replayed.times(),
                changed: changed.times(),
            })
        });
        compared.collect()
    }

    /// By how much sooner a job ends, or starts where no end shows a difference.
    fn gained_ms(&self, before: &Seen, after: &Seen) -> i64 {
        let sooner = |before: Option<Timestamp>, after: Option<Timestamp>| {
            before.unwrap_or(self.until).0 - after.unwrap_or(self.until).0
        };
        match sooner(before.ended_at, after.ended_at) {
            // A job that ended without a start, because it was cancelled, waited until then and no longer.
            0 => sooner(before.started_at.or(before.ended_at), after.started_at.or(after.ended_at)),
            gained_ms => gained_ms,
        }
    }
}

fn mean(all: &[f64]) -> f64 {
    // The sum of nothing is -0.
    rounded(all.iter().sum::<f64>().abs() / all.len().max(1) as f64)
}

fn nineteen_of_twenty(sorted: &[f64]) -> f64 {
    let place = (sorted.len() * 19).div_ceil(20).max(1) - 1;
    sorted.get(place).copied().unwrap_or(0.0)
}

/// To a thousandth: more digits say nothing.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that was submitted at 0, with a start and an end in seconds.
    fn tally(started: Option<i64>, ended: Option<i64>) -> Tally {
        let at = |seconds: i64| Timestamp(seconds * 1_000);
        let seen = Seen {
            name: "train".to_string(),
            tenant: "red".parse().unwrap(),
            submitted_at: at(0),
            started_before: false,
            started_at: started.map(at),
            ended_at: ended.map(at),
            holds: None,
            gpu_milli_ms: 0,
            preemptions: 0,
            lost_gpu_ms: 0,
        };
        let jobs = BTreeMap::from([(JobId::single(1), seen)]);
        Tally { jobs, gpus: BTreeMap::new(), gpu_ms: 0, counted_to: at(0) }
    }

    /// Seconds gained by one over the other, in a span of 30 seconds.
    fn gained_s(before: &Tally, after: &Tally) -> f64 {
        let compared =
            Compared { really: before, replayed: before, changed: after, until: Timestamp(30_000) };
        compared.jobs().first().map_or(0.0, |job| job.gained_s)
    }

    #[test]
    fn a_job_gains_nothing_after_it_was_cancelled() {
        let never_started = tally(None, Some(3));
        assert_eq!(gained_s(&never_started, &tally(Some(0), Some(3))), 3.0, "it waited for 3 s, not for 30");
        assert_eq!(gained_s(&tally(Some(0), Some(3)), &never_started), -3.0);
        assert_eq!(gained_s(&tally(None, None), &tally(Some(10), None)), 20.0, "one that waits on does");
        assert_eq!(gained_s(&tally(Some(5), Some(25)), &tally(Some(1), Some(21))), 4.0);
    }
}
