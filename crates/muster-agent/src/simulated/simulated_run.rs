//! The start, end and exit of a simulated attempt. They follow from the order alone, so a restart changes nothing.

use muster_protocol::agent::{AttemptOrder, Exit, StopOrder};

use super::annotations::SimulationAnnotations;

/// From the placement to the start.
const START_DELAY_MS: i64 = 50;
/// From the stop order to the exit.
const STOP_DELAY_MS: i64 = 50;
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// When an attempt starts and ends, and with which exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SimulatedRun {
    /// `None` if the attempt never starts.
    pub starts_at_ms: Option<i64>,
    pub ends_at_ms: i64,
    pub exit: Exit,
    /// A stop was ordered before the attempt ended.
    pub stopped: bool,
    /// The temperature of its GPUs while it runs, if annotated.
    pub temperature_c: Option<i32>,
}

impl SimulatedRun {
    pub fn from_order(order: &AttemptOrder) -> SimulatedRun {
        let starts_at_ms = order.placed_at_ms.saturating_add(START_DELAY_MS);
        let annotations = match SimulationAnnotations::parse(&order.annotations) {
            Err(bad) => return SimulatedRun::failed_launch(starts_at_ms, bad.to_string()),
            Ok(annotations) if annotations.refuse_launch => {
                return SimulatedRun::failed_launch(
                    starts_at_ms,
                    "the annotation `muster.sim/launch` refuses the launch".to_string(),
                );
            }
            Ok(annotations) => annotations,
        };
        let by_itself = (starts_at_ms.saturating_add(annotations.runtime_ms), Exit::Code(annotations.exit_code));
        let by_stop = order.stop.as_ref().map(|stop| end_by_stop(stop, &annotations));
        let (ends_at_ms, exit) = match by_stop {
            Some(by_stop) if by_stop.0 < by_itself.0 => by_stop,
            _ => by_itself,
        };
        let ends_at_ms = ends_at_ms.max(starts_at_ms);
        let stopped = order.stop.as_ref().is_some_and(|stop| stop.since_ms < ends_at_ms);
        let temperature_c = annotations.temperature_c;
        SimulatedRun { starts_at_ms: Some(starts_at_ms), ends_at_ms, exit, stopped, temperature_c }
    }

    pub fn is_running(&self, now_ms: i64) -> bool {
        self.starts_at_ms.is_some_and(|starts_at_ms| starts_at_ms <= now_ms) && now_ms < self.ends_at_ms
    }

    fn failed_launch(ends_at_ms: i64, why: String) -> SimulatedRun {
        let exit = Exit::NotStarted(why);
        SimulatedRun { starts_at_ms: None, ends_at_ms, exit, stopped: false, temperature_c: None }
    }
}

fn end_by_stop(stop: &StopOrder, annotations: &SimulationAnnotations) -> (i64, Exit) {
    let grace_ms = stop.grace_ms.max(0);
    if annotations.ignore_stop || grace_ms < STOP_DELAY_MS {
        return (stop.since_ms.saturating_add(grace_ms), Exit::Signal(SIGKILL));
    }
    (stop.since_ms.saturating_add(STOP_DELAY_MS), Exit::Signal(SIGTERM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::order;

    fn stop(since_ms: i64, grace_ms: i64) -> Option<StopOrder> {
        Some(StopOrder { since_ms, grace_ms, why: "test".to_string() })
    }

    #[test]
    fn an_attempt_ends_after_its_annotated_runtime() {
        let run =
            SimulatedRun::from_order(&order("job-1", &[("muster.sim/runtime", "2s"), ("muster.sim/exit-code", "7")]));
        assert_eq!((run.starts_at_ms, run.ends_at_ms, run.exit), (Some(1_050), 3_050, Exit::Code(7)));
    }

    #[test]
    fn a_stop_ends_the_attempt_and_ignoring_it_ends_in_a_kill() {
        let mut stopping = order("job-1", &[]);
        stopping.stop = stop(5_000, 30_000);
        assert_eq!(
            (SimulatedRun::from_order(&stopping).ends_at_ms, SimulatedRun::from_order(&stopping).exit),
            (5_050, Exit::Signal(15))
        );
        let mut ignoring = order("job-1", &[("muster.sim/ignore-stop", "true")]);
        ignoring.stop = stop(5_000, 3_000);
        assert_eq!(
            (SimulatedRun::from_order(&ignoring).ends_at_ms, SimulatedRun::from_order(&ignoring).exit),
            (8_000, Exit::Signal(9))
        );
        ignoring.stop = stop(5_000, 30_000);
        assert_eq!(SimulatedRun::from_order(&ignoring).exit, Exit::Code(0), "it ended by itself within its grace");
        assert!(SimulatedRun::from_order(&ignoring).stopped, "a stop was ordered before its end");
        ignoring.stop = stop(90_000, 30_000);
        assert!(!SimulatedRun::from_order(&ignoring).stopped, "the stop was ordered after its end");
    }

    #[test]
    fn a_stop_before_the_start_takes_effect_at_the_start() {
        let mut order = order("job-1", &[]);
        order.stop = stop(900, 0);
        let run = SimulatedRun::from_order(&order);
        assert_eq!((run.starts_at_ms, run.ends_at_ms), (Some(1_050), 1_050));
    }

    #[test]
    fn invalid_annotations_and_refused_launches_never_start() {
        for (key, value) in [("muster.sim/runtime", "soon"), ("muster.sim/launch", "refuse")] {
            let run = SimulatedRun::from_order(&order("job-1", &[(key, value)]));
            assert!(matches!(run.exit, Exit::NotStarted(_)) && run.starts_at_ms.is_none());
        }
    }
}
