//! What must hold, whatever befalls the cluster. Looked at after every step, by a judge who sees everything: the journal,
//! what servers believe, what users were told and which processes really run.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::event::Next;
use muster_core::job::{Exit, Outcome};
use muster_core::ledger::{Charge, LeaseEnd};
use muster_core::{Event, JobId, State, Timestamp};
use muster_protocol::agent::Order;
use muster_server::cluster::Batch;
use muster_store::Entry;

use super::machine::Seen;

/// A shim that is not disturbed ends its tasks that soon after their grace: it looks a few times a second, and the clock
/// of its machine may be three times too fast. An agent that does it in its place comes later.
const LATE_MS_MAX: i64 = 1_500;

/// A part of an attempt: which node, which job, which attempt.
type Part = (usize, String, u32);

/// The judge.
#[derive(Default)]
pub struct Laws {
    /// What was published, in order.
    history: Vec<Entry>,
    /// The state that follows from it.
    judge: State,
    /// Parts whose tasks run, really.
    running: BTreeMap<Part, Order>,
    /// Parts whose tasks have ever run, with the moment they were placed.
    launched: BTreeSet<(Part, i64)>,
    /// Parts that are gone, with the exit codes of the tasks that left by themselves.
    gone: BTreeMap<Part, Vec<i32>>,
    /// When each part was really gone, by a clock that is right.
    gone_at: BTreeMap<Part, Timestamp>,
    /// No clock of the story is ever wrong.
    has_right_clocks: bool,
    /// Which job a user's letter became.
    told: BTreeMap<u64, JobId>,
}

/// A law that does not hold.
pub type Broken = String;

impl Laws {
    /// Nothing has happened yet.
    pub fn new(has_right_clocks: bool) -> Laws {
        Laws { judge: State::empty(), has_right_clocks, ..Laws::default() }
    }

    /// The cluster as it was last published.
    pub fn state(&self) -> &State {
        &self.judge
    }

    /// How many entries were published.
    pub fn published(&self) -> u64 {
        self.history.len() as u64
    }

    /// How many leaderships there were, and how many events of each kind.
    pub fn counts(&self) -> (u64, BTreeMap<&'static str, u64>) {
        let mut events = BTreeMap::new();
        for entry in &self.history {
            *events.entry(entry.event.kind()).or_default() += 1;
        }
        (self.history.last().map_or(0, |last| last.epoch), events)
    }

    /// A server publishes what it has written.
    pub fn publish(&mut self, batch: &Batch, nodes: &[String]) -> Result<(), Broken> {
        batch.entries.iter().try_for_each(|entry| self.enter(entry, nodes))
    }

    fn enter(&mut self, entry: &Entry, nodes: &[String]) -> Result<(), Broken> {
        match self.history.get(entry.seq as usize - 1) {
            Some(known) if known == entry => return Ok(()),
            Some(known) => return Err(format!("history was rewritten: {known:?} became {entry:?}")),
            None if entry.seq != self.published() + 1 => {
                return Err(format!("entry {} was published after {}", entry.seq, self.published()));
            }
            None => {}
        }
        if self.history.last().is_some_and(|last| last.epoch > entry.epoch) {
            return Err(format!("entry {} is of an epoch that was over", entry.seq));
        }
        self.believe(&entry.event, nodes)?;
        self.judge.apply(&entry.event);
        self.history.push(entry.clone());
        Ok(())
    }

    /// What the server says of a part must be what really became of it.
    fn believe(&self, event: &Event, nodes: &[String]) -> Result<(), Broken> {
        match event {
            Event::PartEnded { job, attempt, node, exit, .. } => {
                let Some(index) = nodes.iter().position(|name| name == node.as_str()) else { return Ok(()) };
                let part = (index, job.to_string(), *attempt);
                if self.running.contains_key(&part) {
                    return Err(format!("{part:?} is said to have ended with {exit:?}, but it runs"));
                }
                match (exit, self.gone.get(&part)) {
                    (Exit::Code { code }, Some(codes)) if codes.contains(code) => Ok(()),
                    (Exit::Code { .. }, codes) => Err(format!(
                        "{part:?} is said to have ended with {exit:?}, but its tasks said {codes:?}"
                    )),
                    _ => Ok(()),
                }
            }
            Event::AttemptEnded { job, attempt, exit, next, charge, charged_until, at, .. } => {
                self.is_over(&job.to_string(), *attempt)?;
                self.is_charged_rightly(
                    *job,
                    charge,
                    LeaseEnd { charged_until: charged_until.unwrap_or(*at), released_at: *at },
                )?;
                let done = matches!(next, Next::Ended { outcome: Outcome::Done, .. });
                if done && !self.did_its_work(&job.to_string(), *attempt) {
                    return Err(format!("{job} is said to be done with {exit:?}, and its tasks were not"));
                }
                Ok(())
            }
            Event::JobPlaced { job, .. } => {
                let name = job.to_string();
                match self.running.keys().find(|(_, other, _)| *other == name) {
                    Some(part) => Err(format!("{name} is placed again while {part:?} runs")),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Usage is charged from the placement until the processes were gone, or some moment between that and the release.
    fn is_charged_rightly(&self, job: JobId, charge: &Charge, end: LeaseEnd) -> Result<(), Broken> {
        let Some(attempt) = self.judge.jobs.get(&job).and_then(|job| job.attempt()) else { return Ok(()) };
        let LeaseEnd { charged_until, released_at } = end;
        if charged_until < attempt.placed_at || charged_until > released_at {
            return Err(format!("{job} is charged until {charged_until:?}, released at {released_at:?}"));
        }
        let gpu_ms = attempt.gpu_milli() * charged_until.since(attempt.placed_at).unsigned_abs() / 1_000;
        if charge.gpu_ms != gpu_ms {
            return Err(format!("{job} is charged {} GPU-ms, not {gpu_ms}", charge.gpu_ms));
        }
        let name = job.to_string();
        let parts =
            self.gone_at.iter().filter(|((_, of, number), _)| *of == name && *number == attempt.number);
        match parts.map(|(_, gone_at)| *gone_at).max().filter(|_| self.has_right_clocks) {
            Some(gone_at) if charged_until < gone_at => {
                Err(format!("{job} is charged until {charged_until:?}, and ran until {gone_at:?}"))
            }
            _ => Ok(()),
        }
    }

    fn is_over(&self, job: &str, attempt: u32) -> Result<(), Broken> {
        match self.running.keys().find(|(_, other, number)| other == job && *number == attempt) {
            Some(part) => Err(format!("{part:?} runs, and its attempt is said to be over")),
            None => Ok(()),
        }
    }

    /// Whether every part of an attempt left by itself, and with code 0.
    fn did_its_work(&self, job: &str, attempt: u32) -> bool {
        let mut parts =
            self.gone.iter().filter(|((_, other, number), _)| other == job && *number == attempt).peekable();
        parts.peek().is_some()
            && parts.all(|(_, codes)| !codes.is_empty() && codes.iter().all(|code| *code == 0))
    }

    /// A server begins to lead with what it has read: everything that was ever published must be in it.
    pub fn lead(&mut self, durable: &[Entry], nodes: &[String]) -> Result<(), Broken> {
        if (durable.len() as u64) < self.published() {
            return Err(format!(
                "{} entries are left of {} that were published",
                durable.len(),
                self.published()
            ));
        }
        durable.iter().try_for_each(|entry| self.enter(entry, nodes))
    }

    /// What a leader holds to be true is what follows from the journal.
    pub fn agree(&self, state: &State) -> Result<(), Broken> {
        if *state == self.judge {
            Ok(())
        } else {
            Err("the state of the leader is not that of the journal".to_string())
        }
    }

    /// No law of a single state is broken.
    pub fn check(&self) -> Result<(), Broken> {
        let broken = self.judge.check();
        if broken.is_empty() { Ok(()) } else { Err(format!("broken laws: {broken:?}")) }
    }

    /// Something happened on a node.
    pub fn see(&mut self, node: usize, seen: Seen, now: Timestamp) -> Result<(), Broken> {
        match seen {
            Seen::Began(order) => self.began(node, *order),
            Seen::Gone { job, attempt, codes, late_ms } => {
                let part = (node, job, attempt);
                if let Some(late_ms) = late_ms.filter(|late_ms| *late_ms > LATE_MS_MAX) {
                    return Err(format!("{part:?} ran for {late_ms} ms after its grace"));
                }
                self.running.remove(&part);
                self.gone_at.insert(part.clone(), now);
                self.gone.insert(part, codes);
                Ok(())
            }
            Seen::ToldToStop { job, attempt } => self.must_stop(&job, attempt),
        }
    }

    /// Whoever is told to stop has to: the server wants it, or counts it as over.
    fn must_stop(&self, job: &str, number: u32) -> Result<(), Broken> {
        let known = job.parse().ok().and_then(|job: JobId| self.judge.jobs.get(&job)?.attempt());
        match known.filter(|attempt| attempt.number == number && attempt.stopping.is_none()) {
            Some(_) => Err(format!("attempt {number} of {job} is told to stop, and nobody wants it to")),
            None => Ok(()),
        }
    }

    /// A node that has lost its disk may launch again what it had launched, unless the server has heard of it.
    pub fn disk_is_lost(&mut self, node: usize, name: &str) {
        let judge = &self.judge;
        let is_known = |(at, job, number): &Part| {
            let job = job.parse().ok().and_then(|job: JobId| judge.jobs.get(&job));
            let attempt = job.and_then(|job| job.attempt()).filter(|attempt| attempt.number == *number);
            let heard =
                attempt.map(|attempt| name.parse().is_ok_and(|name| attempt.parts.get(&name).is_some()));
            *at != node || heard.unwrap_or(true)
        };
        self.launched.retain(|(part, _)| is_known(part));
    }

    fn began(&mut self, node: usize, order: Order) -> Result<(), Broken> {
        let part = (node, order.job.clone(), order.attempt);
        if !self.launched.insert((part.clone(), order.placed_at_ms)) {
            return Err(format!("{part:?} was launched twice"));
        }
        if let Some(other) =
            self.running.keys().find(|(_, job, attempt)| *job == part.1 && *attempt != part.2)
        {
            return Err(format!("{part:?} runs beside another attempt of the same job, {other:?}"));
        }
        self.is_expected(&part)?;
        self.running.insert(part, order);
        self.fits(node)
    }

    /// Whoever runs has its place: the server has not counted it as over.
    fn is_expected(&self, part: &Part) -> Result<(), Broken> {
        let job: Option<JobId> = part.1.parse().ok();
        let attempt = job.and_then(|job| self.judge.jobs.get(&job)?.attempt());
        match attempt {
            Some(attempt) if attempt.number == part.2 => Ok(()),
            _ => Err(format!("{part:?} began although its attempt is over")),
        }
    }

    /// What runs on a node fits on its devices.
    fn fits(&self, node: usize) -> Result<(), Broken> {
        let mut used: BTreeMap<u8, (u32, Vec<&str>)> = BTreeMap::new();
        let here = self.running.iter().filter(|((at, _, _), _)| *at == node).map(|(_, order)| order);
        for (order, task) in here.flat_map(|order| order.tasks.iter().map(move |task| (order, task))) {
            for gpu in &task.gpus {
                let (sum, jobs) = used.entry(*gpu).or_default();
                *sum += task.share.as_ref().map_or(1_000, |share| share.compute_milli);
                jobs.push(&order.job);
            }
        }
        match used.into_iter().find(|(_, (sum, _))| *sum > 1_000) {
            Some((gpu, (sum, jobs))) => Err(format!("gpu-{gpu} of node {node} runs {sum}/1000 for {jobs:?}")),
            None => Ok(()),
        }
    }

    /// A user is told that a letter became a job.
    pub fn tell(&mut self, letter: u64, job: JobId) -> Result<(), Broken> {
        match self.told.insert(letter, job) {
            Some(before) if before != job => Err(format!("letter {letter} became {before} and {job}")),
            _ if self.is_known(job) => Ok(()),
            _ => Err(format!("letter {letter} became {job}, which is nowhere")),
        }
    }

    fn is_known(&self, job: JobId) -> bool {
        !self.judge.members(job).is_empty() || self.judge.ended.contains_key(&job)
    }

    /// When all is healed and everyone had time: every job has ended, nothing runs, and nobody was told a lie.
    pub fn rest(&self) -> Result<(), Broken> {
        if let Some(job) = self.judge.jobs.values().next() {
            return Err(format!(
                "{} of {} jobs never end, first {job:?}",
                self.judge.jobs.len(),
                self.judge.next_job - 1
            ));
        }
        if let Some(part) = self.running.keys().next() {
            return Err(format!("{part:?} runs on although every job has ended"));
        }
        match self.told.iter().find(|(_, job)| !self.is_known(**job)) {
            Some((letter, job)) => Err(format!("letter {letter} became {job}, which was lost")),
            None => Ok(()),
        }
    }
}
