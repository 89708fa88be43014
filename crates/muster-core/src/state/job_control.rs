//! Step 4, decide: the commands that control a job (cancel, hold, release, requeue, change), and what follows from the
//! end of a job.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::command::{Actor, Answer, JobChange};
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::ids::JobId;
use crate::objects::job::{Attempt, Job, Outcome, Phase, StopCause};
use crate::objects::settings::PRIORITY_MAX;
use crate::state::decision::Decision;
use crate::state::submit::check_name;
use crate::state::{ArrayState, State};
use crate::time::Timestamp;

impl State {
    pub(super) fn decide_cancel(&self, by: &Actor, id: JobId, now: Timestamp) -> Result<Decision, Refusal> {
        let members = self.live_members(by, id, "cancel", "waiting or running")?;
        let stopping = members.iter().filter(|job| job.attempt().is_some()).count();
        let mut events = Vec::new();
        for job in members {
            match job.attempt() {
                Some(attempt) if is_cancelled(attempt) => {}
                Some(attempt) => {
                    events.push(self.stop(job, attempt, StopCause::cancelled(&by.name), now));
                }
                None => events.push(Event::JobEnded {
                    job: job.id,
                    outcome: Outcome::Cancelled,
                    why: format!("cancelled by {}", by.name),
                    at: now,
                }),
            }
        }
        self.settle_ends(&mut events, now);
        Ok(Decision { events, answer: Answer::Cancelled { stopping } })
    }

    pub(super) fn decide_hold(&self, by: &Actor, id: JobId, why: &str, now: Timestamp) -> Result<Decision, Refusal> {
        let members = self.live_members(by, id, "hold", "waiting or running")?;
        let mut events = Vec::new();
        for job in members {
            match &job.phase {
                Phase::Held { .. } => {}
                Phase::Queued { .. } => {
                    self.drop_claim(job.id, "the preemptor is held", now, &mut events);
                    events.push(Event::JobHeld { job: job.id, by: by.name.clone(), why: why.to_string(), at: now });
                }
                Phase::Active(attempt) => {
                    let cause = StopCause::Held { by: by.name.clone(), why: why.to_string() };
                    events.extend(self.stop_unless_ending(job, attempt, cause, now));
                }
            }
        }
        Ok(Decision::done(events))
    }

    pub(super) fn decide_release(&self, by: &Actor, id: JobId, now: Timestamp) -> Result<Decision, Refusal> {
        let members = self.live_members(by, id, "release", "held")?;
        let held: Vec<&Job> = members.iter().copied().filter(|job| matches!(job.phase, Phase::Held { .. })).collect();
        if held.is_empty() {
            return Err(wrong_phase(members[0], "release", "held"));
        }
        let released = |job: &Job| Event::JobReleased { job: job.id, by: by.name.clone(), at: now };
        Ok(Decision::done(held.into_iter().map(released).collect()))
    }

    pub(super) fn decide_requeue(&self, by: &Actor, id: JobId, now: Timestamp) -> Result<Decision, Refusal> {
        let members = self.live_members(by, id, "requeue", "running")?;
        let mut events = Vec::new();
        for job in &members {
            if let Some(attempt) = job.attempt() {
                let cause = StopCause::requeued(&by.name);
                events.extend(self.stop_unless_ending(job, attempt, cause, now));
            }
        }
        if members.iter().all(|job| job.attempt().is_none()) {
            return Err(wrong_phase(members[0], "requeue", "running"));
        }
        Ok(Decision::done(events))
    }

    pub(super) fn decide_change(
        &self,
        by: &Actor,
        id: JobId,
        change: &JobChange,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        if change.priority.is_some_and(|priority| priority > PRIORITY_MAX) {
            let problem = format!("{} is above {PRIORITY_MAX}", change.priority.unwrap_or_default());
            return Err(Refusal::Invalid { field: "priority", problem });
        }
        change.name.as_deref().map_or(Ok(()), check_name)?;
        if let Some(Some(ms)) = change.time_limit_ms
            && ms <= 0
        {
            return Err(Refusal::Invalid { field: "time_limit", problem: "must be above zero".into() });
        }
        let members = self.live_members(by, id, "change", "waiting or running")?;
        if let Some(priority) = change.priority {
            let raised = members.iter().filter(|job| priority > job.spec.priority);
            raised.into_iter().try_for_each(|job| self.check_priority(by, &job.spec.tenant, priority))?;
        }
        let changed = |job: &Job| Event::JobChanged { job: job.id, change: change.clone(), at: now };
        Ok(Decision::done(members.into_iter().map(changed).collect()))
    }

    /// A person may run programs inside a job that runs. Nothing changes: the act itself is recorded for the audit log.
    pub(super) fn decide_enter(&self, by: &Actor, id: JobId) -> Result<Decision, Refusal> {
        let (verb, needs) = ("a program inside it", "running");
        match self.live_members(by, id, verb, needs)?[..] {
            [job] if matches!(job.phase_name(), "Running" | "Stopping") => Ok(Decision::done(Vec::new())),
            [job] => Err(wrong_phase(job, verb, needs)),
            _ => Err(Refusal::Invalid { field: "id", problem: format!("`{id}` is an array; name one of its jobs") }),
        }
    }

    /// The live jobs that an id refers to; a refusal if there are none or the actor may not change them.
    fn live_members(
        &self,
        by: &Actor,
        id: JobId,
        verb: &'static str,
        needs: &'static str,
    ) -> Result<Vec<&Job>, Refusal> {
        let members = self.live_jobs_of(id);
        if !members.is_empty() {
            let jobs: Vec<&Job> = members.into_iter().map(|id| self.job(id)).collect::<Result<_, _>>()?;
            jobs.iter().try_for_each(|job| self.check_may_change(by, job))?;
            return Ok(jobs);
        }
        match self.ended.get(&id) {
            Some(ended) => Err(Refusal::WrongPhase { job: id, phase: ended.outcome.as_str(), verb, needs }),
            None => Err(Refusal::UnknownJob { job: id }),
        }
    }

    /// The event that orders an attempt to stop.
    pub(super) fn stop(&self, job: &Job, attempt: &Attempt, cause: StopCause, now: Timestamp) -> Event {
        let grace_ms = self.settings.stop_grace_ms;
        Event::AttemptStopping { job: job.id, attempt: attempt.number, cause, grace_ms, at: now }
    }

    /// Stop an attempt, unless its job already ends for good: the job must not be queued again.
    pub(super) fn stop_unless_ending(
        &self,
        job: &Job,
        attempt: &Attempt,
        cause: StopCause,
        now: Timestamp,
    ) -> Option<Event> {
        let ends = |cause: &StopCause| matches!(cause, StopCause::Cancelled { .. } | StopCause::TimeLimit);
        let ending = attempt.stopping.as_ref().is_some_and(|stopping| ends(&stopping.cause));
        (!ending).then(|| self.stop(job, attempt, cause, now))
    }

    /// End the claim of a job, if it has one.
    pub(super) fn drop_claim(&self, job: JobId, why: &str, now: Timestamp, events: &mut Vec<Event>) {
        if self.claims.contains_key(&job) {
            events.push(Event::ClaimEnded { job, why: why.to_string(), at: now });
        }
    }

    /// Follow up on jobs that end in `events`: their claims end, and jobs whose dependency can no longer be met end
    /// too, transitively.
    pub(super) fn settle_ends(&self, events: &mut Vec<Event>, now: Timestamp) {
        let mut arrays: BTreeMap<u64, ArrayState> = BTreeMap::new();
        let mut settled: BTreeSet<JobId> = BTreeSet::new();
        let mut next = 0;
        while next < events.len() {
            if let Some((job, outcome)) = ends_job(&events[next])
                && settled.insert(job)
            {
                self.drop_claim(job, "the preemptor ended", now, events);
                self.end_dependents(job, outcome, now, &mut settled, events);
                if let Some(outcome) = self.array_outcome(job, outcome, &mut arrays) {
                    let array = JobId::single(job.number);
                    self.end_dependents(array, outcome, now, &mut settled, events);
                }
            }
            next += 1;
        }
    }

    /// End the jobs that depend on another outcome of `job`.
    fn end_dependents(
        &self,
        job: JobId,
        outcome: Outcome,
        now: Timestamp,
        settled: &mut BTreeSet<JobId>,
        events: &mut Vec<Event>,
    ) {
        for dependent in self.dependents.get(&job).into_iter().flatten() {
            let Some(waiting) = self.jobs.get(dependent) else { continue };
            let dead = waiting
                .open_dependencies
                .iter()
                .any(|dependency| dependency.job == job && !outcome.satisfies(dependency.when));
            let ending = settled.contains(dependent) || events.iter().any(|event| ends(event, *dependent));
            if dead && !ending {
                let why = format!("its dependency `{job}` has ended as {}", outcome.as_str());
                events.push(Event::JobEnded { job: *dependent, outcome: Outcome::Cancelled, why, at: now });
            }
        }
    }

    /// The outcome of the whole array, if `job` was its last live task.
    fn array_outcome(&self, job: JobId, outcome: Outcome, arrays: &mut BTreeMap<u64, ArrayState>) -> Option<Outcome> {
        job.index?;
        let array = match arrays.get_mut(&job.number) {
            Some(array) => array,
            None => arrays.entry(job.number).or_insert(self.arrays.get(&job.number)?.clone()),
        };
        array.live -= 1;
        array.all_done &= outcome == Outcome::Done;
        (array.live == 0).then(|| array.outcome())
    }
}

impl ArrayState {
    /// The outcome of the whole array once its last task has ended.
    pub(super) fn outcome(&self) -> Outcome {
        if self.all_done { Outcome::Done } else { Outcome::Failed }
    }
}

fn ends_job(event: &Event) -> Option<(JobId, Outcome)> {
    match event {
        Event::JobEnded { job, outcome, .. } => Some((*job, *outcome)),
        Event::AttemptEnded { job, next: crate::facts::event::NextPhase::Ended { outcome, .. }, .. } => {
            Some((*job, *outcome))
        }
        _ => None,
    }
}

fn ends(event: &Event, job: JobId) -> bool {
    ends_job(event).is_some_and(|(ended, _)| ended == job)
}

fn is_cancelled(attempt: &Attempt) -> bool {
    let cancelled = |cause: &StopCause| matches!(cause, StopCause::Cancelled { .. });
    attempt.stopping.as_ref().is_some_and(|stopping| cancelled(&stopping.cause))
}

fn wrong_phase(job: &Job, verb: &'static str, needs: &'static str) -> Refusal {
    Refusal::WrongPhase { job: job.id, phase: job.phase_name(), verb, needs }
}
