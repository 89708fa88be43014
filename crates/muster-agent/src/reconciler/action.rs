//! Chooses the next action for an attempt from its status and its order. Pure, so that every case can be tested.

use muster_protocol::agent::{AttemptOrder, StopOrder};

use super::attempt_status::AttemptStatus;
use crate::records::{ExitRecord, ShimRecord};

/// The next action for an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttemptAction {
    Launch,
    /// The shim has started and has not taken the launch lock yet.
    Wait,
    /// The shim is alive: report the start, and stop the attempt if it must end.
    Supervise {
        shim: ShimRecord,
        stop: StopDecision,
    },
    /// Take the launch lock so that a slow shim cannot run the attempt, then record the exit.
    AbandonLaunch,
    /// Kill the processes that are left, then record an unknown exit.
    KillLeftovers {
        why: String,
        shim: Option<ShimRecord>,
    },
    /// Record that the attempt was stopped before it was launched.
    RecordStopBeforeLaunch,
    ReportExit(ExitRecord),
    /// The attempt is over and no longer in the orders.
    CleanUp,
}

/// Whether a running attempt must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StopDecision {
    KeepRunning,
    /// The orders contain a stop.
    Ordered(StopOrder),
    /// The orders do not contain the attempt.
    NotInOrders,
}

/// What this agent remembers of its launch of an attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LaunchState {
    /// The shim that this agent started has not ended, so it may still take the launch lock.
    pub is_child_shim_running: bool,
    /// This agent has launched the attempt.
    pub was_launched: bool,
}

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
        // A shim that hangs before it takes the lock must not keep an attempt that is to end.
        (AttemptStatus::LaunchPending, Some(AttemptOrder { stop: None, .. })) if launch_state.is_child_shim_running => {
            AttemptAction::Wait
        }
        (AttemptStatus::LaunchPending, _) => AttemptAction::AbandonLaunch,
        (AttemptStatus::ShimLost { why, shim }, _) => AttemptAction::KillLeftovers { why, shim },
        (AttemptStatus::ShimAlive(shim), order) => AttemptAction::Supervise { shim, stop: stop_decision(order) },
    }
}

/// The action for an ordered attempt that has no record on this node.
fn action_without_records(order: &AttemptOrder, launch_state: LaunchState) -> AttemptAction {
    if !order.may_be_launched() || launch_state.was_launched {
        // The attempt ran here. A second launch could run it twice, so the server decides. The records may have been
        // deleted under the running attempt, so the exit is reported only after no process is left.
        let why = "no records and no processes of the attempt are left on this node".to_string();
        return AttemptAction::KillLeftovers { why, shim: None };
    }
    if order.stop.is_some() {
        return AttemptAction::RecordStopBeforeLaunch;
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
    use muster_protocol::agent::Exit;

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
        for to_end in [Some(&order(false, stop())), None] {
            let action = next_action(AttemptStatus::LaunchPending, to_end, shim_up);
            assert_eq!(action, AttemptAction::AbandonLaunch, "the shim hangs before it takes the lock");
        }
        assert_eq!(
            next_action(AttemptStatus::NoRecords, Some(&new_order), shim_up),
            AttemptAction::Wait,
            "the records were deleted"
        );
        let (placed_at_ms, ended_at_ms, prolog_failed) = (1, Some(2), false);
        let record = ExitRecord { exit: Exit::Code(0), stopped: false, placed_at_ms, ended_at_ms, prolog_failed };
        let ended = AttemptStatus::Exited(record.clone());
        assert_eq!(next_action(ended, Some(&new_order), no_launch), AttemptAction::ReportExit(record));
        let lost = AttemptStatus::ShimLost { why: "shim lost".to_string(), shim: None };
        assert!(matches!(next_action(lost, Some(&new_order), no_launch), AttemptAction::KillLeftovers { .. }));
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
        assert_eq!(stopped, AttemptAction::RecordStopBeforeLaunch);
    }

    /// Also if `started` is absent: a launch would be the second one.
    #[test]
    fn an_attempt_of_a_former_installation_is_adopted_and_never_launched() {
        for started in [false, true] {
            let order = AttemptOrder { adopt_only: true, ..order(started, None) };
            let adopted = next_action(AttemptStatus::ShimAlive(shim()), Some(&order), LaunchState::default());
            assert_eq!(adopted, AttemptAction::Supervise { shim: shim(), stop: StopDecision::KeepRunning });
            let lost = next_action(AttemptStatus::NoRecords, Some(&order), LaunchState::default());
            assert!(matches!(lost, AttemptAction::KillLeftovers { .. }), "{lost:?}");
        }
    }

    #[test]
    fn a_running_attempt_continues_unless_stopped_or_dropped_from_orders() {
        let action =
            |order: Option<&AttemptOrder>| next_action(AttemptStatus::ShimAlive(shim()), order, LaunchState::default());
        let supervise = |stop| AttemptAction::Supervise { shim: shim(), stop };
        assert_eq!(action(Some(&order(true, None))), supervise(StopDecision::KeepRunning));
        assert_eq!(action(Some(&order(true, stop()))), supervise(StopDecision::Ordered(stop().unwrap())));
        assert_eq!(action(None), supervise(StopDecision::NotInOrders));
    }
}
