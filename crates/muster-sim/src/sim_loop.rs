//! The simulation loop: runs the state and the planner in simulated time; jobs follow scripted behaviour in place
//! of agents.
//!
//! A placed job runs for the duration in its [`JobBehaviour`]. A stopped job resumes from its last checkpoint, or
//! from the start if it has none. A planning round runs after each change, at most once per interval, and
//! periodically while jobs wait, because priorities change with the waiting time.

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

/// The longest time between two rounds while jobs wait: the order and the overrun of revocable jobs change with time.
pub const REPLAN_INTERVAL_MS_MAX: i64 = 5 * MINUTE;
/// The most rounds in one instant. A round with evictions is followed by one that uses the freed space.
const ROUNDS_PER_INSTANT_MAX: usize = 64;

/// The delays of planner and agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentDelays {
    /// The least time between two rounds.
    pub round_interval_ms_min: i64,
    /// From the placement to the start of the processes.
    pub launch_ms: i64,
    /// From the stop order to the end of the processes.
    pub stop_ms: i64,
}

impl AgentDelays {
    /// Agents without delays, and at most one round per second.
    pub const IMMEDIATE: AgentDelays = AgentDelays { round_interval_ms_min: SECOND, launch_ms: 0, stop_ms: 0 };
}

/// The scripted work of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkAttempt {
    pub duration: WorkDuration,
    /// The exit if the attempt is not stopped.
    pub exit: Exit,
}

/// The duration of an attempt that is not stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkDuration {
    /// In milliseconds.
    Known(i64),
    /// Runs until it is stopped.
    UntilStopped,
    /// Not recorded: the runtime estimate of the placement, or the time limit.
    Unknown,
}

impl WorkAttempt {
    /// Work of a known length that ends with code 0.
    pub fn completes_after(ms: i64) -> WorkAttempt {
        WorkAttempt { duration: WorkDuration::Known(ms), exit: Exit::Code { code: 0 } }
    }

    /// Work of an unknown length that ends with code 0.
    pub fn unknown() -> WorkAttempt {
        WorkAttempt { duration: WorkDuration::Unknown, exit: Exit::Code { code: 0 } }
    }
}

/// The scripted behaviour of a job: one attempt after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobBehaviour {
    attempts: VecDeque<WorkAttempt>,
    /// The work of the first attempt that is in a checkpoint.
    checkpointed_ms: i64,
    running: Option<RunningAttempt>,
}

/// An attempt that is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RunningAttempt {
    attempt: u32,
    /// When its processes started; `None` during the launch.
    started_at: Option<Timestamp>,
}

impl JobBehaviour {
    /// A behaviour whose first attempt has already saved `checkpointed_ms` of work.
    pub fn new(attempts: impl IntoIterator<Item = WorkAttempt>, checkpointed_ms: i64) -> JobBehaviour {
        JobBehaviour { attempts: attempts.into_iter().collect(), checkpointed_ms, running: None }
    }

    /// The remaining work of the current attempt; `None` if it is unknown.
    fn remaining_ms(&self) -> Option<i64> {
        match self.attempts.front()?.duration {
            WorkDuration::Known(ms) => Some((ms - self.checkpointed_ms).max(0)),
            WorkDuration::UntilStopped => Some(i64::MAX),
            WorkDuration::Unknown => None,
        }
    }
}

/// A change of a job's placement.
#[derive(Debug, Clone, PartialEq)]
pub enum JobTransition {
    Placed {
        job: JobId,
        tasks: Vec<PlacedTask>,
    },
    Released {
        job: JobId,
        /// The part of the time whose work was not lost.
        useful_ms: i64,
        /// The attempt was not stopped.
        is_own_exit: bool,
        /// The job waits again.
        is_requeued: bool,
    },
}

/// A scheduled event of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AttemptTimer {
    ProcessesStart,
    /// The work is done, or the time limit is reached.
    WorkEnds,
    StopCompletes,
}

/// The simulated cluster.
pub struct SimLoop {
    pub state: State,
    pub now: Timestamp,
    /// The placement changes; the caller takes and empties them.
    pub transitions: Vec<JobTransition>,
    /// All events, if the caller sets it to `Some`.
    pub recorded_events: Option<Vec<Event>>,
    /// Queries the active policies; `None` without policies.
    pub policy_querier: Option<PolicyQuerier>,
    /// The number of planning rounds.
    pub round_count: u64,
    /// Rounds since the last placement change.
    pub rounds_without_transition: usize,
    delays: AgentDelays,
    behaviours: BTreeMap<JobId, JobBehaviour>,
    /// May contain timers of ended attempts.
    timers: BinaryHeap<Reverse<(Timestamp, JobId, u32, AttemptTimer)>>,
    /// Times at which the passing of time itself calls for a round: the end of a retry delay, the start of a window.
    wakeups: BinaryHeap<Reverse<Timestamp>>,
    /// Events that the simulated agents have not handled.
    unhandled_events: VecDeque<Event>,
    /// The state has changed since the last round.
    has_changed: bool,
    last_round_at: Timestamp,
}

impl SimLoop {
    /// A loop that starts from a state.
    pub fn new(state: State, now: Timestamp, delays: AgentDelays) -> SimLoop {
        let wakeups = wakeups_of_state(&state).filter(|at| *at > now).map(Reverse).collect();
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
            wakeups,
            unhandled_events: VecDeque::new(),
            has_changed: false,
            last_round_at: now.plus(-delays.round_interval_ms_min),
        }
    }

    /// Sets the behaviour of an accepted job.
    pub fn set_behaviour(&mut self, job: JobId, behaviour: JobBehaviour) {
        self.behaviours.insert(job, behaviour);
        self.has_changed = true;
    }

    /// Sets the behaviour of a job that may already be placed; a placed attempt continues.
    pub fn resume_job(&mut self, job: JobId, mut behaviour: JobBehaviour) {
        if let Some(attempt) = self.state.jobs.get(&job).and_then(Job::attempt) {
            let number = attempt.number;
            behaviour.running = Some(RunningAttempt { attempt: number, started_at: attempt.started_at });
            let (placed_at, started_at) = (attempt.placed_at, attempt.started_at);
            let stopping = attempt.stopping.as_ref().map(|stopping| stopping.since);
            if started_at.is_none() {
                self.set_timer(placed_at.plus(self.delays.launch_ms), job, number, AttemptTimer::ProcessesStart);
            }
            if let Some(since) = stopping {
                self.set_timer(since.plus(self.delays.stop_ms), job, number, AttemptTimer::StopCompletes);
            }
            self.behaviours.insert(job, behaviour);
            if let Some(started_at) = started_at {
                self.set_end_timer(job, started_at);
            }
            return;
        }
        self.set_behaviour(job, behaviour);
    }

    /// The time of the next event or round.
    pub fn next_event_ms(&mut self) -> Option<i64> {
        while let Some(Reverse((_, job, attempt, _))) = self.timers.peek() {
            if self.is_live_attempt(*job, *attempt) {
                break;
            }
            self.timers.pop();
        }
        let timer = self.timers.peek().map(|Reverse((at, ..))| at.0.max(self.now.0));
        let wakeup = self.wakeups.peek().map(|Reverse(at)| at.0.max(self.now.0));
        let round = self.next_round_delay_ms().map(|delay_ms| self.last_round_at.plus(delay_ms).max(self.now).0);
        [timer, wakeup, round].into_iter().flatten().min()
    }

    /// True if an attempt runs or is being launched.
    pub fn has_live_timers(&self) -> bool {
        self.timers.iter().any(|Reverse((_, job, attempt, _))| self.is_live_attempt(*job, *attempt))
    }

    /// Advances the time and handles the events that are due.
    pub fn advance_to(&mut self, now_ms: i64) {
        self.now = Timestamp(now_ms.max(self.now.0));
        while self.wakeups.peek().is_some_and(|Reverse(at)| *at <= self.now) {
            self.wakeups.pop();
            self.has_changed = true;
        }
        while let Some(Reverse((at, job, attempt, timer))) = self.timers.peek().copied() {
            if at > self.now {
                return;
            }
            self.timers.pop();
            if self.is_live_attempt(job, attempt) {
                self.has_changed = true;
                self.fire_timer(job, timer);
                self.handle_events();
            }
        }
    }

    /// Plans if a round is due, and again while the plan evicts victims, so that the preemptor starts in the same
    /// instant.
    pub fn plan_if_due(&mut self) {
        self.handle_events();
        let is_due = self.next_round_delay_ms().is_some_and(|delay_ms| self.now >= self.last_round_at.plus(delay_ms));
        if !is_due {
            return;
        }
        self.execute_as_system(&Command::Tick);
        self.handle_events();
        self.has_changed = false;
        self.last_round_at = self.now;
        let transitions_before = self.transitions.len();
        for _ in 0..ROUNDS_PER_INSTANT_MAX {
            self.round_count += 1;
            let plan = plan(&self.state, self.now.max(self.state.clock)).plan;
            if self.query_policies(&plan) {
                continue;
            }
            let evicts = !plan.evictions.is_empty();
            if !plan.is_empty() {
                self.execute_as_system(&Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
                self.handle_events();
            }
            if !evicts || self.delays.stop_ms > 0 {
                break;
            }
        }
        self.rounds_without_transition =
            if transitions_before == self.transitions.len() { self.rounds_without_transition + 1 } else { 0 };
    }

    /// Queries the policies about a plan. True if there are new answers and the plan must be computed again.
    fn query_policies(&mut self, plan: &Plan) -> bool {
        let since = Duration::from_millis(self.now.0.max(0) as u64);
        let querier = self.policy_querier.as_mut();
        let answers = querier.and_then(|querier| querier.new_answers(&self.state, plan, (self.now, since)));
        let Some(answers) = answers else { return false };
        self.execute_as_system(&answers);
        self.handle_events();
        true
    }

    /// The time from the last round to the next; `None` if no round is needed.
    fn next_round_delay_ms(&self) -> Option<i64> {
        let while_waiting = || (!self.state.queue.is_empty()).then_some(REPLAN_INTERVAL_MS_MAX);
        if self.has_changed { Some(self.delays.round_interval_ms_min) } else { while_waiting() }
    }

    /// Decides a command and applies its events.
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

    /// Requests a round.
    pub fn mark_changed(&mut self) {
        self.has_changed = true;
    }

    /// Refusals are ignored: the command has become needless, such as a stale plan or a repeated report.
    pub fn execute_as_system(&mut self, command: &Command) {
        let _ = self.execute(&Actor::system(), command);
    }

    fn is_live_attempt(&self, job: JobId, attempt: u32) -> bool {
        let running = self.behaviours.get(&job).and_then(|behaviour| behaviour.running);
        running.is_some_and(|running| running.attempt == attempt)
    }

    fn fire_timer(&mut self, job: JobId, timer: AttemptTimer) {
        match timer {
            AttemptTimer::ProcessesStart => self.start_attempt(job),
            AttemptTimer::WorkEnds if self.is_work_done(job) => {
                let exit = self.behaviours.get(&job).and_then(|behaviour| behaviour.attempts.front());
                let exit = exit.map_or(Exit::Code { code: 0 }, |attempt| attempt.exit.clone());
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
        self.attempt_work_ms(job).is_some_and(|work_ms| ran_ms >= work_ms)
    }

    /// The runtime of the current attempt.
    fn attempt_ran_ms(&self, job: JobId) -> i64 {
        let since = self.behaviours.get(&job).and_then(|behaviour| behaviour.running?.started_at);
        since.map_or(0, |since| self.now.since(since))
    }

    /// The work of the current attempt; if it is unknown, the runtime estimate of the attempt or the time limit.
    fn attempt_work_ms(&self, job: JobId) -> Option<i64> {
        let remaining_ms = self.behaviours.get(&job)?.remaining_ms();
        remaining_ms.or_else(|| {
            let job = self.state.jobs.get(&job)?;
            job.attempt()?.expected_ms.or(job.spec.time_limit_ms)
        })
    }

    /// Reacts to the events as agents would.
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
                // The time limit may have changed.
                Event::JobChanged { job, .. } => {
                    let since = self.behaviours.get(&job).and_then(|behaviour| behaviour.running?.started_at);
                    since.into_iter().for_each(|since| self.set_end_timer(job, since));
                }
                _ => {}
            }
        }
    }

    fn place_attempt(&mut self, job: JobId, attempt: u32, tasks: Vec<PlacedTask>) {
        let Some(behaviour) = self.behaviours.get_mut(&job) else { return };
        behaviour.running = Some(RunningAttempt { attempt, started_at: None });
        self.transitions.push(JobTransition::Placed { job, tasks });
        match self.delays.launch_ms {
            0 => self.start_attempt(job),
            launch_ms => self.set_timer(self.now.plus(launch_ms), job, attempt, AttemptTimer::ProcessesStart),
        }
    }

    fn start_attempt(&mut self, job: JobId) {
        let now = self.now;
        let Some(behaviour) = self.behaviours.get_mut(&job) else { return };
        let Some(running) = behaviour.running.as_mut().filter(|running| running.started_at.is_none()) else {
            return;
        };
        running.started_at = Some(now);
        self.report_from_all_nodes(job, &TaskReport::Started);
        self.set_end_timer(job, now);
    }

    /// Sets the timer for the end of the work or the time limit, whichever is first.
    fn set_end_timer(&mut self, job: JobId, since: Timestamp) {
        let limit_ms = self.state.jobs.get(&job).and_then(|job| job.spec.time_limit_ms);
        let attempt = self.behaviours.get(&job).and_then(|behaviour| behaviour.running).map(|running| running.attempt);
        let work_ms = [self.attempt_work_ms(job), limit_ms].into_iter().flatten().min();
        if let (Some(attempt), Some(ms)) = (attempt, work_ms.filter(|ms| *ms < i64::MAX)) {
            self.set_timer(since.plus(ms), job, attempt, AttemptTimer::WorkEnds);
        }
    }

    fn set_timer(&mut self, at: Timestamp, job: JobId, attempt: u32, timer: AttemptTimer) {
        self.timers.push(Reverse((at, job, attempt, timer)));
    }

    /// Ends an attempt: the job ends, or is requeued with its checkpointed work.
    fn finish_attempt(&mut self, job: JobId, exit: &Exit, next: &NextPhase) {
        self.has_changed = true;
        let (ran_ms, is_own_exit) = (self.attempt_ran_ms(job), self.is_work_done(job));
        let Some(behaviour) = self.behaviours.get_mut(&job) else { return };
        if behaviour.running.take().is_none() {
            return;
        }
        let is_restart = matches!(next, NextPhase::Queued { cause: RequeueCause::Restarted, .. });
        let is_requeued = !matches!(next, NextPhase::Ended { .. });
        let useful_ms = match next {
            NextPhase::Ended { .. } => ran_ms,
            _ if is_restart => 0,
            _ => self.state.jobs.get(&job).map_or(0, |job| checkpointed_ms(&job.spec, ran_ms)),
        };
        self.transitions.push(JobTransition::Released { job, useful_ms, is_own_exit, is_requeued });
        if !is_requeued {
            self.behaviours.remove(&job);
        } else if is_restart || (is_own_exit && !exit.is_success()) {
            behaviour.attempts.pop_front();
            behaviour.checkpointed_ms = 0;
            if behaviour.attempts.is_empty() {
                behaviour.attempts.push_back(WorkAttempt::unknown());
            }
        } else {
            behaviour.checkpointed_ms += useful_ms;
        }
    }

    /// Why the policies refuse a job; `None` if they accept it.
    pub fn policy_refusal(&self, spec: &JobSpec) -> Option<String> {
        self.policy_querier.as_ref()?.admission_refusal(&self.state, spec, self.now)
    }

    /// Sends a report from every node of a job.
    fn report_from_all_nodes(&mut self, job: JobId, report: &TaskReport) {
        let attempt = self.state.jobs.get(&job).and_then(Job::attempt);
        let Some((attempt, nodes)) = attempt.map(|attempt| (attempt.number, attempt.nodes())) else { return };
        for node in nodes {
            self.execute_as_system(&Command::ReportTask { node, job, attempt, report: report.clone() });
        }
    }
}

/// The wakeups that a state contains: no later event announces them.
fn wakeups_of_state(state: &State) -> impl Iterator<Item = Timestamp> {
    let retries = state.jobs.values().filter_map(|job| job.wakes_at);
    let windows = state.windows.values().flat_map(|window| [window.from, window.until]);
    let health = state.nodes.values().flat_map(|node| &node.gpu_health);
    retries.chain(windows).chain(health.filter_map(|health| health.cooling_until))
}

/// The wakeups that an event announces.
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

/// The work that is in a checkpoint after `ran_ms`.
pub fn checkpointed_ms(spec: &JobSpec, ran_ms: i64) -> i64 {
    let every_ms = spec.checkpoint.as_ref().and_then(|rule| rule.every_ms).filter(|every| *every > 0);
    every_ms.map_or(0, |every_ms| ran_ms / every_ms * every_ms)
}
