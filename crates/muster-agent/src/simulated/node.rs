//! One simulated node: its ordered attempts, and the reports that are due.

use std::collections::BTreeMap;

use muster_core::time;
use muster_protocol::agent::{AttemptOrder, Exit, Orders, Registration, Report, TaskOrder};

use super::effect::{LogLine, ReportIntervals, SimulatedEffect};
use super::gpu_temperatures::GpuTemperatures;
use super::simulated_run::SimulatedRun;
use crate::logs::Stream;
use crate::order_fence::{FenceDecision, OrderFence};
use crate::repeat_timer::RepeatTimer;

#[derive(Debug)]
pub(super) struct SimulatedNode {
    registration: Registration,
    intervals: ReportIntervals,
    order_fence: OrderFence,
    heartbeat_timer: RepeatTimer,
    attempts: BTreeMap<(String, u32), SimulatedAttempt>,
    gpu_temperatures: GpuTemperatures,
}

/// One attempt of the orders.
#[derive(Debug)]
struct SimulatedAttempt {
    order: AttemptOrder,
    simulated_run: SimulatedRun,
    start_report_timer: RepeatTimer,
    exit_report_timer: RepeatTimer,
}

impl SimulatedNode {
    pub fn new(registration: Registration, intervals: ReportIntervals) -> SimulatedNode {
        let registration = Registration { heartbeat_interval_ms: Some(intervals.heartbeat_ms), ..registration };
        SimulatedNode {
            order_fence: OrderFence::new(&registration.incarnation),
            registration,
            intervals,
            heartbeat_timer: RepeatTimer::default(),
            attempts: BTreeMap::new(),
            gpu_temperatures: GpuTemperatures::default(),
        }
    }

    /// Takes over orders, unless they are outdated. Attempts that the orders no longer contain are dropped.
    pub fn apply_orders(&mut self, orders: Orders) {
        if self.order_fence.judge(&orders) != FenceDecision::Follow {
            return;
        }
        let mut known = std::mem::take(&mut self.attempts);
        for order in orders.attempts {
            let key = (order.job.clone(), order.attempt);
            let attempt = match known.remove(&key) {
                Some(attempt) => attempt.with_order(order),
                None => SimulatedAttempt::new(order),
            };
            self.attempts.insert(key, attempt);
        }
    }

    /// Returns the reports and log lines that are due.
    pub fn step(&mut self, now_ms: i64) -> Vec<SimulatedEffect> {
        let mut effects = Vec::new();
        self.report_heartbeat(now_ms, &mut effects);
        for attempt in self.attempts.values_mut() {
            attempt.step(now_ms, self.intervals.heartbeat_ms, &self.registration.node, &mut effects);
        }
        let heated = self.heated_gpus(now_ms);
        let readings = self.gpu_temperatures.due_readings(now_ms, self.intervals, &self.registration, &heated);
        effects.extend(readings.into_iter().map(SimulatedEffect::SendReport));
        effects
    }

    /// The time of the next step.
    pub fn wake_at_ms(&self) -> i64 {
        let attempts = self.attempts.values().map(SimulatedAttempt::wake_at_ms);
        attempts
            .chain([self.gpu_temperatures.wake_at_ms(), self.heartbeat_timer.next_due_ms()])
            .min()
            .unwrap_or(i64::MIN)
    }

    fn report_heartbeat(&mut self, now_ms: i64, effects: &mut Vec<SimulatedEffect>) {
        if !self.heartbeat_timer.is_due(now_ms, self.intervals.heartbeat_ms) {
            return;
        }
        // A standby ignores reports. Registration is repeated with each heartbeat until orders name this incarnation.
        if !self.order_fence.is_registered() {
            effects.push(SimulatedEffect::SendReport(Report::Registered(Box::new(self.registration.clone()))));
        }
        effects.push(SimulatedEffect::SendReport(Report::Heartbeat {
            node: self.registration.node.clone(),
            following: self.order_fence.following(),
            sent_at_boot_ms: now_ms,
        }));
    }

    /// The GPUs that running attempts heat, in °C. Of two attempts on one GPU the hotter counts.
    fn heated_gpus(&self, now_ms: i64) -> BTreeMap<u8, i32> {
        let mut heated = BTreeMap::new();
        for attempt in self.attempts.values().filter(|attempt| attempt.simulated_run.is_running(now_ms)) {
            let Some(temperature_c) = attempt.simulated_run.temperature_c else { continue };
            for gpu in attempt.order.tasks.iter().flat_map(|task| &task.gpus) {
                let hottest = heated.entry(*gpu).or_insert(temperature_c);
                *hottest = temperature_c.max(*hottest);
            }
        }
        heated
    }
}

impl SimulatedAttempt {
    fn new(order: AttemptOrder) -> SimulatedAttempt {
        SimulatedAttempt {
            simulated_run: SimulatedRun::from_order(&order),
            order,
            start_report_timer: RepeatTimer::default(),
            exit_report_timer: RepeatTimer::default(),
        }
    }

    /// The same attempt under newer orders. A reported exit does not change any more.
    fn with_order(mut self, order: AttemptOrder) -> SimulatedAttempt {
        if !self.exit_report_timer.has_fired() {
            self.simulated_run = SimulatedRun::from_order(&order);
        }
        self.order = order;
        self
    }

    fn step(&mut self, now_ms: i64, interval_ms: i64, node: &str, effects: &mut Vec<SimulatedEffect>) {
        let is_over = self.simulated_run.ends_at_ms <= now_ms;
        if self.simulated_run.starts_at_ms.is_some_and(|starts_at_ms| starts_at_ms <= now_ms) {
            self.report_started(now_ms, interval_ms, node, is_over, effects);
        }
        if is_over {
            self.report_exit(now_ms, interval_ms, node, effects);
        }
    }

    /// Repeats the start report until the orders acknowledge it. After the end it is sent only if it never was, so
    /// that start and exit are reported in order.
    fn report_started(
        &mut self,
        now_ms: i64,
        interval_ms: i64,
        node: &str,
        is_over: bool,
        effects: &mut Vec<SimulatedEffect>,
    ) {
        if self.order.is_start_acknowledged() || (is_over && self.start_report_timer.has_fired()) {
            return;
        }
        if !self.start_report_timer.has_fired() {
            effects.extend(self.log_effects(Stream::Stdout, |task| self.opening_log_text(node, task)));
        }
        if self.start_report_timer.is_due(now_ms, interval_ms) {
            let (job, attempt) = (self.order.job.clone(), self.order.attempt);
            let incarnation = String::new();
            effects.push(SimulatedEffect::SendReport(Report::Started {
                node: node.to_string(),
                job,
                attempt,
                incarnation,
            }));
        }
    }

    fn report_exit(&mut self, now_ms: i64, interval_ms: i64, node: &str, effects: &mut Vec<SimulatedEffect>) {
        if !self.exit_report_timer.has_fired() {
            effects.extend(self.log_effects(self.closing_log_stream(), |_| self.closing_log_text()));
        }
        if self.exit_report_timer.is_due(now_ms, interval_ms) {
            effects.push(SimulatedEffect::SendReport(Report::Ended {
                node: node.to_string(),
                job: self.order.job.clone(),
                attempt: self.order.attempt,
                exit: self.simulated_run.exit.clone(),
                stopped: self.simulated_run.stopped,
                ended_ms_ago: Some(now_ms.saturating_sub(self.simulated_run.ends_at_ms).max(0)),
                prolog_failed: false,
                incarnation: String::new(),
            }));
        }
    }

    fn wake_at_ms(&self) -> i64 {
        if self.exit_report_timer.has_fired() {
            return self.exit_report_timer.next_due_ms();
        }
        let start = match self.simulated_run.starts_at_ms {
            Some(starts_at_ms) if !self.order.is_start_acknowledged() => {
                self.start_report_timer.next_due_ms().max(starts_at_ms)
            }
            _ => i64::MAX,
        };
        start.min(self.simulated_run.ends_at_ms)
    }

    fn log_effects(&self, stream: Stream, text: impl Fn(&TaskOrder) -> String) -> Vec<SimulatedEffect> {
        let line = |task: &TaskOrder| LogLine {
            job: self.order.job.clone(),
            attempt: self.order.attempt,
            rank: task.rank,
            stream,
            text: text(task),
        };
        self.order.tasks.iter().map(line).map(SimulatedEffect::WriteLog).collect()
    }

    fn opening_log_text(&self, node: &str, task: &TaskOrder) -> String {
        let AttemptOrder { job, attempt, name, gang_size, run, .. } = &self.order;
        let gpus = task.gpus.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        let gpus = match &task.share {
            Some(share) => format!("{}/1000 of GPU {gpus}, mode {}", share.compute_milli, share.mode),
            None if gpus.is_empty() => "no GPUs".to_string(),
            None => format!("GPUs {gpus}"),
        };
        let runs = match (&run.script, &run.image) {
            (Some(script), _) => script.lines().find(|line| !line.starts_with("#!")).unwrap_or("").to_string(),
            (None, image) => image.iter().chain(&run.command).chain(&run.args).cloned().collect::<Vec<_>>().join(" "),
        };
        let runtime = time::format_duration_ms(
            self.simulated_run.ends_at_ms - self.simulated_run.starts_at_ms.unwrap_or_default(),
        );
        format!(
            "[simulated] {job} `{name}`, attempt {attempt}: rank {} of {gang_size} on {node} with {gpus}\n\
             [simulated] would run: {runs}\n[simulated] simulates work for {runtime}\n",
            task.rank
        )
    }

    fn closing_log_text(&self) -> String {
        let ended = match &self.simulated_run.exit {
            Exit::Code(code) => format!("ended with exit code {code}"),
            Exit::OutOfMemory { limit_mib } => format!("ended: out of memory (limit {limit_mib} MiB)"),
            Exit::Signal(signal) => format!("ended by signal {signal}"),
            Exit::NotStarted(why) => format!("did not start: {why}"),
            Exit::Unknown(why) => format!("ended, exit status unknown: {why}"),
        };
        match &self.order.stop {
            Some(stop) => format!("[simulated] {ended} (stop requested: {})\n", stop.why),
            None => format!("[simulated] {ended}\n"),
        }
    }

    fn closing_log_stream(&self) -> Stream {
        if matches!(self.simulated_run.exit, Exit::NotStarted(_)) { Stream::Stderr } else { Stream::Stdout }
    }
}
