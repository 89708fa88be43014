//! One attempt in the desk's hands: looking at it, and doing what follows.

use muster_protocol::agent::{Exit, Order, Report};

use super::act::{self, Act, Ending, Remembered};
use super::standing::{self, MayRun, Standing};
use super::{Look, Moment};
use crate::error::AgentError;
use crate::machine::{AttemptKey, Machine};
use crate::pace::Pace;
use crate::records::{ExitRecord, Intent, ShimRecord, StopRecord};

/// Grace for a living attempt that the orders do not name: the server counts it as over.
const UNNAMED_GRACE_MS: i64 = 5_000;
/// After the grace a shim should need a moment only. When it takes this long, it hangs, and we do its work.
const SHIM_GRACE_MS: i64 = 5_000;
/// How much of a failed shim's log goes into the report.
const SHIM_LOG_BYTES_MAX: usize = 2_000;

/// An attempt, and what was done about it so far.
#[derive(Debug)]
pub(super) struct Held {
    key: AttemptKey,
    /// None when the orders do not name it.
    pub order: Option<Order>,
    /// When the attempt in the folder was placed, if there is one.
    placed_at_ms: Option<i64>,
    /// We started the shim ourselves, not an agent before us.
    is_ours: bool,
    /// An agent before us may have started it.
    is_from_before: bool,
    /// Its shim, where the records do not name it and it was found among the processes.
    found: Option<ShimRecord>,
    /// An end that could not even be written down.
    failed: Option<ExitRecord>,
    stop: Option<AskedToStop>,
    started: Pace,
    ended: Pace,
    trouble: Pace,
}

/// What the shim was told last, and when it is late. Not by the wall clock: that may be set.
#[derive(Debug)]
struct AskedToStop {
    because: Ending,
    /// A grace that does not count yet. It does from the look after it was written down: that may have taken
    /// long, and the shim cannot have seen it before.
    grace_ms: Option<i64>,
    overdue_at_mono_ms: Option<i64>,
}

impl AskedToStop {
    fn count(&mut self, mono_ms: i64) {
        let Some(grace_ms) = self.grace_ms.take() else { return };
        let overdue_at = mono_ms.saturating_add(grace_ms).saturating_add(SHIM_GRACE_MS);
        self.overdue_at_mono_ms =
            Some(self.overdue_at_mono_ms.map_or(overdue_at, |known| known.min(overdue_at)));
    }
}

impl Held {
    pub fn new(machine: &mut impl Machine, key: &AttemptKey, order: Option<Order>) -> Held {
        let is_from_before = order.as_ref().is_none_or(|order| order.started);
        Held {
            is_from_before,
            found: None,
            key: key.clone(),
            order,
            // Damage is seen again when we look, and dealt with there.
            placed_at_ms: standing::placed_at_ms(machine, key).unwrap_or_default(),
            is_ours: false,
            failed: None,
            stop: None,
            started: Pace::default(),
            ended: Pace::default(),
            trouble: Pace::default(),
        }
    }

    /// Look and act once. False when there is nothing more to do about this attempt, ever.
    pub fn step(&mut self, look: &mut Look<'_, impl Machine>) -> bool {
        match self.try_step(look) {
            Ok(stays) => stays,
            Err(error) => {
                if self.trouble.is_due(look.now.wall_ms, look.site.every_ms) {
                    let (job, attempt) = (self.key.job(), self.key.attempt());
                    tracing::warn!(job, attempt, "will try again: {error}");
                }
                true
            }
        }
    }

    fn try_step(&mut self, look: &mut Look<'_, impl Machine>) -> Result<bool, AgentError> {
        let is_shim_up = look.machine.is_our_shim_up(&self.key);
        let standing = match &self.failed {
            Some(failed) => Standing::Ended(failed.clone()),
            None => self.standing(look, is_shim_up)?,
        };
        let remembered = Remembered { is_shim_up, was_launched: self.is_ours };
        let order = self.order.as_ref().filter(|_| !self.is_of_another_life());
        match act::next(standing, order, remembered) {
            Act::Launch => self.launch(look),
            Act::Wait => {}
            Act::Tend { shim, ending } => self.tend(look, &shim, ending)?,
            Act::GiveUp => self.give_up(look)?,
            Act::Sweep { why, shim } => self.sweep(look, why, shim.as_ref())?,
            Act::Record(exit) => self.record(look, exit)?,
            Act::SayEnded(record) => self.say_ended(look, record),
            Act::Tidy => return self.tidy(look.machine).map(|stays| stays || is_shim_up),
        }
        Ok(true)
    }

    /// An agent that has just begun does not know what agents before it have launched.
    pub fn begun_before(self) -> Held {
        Held { is_from_before: true, ..self }
    }

    fn standing(
        &mut self,
        look: &mut Look<'_, impl Machine>,
        is_shim_up: bool,
    ) -> Result<Standing, AgentError> {
        let is_found = self.found.as_ref().is_some_and(|shim| look.machine.lives(shim));
        let may_run = match self.is_ours || self.is_from_before {
            true if is_shim_up && !is_found => MayRun::Coming,
            true if !is_found => MayRun::Unseen,
            _ => MayRun::No,
        };
        let standing = standing::of(look.machine, &self.key, &look.site.boot_id, may_run)?;
        match (standing, self.found.clone().filter(|_| is_found)) {
            (Standing::Absent | Standing::Unclaimed, Some(shim)) => Ok(Standing::Alive(shim)),
            (standing, _) => {
                self.found = self.newly_found(look.machine, &standing);
                Ok(standing)
            }
        }
    }

    /// The shim that lives, if no record names it: to look through all processes at every turn would cost too much.
    fn newly_found(&self, machine: &mut impl Machine, standing: &Standing) -> Option<ShimRecord> {
        let Standing::Alive(shim) = standing else { return None };
        shim.group?; // Until its tasks run we look again.
        let is_recorded = !matches!(machine.claim(&self.key), Ok(None));
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
    fn is_of_another_life(&self) -> bool {
        let ordered = self.order.as_ref().map(|order| order.placed_at_ms);
        self.placed_at_ms.is_some() && ordered.is_some() && self.placed_at_ms != ordered
    }

    /// Write down the intent, then start the shim. If the first fails nothing has happened; if the second
    /// fails, that is on disk before it is said.
    fn launch(&mut self, look: &mut Look<'_, impl Machine>) {
        let Some(order) = self.order.clone() else { return };
        self.placed_at_ms = Some(order.placed_at_ms);
        let intent = Intent { order, boot_id: look.site.boot_id.clone() };
        let begun = look.machine.begin(&self.key, &intent);
        match begun.and_then(|()| look.machine.start_shim(&self.key)) {
            Ok(()) => self.is_ours = true,
            Err(error) => self.fail(look, error.to_string()),
        }
    }

    fn fail(&mut self, look: &mut Look<'_, impl Machine>, why: String) {
        let record = self.exit_record(look, Exit::NotStarted(why));
        if let Err(error) = look.machine.end(&self.key, &record) {
            tracing::warn!(job = self.key.job(), "an end is kept in memory only: {error}");
            self.failed = Some(record);
        }
    }

    fn tend(
        &mut self,
        look: &mut Look<'_, impl Machine>,
        shim: &ShimRecord,
        ending: Ending,
    ) -> Result<(), AgentError> {
        if shim.group.is_some() {
            self.say_started(look);
        }
        if ending == Ending::No {
            return Ok(());
        }
        if let Some(stop) = &mut self.stop {
            stop.count(look.now.mono_ms);
        }
        self.ask_to_stop(look.machine, look.now, ending)?;
        self.help_when_overdue(look.machine, look.now, shim)
    }

    /// Asked once per word of the orders: the grace shrinks as time passes, and the shim is already counting.
    /// A word with a shorter grace hurries it.
    fn ask_to_stop(
        &mut self,
        machine: &mut impl Machine,
        now: Moment,
        because: Ending,
    ) -> Result<(), AgentError> {
        if self.stop.as_ref().is_some_and(|stop| stop.because == because) {
            return Ok(());
        }
        let mut record = stop_record(now.wall_ms, &because);
        // The shim may not have read the former record yet: a longer grace must not replace it.
        if let Ok(Some(former)) = machine.stop(&self.key) {
            record.grace_ms = record.grace_ms.min(former.grace_ms);
        }
        machine.ask_to_stop(&self.key, &record)?;
        let overdue_at_mono_ms = self.stop.as_ref().and_then(|stop| stop.overdue_at_mono_ms);
        self.stop = Some(AskedToStop { because, grace_ms: Some(record.grace_ms), overdue_at_mono_ms });
        Ok(())
    }

    /// A shim that hangs (suspended, or stuck in the kernel) cannot end its tasks, so we do; itself last,
    /// because by it we find them. Then it counts as lost.
    fn help_when_overdue(
        &self,
        machine: &mut impl Machine,
        now: Moment,
        shim: &ShimRecord,
    ) -> Result<(), AgentError> {
        let overdue_at = self.stop.as_ref().and_then(|stop| stop.overdue_at_mono_ms);
        if overdue_at.is_none_or(|overdue_at| now.mono_ms < overdue_at) {
            return Ok(());
        }
        if machine.kill(&self.key, Some(shim))? == 0 {
            machine.kill_shim(shim);
        }
        Ok(())
    }

    /// Whoever takes the attempt has it: if a shim was quicker, it lives and we adopt it at the next look.
    fn give_up(&mut self, look: &mut Look<'_, impl Machine>) -> Result<(), AgentError> {
        if !look.machine.abandon(&self.key)? {
            return Ok(());
        }
        if !self.is_ours {
            let why = "the launch was interrupted; nothing shows that it ran".to_string();
            return self.record(look, Exit::Unknown(why));
        }
        let said = look.machine.shim_log(&self.key, SHIM_LOG_BYTES_MAX);
        let why = format!("the shim ended before it started anything: {}", said.trim());
        self.record(look, Exit::NotStarted(why))
    }

    fn sweep(
        &mut self,
        look: &mut Look<'_, impl Machine>,
        why: String,
        shim: Option<&ShimRecord>,
    ) -> Result<(), AgentError> {
        if look.machine.kill(&self.key, shim)? > 0 {
            return Ok(()); // The dead must be gone before we say so; we look again.
        }
        self.record(look, Exit::Unknown(why))
    }

    fn record(&self, look: &mut Look<'_, impl Machine>, exit: Exit) -> Result<(), AgentError> {
        let record = self.exit_record(look, exit);
        look.machine.end(&self.key, &record)
    }

    /// Of an attempt that is found to be over now.
    fn exit_record(&self, look: &mut Look<'_, impl Machine>, exit: Exit) -> ExitRecord {
        let placed_at_ms = self.placed_at_ms.or(self.order.as_ref().map(|order| order.placed_at_ms));
        let stopped = look.machine.stop(&self.key).is_ok_and(|stop| stop.is_some());
        let ended_at_ms = Some(look.now.wall_ms);
        ExitRecord { exit, stopped, placed_at_ms: placed_at_ms.unwrap_or_default(), ended_at_ms }
    }

    /// Said until the orders know it.
    fn say_started(&mut self, look: &mut Look<'_, impl Machine>) {
        let unheard = self.order.as_ref().is_some_and(|order| !order.started);
        if unheard && self.started.is_due(look.now.wall_ms, look.site.every_ms) {
            let (node, job) = (look.site.node.clone(), self.key.job().to_string());
            let (attempt, incarnation) = (self.key.attempt(), look.site.incarnation.clone());
            (look.say)(Report::Started { node, job, attempt, incarnation });
        }
    }

    /// One that was too quick to be seen running did run: its start is said first.
    fn say_ended(&mut self, look: &mut Look<'_, impl Machine>, record: ExitRecord) {
        if matches!(record.exit, Exit::Code(_) | Exit::Signal(_)) && !self.started.has_begun() {
            self.say_started(look);
        }
        if self.ended.is_due(look.now.wall_ms, look.site.every_ms) {
            (look.say)(Report::Ended {
                node: look.site.node.clone(),
                job: self.key.job().to_string(),
                attempt: self.key.attempt(),
                ended_ms_ago: record.ended_ms_ago(look.now.wall_ms),
                exit: record.exit,
                stopped: record.stopped,
                incarnation: look.site.incarnation.clone(),
            });
        }
    }

    /// True when the attempt that the orders name can now take the place of another life's.
    fn tidy(&mut self, machine: &mut impl Machine) -> Result<bool, AgentError> {
        machine.tidy(&self.key)?;
        let Some(placed_at_ms) = self.placed_at_ms.filter(|_| self.is_of_another_life()) else {
            return Ok(false);
        };
        machine.set_aside(&self.key, placed_at_ms)?;
        self.placed_at_ms = None;
        self.stop = None;
        // What was launched and found was the other life's.
        (self.is_ours, self.is_from_before, self.found) = (false, false, None);
        Ok(true)
    }
}

fn stop_record(now_ms: i64, because: &Ending) -> StopRecord {
    match because {
        Ending::Ordered(stop) => {
            let elapsed_ms = now_ms.saturating_sub(stop.since_ms).max(0);
            let grace_ms = stop.grace_ms.saturating_sub(elapsed_ms).max(0);
            StopRecord { grace_ms, why: stop.why.clone() }
        }
        Ending::No | Ending::Unnamed => {
            StopRecord { grace_ms: UNNAMED_GRACE_MS, why: "no longer ordered".to_string() }
        }
    }
}
