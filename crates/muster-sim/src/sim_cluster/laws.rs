//! The laws of a simulated run, checked after every event against the journal, the leader state, the answers to
//! clients and the processes that really run.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::accounting::ledger::LeaseEnd;
use muster_core::facts::event::NextPhase;
use muster_core::objects::charge::Charge;
use muster_core::objects::enrolment::JoinToken;
use muster_core::objects::job::{Exit, Outcome};
use muster_core::{Event, JobId, State, Timestamp};
use muster_protocol::agent::{AttemptOrder, Report};
use muster_server::cluster::Batch;
use muster_store::Entry;
use muster_wire::v1::AgentHello;

use super::clock::SIM_START_UNIX_MS;
use super::gang_starts::GangStarts;
use super::machine::MachineObservation;

/// The longest time from the end of the grace until an undisturbed shim has killed its tasks: the simulator checks its
/// timer a few times a second, and the clock of its machine may be three times too fast. An agent that kills in place of the
/// shim is slower.
const KILL_DELAY_MS_MAX: i64 = 1_500;

/// The part of an attempt on one node: node, job, attempt.
type AttemptPart = (usize, String, u32);

/// The observed facts that the laws are checked against.
#[derive(Default)]
pub struct Laws {
    published_entries: Vec<Entry>,
    /// The state that follows from the published entries.
    expected_state: State,
    /// Parts whose tasks really run.
    running: BTreeMap<AttemptPart, AttemptOrder>,
    /// Parts whose tasks have ever run, with their placement times.
    launched: BTreeSet<(AttemptPart, i64)>,
    /// Parts that are gone, with the exit codes of the tasks that exited by themselves.
    exit_codes: BTreeMap<AttemptPart, Vec<i32>>,
    /// When each part was really gone, in true time.
    gone_at: BTreeMap<AttemptPart, Timestamp>,
    /// No action of the schedule disturbs a clock.
    are_clocks_accurate: bool,
    gang_starts: GangStarts,
    /// The job that each client request was answered with.
    job_of_request: BTreeMap<u64, JobId>,
    /// Machines whose name an operator has given to another one, which has not joined yet.
    replaced: BTreeSet<usize>,
    /// Machines whose name another one has taken over: the operator answers for what still runs there.
    revoked: BTreeSet<usize>,
    running_on_revoked: BTreeSet<AttemptPart>,
    join_tokens: BTreeMap<String, JoinToken>,
    /// Machine, boot and time of each heartbeat that a server has taken over.
    heartbeats: BTreeSet<(usize, u64, i64)>,
    /// The newest orders that each agent has followed, by machine and start of the agent.
    followed: BTreeMap<(usize, u64), (u64, u64)>,
}

/// The message of a broken law.
pub type BrokenLaw = String;

impl Laws {
    pub fn new(are_clocks_accurate: bool) -> Laws {
        Laws { expected_state: State::empty(), are_clocks_accurate, ..Laws::default() }
    }

    /// The state after the last published entry.
    pub fn expected_state(&self) -> &State {
        &self.expected_state
    }

    pub fn published_count(&self) -> u64 {
        self.published_entries.len() as u64
    }

    /// The number of leader terms, and of events of each kind.
    pub fn leaderships_and_events(&self) -> (u64, BTreeMap<&'static str, u64>) {
        let mut events = BTreeMap::new();
        for entry in &self.published_entries {
            *events.entry(entry.event.kind()).or_default() += 1;
        }
        (self.published_entries.last().map_or(0, |last| last.epoch), events)
    }

    /// Checks the entries that a server publishes.
    pub fn publish(&mut self, batch: &Batch, nodes: &[String]) -> Result<(), BrokenLaw> {
        batch.entries.iter().try_for_each(|entry| self.check_entry(entry, nodes))
    }

    fn check_entry(&mut self, entry: &Entry, nodes: &[String]) -> Result<(), BrokenLaw> {
        match self.published_entries.get(entry.seq as usize - 1) {
            Some(known) if known == entry => return Ok(()),
            Some(known) => return Err(format!("history was rewritten: {known:?} was replaced by {entry:?}")),
            None if entry.seq != self.published_count() + 1 => {
                return Err(format!("entry {} was published after {}", entry.seq, self.published_count()));
            }
            None => {}
        }
        if self.published_entries.last().is_some_and(|last| last.epoch > entry.epoch) {
            return Err(format!("entry {} is of a former epoch", entry.seq));
        }
        self.check_event(&entry.event, nodes)?;
        if self.are_clocks_accurate {
            self.gang_starts.check_entry(entry)?;
        }
        self.check_enrolment(&entry.event, nodes)?;
        self.expected_state.apply(&entry.event);
        self.published_entries.push(entry.clone());
        Ok(())
    }

    /// What an event records about an attempt must match what really happened.
    fn check_event(&self, event: &Event, nodes: &[String]) -> Result<(), BrokenLaw> {
        match event {
            Event::NodePartEnded { job, attempt, node, exit, .. } => {
                let machines = nodes.iter().enumerate().filter(|(_, name)| *name == node.as_str());
                let parts: Vec<_> = machines.map(|(index, _)| (index, job.to_string(), *attempt)).collect();
                if let Some(part) = parts.iter().find(|part| self.running.contains_key(*part)) {
                    return Err(format!("{part:?} is recorded as ended with {exit:?}, but it runs"));
                }
                let exit_codes: Vec<i32> =
                    parts.iter().filter_map(|part| self.exit_codes.get(part)).flatten().copied().collect();
                match exit {
                    Exit::Code { code } if !exit_codes.contains(code) => Err(format!(
                        "{parts:?} is recorded as ended with {exit:?}, but its tasks exited with {exit_codes:?}"
                    )),
                    _ => Ok(()),
                }
            }
            Event::AttemptEnded { job, attempt, exit, next, charge, charged_until, at, .. } => {
                self.check_attempt_over(&job.to_string(), *attempt)?;
                self.check_charge(
                    *job,
                    charge,
                    LeaseEnd { charged_until: charged_until.unwrap_or(*at), released_at: *at },
                )?;
                let done = matches!(next, NextPhase::Ended { outcome: Outcome::Done, .. });
                if done && !self.completed_successfully(&job.to_string(), *attempt) {
                    return Err(format!(
                        "{job} is recorded as done with {exit:?}, but its tasks did not all exit with 0"
                    ));
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

    /// A join token enrols one node, once, and only until it expires.
    fn check_enrolment(&mut self, event: &Event, nodes: &[String]) -> Result<(), BrokenLaw> {
        match event {
            Event::JoinTokenAdded { token, .. } => drop(self.join_tokens.insert(token.id.clone(), (**token).clone())),
            Event::JoinTokenEnded { id, .. } => drop(self.join_tokens.remove(id)),
            Event::NodeEnrolled { node, token, at } => {
                let used = self.join_tokens.remove(token);
                let is_usable =
                    |token: &JoinToken| token.expires_at > *at && token.node.as_ref().is_none_or(|only| only == node);
                if !used.as_ref().is_some_and(is_usable) {
                    return Err(format!("{node} enrols with {used:?} at {at:?}"));
                }
                let is_replaced = |machine: &usize| nodes.get(*machine).is_some_and(|name| name == node.as_str());
                let revoked: Vec<usize> = self.replaced.iter().copied().filter(is_replaced).collect();
                revoked.into_iter().for_each(|machine| self.revoke(machine));
            }
            _ => {}
        }
        Ok(())
    }

    /// An operator gives the name of a machine to another one.
    pub fn note_replaced(&mut self, machine: usize) {
        self.replaced.insert(machine);
    }

    fn revoke(&mut self, machine: usize) {
        self.replaced.remove(&machine);
        self.revoked.insert(machine);
        let (revoked, running) = std::mem::take(&mut self.running).into_iter().partition(|(part, _)| part.0 == machine);
        self.running = running;
        let revoked: BTreeMap<AttemptPart, AttemptOrder> = revoked;
        self.running_on_revoked.extend(revoked.into_keys());
    }

    /// A server admits only the current enrolment of a node.
    pub fn check_admission(&self, node: usize, hello: &AgentHello) -> Result<(), BrokenLaw> {
        let is_enrolled = hello.node.parse().is_ok_and(|name| self.expected_state.is_enrolled(&name, &hello.enrolment));
        match is_enrolled || !self.are_clocks_accurate {
            true => Ok(()),
            false => {
                Err(format!("machine {node} is admitted with the enrolment {} of {}", hello.enrolment, hello.node))
            }
        }
    }

    /// A server has taken over a heartbeat.
    pub fn note_heartbeat(&mut self, machine: usize, boot: u64, sent_at_boot_ms: i64) {
        self.heartbeats.insert((machine, boot, sent_at_boot_ms));
    }

    /// An echo renews self-fences, so it must be that of a heartbeat of this machine which a server has taken over.
    pub fn check_echo(&self, machine: usize, boot: u64, sent_at_boot_ms: i64) -> Result<(), BrokenLaw> {
        match self.heartbeats.contains(&(machine, boot, sent_at_boot_ms)) {
            true => Ok(()),
            false => Err(format!(
                "machine {machine} takes the echo of a heartbeat at {sent_at_boot_ms} ms, which it never sent"
            )),
        }
    }

    /// An agent never follows older orders than before.
    pub fn check_followed_orders(&mut self, machine: usize, start: u64, report: &Report) -> Result<(), BrokenLaw> {
        let Report::Heartbeat { following: Some(stamp), .. } = report else { return Ok(()) };
        let stamp = (stamp.epoch, stamp.generation);
        let newest = self.followed.entry((machine, start)).or_insert(stamp);
        if stamp < *newest {
            return Err(format!("machine {machine} follows the orders {stamp:?} after {newest:?}"));
        }
        *newest = stamp;
        Ok(())
    }

    /// The time of the last entry.
    pub fn latest_time(&self) -> Timestamp {
        self.published_entries.last().map_or(Timestamp(SIM_START_UNIX_MS), |entry| entry.at)
    }

    /// Usage is charged from the placement to a time between the end of the processes and the release of the leases.
    fn check_charge(&self, job: JobId, charge: &Charge, end: LeaseEnd) -> Result<(), BrokenLaw> {
        let Some(attempt) = self.expected_state.jobs.get(&job).and_then(|job| job.attempt()) else {
            return Ok(());
        };
        let LeaseEnd { charged_until, released_at } = end;
        if charged_until < attempt.placed_at || charged_until > released_at {
            return Err(format!("{job} is charged until {charged_until:?}, released at {released_at:?}"));
        }
        let gpu_ms = attempt.gpu_milli() * charged_until.since(attempt.placed_at).unsigned_abs() / 1_000;
        if charge.gpu_ms != gpu_ms {
            return Err(format!("{job} is charged {} GPU-ms, not {gpu_ms}", charge.gpu_ms));
        }
        let name = job.to_string();
        let parts = self.gone_at.iter().filter(|((_, other, number), _)| *other == name && *number == attempt.number);
        match parts.map(|(_, gone_at)| *gone_at).max().filter(|_| self.are_clocks_accurate) {
            Some(gone_at) if charged_until < gone_at => {
                Err(format!("{job} is charged until {charged_until:?}, but ran until {gone_at:?}"))
            }
            _ => Ok(()),
        }
    }

    fn check_attempt_over(&self, job: &str, attempt: u32) -> Result<(), BrokenLaw> {
        match self.running.keys().find(|(_, other, number)| other == job && *number == attempt) {
            Some(part) => Err(format!("{part:?} runs, but its attempt is recorded as ended")),
            None => Ok(()),
        }
    }

    /// True if every task of an attempt that exited by itself had code 0, and every part has one.
    fn completed_successfully(&self, job: &str, attempt: u32) -> bool {
        let mut parts =
            self.exit_codes.iter().filter(|((_, other, number), _)| other == job && *number == attempt).peekable();
        parts.peek().is_some()
            && parts.all(|(_, exit_codes)| !exit_codes.is_empty() && exit_codes.iter().all(|code| *code == 0))
    }

    /// The journal that a new leader reads must contain every entry that was ever published.
    pub fn check_leader_journal(&mut self, durable: &[Entry], nodes: &[String]) -> Result<(), BrokenLaw> {
        if (durable.len() as u64) < self.published_count() {
            return Err(format!(
                "{} entries are left of {} that were published",
                durable.len(),
                self.published_count()
            ));
        }
        durable.iter().try_for_each(|entry| self.check_entry(entry, nodes))
    }

    /// The state of a leader must equal the state of the journal.
    pub fn check_leader_state(&self, state: &State) -> Result<(), BrokenLaw> {
        if *state == self.expected_state {
            Ok(())
        } else {
            Err("the state of the leader is not that of the journal".to_string())
        }
    }

    /// The state itself must obey `State::check`.
    pub fn check_state_laws(&self) -> Result<(), BrokenLaw> {
        let broken = self.expected_state.check();
        if broken.is_empty() { Ok(()) } else { Err(format!("broken laws: {broken:?}")) }
    }

    /// Checks an observation on a node.
    pub fn observe(&mut self, node: usize, observation: MachineObservation, now: Timestamp) -> Result<(), BrokenLaw> {
        if self.revoked.contains(&node) {
            self.observe_revoked(node, observation);
            return Ok(());
        }
        match observation {
            MachineObservation::TasksStarted(order) => self.check_launch(node, *order),
            MachineObservation::TasksGone { job, attempt, exit_codes, kill_delay_ms } => {
                let part = (node, job, attempt);
                if let Some(kill_delay_ms) = kill_delay_ms.filter(|kill_delay_ms| *kill_delay_ms > KILL_DELAY_MS_MAX) {
                    return Err(format!("{part:?} was killed {kill_delay_ms} ms after the end of its grace"));
                }
                self.running.remove(&part);
                self.gone_at.insert(part.clone(), now);
                self.exit_codes.insert(part, exit_codes);
                Ok(())
            }
            MachineObservation::StopRequested { job, attempt } => self.check_stop_is_wanted(&job, attempt),
        }
    }

    fn observe_revoked(&mut self, node: usize, observation: MachineObservation) {
        match observation {
            MachineObservation::TasksStarted(order) => {
                self.running_on_revoked.insert((node, order.job, order.attempt));
            }
            MachineObservation::TasksGone { job, attempt, .. } => {
                self.running_on_revoked.remove(&(node, job, attempt));
            }
            MachineObservation::StopRequested { .. } => {}
        }
    }

    /// An attempt gets a stop record only if the server ordered a stop or counts the attempt as over.
    fn check_stop_is_wanted(&self, job: &str, number: u32) -> Result<(), BrokenLaw> {
        let known = job.parse().ok().and_then(|job: JobId| self.expected_state.jobs.get(&job)?.attempt());
        match known.filter(|attempt| attempt.number == number && attempt.stopping.is_none()) {
            Some(_) => {
                Err(format!("attempt {number} of {job} gets a stop record although the server did not order a stop"))
            }
            None => Ok(()),
        }
    }

    /// Forget those launches on a node that the server has no report of. The node has lost its disk, so it may launch
    /// these attempts a second time; a second launch of any other attempt breaks the law.
    pub fn forget_unreported_launches(&mut self, node: usize, name: &str) {
        let state = &self.expected_state;
        let is_known = |(at, job, number): &AttemptPart| {
            let job = job.parse().ok().and_then(|job: JobId| state.jobs.get(&job));
            let attempt = job.and_then(|job| job.attempt()).filter(|attempt| attempt.number == *number);
            let is_reported =
                attempt.map(|attempt| name.parse().is_ok_and(|name| attempt.reports.get(&name).is_some()));
            *at != node || is_reported.unwrap_or(true)
        };
        self.launched.retain(|(part, _)| is_known(part));
    }

    fn check_launch(&mut self, node: usize, order: AttemptOrder) -> Result<(), BrokenLaw> {
        let part = (node, order.job.clone(), order.attempt);
        if !self.launched.insert((part.clone(), order.placed_at_ms)) {
            return Err(format!("{part:?} was launched twice"));
        }
        if let Some(other) = self.running.keys().find(|(_, job, attempt)| *job == part.1 && *attempt != part.2) {
            return Err(format!("{part:?} runs beside another attempt of the same job, {other:?}"));
        }
        if let Some(other) =
            self.running_on_revoked.iter().find(|(_, job, attempt)| (job, attempt) == (&part.1, &part.2))
        {
            return Err(format!("{part:?} is launched although the former installation runs it, {other:?}"));
        }
        self.check_attempt_is_current(&part)?;
        self.running.insert(part, order);
        self.check_gpu_capacity(node)
    }

    /// An attempt may start only while the server counts it as live.
    fn check_attempt_is_current(&self, part: &AttemptPart) -> Result<(), BrokenLaw> {
        let job: Option<JobId> = part.1.parse().ok();
        let attempt = job.and_then(|job| self.expected_state.jobs.get(&job)?.attempt());
        match attempt {
            Some(attempt) if attempt.number == part.2 => Ok(()),
            _ => Err(format!("{part:?} started although its attempt is over")),
        }
    }

    /// The running tasks of a node must fit on its GPUs.
    fn check_gpu_capacity(&self, node: usize) -> Result<(), BrokenLaw> {
        let mut used: BTreeMap<u8, (u32, Vec<&str>)> = BTreeMap::new();
        let orders = self.running.iter().filter(|((at, _, _), _)| *at == node).map(|(_, order)| order);
        for (order, task) in orders.flat_map(|order| order.tasks.iter().map(move |task| (order, task))) {
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

    /// Checks the job in the answer to a client request.
    pub fn check_answer(&mut self, request: u64, job: JobId) -> Result<(), BrokenLaw> {
        match self.job_of_request.insert(request, job) {
            Some(before) if before != job => {
                Err(format!("request {request} was answered with {before} and with {job}"))
            }
            _ if self.is_job_known(job) => Ok(()),
            _ => Err(format!("request {request} was answered with {job}, which the state does not contain")),
        }
    }

    fn is_job_known(&self, job: JobId) -> bool {
        !self.expected_state.live_jobs_of(job).is_empty() || self.expected_state.ended.contains_key(&job)
    }

    /// At rest, every job has ended, no task runs, and every answered job is known.
    pub fn check_rest(&self) -> Result<(), BrokenLaw> {
        if let Some(job) = self.expected_state.jobs.values().next() {
            return Err(format!(
                "{} of {} jobs have not ended, first {job:?}",
                self.expected_state.jobs.len(),
                self.expected_state.next_job - 1
            ));
        }
        if let Some(part) = self.running.keys().chain(&self.running_on_revoked).next() {
            return Err(format!("{part:?} still runs although every job has ended"));
        }
        match self.job_of_request.iter().find(|(_, job)| !self.is_job_known(**job)) {
            Some((request, job)) => Err(format!("request {request} was answered with {job}, which was lost")),
            None => Ok(()),
        }
    }
}
