//! What follows from how an attempt stands and what the orders say of it. Pure, so that every case can be read.

use muster_protocol::agent::{Exit, Order, Stop};

use super::standing::Standing;
use crate::records::ShimRecord;

/// What to do next about an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// Start it.
    Launch,
    /// Its shim is on its way; look again.
    Wait,
    /// It lives: say so, and end it if it must end.
    Tend { shim: ShimRecord, ending: Ending },
    /// Keep a shim that may still come from running it, then record that it is over.
    GiveUp,
    /// Kill what is left of it, then record that nobody saw its end.
    Sweep { why: String, shim: Option<ShimRecord> },
    /// Record that it is over without having run under our eyes.
    Record(Exit),
    /// Say that it is over.
    SayEnded { exit: Exit, stopped: bool },
    /// Nobody asks for it any more and it is over: tidy up.
    Tidy,
}

/// Whether a living attempt must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// It may run on.
    No,
    /// The orders say so.
    Ordered(Stop),
    /// The orders do not name it.
    Unnamed,
}

/// Decide. `is_shim_up` is true while a shim that we started has not ended: it may still come.
pub(super) fn next(standing: Standing, order: Option<&Order>, is_shim_up: bool) -> Act {
    match (standing, order) {
        (Standing::Ended { exit, stopped }, Some(_)) => Act::SayEnded { exit, stopped },
        (Standing::Ended { .. } | Standing::Absent, None) => Act::Tidy,
        (Standing::Absent, Some(order)) => first_act(order),
        (Standing::Unclaimed, _) if is_shim_up => Act::Wait,
        (Standing::Unclaimed, _) => Act::GiveUp,
        (Standing::Lost { why, shim }, _) => Act::Sweep { why, shim },
        (Standing::Alive(shim), order) => Act::Tend { shim, ending: ending(order) },
    }
}

/// Of an attempt that has left no trace here.
fn first_act(order: &Order) -> Act {
    if order.started {
        // It was running here once. Launching it again could double it; the server decides.
        return Act::Record(Exit::Unknown("no trace of it is left on this node".to_string()));
    }
    if order.stop.is_some() {
        return Act::Record(Exit::NotStarted("it was stopped before it started".to_string()));
    }
    Act::Launch
}

fn ending(order: Option<&Order>) -> Ending {
    match order.map(|order| &order.stop) {
        None => Ending::Unnamed,
        Some(Some(stop)) => Ending::Ordered(stop.clone()),
        Some(None) => Ending::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn order(started: bool, stop: Option<Stop>) -> Order {
        Order { started, stop, ..sample::order("job-1", &[]) }
    }

    fn stop() -> Option<Stop> {
        Some(Stop { since_ms: 1, grace_ms: 2, why: "test".to_string() })
    }

    fn shim() -> ShimRecord {
        ShimRecord { pid: 7, start_time: 8, boot_id: "b".to_string(), session: 7, group: None }
    }

    #[test]
    fn only_an_attempt_without_a_trace_is_launched() {
        let fresh = order(false, None);
        assert_eq!(next(Standing::Absent, Some(&fresh), false), Act::Launch);
        assert_eq!(next(Standing::Unclaimed, Some(&fresh), false), Act::GiveUp);
        assert_eq!(next(Standing::Unclaimed, Some(&fresh), true), Act::Wait);
        let ended = Standing::Ended { exit: Exit::Code(0), stopped: false };
        let said = Act::SayEnded { exit: Exit::Code(0), stopped: false };
        assert_eq!(next(ended, Some(&fresh), false), said);
        let lost = Standing::Lost { why: "shim lost".to_string(), shim: None };
        assert!(matches!(next(lost, Some(&fresh), false), Act::Sweep { .. }));
    }

    #[test]
    fn one_that_ran_before_or_must_stop_is_not_launched() {
        let unknown = next(Standing::Absent, Some(&order(true, None)), false);
        assert!(matches!(unknown, Act::Record(Exit::Unknown(_))), "{unknown:?}");
        let stopped = next(Standing::Absent, Some(&order(false, stop())), false);
        assert!(matches!(stopped, Act::Record(Exit::NotStarted(_))), "{stopped:?}");
    }

    #[test]
    fn the_living_run_on_unless_stopped_or_unnamed() {
        let act = |order: Option<&Order>| next(Standing::Alive(shim()), order, false);
        let tend = |ending| Act::Tend { shim: shim(), ending };
        assert_eq!(act(Some(&order(true, None))), tend(Ending::No));
        assert_eq!(act(Some(&order(true, stop()))), tend(Ending::Ordered(stop().unwrap())));
        assert_eq!(act(None), tend(Ending::Unnamed));
    }
}
