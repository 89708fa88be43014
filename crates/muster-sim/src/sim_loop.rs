//! A stage: the product's own state and planner in simulated time, with players in the place of agents.
//!
//! The state decides and the planner proposes, as in a server. A job that is placed runs, works for as long as its
//! player knows, and ends as it says; who is told to stop stops. Who comes back goes on from what was saved, or begins
//! anew where nothing is. Rounds of planning are held when something has happened, with a pause between two, and now and
//! then while someone waits, because waiting counts too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use muster_core::facts::command::{Actor, Answer, Command, TaskReport};
use muster_core::facts::event::{Event, NextPhase, RequeueCause};
use muster_core::facts::plan::Plan;
use muster_core::objects::job::{Exit, Job, PlacedTask};
use muster_core::planner::plan;
use muster_core::time::{MINUTE, SECOND};
use muster_core::{JobId, JobSpec, Refusal, State, Timestamp};
use muster_server::policies::PolicyQuerier;

/// Longest time between two rounds while someone waits: order and loans change by themselves.
pub const REPLAN_INTERVAL_MS_MAX: i64 = 5 * MINUTE;
/// Most rounds at one moment. A round that displaces someone is followed by one that uses the room.
const ROUNDS_PER_INSTANT_MAX: usize = 64;

/// How long things take that are not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentDelays {
    /// Least time between two rounds.
    pub round_interval_ms_min: i64,
    /// From being placed to running.
    pub launch_ms: i64,
    /// From being told to stop to being gone.
    pub stop_ms: i64,
}

impl AgentDelays {
    /// Agents do at once what they are told, and a round is held every second at most.
    pub const IMMEDIATE: AgentDelays = AgentDelays { round_interval_ms_min: SECOND, launch_ms: 0, stop_ms: 0 };
}

/// One try at a job's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkAttempt {
    /// How long it works.
    pub duration: WorkDuration,
    /// How it ends by itself.
    pub exit: Exit,
}

/// How long a try works if nobody stops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkDuration {
    /// So long.
    Known(i64),
    /// Until someone stops it.
    UntilStopped,
    /// Nobody knows: as long as it may, or as such jobs are expected to.
    Unknown,
}

impl WorkAttempt {
    /// Work of a known length that is then done.
    pub fn completes_after(ms: i64) -> WorkAttempt {
        WorkAttempt { duration: WorkDuration::Known(ms), exit: Exit::Code { code: 0 } }
    }

    /// Work of which nothing is known.
    pub fn unknown() -> WorkAttempt {
        WorkAttempt { duration: WorkDuration::Unknown, exit: Exit::Code { code: 0 } }
    }
}

/// What a job does when it runs: one try after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobBehaviour {
    attempts: VecDeque<WorkAttempt>,
    /// How much of the work of the first try is done and saved.
    checkpointed_ms: i64,
    running: Option<RunningAttempt>,
}

/// An attempt that has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RunningAttempt {
    attempt: u32,
    /// When its processes began; nothing while they are launched.
    started_at: Option<Timestamp>,
}

impl JobBehaviour {
    /// One that has done so much of the first try already.
    pub fn new(trials: impl IntoIterator<Item = WorkAttempt>, saved_ms: i64) -> JobBehaviour {
        JobBehaviour { attempts: trials.into_iter().collect(), checkpointed_ms: saved_ms, running: None }
    }

    /// How long the try at hand would still work, if that is known.
    fn remaining_ms(&self) -> Option<i64> {
        match self.attempts.front()?.duration {
            WorkDuration::Known(ms) => Some((ms - self.checkpointed_ms).max(0)),
            WorkDuration::UntilStopped => Some(i64::MAX),
            WorkDuration::Unknown => None,
        }
    }
}

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum JobTransition {
    /// It has its place.
    Placed {
        /// Which job.
        job: JobId,
        /// Where.
        tasks: Vec<PlacedTask>,
    },
    /// It has given its place back.
    Released {
        /// Which job.
        job: JobId,
        /// How much of the time brought its work forward.
        useful_ms: i64,
        /// The try ended by itself.
        is_own_exit: bool,
        /// It waits again.
        is_requeued: bool,
    },
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AttemptTimer {
    /// Its processes begin.
    ProcessesStart,
    /// Its work is done, or its time is up.
    WorkEnds,
    /// It has stopped.
    StopCompletes,
}

/// The cluster, and who plays in it.
pub struct SimLoop {
    /// What is true of the cluster.
    pub state: State,
    /// The time.
    pub now: Timestamp,
    /// Everything that happened to jobs, for whoever keeps the record and empties it.
    pub transitions: Vec<JobTransition>,
    /// Every event, for whoever keeps the record; nothing is kept unless it is wanted.
    pub recorded_events: Option<Vec<Event>>,
    /// Who asks policies, where some are in force.
    pub policy_querier: Option<PolicyQuerier>,
    /// How often a plan was drawn up.
    pub round_count: u64,
    /// Rounds since anyone was placed or left.
    pub rounds_without_transition: usize,
    delays: AgentDelays,
    behaviours: BTreeMap<JobId, JobBehaviour>,
    /// One whose attempt is over leaves its cues behind.
    timers: BinaryHeap<Reverse<(Timestamp, JobId, u32, AttemptTimer)>>,
    /// Moments at which the time itself is news: a pause is over, nodes are booked.
    wakeups: BinaryHeap<Reverse<Timestamp>>,
    /// Events that nobody has answered yet.
    unhandled_events: VecDeque<Event>,
    /// Something has happened since the last round.
    has_changed: bool,
    last_round_at: Timestamp,
}

impl SimLoop {
    /// A cluster as it is at a moment.
    pub fn new(state: State, now: Timestamp, delays: AgentDelays) -> SimLoop {
        let alarms = wakeups_of_state(&state).filter(|at| *at > now).map(Reverse).collect();
        SimLoop {
            state,
            now,
            transitions: Vec::new(),
            recorded_events: None,
            policy_querier: None,
            round_count: 0,
            rounds_without_transition: 0,
            delays,
            behaviours: BTreeMap::new(),
            timers: BinaryHeap::new(),
            wakeups: alarms,
            unhandled_events: VecDeque::new(),
            has_changed: false,
            last_round_at: now.plus(-delays.round_interval_ms_min),
        }
    }

    /// A job that was accepted will do this.
    pub fn set_behaviour(&mut self, job: JobId, player: JobBehaviour) {
        self.behaviours.insert(job, player);
        self.has_changed = true;
    }

    /// The same for one that may have its place already: it goes on from where it is.
    pub fn resume_job(&mut self, job: JobId, mut player: JobBehaviour) {
        if let Some(attempt) = self.state.jobs.get(&job).and_then(Job::attempt) {
            let number = attempt.number;
            player.running = Some(RunningAttempt { attempt: number, started_at: attempt.started_at });
            let (placed_at, started_at) = (attempt.placed_at, attempt.started_at);
            let stopping = attempt.stopping.as_ref().map(|stopping| stopping.since);
            if started_at.is_none() {
                self.set_timer(placed_at.plus(self.delays.launch_ms), job, number, AttemptTimer::ProcessesStart);
            }
            if let Some(since) = stopping {
                self.set_timer(since.plus(self.delays.stop_ms), job, number, AttemptTimer::StopCompletes);
            }
            self.behaviours.insert(job, player);
            if let Some(started_at) = started_at {
                self.set_end_timer(job, started_at);
            }
            return;
        }
        self.set_behaviour(job, player);
    }

    /// The next moment at which something is due here.
    pub fn next_event_ms(&mut self) -> Option<i64> {
        while let Some(Reverse((_, job, attempt, _))) = self.timers.peek() {
            if self.is_live_attempt(*job, *attempt) {
                break;
            }
            self.timers.pop();
        }
        let cue = self.timers.peek().map(|Reverse((at, ..))| at.0.max(self.now.0));
        let alarm = self.wakeups.peek().map(|Reverse(at)| at.0.max(self.now.0));
        let round = self.next_round_delay_ms().map(|pause_ms| self.last_round_at.plus(pause_ms).max(self.now).0);
        [cue, alarm, round].into_iter().flatten().min()
    }

    /// Whether anyone runs, or is about to.
    pub fn has_live_timers(&self) -> bool {
        self.timers.iter().any(|Reverse((_, job, attempt, _))| self.is_live_attempt(*job, *attempt))
    }

    /// Time has come to a moment: what is due happens.
    pub fn advance_to(&mut self, now_ms: i64) {
        self.now = Timestamp(now_ms.max(self.now.0));
        while self.wakeups.peek().is_some_and(|Reverse(at)| *at <= self.now) {
            self.wakeups.pop();
            self.has_changed = true;
        }
        while let Some(Reverse((at, job, attempt, cue))) = self.timers.peek().copied() {
            if at > self.now {
                return;
            }
            self.timers.pop();
            if self.is_live_attempt(job, attempt) {
                self.has_changed = true;
                self.fire_timer(job, cue);
                self.handle_events();
            }
        }
    }

    /// Plan if it is time to, and plan again as long as someone was displaced: who made room must not be waited for.
    pub fn plan_if_due(&mut self) {
        self.handle_events();
        let due = self.next_round_delay_ms().is_some_and(|pause_ms| self.now >= self.last_round_at.plus(pause_ms));
        if !due {
            return;
        }
        self.execute_as_system(&Command::Tick);
        self.handle_events();
        self.has_changed = false;
        self.last_round_at = self.now;
        let before = self.transitions.len();
        for _ in 0..ROUNDS_PER_INSTANT_MAX {
            self.round_count += 1;
            let plan = plan(&self.state, self.now.max(self.state.clock)).plan;
            if self.query_policies(&plan) {
                continue;
            }
            let displaces = !plan.evictions.is_empty();
            if !plan.is_empty() {
                self.execute_as_system(&Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
                self.handle_events();
            }
            if !displaces || self.delays.stop_ms > 0 {
                break;
            }
        }
        self.rounds_without_transition = if before == self.transitions.len() { self.rounds_without_transition + 1 } else { 0 };
    }

    /// Ask policies what a plan needs to know. True if it is to be drawn up anew.
    fn query_policies(&mut self, plan: &Plan) -> bool {
        let since = Duration::from_millis(self.now.0.max(0) as u64);
        let asker = self.policy_querier.as_mut();
        let answers = asker.and_then(|asker| asker.new_answers(&self.state, plan, (self.now, since)));
        let Some(answers) = answers else { return false };
        self.execute_as_system(&answers);
        self.handle_events();
        true
    }

    /// How long after the last round the next one is; nothing while all is quiet.
    fn next_round_delay_ms(&self) -> Option<i64> {
        let waits = || (!self.state.queue.is_empty()).then_some(REPLAN_INTERVAL_MS_MAX);
        if self.has_changed { Some(self.delays.round_interval_ms_min) } else { waits() }
    }

    /// Ask something of the cluster.
    pub fn execute(&mut self, by: &Actor, command: &Command) -> Result<Answer, Refusal> {
        let decision = self.state.decide(by, command, self.now)?;
        for event in decision.events {
            self.state.apply(&event);
            if let Some(events) = &mut self.recorded_events {
                events.push(event.clone());
            }
            self.unhandled_events.push_back(event);
        }
        Ok(decision.answer)
    }

    /// Something has happened that calls for a round.
    pub fn mark_changed(&mut self) {
        self.has_changed = true;
    }

    /// What is refused here has become needless: a plan that holds no more, a report that comes twice.
    pub fn execute_as_system(&mut self, command: &Command) {
        let _ = self.execute(&Actor::system(), command);
    }

    fn is_live_attempt(&self, job: JobId, attempt: u32) -> bool {
        let runs = self.behaviours.get(&job).and_then(|player| player.running);
        runs.is_some_and(|runs| runs.attempt == attempt)
    }

    fn fire_timer(&mut self, job: JobId, cue: AttemptTimer) {
        match cue {
            AttemptTimer::ProcessesStart => self.start_attempt(job),
            AttemptTimer::WorkEnds if self.is_work_done(job) => {
                let exit = self.behaviours.get(&job).and_then(|player| player.attempts.front());
                let exit = exit.map_or(Exit::Code { code: 0 }, |trial| trial.exit.clone());
                self.report_from_all_nodes(job, &TaskReport::Ended { exit, stopped: false, ended_ms_ago: None });
            }
            AttemptTimer::WorkEnds => self.execute_as_system(&Command::Tick),
            AttemptTimer::StopCompletes => self.report_from_all_nodes(
                job,
                &TaskReport::Ended { exit: Exit::Signal { signal: 15 }, stopped: true, ended_ms_ago: None },
            ),
        }
    }

    fn is_work_done(&self, job: JobId) -> bool {
        let ran_ms = self.attempt_ran_ms(job);
        self.attempt_work_ms(job).is_some_and(|lasts_ms| ran_ms >= lasts_ms)
    }

    /// How long the processes of a job have run in this attempt.
    fn attempt_ran_ms(&self, job: JobId) -> i64 {
        let since = self.behaviours.get(&job).and_then(|player| player.running?.started_at);
        since.map_or(0, |since| self.now.since(since))
    }

    /// How long a job works from the start of its attempt on; where nobody knows, as its attempt was expected to.
    fn attempt_work_ms(&self, job: JobId) -> Option<i64> {
        let left_ms = self.behaviours.get(&job)?.remaining_ms();
        left_ms.or_else(|| {
            let job = self.state.jobs.get(&job)?;
            job.attempt()?.expected_ms.or(job.spec.time_limit_ms)
        })
    }

    /// Do what agents would do about what has happened.
    fn handle_events(&mut self) {
        while let Some(event) = self.unhandled_events.pop_front() {
            let now = self.now;
            self.wakeups.extend(wakeups_of_event(&event).into_iter().flatten().filter(|at| *at > now).map(Reverse));
            match event {
                Event::JobPlaced { job, attempt, tasks, .. } => self.place_attempt(job, attempt, tasks),
                Event::AttemptStopping { job, attempt, .. } => match self.delays.stop_ms {
                    0 => self.fire_timer(job, AttemptTimer::StopCompletes),
                    stop_ms => self.set_timer(self.now.plus(stop_ms), job, attempt, AttemptTimer::StopCompletes),
                },
                Event::AttemptEnded { job, exit, next, .. } => self.finish_attempt(job, &exit, &next),
                Event::JobEnded { job, .. } => {
                    self.behaviours.remove(&job);
                }
                // Its time limit may be another one.
                Event::JobChanged { job, .. } => {
                    let since = self.behaviours.get(&job).and_then(|player| player.running?.started_at);
                    since.into_iter().for_each(|since| self.set_end_timer(job, since));
                }
                _ => {}
            }
        }
    }

    fn place_attempt(&mut self, job: JobId, attempt: u32, tasks: Vec<PlacedTask>) {
        let Some(player) = self.behaviours.get_mut(&job) else { return };
        player.running = Some(RunningAttempt { attempt, started_at: None });
        self.transitions.push(JobTransition::Placed { job, tasks });
        match self.delays.launch_ms {
            0 => self.start_attempt(job),
            launch_ms => self.set_timer(self.now.plus(launch_ms), job, attempt, AttemptTimer::ProcessesStart),
        }
    }

    fn start_attempt(&mut self, job: JobId) {
        let now = self.now;
        let Some(player) = self.behaviours.get_mut(&job) else { return };
        let Some(runs) = player.running.as_mut().filter(|runs| runs.started_at.is_none()) else { return };
        runs.started_at = Some(now);
        self.report_from_all_nodes(job, &TaskReport::Started);
        self.set_end_timer(job, now);
    }

    /// The moment at which the work of a job is done or its time is up, whichever comes first.
    fn set_end_timer(&mut self, job: JobId, since: Timestamp) {
        let limit_ms = self.state.jobs.get(&job).and_then(|job| job.spec.time_limit_ms);
        let attempt = self.behaviours.get(&job).and_then(|player| player.running).map(|runs| runs.attempt);
        let lasts_ms = [self.attempt_work_ms(job), limit_ms].into_iter().flatten().min();
        if let (Some(attempt), Some(ms)) = (attempt, lasts_ms.filter(|ms| *ms < i64::MAX)) {
            self.set_timer(since.plus(ms), job, attempt, AttemptTimer::WorkEnds);
        }
    }

    fn set_timer(&mut self, at: Timestamp, job: JobId, attempt: u32, cue: AttemptTimer) {
        self.timers.push(Reverse((at, job, attempt, cue)));
    }

    /// An attempt is over: the job is, or it comes back with what it had saved.
    fn finish_attempt(&mut self, job: JobId, exit: &Exit, next: &NextPhase) {
        self.has_changed = true;
        let (ran_ms, by_itself) = (self.attempt_ran_ms(job), self.is_work_done(job));
        let Some(player) = self.behaviours.get_mut(&job) else { return };
        if player.running.take().is_none() {
            return;
        }
        let failed = matches!(next, NextPhase::Queued { because: RequeueCause::Restarted, .. });
        let comes_back = !matches!(next, NextPhase::Ended { .. });
        let useful_ms = match next {
            NextPhase::Ended { .. } => ran_ms,
            _ if failed => 0,
            _ => self.state.jobs.get(&job).map_or(0, |job| checkpointed_ms(&job.spec, ran_ms)),
        };
        self.transitions.push(JobTransition::Released { job, useful_ms, is_own_exit: by_itself, is_requeued: comes_back });
        if !comes_back {
            self.behaviours.remove(&job);
        } else if failed || (by_itself && !exit.is_success()) {
            player.attempts.pop_front();
            player.checkpointed_ms = 0;
            if player.attempts.is_empty() {
                player.attempts.push_back(WorkAttempt::unknown());
            }
        } else {
            player.checkpointed_ms += useful_ms;
        }
    }

    /// Why policies do not accept a job, if they do not.
    pub fn policy_refusal(&self, spec: &JobSpec) -> Option<String> {
        self.policy_querier.as_ref()?.admission_refusal(&self.state, spec, self.now)
    }

    /// Every agent that has a part in a job speaks.
    fn report_from_all_nodes(&mut self, job: JobId, said: &TaskReport) {
        let attempt = self.state.jobs.get(&job).and_then(Job::attempt);
        let Some((attempt, nodes)) = attempt.map(|attempt| (attempt.number, attempt.nodes())) else { return };
        for node in nodes {
            self.execute_as_system(&Command::ReportTask { node, job, attempt, report: said.clone() });
        }
    }
}

/// The moments that are news already: nobody will say them again.
fn wakeups_of_state(state: &State) -> impl Iterator<Item = Timestamp> {
    let sleeping = state.jobs.values().filter_map(|job| job.wakes_at);
    let booked = state.windows.values().flat_map(|window| [window.from, window.until]);
    let health = state.nodes.values().flat_map(|node| &node.gpu_health);
    sleeping.chain(booked).chain(health.filter_map(|health| health.cooling_until))
}

/// The moments that an event makes news of.
fn wakeups_of_event(event: &Event) -> [Option<Timestamp>; 2] {
    match event {
        Event::JobSubmitted { spec, .. } => [spec.start_after, None],
        Event::AttemptEnded { next: NextPhase::Queued { wakes_at, .. }, .. } => [*wakes_at, None],
        Event::RetryAnswered { wakes_at, .. } => [Some(*wakes_at), None],
        Event::GpuHealthChanged { cooling_until, .. } => [*cooling_until, None],
        Event::WindowOpened { window, .. } => [Some(window.from), Some(window.until)],
        _ => [None, None],
    }
}

/// How much of what a job has done is saved after so long.
pub fn checkpointed_ms(spec: &JobSpec, ran_ms: i64) -> i64 {
    let every_ms = spec.checkpoint.as_ref().and_then(|rule| rule.every_ms).filter(|every| *every > 0);
    every_ms.map_or(0, |every_ms| ran_ms / every_ms * every_ms)
}
