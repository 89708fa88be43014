//! One attempt that the reconciler tracks: reads its status and performs the next action.

use muster_protocol::agent::{AttemptOrder, AttemptSecrets, Exit, Report};

use super::action::{self, AttemptAction, LaunchState, StopDecision};
use super::attempt_status::{self, AttemptStatus, PossibleProcesses};
use super::{ClockReading, ReconcileContext};
use crate::error::AgentError;
use crate::machine::{AttemptKey, EpilogStatus, Machine};
use crate::records::{EpilogResult, ExitRecord, LaunchIntent, SelfFence, ShimRecord, SignalRecord, StopRecord};
use crate::repeat_timer::RepeatTimer;

/// The grace of a running attempt that the orders do not contain: the server counts the attempt as over.
const NOT_IN_ORDERS_GRACE_MS: i64 = 5_000;
/// A shim that is alive this long after the grace hangs, and the agent kills its tasks.
const HUNG_SHIM_TIMEOUT_MS: i64 = 5_000;
/// The same after the self-fence deadline. Shorter than what the server adds to the deadline before it starts the job
/// elsewhere.
const HUNG_SHIM_FENCE_TIMEOUT_MS: i64 = 1_000;
/// When an action is tried again that no event announces: a killed process is gone, a disk can be written again.
const RETRY_MS: i64 = 100;
/// When the programs after an attempt are started again if they ended without a result.
const EPILOG_RETRY_MS: i64 = 10_000;
/// How often processes that cannot be killed are reported.
const UNKILLABLE_REPORT_INTERVAL_MS: i64 = 30_000;
/// The part of a failed shim's log that goes into the report.
const REPORTED_SHIM_LOG_BYTES_MAX: usize = 2_000;

/// An attempt, and what this agent has done about it.
#[derive(Debug)]
pub(super) struct TrackedAttempt {
    key: AttemptKey,
    /// `None` if the orders do not contain the attempt.
    order: Option<AttemptOrder>,
    /// The secrets of a job that is not launched; they are in memory only.
    secrets: Option<AttemptSecrets>,
    /// When the attempt is looked at next, by the boot clock.
    next_look_ms: i64,
    /// The placement time in the records; `None` without records.
    placed_at_ms: Option<i64>,
    was_launched_by_this_agent: bool,
    /// A previous agent may have launched the attempt.
    may_predate_this_agent: bool,
    /// The shim that was found among the processes because no record names it.
    unrecorded_shim: Option<ShimRecord>,
    /// The exit of a failed launch whose exit record could not be written.
    unwritten_exit: Option<ExitRecord>,
    stop_request: Option<StopRequest>,
    /// The self-fence time of the launch; an order that no longer has one does not stop the renewals.
    launched_fence_ms: Option<i64>,
    /// The self-fence that this agent gave to the shim.
    renewed_fence: Option<SelfFence>,
    /// The shim was alive at the last look.
    is_supervised: bool,
    /// The early signal was handed to the shim.
    is_signalled: bool,
    /// When this agent first sent SIGKILL to processes of the attempt.
    killed_at_ms: Option<i64>,
    start_report_timer: RepeatTimer,
    exit_report_timer: RepeatTimer,
    epilog_timer: RepeatTimer,
    unkillable_report_timer: RepeatTimer,
    warning_timer: RepeatTimer,
}

/// The last stop that was requested from the shim, and when the shim is overdue. In monotonic time, because the wall
/// clock may be set.
#[derive(Debug)]
struct StopRequest {
    decision: StopDecision,
    /// A grace that does not count yet. It counts from the reconcile after the stop record was written: the write
    /// may take long, and the shim cannot read the record before.
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
        let may_predate_this_agent = order.as_ref().is_none_or(|order| !order.may_be_launched());
        if let Some(order) = order.as_ref().filter(|order| order.started) {
            machine.restore_attempt(key, order);
        }
        TrackedAttempt {
            may_predate_this_agent,
            unrecorded_shim: None,
            key: key.clone(),
            order,
            secrets: None,
            next_look_ms: i64::MIN,
            // An error here shows again when the status is read, and is handled there.
            placed_at_ms: attempt_status::recorded_placed_at_ms(machine, key).unwrap_or_default(),
            was_launched_by_this_agent: false,
            unwritten_exit: None,
            stop_request: None,
            launched_fence_ms: machine.launch_intent(key).ok().flatten().and_then(|intent| intent.order.self_fence_ms),
            renewed_fence: None,
            is_supervised: false,
            is_signalled: false,
            killed_at_ms: None,
            start_report_timer: RepeatTimer::default(),
            exit_report_timer: RepeatTimer::default(),
            epilog_timer: RepeatTimer::default(),
            unkillable_report_timer: RepeatTimer::default(),
            warning_timer: RepeatTimer::default(),
        }
    }

    /// Orders are repeated in full; only a change of this one is worth a look.
    pub fn set_order(&mut self, order: Option<AttemptOrder>) {
        if self.order != order {
            self.order = order;
            self.look_now();
        }
    }

    /// Keeps the secrets of the job until it is launched.
    pub fn set_secrets(&mut self, secrets: AttemptSecrets) {
        if !self.was_launched_by_this_agent {
            self.secrets = Some(secrets);
            self.look_now();
        }
    }

    pub fn next_look_ms(&self) -> i64 {
        self.next_look_ms
    }

    pub fn look_now(&mut self) {
        self.next_look_ms = i64::MIN;
    }

    fn look_at(&mut self, at_ms: i64) {
        self.next_look_ms = self.next_look_ms.min(at_ms);
    }

    /// A leader acknowledged a heartbeat: the agent renews the self-fence of the shim, and a launch that waited for it can go on.
    pub fn acknowledge(&mut self, machine: &mut impl Machine, acknowledged_at_boot_ms: Option<i64>) {
        match self.is_supervised {
            true => self.renew_self_fence(machine, acknowledged_at_boot_ms),
            false if self.self_fence_ms().is_some() => self.look_now(),
            false => {}
        }
    }

    /// Reads the status and performs one action, if the attempt is due. False if the attempt needs no further action,
    /// ever.
    pub fn reconcile_if_due(&mut self, context: &mut ReconcileContext<'_, impl Machine>) -> bool {
        self.next_look_ms > context.now.monotonic_ms || self.reconcile(context)
    }

    fn reconcile(&mut self, context: &mut ReconcileContext<'_, impl Machine>) -> bool {
        self.next_look_ms = context.now.monotonic_ms.saturating_add(context.config.look_interval_ms);
        self.is_supervised = false;
        match self.try_reconcile(context) {
            Ok(keep) => keep,
            Err(error) => {
                self.look_at(context.now.monotonic_ms + RETRY_MS);
                if self.warning_timer.is_due(context.now.monotonic_ms, context.config.repeat_interval_ms) {
                    let (job, attempt) = (self.key.job(), self.key.attempt());
                    tracing::warn!(job, attempt, "reconciling the attempt failed; retrying: {error}");
                }
                true
            }
        }
    }

    fn try_reconcile(&mut self, context: &mut ReconcileContext<'_, impl Machine>) -> Result<bool, AgentError> {
        let is_child_shim_running = context.machine.is_child_shim_running(&self.key);
        let status = match &self.unwritten_exit {
            Some(failed) => AttemptStatus::Exited(failed.clone()),
            None => self.status(context, is_child_shim_running)?,
        };
        let launch_state = LaunchState { is_child_shim_running, was_launched: self.was_launched_by_this_agent };
        match action::next_action(status, self.order_of_placement(), launch_state) {
            AttemptAction::Launch => self.launch(context),
            AttemptAction::Wait => {}
            AttemptAction::Supervise { shim, stop } => self.supervise(context, &shim, stop)?,
            AttemptAction::AbandonLaunch => self.abandon_launch(context)?,
            AttemptAction::KillLeftovers { why, shim } => self.kill_leftovers(context, why, shim.as_ref())?,
            AttemptAction::RecordStopBeforeLaunch => self.record_stop_before_launch(context)?,
            AttemptAction::ReportExit(record) => {
                if let Some(after) = self.result_after(context)? {
                    self.report_exit(context, record, after);
                }
            }
            AttemptAction::CleanUp => {
                if self.result_after(context)?.is_none() {
                    return Ok(true);
                }
                let is_archived = self.clean_up(context.machine)?;
                if is_archived {
                    self.look_now();
                }
                // The end of the shim is an event, and then the shim is reaped.
                return Ok(is_archived || is_child_shim_running);
            }
        }
        Ok(true)
    }

    /// For an attempt of the first orders: a new agent does not know what previous agents launched.
    pub fn assume_predates_this_agent(self) -> TrackedAttempt {
        TrackedAttempt { may_predate_this_agent: true, ..self }
    }

    fn status(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        is_child_shim_running: bool,
    ) -> Result<AttemptStatus, AgentError> {
        let is_unrecorded_shim_alive =
            self.unrecorded_shim.as_ref().is_some_and(|shim| context.machine.is_shim_alive(shim));
        let possible_processes = match self.was_launched_by_this_agent || self.may_predate_this_agent {
            true if is_child_shim_running && !is_unrecorded_shim_alive => PossibleProcesses::ShimStarting,
            true if !is_unrecorded_shim_alive => PossibleProcesses::Unknown,
            _ => PossibleProcesses::NotExpected,
        };
        let status = attempt_status::read_attempt_status(
            context.machine,
            &self.key,
            &context.config.boot_id,
            possible_processes,
        )?;
        match (status, self.unrecorded_shim.clone().filter(|_| is_unrecorded_shim_alive)) {
            (AttemptStatus::NoRecords | AttemptStatus::LaunchPending, Some(shim)) => Ok(AttemptStatus::ShimAlive(shim)),
            (status, _) => {
                self.unrecorded_shim = self.unrecorded_live_shim(context.machine, &status);
                Ok(status)
            }
        }
    }

    /// The live shim, if no record names it. Remembered, because searching all processes in every reconcile costs
    /// too much.
    fn unrecorded_live_shim(&self, machine: &mut impl Machine, status: &AttemptStatus) -> Option<ShimRecord> {
        let AttemptStatus::ShimAlive(shim) = status else { return None };
        shim.process_group?; // Until its tasks run, the shim is searched again.
        let is_recorded = !matches!(machine.launch_lock(&self.key), Ok(None));
        if !is_recorded {
            let (job, attempt) = (self.key.job(), self.key.attempt());
            tracing::warn!(
                job,
                attempt,
                pid = shim.pid,
                "the records of the attempt are missing; its shim is alive and is adopted"
            );
        }
        (!is_recorded).then(|| shim.clone())
    }

    /// True if the directory contains an attempt of the same number with another placement time: the server lost its
    /// journal and the data directory is older. The old attempt is treated as not ordered until it is archived.
    fn holds_another_placement(&self) -> bool {
        let ordered = self.order.as_ref().map(|order| order.placed_at_ms);
        self.placed_at_ms.is_some() && ordered.is_some() && self.placed_at_ms != ordered
    }

    /// The order, unless it is for another placement than the records.
    fn order_of_placement(&self) -> Option<&AttemptOrder> {
        self.order.as_ref().filter(|_| !self.holds_another_placement())
    }

    /// Writes the launch intent, then starts the shim. If the intent fails, nothing was started. If the shim fails,
    /// the failure is on disk before it is reported.
    fn launch(&mut self, context: &mut ReconcileContext<'_, impl Machine>) {
        let Some(order) = self.order.clone() else { return };
        let self_fence = self.self_fence(context.acknowledged_at_boot_ms);
        // Past the deadline the server may run the job elsewhere. The next acknowledgement, or other orders, decide.
        if order.self_fence_ms.is_some() && self_fence.is_none_or(|fence| fence.has_passed(context.now.monotonic_ms)) {
            return;
        }
        let needs_secrets = !order.run.secrets.is_empty() && context.machine.runs_programs();
        let secrets = match (needs_secrets, self.secrets.take()) {
            (false, _) => Vec::new(),
            (true, Some(secrets)) => match secrets.refusal {
                None => secrets.files,
                Some(why) => {
                    self.placed_at_ms = Some(order.placed_at_ms);
                    return self.record_launch_failure(context, why);
                }
            },
            (true, None) => return, // They come with later orders.
        };
        self.placed_at_ms = Some(order.placed_at_ms);
        (self.launched_fence_ms, self.renewed_fence) = (order.self_fence_ms, self_fence);
        let intent = LaunchIntent { order, boot_id: context.config.boot_id.clone(), self_fence };
        let written = context.machine.write_launch_intent(&self.key, &intent);
        match written.and_then(|()| context.machine.start_shim(&self.key, &secrets)) {
            Ok(()) => self.was_launched_by_this_agent = true,
            Err(error) => self.record_launch_failure(context, error.to_string()),
        }
    }

    fn record_launch_failure(&mut self, context: &mut ReconcileContext<'_, impl Machine>, why: String) {
        self.look_now();
        let record = self.new_exit_record(context, Exit::NotStarted(why));
        if let Err(error) = context.machine.write_exit_record(&self.key, &record) {
            tracing::warn!(
                job = self.key.job(),
                "the exit record could not be written and is kept in memory only: {error}"
            );
            self.unwritten_exit = Some(record);
        }
    }

    fn supervise(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        shim: &ShimRecord,
        stop: StopDecision,
    ) -> Result<(), AgentError> {
        self.is_supervised = true;
        if context.machine.watch_shim(&self.key, shim) {
            self.look_now(); // It may have ended before it was watched.
        }
        if shim.process_group.is_some() {
            self.report_started(context);
        }
        self.renew_self_fence(context.machine, context.acknowledged_at_boot_ms);
        self.deliver_signal(context.machine, shim)?;
        if let Some(processes) = context.machine.unkillable_processes(&self.key) {
            self.report_unkillable(context, processes);
        }
        self.kill_if_fence_overdue(context, shim)?;
        if stop == StopDecision::KeepRunning {
            return Ok(());
        }
        if let Some(stop) = &mut self.stop_request {
            stop.start_counting_grace(context.now.monotonic_ms);
        }
        self.request_stop(context.machine, context.now, stop)?;
        self.kill_if_overdue(context, shim)
    }

    /// Hands the early signal to a shim whose tasks run. A restarted agent does so again: the record tells the shim once.
    fn deliver_signal(&mut self, machine: &mut impl Machine, shim: &ShimRecord) -> Result<(), AgentError> {
        let signal = self.order_of_placement().and_then(|order| order.signal);
        if let Some(signal) = signal.filter(|_| !self.is_signalled && shim.process_group.is_some()) {
            machine.deliver_signal(&self.key, &SignalRecord { signal })?;
            self.is_signalled = true;
        }
        Ok(())
    }

    /// Writes a stop record once per change of the ordered stop: the remaining grace shrinks with time, and the shim
    /// already counts it. A later stop may only shorten the grace.
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
        // The shim may not have read the former record yet, so a longer grace must not replace it.
        if let Ok(Some(former)) = machine.stop_record(&self.key) {
            record.grace_ms = record.grace_ms.min(former.grace_ms);
        }
        machine.write_stop_record(&self.key, &record)?;
        self.look_now(); // The grace counts from the next look.
        let overdue_at_monotonic_ms = self.stop_request.as_ref().and_then(|stop| stop.overdue_at_monotonic_ms);
        self.stop_request =
            Some(StopRequest { decision, unread_grace_ms: Some(record.grace_ms), overdue_at_monotonic_ms });
        Ok(())
    }

    /// A hung shim (suspended, or stuck in the kernel) cannot end its tasks, so the agent kills them. The shim
    /// itself is killed last, because the tasks are found by it, and then counts as lost.
    fn kill_if_overdue(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        shim: &ShimRecord,
    ) -> Result<(), AgentError> {
        let overdue_at = self.stop_request.as_ref().and_then(|stop| stop.overdue_at_monotonic_ms);
        self.kill_if_past(context, shim, overdue_at)
    }

    /// The shim kills at the self-fence deadline. If it hangs, a living agent does it.
    fn kill_if_fence_overdue(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        shim: &ShimRecord,
    ) -> Result<(), AgentError> {
        let deadline_ms = self.renewed_fence.map(|fence| fence.deadline_boot_ms());
        let overdue_at = deadline_ms.map(|deadline_ms| deadline_ms.saturating_add(HUNG_SHIM_FENCE_TIMEOUT_MS));
        self.kill_if_past(context, shim, overdue_at)
    }

    fn kill_if_past(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        shim: &ShimRecord,
        overdue_at: Option<i64>,
    ) -> Result<(), AgentError> {
        let Some(overdue_at) = overdue_at else { return Ok(()) };
        if context.now.monotonic_ms < overdue_at {
            self.look_at(overdue_at);
            return Ok(());
        }
        if self.kill_processes(context, Some(shim))? == 0 {
            context.machine.kill_shim(shim);
        }
        Ok(())
    }

    /// Kills the processes of the attempt and returns how many it found. The caller is called again soon, until none is left.
    /// Those that survive for long keep the leases of the attempt, and are reported.
    fn kill_processes(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        shim: Option<&ShimRecord>,
    ) -> Result<usize, AgentError> {
        let now_ms = context.now.monotonic_ms;
        self.look_at(now_ms + RETRY_MS);
        let found = context.machine.kill_attempt_processes(&self.key, shim)?;
        let killed_at_ms = *self.killed_at_ms.get_or_insert(now_ms);
        if found > 0 && now_ms.saturating_sub(killed_at_ms) >= context.config.unkillable_after_ms {
            let processes = context.machine.describe_attempt_processes(&self.key, shim);
            self.report_unkillable(context, processes);
        }
        Ok(found)
    }

    fn report_unkillable(&mut self, context: &mut ReconcileContext<'_, impl Machine>, processes: String) {
        if self.unkillable_report_timer.is_due(context.now.monotonic_ms, UNKILLABLE_REPORT_INTERVAL_MS) {
            (context.send_report)(Report::Unkillable {
                node: context.config.node.clone(),
                job: self.key.job().to_string(),
                attempt: self.key.attempt(),
                processes,
                incarnation: context.config.incarnation.clone(),
            });
        }
    }

    fn self_fence_ms(&self) -> Option<i64> {
        self.order.as_ref()?.self_fence_ms.or(self.launched_fence_ms)
    }

    fn self_fence(&self, acknowledged_at_boot_ms: Option<i64>) -> Option<SelfFence> {
        let (acknowledged_at_boot_ms, within_ms) = acknowledged_at_boot_ms.zip(self.self_fence_ms())?;
        Some(SelfFence { acknowledged_at_boot_ms, within_ms })
    }

    fn renew_self_fence(&mut self, machine: &mut impl Machine, acknowledged_at_boot_ms: Option<i64>) {
        let Some(renewal) = self.self_fence(acknowledged_at_boot_ms) else { return };
        if self.renewed_fence != Some(renewal) {
            machine.renew_self_fence(&self.key, &renewal);
            self.renewed_fence = Some(renewal);
        }
    }

    /// The launch lock decides the race: if a shim took it first, the shim is alive and the next look adopts it.
    fn abandon_launch(&mut self, context: &mut ReconcileContext<'_, impl Machine>) -> Result<(), AgentError> {
        if !context.machine.abandon_launch(&self.key)? {
            self.look_at(context.now.monotonic_ms + RETRY_MS);
            return Ok(());
        }
        let exit = match self.was_launched_by_this_agent {
            true => {
                let shim_log = context.machine.shim_log(&self.key, REPORTED_SHIM_LOG_BYTES_MAX);
                Exit::NotStarted(format!("the shim ended before it started a task: {}", shim_log.trim()))
            }
            false => self.exit_of_interrupted_launch(context)?,
        };
        self.record_exit(context, exit)
    }

    /// A shim takes the launch lock before it runs anything, so nothing ran if the agent has taken it. That does not hold
    /// over a reboot, which a lock need not survive.
    fn exit_of_interrupted_launch(&self, context: &mut ReconcileContext<'_, impl Machine>) -> Result<Exit, AgentError> {
        let intent = context.machine.launch_intent(&self.key)?;
        Ok(match intent.is_some_and(|intent| intent.boot_id == context.config.boot_id) {
            true => Exit::NotStarted("the launch was interrupted by the end of the agent; nothing ran".to_string()),
            false => Exit::Unknown("the launch was interrupted by a reboot of the node".to_string()),
        })
    }

    fn kill_leftovers(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        why: String,
        shim: Option<&ShimRecord>,
    ) -> Result<(), AgentError> {
        if self.kill_processes(context, shim)? > 0 {
            return Ok(()); // The exit is recorded when a later look finds no process left.
        }
        self.record_exit(context, Exit::Unknown(why))
    }

    fn record_stop_before_launch(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
    ) -> Result<(), AgentError> {
        let exit = Exit::NotStarted("the attempt was stopped before it started".to_string());
        let record = ExitRecord { stopped: true, ..self.new_exit_record(context, exit) };
        context.machine.write_exit_record(&self.key, &record)?;
        self.look_now();
        Ok(())
    }

    fn record_exit(&mut self, context: &mut ReconcileContext<'_, impl Machine>, exit: Exit) -> Result<(), AgentError> {
        let record = self.new_exit_record(context, exit);
        context.machine.write_exit_record(&self.key, &record)?;
        self.look_now(); // Reported from the record.
        Ok(())
    }

    /// The exit record of an attempt that is found to be over now.
    fn new_exit_record(&self, context: &mut ReconcileContext<'_, impl Machine>, exit: Exit) -> ExitRecord {
        let placed_at_ms = self.placed_at_ms.or(self.order.as_ref().map(|order| order.placed_at_ms));
        let stopped = context.machine.stop_record(&self.key).is_ok_and(|stop| stop.is_some());
        let ended_at_ms = Some(context.now.wall_ms);
        let placed_at_ms = placed_at_ms.unwrap_or_default();
        ExitRecord { exit, stopped, placed_at_ms, ended_at_ms, prolog_failed: false }
    }

    /// Repeats the start report until the orders acknowledge it.
    fn report_started(&mut self, context: &mut ReconcileContext<'_, impl Machine>) {
        let is_unacknowledged = self.order_of_placement().is_some_and(|order| !order.is_start_acknowledged());
        let (now_ms, interval_ms) = (context.now.monotonic_ms, context.config.repeat_interval_ms);
        if is_unacknowledged && self.start_report_timer.is_due(now_ms, interval_ms) {
            let (node, job) = (context.config.node.clone(), self.key.job().to_string());
            let (attempt, incarnation) = (self.key.attempt(), context.config.incarnation.clone());
            (context.send_report)(Report::Started { node, job, attempt, incarnation });
        }
        if is_unacknowledged {
            self.look_at(self.start_report_timer.next_due_ms());
        }
    }

    /// How the programs after the attempt ended; `None` while they are still owed. The attempt keeps its leases until then.
    fn result_after(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
    ) -> Result<Option<EpilogResult>, AgentError> {
        match context.machine.epilog_status(&self.key)? {
            EpilogStatus::NotOwed => Ok(Some(EpilogResult::default())),
            EpilogStatus::Ended(result) => Ok(Some(result)),
            EpilogStatus::Running => Ok(None),
            EpilogStatus::Owed => self.start_epilog(context).map(|()| None),
        }
    }

    /// What a killed predecessor left of the epilog ends first.
    fn start_epilog(&mut self, context: &mut ReconcileContext<'_, impl Machine>) -> Result<(), AgentError> {
        if self.kill_processes(context, None)? == 0 {
            let is_due = self.epilog_timer.is_due(context.now.monotonic_ms, EPILOG_RETRY_MS);
            self.next_look_ms = self.epilog_timer.next_due_ms();
            if is_due {
                context.machine.start_epilog(&self.key)?;
            }
        }
        Ok(())
    }

    /// Repeats the exit report. An attempt that ended before it was seen running did run, so its start is reported
    /// first.
    fn report_exit(
        &mut self,
        context: &mut ReconcileContext<'_, impl Machine>,
        record: ExitRecord,
        after: EpilogResult,
    ) {
        if matches!(record.exit, Exit::Code(_) | Exit::Signal(_)) && !self.start_report_timer.has_fired() {
            self.report_started(context);
        }
        if self.exit_report_timer.is_due(context.now.monotonic_ms, context.config.repeat_interval_ms) {
            self.report_failures(context, after);
            (context.send_report)(Report::Ended {
                node: context.config.node.clone(),
                job: self.key.job().to_string(),
                attempt: self.key.attempt(),
                ended_ms_ago: record.ended_ms_ago(context.now.wall_ms),
                exit: record.exit,
                stopped: record.stopped,
                prolog_failed: record.prolog_failed,
                incarnation: context.config.incarnation.clone(),
            });
        }
        self.look_at(self.exit_report_timer.next_due_ms());
    }

    /// Before the end of the attempt, so that the node is drained before its resources are free.
    fn report_failures(&self, context: &mut ReconcileContext<'_, impl Machine>, after: EpilogResult) {
        let (node, incarnation) = (context.config.node.clone(), context.config.incarnation.clone());
        if let Some(why) = after.epilog_failure {
            let (job, attempt) = (self.key.job().to_string(), self.key.attempt());
            let (node, incarnation) = (node.clone(), incarnation.clone());
            (context.send_report)(Report::EpilogFailed { node, job, attempt, why, incarnation });
        }
        if let failure @ Some(_) = after.health_failure {
            (context.send_report)(Report::NodeHealth { node, failure, incarnation });
        }
    }

    /// True if an attempt of another placement was archived, so that the ordered attempt can be launched.
    fn clean_up(&mut self, machine: &mut impl Machine) -> Result<bool, AgentError> {
        machine.clean_up(&self.key)?;
        let Some(placed_at_ms) = self.placed_at_ms.filter(|_| self.holds_another_placement()) else {
            return Ok(false);
        };
        machine.archive_attempt_dir(&self.key, placed_at_ms)?;
        self.placed_at_ms = None;
        self.stop_request = None;
        (self.is_signalled, self.killed_at_ms) = (false, None);
        (self.epilog_timer, self.start_report_timer, self.exit_report_timer) = Default::default();
        (self.launched_fence_ms, self.renewed_fence) = (None, None);
        // These described the archived attempt.
        (self.was_launched_by_this_agent, self.may_predate_this_agent, self.unrecorded_shim) = (false, false, None);
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
        StopDecision::KeepRunning | StopDecision::NotInOrders => StopRecord {
            grace_ms: NOT_IN_ORDERS_GRACE_MS,
            why: "the orders no longer contain this attempt".to_string(),
        },
    }
}
