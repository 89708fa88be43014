//! A stage: the product's own state and planner in simulated time, with players in the place of agents.
//!
//! The state decides and the planner proposes, as in a server. A job that is placed runs, works for as long as its
//! player knows, and ends as it says; who is told to stop stops. Who comes back goes on from what was saved, or begins
//! anew where nothing is. Rounds of planning are held when something has happened, with a pause between two, and now and
//! then while someone waits, because waiting counts too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use muster_core::command::{Actor, Answer, Command, Said};
use muster_core::event::{Back, Event, Next};
use muster_core::job::{Exit, Job, PlacedTask};
use muster_core::plan::{Plan, plan};
use muster_core::time::{MINUTE, SECOND};
use muster_core::{JobId, JobSpec, Refusal, State, Timestamp};
use muster_server::policies::Asker;

/// Longest time between two rounds while someone waits: order and loans change by themselves.
pub const LOOK_AGAIN_MS: i64 = 5 * MINUTE;
/// Most rounds at one moment. A round that displaces someone is followed by one that uses the room.
const ROUNDS_AT_ONCE: usize = 64;

/// How long things take that are not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// Least time between two rounds.
    pub round_ms: i64,
    /// From being placed to running.
    pub launch_ms: i64,
    /// From being told to stop to being gone.
    pub stop_ms: i64,
}

impl Delays {
    /// Agents do at once what they are told, and a round is held every second at most.
    pub const NONE: Delays = Delays { round_ms: SECOND, launch_ms: 0, stop_ms: 0 };
}

/// One try at a job's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// How long it works.
    pub lasts: Lasts,
    /// How it ends by itself.
    pub exit: Exit,
}

/// How long a try works if nobody stops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasts {
    /// So long.
    For(i64),
    /// Until someone stops it.
    On,
    /// Nobody knows: as long as it may, or as such jobs are expected to.
    Unknown,
}

impl Trial {
    /// Work of a known length that is then done.
    pub fn done_after(ms: i64) -> Trial {
        Trial { lasts: Lasts::For(ms), exit: Exit::Code { code: 0 } }
    }

    /// Work of which nothing is known.
    pub fn unknown() -> Trial {
        Trial { lasts: Lasts::Unknown, exit: Exit::Code { code: 0 } }
    }
}

/// What a job does when it runs: one try after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Player {
    trials: VecDeque<Trial>,
    /// How much of the work of the first try is done and saved.
    saved_ms: i64,
    runs: Option<Runs>,
}

/// An attempt that has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Runs {
    attempt: u32,
    /// When its processes began; nothing while they are launched.
    since: Option<Timestamp>,
}

impl Player {
    /// One that has done so much of the first try already.
    pub fn new(trials: impl IntoIterator<Item = Trial>, saved_ms: i64) -> Player {
        Player { trials: trials.into_iter().collect(), saved_ms, runs: None }
    }

    /// How long the try at hand would still work, if that is known.
    fn left_ms(&self) -> Option<i64> {
        match self.trials.front()?.lasts {
            Lasts::For(ms) => Some((ms - self.saved_ms).max(0)),
            Lasts::On => Some(i64::MAX),
            Lasts::Unknown => None,
        }
    }
}

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Happening {
    /// It has its place.
    Placed {
        /// Which job.
        job: JobId,
        /// Where.
        tasks: Vec<PlacedTask>,
    },
    /// It has given its place back.
    Left {
        /// Which job.
        job: JobId,
        /// How much of the time brought its work forward.
        useful_ms: i64,
        /// The try ended by itself.
        by_itself: bool,
        /// It waits again.
        comes_back: bool,
    },
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cue {
    /// Its processes begin.
    Begins,
    /// Its work is done, or its time is up.
    Ends,
    /// It has stopped.
    Stopped,
}

/// The cluster, and who plays in it.
pub struct Stage {
    /// What is true of the cluster.
    pub state: State,
    /// The time.
    pub now: Timestamp,
    /// Everything that happened to jobs, for whoever keeps the record and empties it.
    pub happened: Vec<Happening>,
    /// Every event, for whoever keeps the record; nothing is kept unless it is wanted.
    pub events: Option<Vec<Event>>,
    /// Who asks policies, where some are in force.
    pub asker: Option<Asker>,
    /// How often a plan was drawn up.
    pub rounds: u64,
    /// Rounds since anyone was placed or left.
    pub in_vain: usize,
    delays: Delays,
    players: BTreeMap<JobId, Player>,
    /// One whose attempt is over leaves its cues behind.
    due: BinaryHeap<Reverse<(Timestamp, JobId, u32, Cue)>>,
    /// Moments at which the time itself is news: a pause is over, nodes are booked.
    alarms: BinaryHeap<Reverse<Timestamp>>,
    /// Events that nobody has answered yet.
    news: VecDeque<Event>,
    /// Something has happened since the last round.
    stirred: bool,
    last_round: Timestamp,
}

impl Stage {
    /// A cluster as it is at a moment.
    pub fn new(state: State, now: Timestamp, delays: Delays) -> Stage {
        let alarms = alarms_of(&state).filter(|at| *at > now).map(Reverse).collect();
        Stage {
            state,
            now,
            happened: Vec::new(),
            events: None,
            asker: None,
            rounds: 0,
            in_vain: 0,
            delays,
            players: BTreeMap::new(),
            due: BinaryHeap::new(),
            alarms,
            news: VecDeque::new(),
            stirred: false,
            last_round: now.plus(-delays.round_ms),
        }
    }

    /// A job that was accepted will do this.
    pub fn play(&mut self, job: JobId, player: Player) {
        self.players.insert(job, player);
        self.stirred = true;
    }

    /// The same for one that may have its place already: it goes on from where it is.
    pub fn go_on(&mut self, job: JobId, mut player: Player) {
        if let Some(attempt) = self.state.jobs.get(&job).and_then(Job::attempt) {
            let number = attempt.number;
            player.runs = Some(Runs { attempt: number, since: attempt.started_at });
            let (placed_at, started_at) = (attempt.placed_at, attempt.started_at);
            let stopping = attempt.stopping.as_ref().map(|stopping| stopping.since);
            if started_at.is_none() {
                self.cue(placed_at.plus(self.delays.launch_ms), job, number, Cue::Begins);
            }
            if let Some(since) = stopping {
                self.cue(since.plus(self.delays.stop_ms), job, number, Cue::Stopped);
            }
            self.players.insert(job, player);
            if let Some(started_at) = started_at {
                self.cue_end(job, started_at);
            }
            return;
        }
        self.play(job, player);
    }

    /// The next moment at which something is due here.
    pub fn next_ms(&mut self) -> Option<i64> {
        while let Some(Reverse((_, job, attempt, _))) = self.due.peek() {
            if self.is_live_attempt(*job, *attempt) {
                break;
            }
            self.due.pop();
        }
        let cue = self.due.peek().map(|Reverse((at, ..))| at.0.max(self.now.0));
        let alarm = self.alarms.peek().map(|Reverse(at)| at.0.max(self.now.0));
        let round = self.pause_ms().map(|pause_ms| self.last_round.plus(pause_ms).max(self.now).0);
        [cue, alarm, round].into_iter().flatten().min()
    }

    /// Whether anyone runs, or is about to.
    pub fn is_anything_due(&self) -> bool {
        self.due.iter().any(|Reverse((_, job, attempt, _))| self.is_live_attempt(*job, *attempt))
    }

    /// Time has come to a moment: what is due happens.
    pub fn go_to(&mut self, now_ms: i64) {
        self.now = Timestamp(now_ms.max(self.now.0));
        while self.alarms.peek().is_some_and(|Reverse(at)| *at <= self.now) {
            self.alarms.pop();
            self.stirred = true;
        }
        while let Some(Reverse((at, job, attempt, cue))) = self.due.peek().copied() {
            if at > self.now {
                return;
            }
            self.due.pop();
            if self.is_live_attempt(job, attempt) {
                self.stirred = true;
                self.act(job, cue);
                self.answer_news();
            }
        }
    }

    /// Plan if it is time to, and plan again as long as someone was displaced: who made room must not be waited for.
    pub fn plan(&mut self) {
        self.answer_news();
        let due = self.pause_ms().is_some_and(|pause_ms| self.now >= self.last_round.plus(pause_ms));
        if !due {
            return;
        }
        self.tell(&Command::Tick);
        self.answer_news();
        self.stirred = false;
        self.last_round = self.now;
        let before = self.happened.len();
        for _ in 0..ROUNDS_AT_ONCE {
            self.rounds += 1;
            let plan = plan(&self.state, self.now.max(self.state.clock)).plan;
            if self.ask_policies(&plan) {
                continue;
            }
            let displaces = !plan.claims.is_empty();
            if !plan.is_empty() {
                self.tell(&Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
                self.answer_news();
            }
            if !displaces || self.delays.stop_ms > 0 {
                break;
            }
        }
        self.in_vain = if before == self.happened.len() { self.in_vain + 1 } else { 0 };
    }

    /// Ask policies what a plan needs to know. True if it is to be drawn up anew.
    fn ask_policies(&mut self, plan: &Plan) -> bool {
        let since = Duration::from_millis(self.now.0.max(0) as u64);
        let asker = self.asker.as_mut();
        let answers = asker.and_then(|asker| asker.news(&self.state, plan, (self.now, since)));
        let Some(answers) = answers else { return false };
        self.tell(&answers);
        self.answer_news();
        true
    }

    /// How long after the last round the next one is; nothing while all is quiet.
    fn pause_ms(&self) -> Option<i64> {
        let waits = || (!self.state.queue.is_empty()).then_some(LOOK_AGAIN_MS);
        if self.stirred { Some(self.delays.round_ms) } else { waits() }
    }

    /// Ask something of the cluster.
    pub fn ask(&mut self, by: &Actor, command: &Command) -> Result<Answer, Refusal> {
        let decision = self.state.decide(by, command, self.now)?;
        for event in decision.events {
            self.state.apply(&event);
            if let Some(events) = &mut self.events {
                events.push(event.clone());
            }
            self.news.push_back(event);
        }
        Ok(decision.answer)
    }

    /// Something has happened that calls for a round.
    pub fn stir(&mut self) {
        self.stirred = true;
    }

    /// What is refused here has become needless: a plan that holds no more, a report that comes twice.
    pub fn tell(&mut self, command: &Command) {
        let _ = self.ask(&Actor::system(), command);
    }

    fn is_live_attempt(&self, job: JobId, attempt: u32) -> bool {
        let runs = self.players.get(&job).and_then(|player| player.runs);
        runs.is_some_and(|runs| runs.attempt == attempt)
    }

    fn act(&mut self, job: JobId, cue: Cue) {
        match cue {
            Cue::Begins => self.begin(job),
            Cue::Ends if self.is_done(job) => {
                let exit = self.players.get(&job).and_then(|player| player.trials.front());
                let exit = exit.map_or(Exit::Code { code: 0 }, |trial| trial.exit.clone());
                self.report(job, &Said::Ended { exit, stopped: false, ended_ms_ago: None });
            }
            Cue::Ends => self.tell(&Command::Tick),
            Cue::Stopped => self.report(
                job,
                &Said::Ended { exit: Exit::Signal { signal: 15 }, stopped: true, ended_ms_ago: None },
            ),
        }
    }

    fn is_done(&self, job: JobId) -> bool {
        let ran_ms = self.ran_ms(job);
        self.lasts_ms(job).is_some_and(|lasts_ms| ran_ms >= lasts_ms)
    }

    /// How long the processes of a job have run in this attempt.
    fn ran_ms(&self, job: JobId) -> i64 {
        let since = self.players.get(&job).and_then(|player| player.runs?.since);
        since.map_or(0, |since| self.now.since(since))
    }

    /// How long a job works from the start of its attempt on; where nobody knows, as its attempt was expected to.
    fn lasts_ms(&self, job: JobId) -> Option<i64> {
        let left_ms = self.players.get(&job)?.left_ms();
        left_ms.or_else(|| {
            let job = self.state.jobs.get(&job)?;
            job.attempt()?.expected_ms.or(job.spec.time_limit_ms)
        })
    }

    /// Do what agents would do about what has happened.
    fn answer_news(&mut self) {
        while let Some(event) = self.news.pop_front() {
            let now = self.now;
            self.alarms.extend(alarms(&event).into_iter().flatten().filter(|at| *at > now).map(Reverse));
            match event {
                Event::JobPlaced { job, attempt, tasks, .. } => self.place(job, attempt, tasks),
                Event::AttemptStopping { job, attempt, .. } => match self.delays.stop_ms {
                    0 => self.act(job, Cue::Stopped),
                    stop_ms => self.cue(self.now.plus(stop_ms), job, attempt, Cue::Stopped),
                },
                Event::AttemptEnded { job, exit, next, .. } => self.settle(job, &exit, &next),
                Event::JobEnded { job, .. } => {
                    self.players.remove(&job);
                }
                // Its time limit may be another one.
                Event::JobChanged { job, .. } => {
                    let since = self.players.get(&job).and_then(|player| player.runs?.since);
                    since.into_iter().for_each(|since| self.cue_end(job, since));
                }
                _ => {}
            }
        }
    }

    fn place(&mut self, job: JobId, attempt: u32, tasks: Vec<PlacedTask>) {
        let Some(player) = self.players.get_mut(&job) else { return };
        player.runs = Some(Runs { attempt, since: None });
        self.happened.push(Happening::Placed { job, tasks });
        match self.delays.launch_ms {
            0 => self.begin(job),
            launch_ms => self.cue(self.now.plus(launch_ms), job, attempt, Cue::Begins),
        }
    }

    fn begin(&mut self, job: JobId) {
        let now = self.now;
        let Some(player) = self.players.get_mut(&job) else { return };
        let Some(runs) = player.runs.as_mut().filter(|runs| runs.since.is_none()) else { return };
        runs.since = Some(now);
        self.report(job, &Said::Started);
        self.cue_end(job, now);
    }

    /// The moment at which the work of a job is done or its time is up, whichever comes first.
    fn cue_end(&mut self, job: JobId, since: Timestamp) {
        let limit_ms = self.state.jobs.get(&job).and_then(|job| job.spec.time_limit_ms);
        let attempt = self.players.get(&job).and_then(|player| player.runs).map(|runs| runs.attempt);
        let lasts_ms = [self.lasts_ms(job), limit_ms].into_iter().flatten().min();
        if let (Some(attempt), Some(ms)) = (attempt, lasts_ms.filter(|ms| *ms < i64::MAX)) {
            self.cue(since.plus(ms), job, attempt, Cue::Ends);
        }
    }

    fn cue(&mut self, at: Timestamp, job: JobId, attempt: u32, cue: Cue) {
        self.due.push(Reverse((at, job, attempt, cue)));
    }

    /// An attempt is over: the job is, or it comes back with what it had saved.
    fn settle(&mut self, job: JobId, exit: &Exit, next: &Next) {
        self.stirred = true;
        let (ran_ms, by_itself) = (self.ran_ms(job), self.is_done(job));
        let Some(player) = self.players.get_mut(&job) else { return };
        if player.runs.take().is_none() {
            return;
        }
        let failed = matches!(next, Next::Queued { because: Back::Restarted, .. });
        let comes_back = !matches!(next, Next::Ended { .. });
        let useful_ms = match next {
            Next::Ended { .. } => ran_ms,
            _ if failed => 0,
            _ => self.state.jobs.get(&job).map_or(0, |job| kept_ms(&job.spec, ran_ms)),
        };
        self.happened.push(Happening::Left { job, useful_ms, by_itself, comes_back });
        if !comes_back {
            self.players.remove(&job);
        } else if failed || (by_itself && !exit.is_success()) {
            player.trials.pop_front();
            player.saved_ms = 0;
            if player.trials.is_empty() {
                player.trials.push_back(Trial::unknown());
            }
        } else {
            player.saved_ms += useful_ms;
        }
    }

    /// Why policies do not accept a job, if they do not.
    pub fn refused_by_policies(&self, spec: &JobSpec) -> Option<String> {
        self.asker.as_ref()?.refuses(&self.state, spec, self.now)
    }

    /// Every agent that has a part in a job speaks.
    fn report(&mut self, job: JobId, said: &Said) {
        let attempt = self.state.jobs.get(&job).and_then(Job::attempt);
        let Some((attempt, nodes)) = attempt.map(|attempt| (attempt.number, attempt.nodes())) else { return };
        for node in nodes {
            self.tell(&Command::ReportTask { node, job, attempt, said: said.clone() });
        }
    }
}

/// The moments that are news already: nobody will say them again.
fn alarms_of(state: &State) -> impl Iterator<Item = Timestamp> {
    let sleeping = state.jobs.values().filter_map(|job| job.wakes_at);
    let booked = state.windows.values().flat_map(|window| [window.from, window.until]);
    let health = state.nodes.values().flat_map(|node| &node.gpu_health);
    sleeping.chain(booked).chain(health.filter_map(|health| health.cooling_until))
}

/// The moments that an event makes news of.
fn alarms(event: &Event) -> [Option<Timestamp>; 2] {
    match event {
        Event::JobSubmitted { spec, .. } => [spec.start_after, None],
        Event::AttemptEnded { next: Next::Queued { wakes_at, .. }, .. } => [*wakes_at, None],
        Event::RetryAnswered { wakes_at, .. } => [Some(*wakes_at), None],
        Event::GpuHealthChanged { cooling_until, .. } => [*cooling_until, None],
        Event::WindowOpened { window, .. } => [Some(window.from), Some(window.until)],
        _ => [None, None],
    }
}

/// How much of what a job has done is saved after so long.
pub fn kept_ms(spec: &JobSpec, ran_ms: i64) -> i64 {
    let every_ms = spec.checkpoint.as_ref().and_then(|rule| rule.every_ms).filter(|every| *every > 0);
    every_ms.map_or(0, |every_ms| ran_ms / every_ms * every_ms)
}
