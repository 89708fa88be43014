//! What will become of a simulated attempt. It follows from the order alone, so a restart changes nothing.

use muster_protocol::agent::{Exit, Order, Stop};

use super::wishes::Wishes;

/// Between being placed and running.
const START_DELAY_MS: i64 = 50;
/// Between being asked to stop and being gone.
const STOP_DELAY_MS: i64 = 50;
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// When an attempt starts, when it ends, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fate {
    /// Unless it never starts.
    pub starts_at_ms: Option<i64>,
    pub ends_at_ms: i64,
    pub exit: Exit,
    /// It was told to stop before it ended.
    pub stopped: bool,
    /// How hot its GPUs are while it runs, where it was said.
    pub temperature_c: Option<i32>,
}

impl Fate {
    pub fn of(order: &Order) -> Fate {
        let starts_at_ms = order.placed_at_ms.saturating_add(START_DELAY_MS);
        let wishes = match Wishes::read(&order.annotations) {
            Err(bad) => return Fate::never(starts_at_ms, bad.to_string()),
            Ok(wishes) if wishes.refuse_launch => {
                return Fate::never(starts_at_ms, "the simulated launch was told to refuse".to_string());
            }
            Ok(wishes) => wishes,
        };
        let by_itself = (starts_at_ms.saturating_add(wishes.runtime_ms), Exit::Code(wishes.exit_code));
        let by_stop = order.stop.as_ref().map(|stop| stopped(stop, &wishes));
        let (ends_at_ms, exit) = match by_stop {
            Some(by_stop) if by_stop.0 < by_itself.0 => by_stop,
            _ => by_itself,
        };
        let ends_at_ms = ends_at_ms.max(starts_at_ms);
        let stopped = order.stop.as_ref().is_some_and(|stop| stop.since_ms < ends_at_ms);
        let temperature_c = wishes.temperature_c;
        Fate { starts_at_ms: Some(starts_at_ms), ends_at_ms, exit, stopped, temperature_c }
    }

    pub fn is_running(&self, now_ms: i64) -> bool {
        self.starts_at_ms.is_some_and(|starts_at_ms| starts_at_ms <= now_ms) && now_ms < self.ends_at_ms
    }

    fn never(ends_at_ms: i64, why: String) -> Fate {
        let exit = Exit::NotStarted(why);
        Fate { starts_at_ms: None, ends_at_ms, exit, stopped: false, temperature_c: None }
    }
}

fn stopped(stop: &Stop, wishes: &Wishes) -> (i64, Exit) {
    let grace_ms = stop.grace_ms.max(0);
    if wishes.ignore_stop || grace_ms < STOP_DELAY_MS {
        return (stop.since_ms.saturating_add(grace_ms), Exit::Signal(SIGKILL));
    }
    (stop.since_ms.saturating_add(STOP_DELAY_MS), Exit::Signal(SIGTERM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::order;

    fn stop(since_ms: i64, grace_ms: i64) -> Option<Stop> {
        Some(Stop { since_ms, grace_ms, why: "test".to_string() })
    }

    #[test]
    fn it_ends_by_itself() {
        let fate = Fate::of(&order("job-1", &[("muster.sim/runtime", "2s"), ("muster.sim/exit-code", "7")]));
        assert_eq!((fate.starts_at_ms, fate.ends_at_ms, fate.exit), (Some(1_050), 3_050, Exit::Code(7)));
    }

    #[test]
    fn it_stops_when_asked_and_is_killed_when_it_does_not_listen() {
        let mut polite = order("job-1", &[]);
        polite.stop = stop(5_000, 30_000);
        assert_eq!((Fate::of(&polite).ends_at_ms, Fate::of(&polite).exit), (5_050, Exit::Signal(15)));
        let mut deaf = order("job-1", &[("muster.sim/ignore-stop", "true")]);
        deaf.stop = stop(5_000, 3_000);
        assert_eq!((Fate::of(&deaf).ends_at_ms, Fate::of(&deaf).exit), (8_000, Exit::Signal(9)));
        deaf.stop = stop(5_000, 30_000);
        assert_eq!(Fate::of(&deaf).exit, Exit::Code(0), "it ended by itself before its grace was over");
        assert!(Fate::of(&deaf).stopped, "but it had been told");
        deaf.stop = stop(90_000, 30_000);
        assert!(!Fate::of(&deaf).stopped, "told only after its end");
    }

    #[test]
    fn a_stop_before_the_start_still_comes_after_it() {
        let mut order = order("job-1", &[]);
        order.stop = stop(900, 0);
        let fate = Fate::of(&order);
        assert_eq!((fate.starts_at_ms, fate.ends_at_ms), (Some(1_050), 1_050));
    }

    #[test]
    fn bad_wishes_and_refusals_never_start() {
        for (key, value) in [("muster.sim/runtime", "soon"), ("muster.sim/launch", "refuse")] {
            let fate = Fate::of(&order("job-1", &[(key, value)]));
            assert!(matches!(fate.exit, Exit::NotStarted(_)) && fate.starts_at_ms.is_none());
        }
    }
}
