//! One attempt in the desk's hands: looking at it, and doing what follows.

use muster_protocol::agent::{AttemptOrder, Exit, Report};

use super::action::{self, AttemptAction, LaunchState, StopDecision};
use super::attempt_status::{self, AttemptStatus, PossibleProcesses};
use super::{ClockReading, ReconcileContext};
use crate::error::AgentError;
use crate::machine::{AttemptKey, Machine};
use crate::records::{ExitRecord, LaunchIntent, ShimRecord, StopRecord};
use crate::repeat_timer::RepeatTimer;

/// Grace for a living attempt that the orders do not name: the server counts it as over.
const NOT_IN_ORDERS_GRACE_MS: i64 = 5_000;
/// After the grace a shim should need a moment only. When it takes this long, it hangs, and we do its work.
const HUNG_SHIM_TIMEOUT_MS: i64 = 5_000;
/// How much of a failed shim's log goes into the report.
const REPORTED_SHIM_LOG_BYTES_MAX: usize = 2_000;

/// An attempt, and what was done about it so far.
#[derive(Debug)]
pub(super) struct TrackedAttempt {
    key: AttemptKey,
    /// None when the orders do not name it.
    pub order: Option<AttemptOrder>,
    /// When the attempt in the folder was placed, if there is one.
    placed_at_ms: Option<i64>,
    /// We started the shim ourselves, not an agent before us.
    was_launched_by_this_agent: bool,
    /// An agent before us may have started it.
    may_predate_this_agent: bool,
    /// Its shim, where the records do not name it and it was found among the processes.
    unrecorded_shim: Option<ShimRecord>,
    /// An end that could not even be written down.
    unwritten_exit: Option<ExitRecord>,
    stop_request: Option<StopRequest>,
    start_report_timer: RepeatTimer,
    exit_report_timer: RepeatTimer,
    warning_timer: RepeatTimer,
}

/// What the shim was told last, and when it is late. Not by the wall clock: that may be set.
#[derive(Debug)]
struct StopRequest {
    decision: StopDecision,
    /// A grace that does not count yet. It does from the look after it was written down: that may have taken
    /// long, and the shim cannot have seen it before.
    unread_grace_ms: Option<i64>,
    overdue_at_monotonic_ms: Option<i64>,
}

impl StopRequest {
    fn start_counting_grace(&mut self, monotonic_ms: i64) {
        let Some(grace_ms) = self.unread_grace_ms.take() else { return };
        let overdue_at = monotonic_ms.saturating_add(grace_ms).saturating_add(HUNG_SHIM_TIMEOUT_MS);
        self.overdue_at_monotonic_ms =
            Some(self.overdue_at_monotonic_ms.map_or(overdue_at, |known| known.min(overdue_at)));
    }
}

impl TrackedAttempt {
    pub fn new(machine: &mut impl Machine, key: &AttemptKey, order: Option<AttemptOrder>) -> TrackedAttempt {
        let is_from_before = order.as_ref().is_none_or(|order| order.started);
        TrackedAttempt {
            may_predate_this_agent: is_from_before,
            unrecorded_shim: None,
            key: key.clone(),
            order,
            // Damage is seen again when we look, and dealt with there.
            placed_at_ms: attempt_status::recorded_placed_at_ms(machine, key).unwrap_or_default(),
            was_launched_by_this_agent: false,
            unwritten_exit: None,
            stop_request: None,
            start_report_timer: RepeatTimer::default(),
            exit_report_timer: RepeatTimer::default(),
            warning_timer: RepeatTimer::default(),
        }
    }

    /// Look and act once. False when there is nothing more to do about this attempt, ever.
    pub fn reconcile(&mut self, context: &mut ReconcileContext<'_, impl Machine>) -> bool {
        match self.try_reconcile(context) {
            Ok(keep) => keep,
            Err(error) => {
                if self.warning_timer.is_due(context.now.wall_ms, context.config.repeat_interval_ms) {
                    let (job, attempt) = (self.key.job(), self.key.attempt());
                    tracing::warn!(job, attempt, "will try again: {error}");
                }
                true
            }
        }
    }

    fn try_reconcile(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
    ) -> Result<bool, AgentError> {
        let is_shim_up = context.machine.is_child_shim_running(&self.key);
        let status = match &self.unwritten_exit {
            Some(failed) => AttemptStatus::Exited(failed.clone()),
            None => self.status(context, is_shim_up)?,
        };
        let launch_state =
            LaunchState { is_child_shim_running: is_shim_up, was_launched: self.was_launched_by_this_agent };
        let order = self.order.as_ref().filter(|_| !self.holds_another_placement());
        match action::next_action(status, order, launch_state) {
            AttemptAction::Launch => self.launch(context),
            AttemptAction::Wait => {}
            AttemptAction::Supervise { shim, stop } => self.supervise(context, &shim, stop)?,
            AttemptAction::AbandonLaunch => self.abandon_launch(context)?,
            AttemptAction::KillLeftovers { why, shim } => self.kill_leftovers(context, why, shim.as_ref())?,
            AttemptAction::RecordExit(exit) => self.record_exit(context, exit)?,
            AttemptAction::ReportExit(record) => self.report_exit(context, record),
            AttemptAction::CleanUp => return self.clean_up(context.machine).map(|keep| keep || is_shim_up),
        }
        Ok(true)
    }

    /// An agent that has just begun does not know what agents before it have launched.
    pub fn assume_predates_this_agent(self) -> TrackedAttempt {
        TrackedAttempt { may_predate_this_agent: true, ..self }
    }

    fn status(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        is_shim_up: bool,
    ) -> Result<AttemptStatus, AgentError> {
        let is_found = self.unrecorded_shim.as_ref().is_some_and(|shim| context.machine.is_shim_alive(shim));
        let may_run = match self.was_launched_by_this_agent || self.may_predate_this_agent {
            true if is_shim_up && !is_found => PossibleProcesses::ShimStarting,
            true if !is_found => PossibleProcesses::Unknown,
            _ => PossibleProcesses::NotExpected,
        };
        let status = attempt_status::read_attempt_status(
            context.machine,
            &self.key,
            &context.config.boot_id,
            may_run,
        )?;
        match (status, self.unrecorded_shim.clone().filter(|_| is_found)) {
            (AttemptStatus::NoRecords | AttemptStatus::LaunchPending, Some(shim)) => {
                Ok(AttemptStatus::ShimAlive(shim))
            }
            (status, _) => {
                self.unrecorded_shim = self.unrecorded_live_shim(context.machine, &status);
                Ok(status)
            }
        }
    }

    /// The shim that lives, if no record names it: to look through all processes at every turn would cost too much.
    fn unrecorded_live_shim(&self, machine: &mut impl Machine, status: &AttemptStatus) -> Option<ShimRecord> {
        let AttemptStatus::ShimAlive(shim) = status else { return None };
        shim.process_group?; // Until its tasks run we look again.
        let is_recorded = !matches!(machine.launch_lock(&self.key), Ok(None));
        if !is_recorded {
            let (job, attempt) = (self.key.job(), self.key.attempt());
            tracing::warn!(
                job,
                attempt,
                pid = shim.pid,
                "its records are gone; its shim lives and is adopted"
            );
        }
        (!is_recorded).then(|| shim.clone())
    }

    /// The folder holds an attempt of the same number that was placed at another time: the server has begun
    /// anew with an old data folder. It is treated as unnamed until it is out of the way.
    fn holds_another_placement(&self) -> bool {
        let ordered = self.order.as_ref().map(|order| order.placed_at_ms);
        self.placed_at_ms.is_some() && ordered.is_some() && self.placed_at_ms != ordered
    }

    /// Write down the intent, then start the shim. If the first fails nothing has happened; if the second
    /// fails, that is on disk before it is said.
    fn launch(&mut self, context: &mut ReconcileContext<'_, impl Machine>) {
        let Some(order) = self.order.clone() else { return };
        self.placed_at_ms = Some(order.placed_at_ms);
        let intent = LaunchIntent { order, boot_id: context.config.boot_id.clone() };
        let begun = context.machine.write_launch_intent(&self.key, &intent);
        match begun.and_then(|()| context.machine.start_shim(&self.key)) {
            Ok(()) => self.was_launched_by_this_agent = true,
            Err(error) => self.record_launch_failure(context, error.to_string()),
        }
    }

    fn record_launch_failure(&mut self, context: &mut ReconcileContext<'_, impl Machine>, why: String) {
        let record = self.new_exit_record(context, Exit::NotStarted(why));
        if let Err(error) = context.machine.write_exit_record(&self.key, &record) {
            tracing::warn!(job = self.key.job(), "an end is kept in memory only: {error}");
            self.unwritten_exit = Some(record);
        }
    }

    fn supervise(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        shim: &ShimRecord,
        stop: StopDecision,
    ) -> Result<(), AgentError> {
        if shim.process_group.is_some() {
            self.report_started(context);
        }
        if stop == StopDecision::KeepRunning {
            return Ok(());
        }
        if let Some(stop) = &mut self.stop_request {
            stop.start_counting_grace(context.now.monotonic_ms);
        }
        self.request_stop(context.machine, context.now, stop)?;
        self.kill_if_overdue(context.machine, context.now, shim)
    }

    /// Asked once per word of the orders: the grace shrinks as time passes, and the shim is already counting.
    /// A word with a shorter grace hurries it.
    fn request_stop(
        &mut self,
        machine: &mut impl Machine,
        now: ClockReading,
        decision: StopDecision,
    ) -> Result<(), AgentError> {
        if self.stop_request.as_ref().is_some_and(|stop| stop.decision == decision) {
            return Ok(());
        }
        let mut record = new_stop_record(now.wall_ms, &decision);
        // The shim may not have read the former record yet: a longer grace must not replace it.
        if let Ok(Some(former)) = machine.stop_record(&self.key) {
            record.grace_ms = record.grace_ms.min(former.grace_ms);
        }
        machine.write_stop_record(&self.key, &record)?;
        let overdue_at_mono_ms = self.stop_request.as_ref().and_then(|stop| stop.overdue_at_monotonic_ms);
        self.stop_request = Some(StopRequest {
            decision,
            unread_grace_ms: Some(record.grace_ms),
            overdue_at_monotonic_ms: overdue_at_mono_ms,
        });
        Ok(())
    }

    /// A shim that hangs (suspended, or stuck in the kernel) cannot end its tasks, so we do; itself last,
    /// because by it we find them. Then it counts as lost.
    fn kill_if_overdue(
        &self,
        machine: &mut impl Machine,
        now: ClockReading,
        shim: &ShimRecord,
    ) -> Result<(), AgentError> {
        let overdue_at = self.stop_request.as_ref().and_then(|stop| stop.overdue_at_monotonic_ms);
        if overdue_at.is_none_or(|overdue_at| now.monotonic_ms < overdue_at) {
            return Ok(());
        }
        if machine.kill_attempt_processes(&self.key, Some(shim))? == 0 {
            machine.kill_shim(shim);
        }
        Ok(())
    }

    /// Whoever takes the attempt has it: if a shim was quicker, it lives and we adopt it at the next look.
    fn abandon_launch(&mut self, context: &mut ReconcileContext<'_, impl Machine>) -> Result<(), AgentError> {
        if !context.machine.abandon_launch(&self.key)? {
            return Ok(());
        }
        if !self.was_launched_by_this_agent {
            let why = "the launch was interrupted; nothing shows that it ran".to_string();
            return self.record_exit(context, Exit::Unknown(why));
        }
        let shim_log = context.machine.shim_log(&self.key, REPORTED_SHIM_LOG_BYTES_MAX);
        let why = format!("the shim ended before it started anything: {}", shim_log.trim());
        self.record_exit(context, Exit::NotStarted(why))
    }

    fn kill_leftovers(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        why: String,
        shim: Option<&ShimRecord>,
    ) -> Result<(), AgentError> {
        if context.machine.kill_attempt_processes(&self.key, shim)? > 0 {
            return Ok(()); // The dead must be gone before we say so; we look again.
        }
        self.record_exit(context, Exit::Unknown(why))
    }

    fn record_exit(
        &self,
        context: &mut ReconcileContext<'_, impl Machine>,
        exit: Exit,
    ) -> Result<(), AgentError> {
        let record = self.new_exit_record(context, exit);
        context.machine.write_exit_record(&self.key, &record)
    }

    /// Of an attempt that is found to be over now.
    fn new_exit_record(&self, context: &mut ReconcileContext<'_, impl Machine>, exit: Exit) -> ExitRecord {
        let placed_at_ms = self.placed_at_ms.or(self.order.as_ref().map(|order| order.placed_at_ms));
        let stopped = context.machine.stop_record(&self.key).is_ok_and(|stop| stop.is_some());
        let ended_at_ms = Some(context.now.wall_ms);
        ExitRecord { exit, stopped, placed_at_ms: placed_at_ms.unwrap_or_default(), ended_at_ms }
    }

    /// Said until the orders know it.
    fn report_started(&mut self, context: &mut ReconcileContext<'_, impl Machine>) {
        let unheard = self.order.as_ref().is_some_and(|order| !order.started);
        if unheard && self.start_report_timer.is_due(context.now.wall_ms, context.config.repeat_interval_ms) {
            let (node, job) = (context.config.node.clone(), self.key.job().to_string());
            let (attempt, incarnation) = (self.key.attempt(), context.config.incarnation.clone());
            (context.send_report)(Report::Started { node, job, attempt, incarnation });
        }
    }

    /// One that was too quick to be seen running did run: its start is said first.
    fn report_exit(&mut self, context: &mut ReconcileContext<'_, impl Machine>, record: ExitRecord) {
        if matches!(record.exit, Exit::Code(_) | Exit::Signal(_)) && !self.start_report_timer.has_fired() {
            self.report_started(context);
        }
        if self.exit_report_timer.is_due(context.now.wall_ms, context.config.repeat_interval_ms) {
            (context.send_report)(Report::Ended {
                node: context.config.node.clone(),
                job: self.key.job().to_string(),
                attempt: self.key.attempt(),
                ended_ms_ago: record.ended_ms_ago(context.now.wall_ms),
                exit: record.exit,
                stopped: record.stopped,
                incarnation: context.config.incarnation.clone(),
            });
        }
    }

    /// True when the attempt that the orders name can now take the place of another life's.
    fn clean_up(&mut self, machine: &mut impl Machine) -> Result<bool, AgentError> {
        machine.clean_up(&self.key)?;
        let Some(placed_at_ms) = self.placed_at_ms.filter(|_| self.holds_another_placement()) else {
            return Ok(false);
        };
        machine.archive_attempt_dir(&self.key, placed_at_ms)?;
        self.placed_at_ms = None;
        self.stop_request = None;
        // What was launched and found was the other life's.
        (self.was_launched_by_this_agent, self.may_predate_this_agent, self.unrecorded_shim) =
            (false, false, None);
        Ok(true)
    }
}

fn new_stop_record(now_ms: i64, decision: &StopDecision) -> StopRecord {
    match decision {
        StopDecision::Ordered(stop) => {
            let elapsed_ms = now_ms.saturating_sub(stop.since_ms).max(0);
            let grace_ms = stop.grace_ms.saturating_sub(elapsed_ms).max(0);
            StopRecord { grace_ms, why: stop.why.clone() }
        }
        StopDecision::KeepRunning | StopDecision::NotInOrders => {
            StopRecord { grace_ms: NOT_IN_ORDERS_GRACE_MS, why: "no longer ordered".to_string() }
        }
    }
}
