//! One simulated node: the reconciler over a simulated machine, and the readings of its GPUs.

use std::time::Duration;

use muster_protocol::agent::{Orders, Registration};

use super::effect::{ReportIntervals, SimulatedEffect};
use super::gpu_temperatures::GpuTemperatures;
use super::simulated_machine::SimulatedMachine;
use crate::clock::ClockReading;
use crate::reconciler::Reconciler;

/// How often the reconciler looks at an attempt without an event. A simulated machine loses no event, and a look at
/// each of thousands of attempts costs.
const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(super) struct SimulatedNode {
    reconciler: Reconciler<SimulatedMachine>,
    intervals: ReportIntervals,
    gpu_temperatures: GpuTemperatures,
    /// By the boot clock.
    wake_at_ms: i64,
}

impl SimulatedNode {
    pub fn new(registration: Registration, intervals: ReportIntervals) -> SimulatedNode {
        let registration = Registration { heartbeat_interval_ms: Some(intervals.heartbeat_ms), ..registration };
        let gpu_temperatures = GpuTemperatures::new(&registration);
        let machine = SimulatedMachine::new(&registration.node);
        let reconciler = Reconciler::new(registration, intervals.heartbeat_ms, machine);
        let reconciler = reconciler.with_look_interval(LOOK_INTERVAL);
        SimulatedNode { reconciler, intervals, gpu_temperatures, wake_at_ms: i64::MIN }
    }

    /// Takes over that a leader received a heartbeat. It counts from the next step, at the latest that of the next
    /// heartbeat: a step for each reply would cost as much as all heartbeats.
    pub fn acknowledge_heartbeat(&mut self, sent_at_boot_ms: i64) {
        self.reconciler.acknowledge_heartbeat(sent_at_boot_ms);
    }

    /// Returns the reports and log lines that are due. What tasks wrote comes before the report of their start or end.
    pub fn step(&mut self, now: ClockReading, orders: Option<Orders>) -> Vec<SimulatedEffect> {
        let mut effects = Vec::new();
        self.reconcile(now, orders, &mut effects);
        // Until all that follows from it has happened: an attempt may be launched, start and end in one moment.
        while self.wake_at_ms <= now.monotonic_ms {
            self.reconcile(now, None, &mut effects);
        }
        let heated = self.reconciler.machine().heated_gpus();
        let readings = self.gpu_temperatures.due_readings(now.monotonic_ms, self.intervals, &heated);
        effects.extend(readings.into_iter().map(SimulatedEffect::SendReport));
        effects
    }

    /// The time of the next step, by the boot clock.
    pub fn wake_at_ms(&self) -> i64 {
        self.wake_at_ms.min(self.gpu_temperatures.wake_at_ms())
    }

    fn reconcile(&mut self, now: ClockReading, orders: Option<Orders>, effects: &mut Vec<SimulatedEffect>) {
        self.reconciler.machine_mut().advance_to(now);
        effects.extend(self.take_log_lines());
        let send_report = &mut |report| effects.push(SimulatedEffect::SendReport(report));
        let next_wall_ms = self.reconciler.reconcile(now, orders, send_report);
        let next_ms = next_wall_ms.saturating_sub(now.wall_ms).saturating_add(now.monotonic_ms);
        self.wake_at_ms = next_ms.min(self.reconciler.machine().next_due_ms());
    }

    fn take_log_lines(&mut self) -> impl Iterator<Item = SimulatedEffect> {
        self.reconciler.machine_mut().take_log_lines().into_iter().map(SimulatedEffect::WriteLog)
    }
}
