//! A simulated shim with its tasks. They start shortly after the placement, run for the annotated time, and react to a
//! stop as annotated. The monitor of real shims decides when they are stopped, so grace and self-fence mean the same.
//!
//! Pure: the simulated machine calls it at each of its due times, and when a message wakes it. All times are those of
//! the boot clock.

use muster_protocol::agent::{AttemptOrder, Exit};

use super::annotations::SimulationAnnotations;
use crate::records::{SelfFence, StopRecord};
use crate::shim::gang_monitor::{GangMonitor, StopAction};

/// From the placement to the start.
const START_DELAY_MS: i64 = 50;
/// From SIGTERM to the exit.
const TERM_DELAY_MS: i64 = 50;
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// A shim that has not ended.
#[derive(Debug)]
pub(super) struct SimulatedShim {
    /// `Err` with the reason if the tasks never start.
    annotations: Result<SimulationAnnotations, String>,
    ranks: Vec<u32>,
    starts_at_ms: i64,
    /// When the tasks exit by themselves or because of SIGTERM.
    exits_at_ms: i64,
    /// How they exit then.
    exit: Exit,
    /// The self-fence until the tasks run.
    self_fence: Option<SelfFence>,
    /// `None` until the tasks run.
    monitor: Option<GangMonitor>,
}

/// What a shim did.
#[derive(Debug)]
pub(super) enum ShimStep {
    /// Nothing that others see.
    Waited,
    TasksStarted,
    /// The tasks never start. The text is the reason.
    NotStarted(String),
    /// All tasks have ended. The monitor knows how.
    Ended(GangMonitor),
}

impl SimulatedShim {
    /// The shim of an attempt that was placed at `placed_at_ms`, by the boot clock: its times follow from the placement,
    /// whenever it is launched.
    pub fn new(order: &AttemptOrder, placed_at_ms: i64, self_fence: Option<SelfFence>) -> SimulatedShim {
        let annotations = SimulationAnnotations::parse(&order.annotations).map_err(|bad| bad.to_string());
        let annotations = annotations.and_then(|annotations| match annotations.refuse_launch {
            true => Err("the annotation `muster.sim/launch` refuses the launch".to_string()),
            false => Ok(annotations),
        });
        let (runtime_ms, exit_code) = annotations.as_ref().map_or((0, 0), |one| (one.runtime_ms, one.exit_code));
        let starts_at_ms = placed_at_ms.saturating_add(START_DELAY_MS);
        SimulatedShim {
            annotations,
            ranks: order.tasks.iter().map(|task| task.rank).collect(),
            starts_at_ms,
            exits_at_ms: starts_at_ms.saturating_add(runtime_ms),
            exit: Exit::Code(exit_code),
            self_fence,
            monitor: None,
        }
    }

    /// When the shim acts next if nobody wakes it before.
    pub fn next_due_ms(&self) -> i64 {
        match &self.monitor {
            None => self.starts_at_ms,
            Some(monitor) => monitor.kill_due_ms().map_or(self.exits_at_ms, |kill_ms| kill_ms.min(self.exits_at_ms)),
        }
    }

    pub fn runtime_ms(&self) -> i64 {
        self.annotations.as_ref().map_or(0, |annotations| annotations.runtime_ms)
    }

    /// The temperature of the GPUs of running tasks, if it is annotated.
    pub fn heats_to_c(&self) -> Option<i32> {
        self.annotations.as_ref().ok().filter(|_| self.monitor.is_some())?.temperature_c
    }

    pub fn running_tasks(&self) -> usize {
        self.monitor.as_ref().map_or(0, |_| self.ranks.len())
    }

    pub fn renew_self_fence(&mut self, renewal: SelfFence) {
        match &mut self.monitor {
            Some(monitor) => monitor.renew_self_fence(renewal),
            None => self.self_fence = Some(renewal),
        }
    }

    /// Does one thing that is due. The caller repeats the call until nothing is.
    pub fn step(&mut self, now_ms: i64, stop: Option<&StopRecord>) -> ShimStep {
        let Some(monitor) = &mut self.monitor else { return self.start(now_ms) };
        if self.exits_at_ms <= now_ms {
            let exit = self.exit.clone();
            return self.end(exit);
        }
        match monitor.next_action(now_ms, &Ok(stop.cloned())) {
            StopAction::Wait => {}
            StopAction::Terminate => self.receive_term(now_ms),
            StopAction::Kill => return self.end(Exit::Signal(SIGKILL)),
        }
        ShimStep::Waited
    }

    /// Kills the tasks.
    pub fn kill(&mut self) -> ShimStep {
        self.end(Exit::Signal(SIGKILL))
    }

    fn start(&mut self, now_ms: i64) -> ShimStep {
        if now_ms < self.starts_at_ms {
            return ShimStep::Waited; // A stop takes effect once the tasks run.
        }
        if let Err(why) = &self.annotations {
            return ShimStep::NotStarted(why.clone());
        }
        if let Some(fence) = self.self_fence.filter(|fence| fence.has_passed(now_ms)) {
            return ShimStep::NotStarted(fence.why());
        }
        self.monitor = Some(GangMonitor::new(self.ranks.len(), self.self_fence));
        ShimStep::TasksStarted
    }

    fn receive_term(&mut self, now_ms: i64) {
        let ignores = self.annotations.as_ref().is_ok_and(|annotations| annotations.ignore_stop);
        let exits_at_ms = now_ms.saturating_add(TERM_DELAY_MS);
        if !ignores && exits_at_ms < self.exits_at_ms {
            (self.exits_at_ms, self.exit) = (exits_at_ms, Exit::Signal(SIGTERM));
        }
    }

    fn end(&mut self, exit: Exit) -> ShimStep {
        let Some(mut monitor) = self.monitor.take() else { return ShimStep::Waited };
        for rank in &self.ranks {
            monitor.record_task_exit(*rank, exit.clone());
        }
        ShimStep::Ended(monitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::order;

    /// A shim and the stop that it was told, run from one due time to the next.
    struct ShimHarness {
        order: AttemptOrder,
        shim: SimulatedShim,
        stop: Option<StopRecord>,
    }

    impl ShimHarness {
        /// Placed at 1,000 ms.
        fn new(annotations: &[(&str, &str)], self_fence: Option<SelfFence>) -> ShimHarness {
            let order = order("job-1", annotations);
            let shim = SimulatedShim::new(&order, order.placed_at_ms, self_fence);
            ShimHarness { order, shim, stop: None }
        }

        fn stop_at(mut self, now_ms: i64, grace_ms: i64) -> ShimHarness {
            assert_eq!(self.run_until(now_ms), None);
            self.stop = Some(StopRecord { grace_ms, why: "test".to_string() });
            assert!(matches!(self.shim.step(now_ms, self.stop.as_ref()), ShimStep::Waited));
            self
        }

        /// The end, if it is before `until_ms`: when, how, and whether the attempt was stopped.
        fn run_until(&mut self, until_ms: i64) -> Option<(i64, Exit, bool)> {
            while self.shim.next_due_ms() < until_ms {
                let now_ms = self.shim.next_due_ms();
                loop {
                    match self.shim.step(now_ms, self.stop.as_ref()) {
                        ShimStep::Waited => break,
                        ShimStep::TasksStarted => {}
                        ShimStep::NotStarted(why) => return Some((now_ms, Exit::NotStarted(why), false)),
                        ShimStep::Ended(monitor) => {
                            let record = monitor.into_exit_record(&self.order, now_ms);
                            return Some((now_ms, record.exit, record.stopped));
                        }
                    }
                }
            }
            None
        }

        fn end(mut self) -> (i64, Exit, bool) {
            self.run_until(i64::MAX).unwrap()
        }
    }

    const IGNORES_STOP: &[(&str, &str)] = &[("muster.sim/ignore-stop", "true")];

    #[test]
    fn an_attempt_ends_after_its_annotated_runtime() {
        let shim = ShimHarness::new(&[("muster.sim/runtime", "2s"), ("muster.sim/exit-code", "7")], None);
        assert_eq!(shim.end(), (3_050, Exit::Code(7), false));
    }

    #[test]
    fn a_stop_ends_the_attempt_and_ignoring_it_ends_in_a_kill() {
        assert_eq!(ShimHarness::new(&[], None).stop_at(5_000, 30_000).end(), (5_050, Exit::Signal(15), true));
        let ignoring = || ShimHarness::new(IGNORES_STOP, None);
        assert_eq!(ignoring().stop_at(5_000, 3_000).end(), (8_000, Exit::Signal(9), true));
        assert_eq!(ignoring().stop_at(5_000, 30_000).end(), (21_050, Exit::Code(0), true), "it ended within its grace");
        let shortened = ignoring().stop_at(5_000, 30_000).stop_at(6_000, 1_000);
        assert_eq!(shortened.end(), (7_000, Exit::Signal(9), true));
        assert_eq!(ShimHarness::new(&[], None).stop_at(5_000, 20).end(), (5_020, Exit::Signal(9), true));
    }

    #[test]
    fn a_stop_before_the_start_takes_effect_at_the_start() {
        assert_eq!(ShimHarness::new(&[], None).stop_at(1_010, 0).end(), (1_050, Exit::Signal(9), true));
    }

    #[test]
    fn the_self_fence_ends_an_attempt_unless_it_is_renewed() {
        let fence = |acknowledged_at_boot_ms| SelfFence { acknowledged_at_boot_ms, within_ms: 3_000 };
        let fenced = |at_ms| (at_ms, Exit::Unknown(fence(0).why()), false);
        assert_eq!(ShimHarness::new(&[], Some(fence(900))).end(), fenced(3_900));
        let mut renewed = ShimHarness::new(&[], Some(fence(900)));
        assert_eq!(renewed.run_until(2_000), None);
        renewed.shim.renew_self_fence(fence(1_900));
        assert_eq!(renewed.end(), fenced(4_900));
        let late = ShimHarness::new(&[], Some(fence(-2_000)));
        assert_eq!(late.end(), (1_050, Exit::NotStarted(fence(0).why()), false));
    }

    #[test]
    fn invalid_annotations_and_refused_launches_never_start() {
        for (key, value) in [("muster.sim/runtime", "soon"), ("muster.sim/launch", "refuse")] {
            let (ended_at_ms, exit, _) = ShimHarness::new(&[(key, value)], None).end();
            assert!(ended_at_ms == 1_050 && matches!(&exit, Exit::NotStarted(why) if why.contains(key)), "{exit:?}");
        }
    }
}
