//! What follows from how an attempt stands and what the orders say of it. Pure, so that every case can be read.

use muster_protocol::agent::{Exit, Order, Stop};

use super::standing::Standing;
use crate::records::{ExitRecord, ShimRecord};

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
    SayEnded(ExitRecord),
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

/// What an agent remembers of an attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Remembered {
    /// A shim that it started has not ended: it may still come.
    pub is_shim_up: bool,
    /// It has launched the attempt.
    pub was_launched: bool,
}

/// Decide.
pub(super) fn next(standing: Standing, order: Option<&Order>, remembered: Remembered) -> Act {
    match (standing, order) {
        (Standing::Ended(record), Some(_)) => Act::SayEnded(record),
        (Standing::Ended(_) | Standing::Absent, None) => Act::Tidy,
        (Standing::Absent, Some(_)) if remembered.is_shim_up => Act::Wait,
        (Standing::Absent, Some(order)) => first_act(order, remembered),
        (Standing::Unclaimed, _) if remembered.is_shim_up => Act::Wait,
        (Standing::Unclaimed, _) => Act::GiveUp,
        (Standing::Lost { why, shim }, _) => Act::Sweep { why, shim },
        (Standing::Alive(shim), order) => Act::Tend { shim, ending: ending(order) },
    }
}

/// Of an attempt that has left no record here.
fn first_act(order: &Order, remembered: Remembered) -> Act {
    if order.started || remembered.was_launched {
        // It was running here once. Launching it again could double it; the server decides. Its records may have been
        // deleted under it, so nothing is said before nothing of it is left.
        let why = "no trace of it is left on this node".to_string();
        return Act::Sweep { why, shim: None };
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
        let (nothing, shim_up) = (Remembered::default(), Remembered { is_shim_up: true, was_launched: true });
        assert_eq!(next(Standing::Absent, Some(&fresh), nothing), Act::Launch);
        assert_eq!(next(Standing::Unclaimed, Some(&fresh), nothing), Act::GiveUp);
        assert_eq!(next(Standing::Unclaimed, Some(&fresh), shim_up), Act::Wait);
        assert_eq!(next(Standing::Absent, Some(&fresh), shim_up), Act::Wait, "its records were deleted");
        let record =
            ExitRecord { exit: Exit::Code(0), stopped: false, placed_at_ms: 1, ended_at_ms: Some(2) };
        let ended = Standing::Ended(record.clone());
        assert_eq!(next(ended, Some(&fresh), nothing), Act::SayEnded(record));
        let lost = Standing::Lost { why: "shim lost".to_string(), shim: None };
        assert!(matches!(next(lost, Some(&fresh), nothing), Act::Sweep { .. }));
    }

    #[test]
    fn one_that_ran_before_or_must_stop_is_not_launched() {
        let nothing = Remembered::default();
        let unknown = next(Standing::Absent, Some(&order(true, None)), nothing);
        assert!(matches!(unknown, Act::Sweep { .. }), "{unknown:?}");
        let launched = Remembered { is_shim_up: false, was_launched: true };
        let unknown = next(Standing::Absent, Some(&order(false, None)), launched);
        assert!(matches!(unknown, Act::Sweep { .. }), "{unknown:?}");
        let stopped = next(Standing::Absent, Some(&order(false, stop())), nothing);
        assert!(matches!(stopped, Act::Record(Exit::NotStarted(_))), "{stopped:?}");
    }

    #[test]
    fn the_living_run_on_unless_stopped_or_unnamed() {
        let act = |order: Option<&Order>| next(Standing::Alive(shim()), order, Remembered::default());
        let tend = |ending| Act::Tend { shim: shim(), ending };
        assert_eq!(act(Some(&order(true, None))), tend(Ending::No));
        assert_eq!(act(Some(&order(true, stop()))), tend(Ending::Ordered(stop().unwrap())));
        assert_eq!(act(None), tend(Ending::Unnamed));
    }
}
