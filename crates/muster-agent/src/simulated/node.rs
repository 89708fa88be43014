//! One simulated node: what it owes, what it has said, and what it says next.

use std::collections::BTreeMap;

use muster_protocol::agent::{Exit, Order, Orders, Registration, Report, TaskOrder};

use super::fate::Fate;
use super::heat::Heat;
use super::world::{Act, LogLine, Paces};
use crate::duration;
use crate::logs::Stream;
use crate::newest::Newest;
use crate::pace::Pace;

/// A node and its attempts.
#[derive(Debug)]
pub(super) struct SimulatedNode {
    registration: Registration,
    paces: Paces,
    newest: Newest,
    heartbeat: Pace,
    attempts: BTreeMap<(String, u32), Attempt>,
    heat: Heat,
}

/// One attempt the orders name.
#[derive(Debug)]
struct Attempt {
    order: Order,
    fate: Fate,
    started: Pace,
    ended: Pace,
}

impl SimulatedNode {
    pub fn new(registration: Registration, paces: Paces) -> SimulatedNode {
        SimulatedNode {
            newest: Newest::new(&registration.incarnation),
            registration,
            paces,
            heartbeat: Pace::default(),
            attempts: BTreeMap::new(),
            heat: Heat::default(),
        }
    }

    /// Take over orders, unless they are older than what we follow. Attempts they no longer name are forgotten.
    pub fn obey(&mut self, orders: Orders) {
        if !self.newest.accepts(&orders) {
            return;
        }
        let mut known = std::mem::take(&mut self.attempts);
        for order in orders.attempts {
            let key = (order.job.clone(), order.attempt);
            let attempt = match known.remove(&key) {
                Some(attempt) => attempt.with(order),
                None => Attempt::new(order),
            };
            self.attempts.insert(key, attempt);
        }
    }

    /// Say and do what is due.
    pub fn step(&mut self, now_ms: i64) -> Vec<Act> {
        let mut acts = Vec::new();
        self.say_presence(now_ms, &mut acts);
        for attempt in self.attempts.values_mut() {
            attempt.step(now_ms, self.paces.heartbeat_ms, &self.registration.node, &mut acts);
        }
        let heated = self.heated(now_ms);
        let readings = self.heat.step(now_ms, self.paces, &self.registration, &heated);
        acts.extend(readings.into_iter().map(Act::Say));
        acts
    }

    /// When something is due next.
    pub fn wake_at_ms(&self) -> i64 {
        let attempts = self.attempts.values().map(Attempt::wake_at_ms);
        attempts.chain([self.heat.wake_at_ms(), self.heartbeat.next_ms()]).min().unwrap_or(i64::MIN)
    }

    fn say_presence(&mut self, now_ms: i64, acts: &mut Vec<Act>) {
        if !self.heartbeat.is_due(now_ms, self.paces.heartbeat_ms) {
            return;
        }
        // A server that does not lead hears nothing, so it is said until orders show that someone knows this agent.
        if !self.newest.is_known() {
            acts.push(Act::Say(Report::Registered(Box::new(self.registration.clone()))));
        }
        acts.push(Act::Say(Report::Heartbeat { node: self.registration.node.clone() }));
    }

    /// The GPUs that running attempts heat; of two on one GPU the hotter counts.
    fn heated(&self, now_ms: i64) -> BTreeMap<u8, i32> {
        let mut heated = BTreeMap::new();
        for attempt in self.attempts.values().filter(|attempt| attempt.fate.is_running(now_ms)) {
            let Some(temperature_c) = attempt.fate.temperature_c else { continue };
            for gpu in attempt.order.tasks.iter().flat_map(|task| &task.gpus) {
                let hottest = heated.entry(*gpu).or_insert(temperature_c);
                *hottest = temperature_c.max(*hottest);
            }
        }
        heated
    }
}

impl Attempt {
    fn new(order: Order) -> Attempt {
        Attempt { fate: Fate::of(&order), order, started: Pace::default(), ended: Pace::default() }
    }

    /// The same attempt under newer orders. What has ended stays as it ended.
    fn with(mut self, order: Order) -> Attempt {
        if !self.ended.has_begun() {
            self.fate = Fate::of(&order);
        }
        self.order = order;
        self
    }

    fn step(&mut self, now_ms: i64, every_ms: i64, node: &str, acts: &mut Vec<Act>) {
        let over = self.fate.ends_at_ms <= now_ms;
        if self.fate.starts_at_ms.is_some_and(|starts_at_ms| starts_at_ms <= now_ms) {
            self.say_started(now_ms, every_ms, node, over, acts);
        }
        if over {
            self.say_ended(now_ms, every_ms, node, acts);
        }
    }

    /// Said until the orders know it. After the end it is only said if it never was, so that the two come in order.
    fn say_started(&mut self, now_ms: i64, every_ms: i64, node: &str, over: bool, acts: &mut Vec<Act>) {
        if self.order.started || (over && self.started.has_begun()) {
            return;
        }
        if !self.started.has_begun() {
            acts.extend(self.log(Stream::Stdout, |task| self.opening(node, task)));
        }
        if self.started.is_due(now_ms, every_ms) {
            let (job, attempt) = (self.order.job.clone(), self.order.attempt);
            let incarnation = String::new();
            acts.push(Act::Say(Report::Started { node: node.to_string(), job, attempt, incarnation }));
        }
    }

    fn say_ended(&mut self, now_ms: i64, every_ms: i64, node: &str, acts: &mut Vec<Act>) {
        if !self.ended.has_begun() {
            acts.extend(self.log(self.closing_stream(), |_| self.closing()));
        }
        if self.ended.is_due(now_ms, every_ms) {
            acts.push(Act::Say(Report::Ended {
                node: node.to_string(),
                job: self.order.job.clone(),
                attempt: self.order.attempt,
                exit: self.fate.exit.clone(),
                stopped: self.fate.stopped,
                ended_ms_ago: Some(now_ms.saturating_sub(self.fate.ends_at_ms).max(0)),
                incarnation: String::new(),
            }));
        }
    }

    fn wake_at_ms(&self) -> i64 {
        if self.ended.has_begun() {
            return self.ended.next_ms();
        }
        let start = match self.fate.starts_at_ms {
            Some(starts_at_ms) if !self.order.started => self.started.next_ms().max(starts_at_ms),
            _ => i64::MAX,
        };
        start.min(self.fate.ends_at_ms)
    }

    fn log(&self, stream: Stream, text: impl Fn(&TaskOrder) -> String) -> Vec<Act> {
        let line = |task: &TaskOrder| LogLine {
            job: self.order.job.clone(),
            attempt: self.order.attempt,
            rank: task.rank,
            stream,
            text: text(task),
        };
        self.order.tasks.iter().map(line).map(Act::Log).collect()
    }

    fn opening(&self, node: &str, task: &TaskOrder) -> String {
        let Order { job, attempt, name, gang_size, run, .. } = &self.order;
        let gpus = task.gpus.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        let gpus = match &task.share {
            Some(share) => format!("{} thousandths of GPU {gpus} by {}", share.compute_milli, share.mode),
            None if gpus.is_empty() => "no GPUs".to_string(),
            None => format!("GPUs {gpus}"),
        };
        let runs = match (&run.script, &run.image) {
            (Some(script), _) => {
                script.lines().find(|line| !line.starts_with("#!")).unwrap_or("").to_string()
            }
            (None, image) => {
                image.iter().chain(&run.command).chain(&run.args).cloned().collect::<Vec<_>>().join(" ")
            }
        };
        let runtime = duration::humane(self.fate.ends_at_ms - self.fate.starts_at_ms.unwrap_or_default());
        format!(
            "[simulated] {job} `{name}`, attempt {attempt}: rank {} of {gang_size} on {node} with {gpus}\n\
             [simulated] would run: {runs}\n[simulated] pretends to work for {runtime}\n",
            task.rank
        )
    }

    fn closing(&self) -> String {
        let ended = match &self.fate.exit {
            Exit::Code(code) => format!("ended with exit code {code}"),
            Exit::Signal(signal) => format!("ended by signal {signal}"),
            Exit::NotStarted(why) => format!("did not start: {why}"),
            Exit::Unknown(why) => format!("ended, nobody saw how: {why}"),
        };
        match &self.order.stop {
            Some(stop) => format!("[simulated] {ended} (asked to stop: {})\n", stop.why),
            None => format!("[simulated] {ended}\n"),
        }
    }

    fn closing_stream(&self) -> Stream {
        if matches!(self.fate.exit, Exit::NotStarted(_)) { Stream::Stderr } else { Stream::Stdout }
    }
}
