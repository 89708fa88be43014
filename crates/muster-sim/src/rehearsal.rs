//! A rehearsal: the jobs of a log meet the product itself, in simulated time.
//!
//! The state decides and the planner proposes, as in a server; what agents would do is done here. A job that is placed
//! runs at once, works as long as the log says, and is over. Who is told to stop has stopped: it comes back with the
//! work it had saved, or begins anew where it saves nothing. Rounds of planning are held when something has happened, at
//! most one in a simulated second, and now and then while someone waits, because waiting counts too.

mod baseline;
mod floor;
mod site;
mod spec;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use muster_core::command::{Actor, Answer, Command, Said, SubmitJob};
use muster_core::event::{Event, Next};
use muster_core::job::{Exit, PlacedTask};
use muster_core::plan::plan;
use muster_core::settings::Objective;
use muster_core::tenant::TenantConfig;
use muster_core::time::{MINUTE, SECOND};
use muster_core::{JobId, Refusal, Settings, State, TenantId, Timestamp};

use crate::history::{End, History, Stretch};
use crate::jobs::LoggedJob;
use floor::Floor;

pub use baseline::{NotForBaselines, against};
pub use site::{BadWords, Site};
#[cfg(test)]
pub(crate) use spec::of as job_spec;

/// Least time between two rounds.
const ROUND_MS: i64 = SECOND;
/// Longest time between two rounds while someone waits: order and loans change by themselves.
const LOOK_AGAIN_MS: i64 = 5 * MINUTE;
/// Most rounds at one moment. A round that displaces someone is followed by one that uses the room.
const ROUNDS_AT_ONCE: usize = 64;
/// With nothing running and nothing to come, who has not started after so many rounds never will.
const ROUNDS_IN_VAIN: usize = 500;
/// How many steps go by between two words about how far it is.
const STEPS_PER_WORD: u64 = 256;

/// What is assumed where the log does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Assumptions {
    /// What the order of jobs is for.
    pub objective: Objective,
    /// Whether jobs tell how long they run, as their time limit.
    pub told: bool,
    /// How often jobs save their work of which the log does not say it. Without this they begin anew when displaced.
    pub saves_every_ms: Option<i64>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The simulated time since the first job came.
    pub elapsed_ms: i64,
    /// Jobs that are over.
    pub over: usize,
}

/// Let the jobs of a log, in the order in which they came, meet the product.
pub fn rehearse(
    jobs: &[LoggedJob],
    site: &Site,
    assumptions: &Assumptions,
    watch: &mut dyn FnMut(Progress),
) -> History {
    let mut stage = Stage::new(jobs, site, *assumptions);
    let mut steps: u64 = 0;
    while let Some(next_ms) = stage.next_ms() {
        stage.go_to(next_ms);
        steps += 1;
        if steps.is_multiple_of(STEPS_PER_WORD) {
            watch(stage.progress());
        }
    }
    watch(stage.progress());
    stage.into_history()
}

/// Everything there is while it goes on.
struct Stage<'a> {
    jobs: &'a [LoggedJob],
    site: &'a Site,
    assumptions: Assumptions,
    state: State,
    now: Timestamp,
    tenants: BTreeMap<&'a str, TenantId>,
    /// The first job that has not come.
    coming: usize,
    /// Jobs that have come and are not over.
    live: BTreeMap<JobId, Live>,
    /// When attempts end, by job and attempt. One that was displaced leaves its entry behind.
    ends: BinaryHeap<Reverse<(Timestamp, JobId, u32)>>,
    /// Events that nobody has answered yet.
    news: VecDeque<Event>,
    floor: Floor,
    /// Something has happened since the last round.
    stirred: bool,
    last_round: Timestamp,
    in_vain: usize,
    history: History,
}

/// A job that has come and is not over.
#[derive(Debug, Clone, Copy)]
struct Live {
    /// Its place in the log.
    place: usize,
    left_ms: i64,
    saves_every_ms: Option<i64>,
    limit_ms: Option<i64>,
    /// GPUs of its smallest task.
    least_gpus: u32,
    attempt: Option<Held>,
}

/// What an attempt holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    number: u32,
    since: Timestamp,
    gpu_milli: u64,
    milliwatts: u64,
}

impl<'a> Stage<'a> {
    fn new(jobs: &'a [LoggedJob], site: &'a Site, assumptions: Assumptions) -> Stage<'a> {
        let now = Timestamp(jobs.first().map_or(0, |job| job.submit_ms));
        let mut stage = Stage {
            jobs,
            site,
            assumptions,
            state: State::empty(),
            now,
            tenants: BTreeMap::new(),
            coming: 0,
            live: BTreeMap::new(),
            ends: BinaryHeap::new(),
            news: VecDeque::new(),
            floor: Floor::new(site),
            stirred: false,
            last_round: Timestamp(now.0 - ROUND_MS),
            in_vain: 0,
            history: History { gpus: site.gpus(), ..History::default() },
        };
        stage.set_up();
        stage
    }

    /// The settings, the nodes, and a tenant for each name in the log, which may have everything.
    fn set_up(&mut self) {
        let settings =
            Settings { objective: self.assumptions.objective, stop_grace_ms: 0, ..Settings::default() };
        self.tell(&Command::Configure { settings: Box::new(settings) });
        for (node, facts) in self.site.nodes() {
            self.tell(&Command::RegisterNode { node: node.clone(), facts: Box::new(facts.clone()) });
        }
        self.tenants = spec::tenant_names(self.jobs);
        let tenants: Vec<(&str, TenantId)> =
            self.tenants.iter().map(|(name, id)| (*name, id.clone())).collect();
        for (name, id) in tenants {
            let config = Box::new(TenantConfig::unlimited(name));
            self.tell(&Command::CreateTenant { id, config });
        }
        self.news.clear();
    }

    /// The next arrival, end, or round.
    fn next_ms(&mut self) -> Option<i64> {
        while let Some(Reverse((_, job, attempt))) = self.ends.peek() {
            if self.is_live_attempt(*job, *attempt) {
                break;
            }
            self.ends.pop();
        }
        let arrival = self.jobs.get(self.coming).map(|job| job.submit_ms);
        let end = self.ends.peek().map(|Reverse((at, _, _))| at.0);
        let pause_ms =
            if self.stirred { Some(ROUND_MS) } else { self.someone_waits().then_some(LOOK_AGAIN_MS) };
        let round = pause_ms.map(|pause_ms| self.last_round.plus(pause_ms).max(self.now).0);
        let nothing_else = arrival.is_none() && end.is_none();
        if nothing_else && self.in_vain > ROUNDS_IN_VAIN {
            return None;
        }
        [arrival, end, round].into_iter().flatten().min()
    }

    fn go_to(&mut self, now_ms: i64) {
        self.now = Timestamp(now_ms.max(self.now.0));
        self.end_due();
        self.let_come();
        let pause_ms = if self.stirred { ROUND_MS } else { LOOK_AGAIN_MS };
        if self.now >= self.last_round.plus(pause_ms) && (self.stirred || self.someone_waits()) {
            self.hold_rounds();
        }
        self.floor.note_free(self.now.0);
    }

    /// Whose work is done, or time is up.
    fn end_due(&mut self) {
        while let Some(Reverse((at, job, attempt))) = self.ends.peek().copied() {
            if at > self.now {
                return;
            }
            self.ends.pop();
            if !self.is_live_attempt(job, attempt) {
                continue;
            }
            self.stirred = true;
            if self.is_done(job) {
                self.report(job, &Said::Ended { exit: Exit::Code { code: 0 }, stopped: false });
            } else {
                self.tell(&Command::Tick);
            }
            self.answer_news();
        }
    }

    fn is_live_attempt(&self, job: JobId, attempt: u32) -> bool {
        let held = self.live.get(&job).and_then(|live| live.attempt);
        held.is_some_and(|held| held.number == attempt)
    }

    fn is_done(&self, job: JobId) -> bool {
        let live = self.live.get(&job);
        let held = live.and_then(|live| Some((live, live.attempt?)));
        held.is_some_and(|(live, held)| self.now.since(held.since) >= live.left_ms)
    }

    fn let_come(&mut self) {
        while let Some(job) = self.jobs.get(self.coming).filter(|job| job.submit_ms <= self.now.0) {
            let place = self.coming;
            self.coming += 1;
            self.stirred = true;
            let tenant = self.tenants[job.tenant.as_str()].clone();
            let spec = spec::of(job, tenant, self.site, &self.assumptions);
            let saves_every_ms = spec.checkpoint.as_ref().and_then(|rule| rule.every_ms);
            let least_gpus = spec.tasks.iter().map(|group| group.each.gpus).filter(|gpus| *gpus > 0).min();
            let live = Live {
                place,
                left_ms: job.work_ms,
                saves_every_ms: saves_every_ms.filter(|every| *every > 0),
                limit_ms: spec.time_limit_ms,
                least_gpus: least_gpus.unwrap_or(0),
                attempt: None,
            };
            let ask = SubmitJob {
                spec: spec.into(),
                array: None,
                hold: false,
                key: None,
                known_outcomes: BTreeMap::new(),
            };
            match self.ask(&Command::SubmitJob(ask)) {
                Ok(Answer::Job(id)) => {
                    self.floor.waits(live.least_gpus);
                    self.live.insert(id, live);
                }
                Ok(_) => {}
                Err(refusal) => self.history.refused.push((place, refusal.to_string())),
            }
        }
        self.answer_news();
    }

    /// Plan, and plan again as long as someone was displaced: who made room must not be waited for.
    fn hold_rounds(&mut self) {
        self.tell(&Command::Tick);
        self.answer_news();
        self.stirred = false;
        self.last_round = self.now;
        let before = self.history.stretches.len() + self.running();
        for _ in 0..ROUNDS_AT_ONCE {
            self.history.rounds += 1;
            let plan = plan(&self.state, self.now).plan;
            let displaces = !plan.claims.is_empty();
            if !plan.is_empty() {
                self.tell(&Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
                self.answer_news();
            }
            if !displaces {
                break;
            }
        }
        let after = self.history.stretches.len() + self.running();
        self.in_vain = if before == after { self.in_vain + 1 } else { 0 };
    }

    fn running(&self) -> usize {
        self.live.len() - self.floor.waiting()
    }

    fn someone_waits(&self) -> bool {
        self.floor.waiting() > 0
    }

    /// Do what agents would do about what has happened.
    fn answer_news(&mut self) {
        while let Some(event) = self.news.pop_front() {
            match event {
                Event::JobPlaced { job, attempt, tasks, .. } => self.start(job, attempt, &tasks),
                Event::AttemptStopping { job, .. } => {
                    self.report(job, &Said::Ended { exit: Exit::Signal { signal: 15 }, stopped: true });
                }
                Event::AttemptEnded { job, next, .. } => self.settle(job, &next),
                _ => {}
            }
        }
    }

    fn start(&mut self, job: JobId, attempt: u32, tasks: &[PlacedTask]) {
        let milliwatts = self.state.milliwatts_of(tasks);
        let Some(live) = self.live.get_mut(&job) else { return };
        let gpu_milli = tasks.iter().map(PlacedTask::gpu_milli).sum();
        live.attempt = Some(Held { number: attempt, since: self.now, gpu_milli, milliwatts });
        let lasts_ms = live.limit_ms.map_or(live.left_ms, |limit| limit.min(live.left_ms));
        self.ends.push(Reverse((self.now.plus(lasts_ms), job, attempt)));
        self.floor.waits_no_more(live.least_gpus);
        self.floor.take(job, tasks);
        self.report(job, &Said::Started);
    }

    /// An attempt is over: the job is, or it comes back with what it had saved.
    fn settle(&mut self, job: JobId, next: &Next) {
        self.stirred = true;
        self.floor.give_back(job);
        let (now, done) = (self.now, self.is_done(job));
        let Some(live) = self.live.get_mut(&job) else { return };
        let Some(held) = live.attempt.take() else { return };
        let ran_ms = now.since(held.since);
        let (end, useful_ms) = match next {
            Next::Ended { .. } if done => (End::Done, ran_ms),
            Next::Ended { .. } => (End::TimeLimit, ran_ms),
            Next::Queued { .. } | Next::Held { .. } => {
                (End::Displaced, live.saves_every_ms.map_or(0, |every| ran_ms / every * every))
            }
        };
        live.left_ms -= useful_ms;
        let (place, least_gpus) = (live.place, live.least_gpus);
        let Held { since, gpu_milli, milliwatts, .. } = held;
        let (from_ms, to_ms) = (since.0, now.0);
        let stretch = Stretch { job: place, from_ms, to_ms, gpu_milli, milliwatts, useful_ms, end };
        self.history.stretches.push(stretch);
        match end {
            End::Displaced => self.floor.waits(least_gpus),
            End::Done | End::TimeLimit => {
                self.live.remove(&job);
            }
        }
    }

    /// Every agent that has a part in a job speaks.
    fn report(&mut self, job: JobId, said: &Said) {
        let attempt = self.state.jobs.get(&job).and_then(|job| job.attempt());
        let Some((attempt, nodes)) = attempt.map(|attempt| (attempt.number, attempt.nodes())) else { return };
        for node in nodes {
            self.tell(&Command::ReportTask { node, job, attempt, said: said.clone() });
        }
    }

    /// What is refused here has become needless: a plan that holds no more, a report that comes twice.
    fn tell(&mut self, command: &Command) {
        let _ = self.ask(command);
    }

    fn ask(&mut self, command: &Command) -> Result<Answer, Refusal> {
        let decision = self.state.decide(&Actor::system(), command, self.now)?;
        decision.events.iter().for_each(|event| self.state.apply(event));
        self.news.extend(decision.events);
        Ok(decision.answer)
    }

    fn progress(&self) -> Progress {
        let first_ms = self.jobs.first().map_or(0, |job| job.submit_ms);
        Progress { elapsed_ms: self.now.0 - first_ms, over: self.coming - self.live.len() }
    }

    /// Who is still there has never started.
    fn into_history(self) -> History {
        let mut history = self.history;
        let never = "nothing runs any more, and still there is no room for it";
        history.refused.extend(self.live.values().map(|live| (live.place, never.to_string())));
        history.refused.sort();
        history.free = self.floor.free();
        history
    }
}

#[cfg(test)]
mod tests;
