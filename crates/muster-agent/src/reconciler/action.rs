//! What follows from how an attempt stands and what the orders say of it. Pure, so that every case can be read.

use muster_protocol::agent::{AttemptOrder, Exit, StopOrder};

use super::attempt_status::AttemptStatus;
use crate::records::{ExitRecord, ShimRecord};

/// What to do next about an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttemptAction {
    /// Start it.
    Launch,
    /// Its shim is on its way; look again.
    Wait,
    /// It lives: say so, and end it if it must end.
    Supervise { shim: ShimRecord, stop: StopDecision },
    /// Keep a shim that may still come from running it, then record that it is over.
    AbandonLaunch,
    /// Kill what is left of it, then record that nobody saw its end.
    KillLeftovers { why: String, shim: Option<ShimRecord> },
    /// Record that it is over without having run under our eyes.
    RecordExit(Exit),
    /// Say that it is over.
    ReportExit(ExitRecord),
    /// Nobody asks for it any more and it is over: tidy up.
    CleanUp,
}

/// Whether a living attempt must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StopDecision {
    /// It may run on.
    KeepRunning,
    /// The orders say so.
    Ordered(StopOrder),
    /// The orders do not name it.
    NotInOrders,
}

/// What an agent remembers of an attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LaunchState {
    /// A shim that it started has not ended: it may still come.
    pub is_child_shim_running: bool,
    /// It has launched the attempt.
    pub was_launched: bool,
}

/// Decide.
pub(super) fn next_action(
    status: AttemptStatus,
    order: Option<&AttemptOrder>,
    launch_state: LaunchState,
) -> AttemptAction {
    match (status, order) {
        (AttemptStatus::Exited(record), Some(_)) => AttemptAction::ReportExit(record),
        (AttemptStatus::Exited(_) | AttemptStatus::NoRecords, None) => AttemptAction::CleanUp,
        (AttemptStatus::NoRecords, Some(_)) if launch_state.is_child_shim_running => AttemptAction::Wait,
        (AttemptStatus::NoRecords, Some(order)) => action_without_records(order, launch_state),
        (AttemptStatus::LaunchPending, _) if launch_state.is_child_shim_running => AttemptAction::Wait,
        (AttemptStatus::LaunchPending, _) => AttemptAction::AbandonLaunch,
        (AttemptStatus::ShimLost { why, shim }, _) => AttemptAction::KillLeftovers { why, shim },
        (AttemptStatus::ShimAlive(shim), order) => {
            AttemptAction::Supervise { shim, stop: stop_decision(order) }
        }
    }
}

/// Of an attempt that has left no record here.
fn action_without_records(order: &AttemptOrder, launch_state: LaunchState) -> AttemptAction {
    if order.started || launch_state.was_launched {
        // It was running here once. Launching it again could double it; the server decides. Its records may have been
        // deleted under it, so nothing is said before nothing of it is left.
        let why = "no trace of it is left on this node".to_string();
        return AttemptAction::KillLeftovers { why, shim: None };
    }
    if order.stop.is_some() {
        return AttemptAction::RecordExit(Exit::NotStarted("it was stopped before it started".to_string()));
    }
    AttemptAction::Launch
}

fn stop_decision(order: Option<&AttemptOrder>) -> StopDecision {
    match order.map(|order| &order.stop) {
        None => StopDecision::NotInOrders,
        Some(Some(stop)) => StopDecision::Ordered(stop.clone()),
        Some(None) => StopDecision::KeepRunning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures;

    fn order(started: bool, stop: Option<StopOrder>) -> AttemptOrder {
        AttemptOrder { started, stop, ..test_fixtures::order("job-1", &[]) }
    }

    fn stop() -> Option<StopOrder> {
        Some(StopOrder { since_ms: 1, grace_ms: 2, why: "test".to_string() })
    }

    fn shim() -> ShimRecord {
        ShimRecord { pid: 7, start_time: 8, boot_id: "b".to_string(), session: 7, process_group: None }
    }

    #[test]
    fn only_an_attempt_without_records_is_launched() {
        let new_order = order(false, None);
        let (no_launch, shim_up) =
            (LaunchState::default(), LaunchState { is_child_shim_running: true, was_launched: true });
        assert_eq!(next_action(AttemptStatus::NoRecords, Some(&new_order), no_launch), AttemptAction::Launch);
        assert_eq!(
            next_action(AttemptStatus::LaunchPending, Some(&new_order), no_launch),
            AttemptAction::AbandonLaunch
        );
        assert_eq!(next_action(AttemptStatus::LaunchPending, Some(&new_order), shim_up), AttemptAction::Wait);
        assert_eq!(
            next_action(AttemptStatus::NoRecords, Some(&new_order), shim_up),
            AttemptAction::Wait,
            "its records were deleted"
        );
        let record =
            ExitRecord { exit: Exit::Code(0), stopped: false, placed_at_ms: 1, ended_at_ms: Some(2) };
        let ended = AttemptStatus::Exited(record.clone());
        assert_eq!(next_action(ended, Some(&new_order), no_launch), AttemptAction::ReportExit(record));
        let lost = AttemptStatus::ShimLost { why: "shim lost".to_string(), shim: None };
        assert!(matches!(
            next_action(lost, Some(&new_order), no_launch),
            AttemptAction::KillLeftovers { .. }
        ));
    }

    #[test]
    fn an_attempt_that_ran_before_or_must_stop_is_not_launched() {
        let no_launch = LaunchState::default();
        let unknown = next_action(AttemptStatus::NoRecords, Some(&order(true, None)), no_launch);
        assert!(matches!(unknown, AttemptAction::KillLeftovers { .. }), "{unknown:?}");
        let launched = LaunchState { is_child_shim_running: false, was_launched: true };
        let unknown = next_action(AttemptStatus::NoRecords, Some(&order(false, None)), launched);
        assert!(matches!(unknown, AttemptAction::KillLeftovers { .. }), "{unknown:?}");
        let stopped = next_action(AttemptStatus::NoRecords, Some(&order(false, stop())), no_launch);
        assert!(matches!(stopped, AttemptAction::RecordExit(Exit::NotStarted(_))), "{stopped:?}");
    }

    #[test]
    fn a_running_attempt_continues_unless_stopped_or_dropped_from_orders() {
        let action = |order: Option<&AttemptOrder>| {
            next_action(AttemptStatus::ShimAlive(shim()), order, LaunchState::default())
        };
        let supervise = |stop| AttemptAction::Supervise { shim: shim(), stop };
        assert_eq!(action(Some(&order(true, None))), supervise(StopDecision::KeepRunning));
        assert_eq!(action(Some(&order(true, stop()))), supervise(StopDecision::Ordered(stop().unwrap())));
        assert_eq!(action(None), supervise(StopDecision::NotInOrders));
    }
}
