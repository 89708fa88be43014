//! One attempt in the runner's hands: looking at it, and doing what follows.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use muster_protocol::agent::{Exit, Order, Report};
use rustix::process::Signal;

use super::Site;
use super::act::{self, Act, Ending};
use super::standing::{self, Standing};
use crate::error::AgentError;
use crate::folder::Folder;
use crate::pace::Pace;
use crate::records::{Claim, ExitRecord, Intent, ShimRecord, StopRecord};
use crate::{logs, members, proc};

/// Grace for a living attempt that the orders do not name: the server counts it as over.
const UNNAMED_GRACE_MS: i64 = 5_000;
/// After the grace a shim should need a moment only. When it takes this long, it hangs, and we do its work.
const SHIM_GRACE: Duration = Duration::from_secs(5);
/// How much of a failed shim's log goes into the report.
const SHIM_LOG_BYTES_MAX: usize = 2_000;

/// An attempt, and what was done about it so far.
pub(super) struct Held {
    key: (String, u32),
    /// None when the orders do not name it.
    pub order: Option<Order>,
    folder: Folder,
    /// When the attempt in the folder was placed, if there is one.
    placed_at_ms: Option<i64>,
    /// The shim, while we are its parent and it has not been seen to end.
    child: Option<Child>,
    /// We started the shim ourselves, not a runner before us.
    is_ours: bool,
    /// It could not even be written down.
    failed: Option<String>,
    stop: Option<AskedToStop>,
    started: Pace,
    ended: Pace,
    trouble: Pace,
}

/// What the shim was told last, and when it is late. Not by the wall clock: that may be set.
struct AskedToStop {
    because: Ending,
    overdue_at: Instant,
}

impl Held {
    pub fn new(site: &Site, key: &(String, u32), order: Option<Order>) -> Result<Held, AgentError> {
        let folder = Folder::of(&site.data_dir, &key.0, key.1)?;
        Ok(Held {
            key: key.clone(),
            // Damage is seen again when we look, and dealt with there.
            placed_at_ms: folder.placed_at_ms().unwrap_or_default(),
            order,
            folder,
            child: None,
            is_ours: false,
            failed: None,
            stop: None,
            started: Pace::default(),
            ended: Pace::default(),
            trouble: Pace::default(),
        })
    }

    /// Look and act once. False when there is nothing more to do about this attempt, ever.
    pub fn step(&mut self, site: &Site, now_ms: i64) -> bool {
        self.reap();
        match self.try_step(site, now_ms) {
            Ok(stays) => stays,
            Err(error) => {
                if self.trouble.is_due(now_ms, site.every_ms) {
                    tracing::warn!(job = self.key.0, attempt = self.key.1, "will try again: {error}");
                }
                true
            }
        }
    }

    fn try_step(&mut self, site: &Site, now_ms: i64) -> Result<bool, AgentError> {
        let standing = match &self.failed {
            Some(why) => Standing::Ended { exit: Exit::NotStarted(why.clone()), stopped: false },
            None => standing::of(&self.folder, &site.boot_id)?,
        };
        let order = self.order.as_ref().filter(|_| !self.is_of_another_life());
        match act::next(standing, order, self.child.is_some()) {
            Act::Launch => self.launch(site),
            Act::Wait => {}
            Act::Tend { shim, ending } => self.tend(site, now_ms, &shim, ending)?,
            Act::GiveUp => self.give_up()?,
            Act::Sweep { why, shim } => self.sweep(why, shim.as_ref())?,
            Act::Record(exit) => self.record(exit)?,
            Act::SayEnded { exit, stopped } => self.say_ended(site, now_ms, exit, stopped),
            Act::Tidy => return self.tidy(),
        }
        Ok(true)
    }

    /// The folder holds an attempt of the same number that was placed at another time: the server has begun anew
    /// with an old data folder. It is treated as unnamed until it is out of the way.
    fn is_of_another_life(&self) -> bool {
        let ordered = self.order.as_ref().map(|order| order.placed_at_ms);
        self.placed_at_ms.is_some() && ordered.is_some() && self.placed_at_ms != ordered
    }

    /// As the parent of a shim we must look at its end, or it stays as a zombie.
    fn reap(&mut self) {
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(None))
        {
            self.child = None;
        }
    }

    /// Write down the intent, then start the shim. If the first fails nothing has happened; if the second fails,
    /// that is on disk before it is said.
    fn launch(&mut self, site: &Site) {
        let Some(order) = self.order.clone() else { return };
        self.placed_at_ms = Some(order.placed_at_ms);
        let intent = Intent { order, boot_id: site.boot_id.clone() };
        let launched = self.folder.begin(&intent).and_then(|()| spawn_shim(site, &self.folder));
        match launched {
            Ok(child) => {
                self.child = Some(child);
                self.is_ours = true;
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn fail(&mut self, why: String) {
        if let Err(error) = self.record(Exit::NotStarted(why.clone())) {
            tracing::warn!(job = self.key.0, "an end is kept in memory only: {error}");
            self.failed = Some(why);
        }
    }

    fn tend(
        &mut self,
        site: &Site,
        now_ms: i64,
        shim: &ShimRecord,
        ending: Ending,
    ) -> Result<(), AgentError> {
        if shim.group.is_some() {
            self.say_started(site, now_ms);
        }
        if ending == Ending::No {
            return Ok(());
        }
        self.ask_to_stop(now_ms, ending)?;
        self.help_when_overdue(shim)
    }

    /// Asked once per word of the orders: the grace shrinks as time passes, and the shim is already counting. A word
    /// with a shorter grace hurries it.
    fn ask_to_stop(&mut self, now_ms: i64, because: Ending) -> Result<(), AgentError> {
        if self.stop.as_ref().is_some_and(|stop| stop.because == because) {
            return Ok(());
        }
        let record = stop_record(now_ms, &because);
        self.folder.ask_to_stop(&record)?;
        let grace = Duration::from_millis(record.grace_ms.unsigned_abs());
        let overdue_at = Instant::now() + grace + SHIM_GRACE;
        let overdue_at = self.stop.as_ref().map_or(overdue_at, |stop| stop.overdue_at.min(overdue_at));
        self.stop = Some(AskedToStop { because, overdue_at });
        Ok(())
    }

    /// A shim that hangs (suspended, or stuck in the kernel) cannot end its tasks, so we do; itself last, because
    /// by it we find them. Then it counts as lost.
    fn help_when_overdue(&self, shim: &ShimRecord) -> Result<(), AgentError> {
        if self.stop.as_ref().is_none_or(|stop| Instant::now() < stop.overdue_at) {
            return Ok(());
        }
        let left = members::kill(Some(shim), self.folder.path())?;
        let process = proc::process(shim.pid).filter(|process| process.start_time == shim.start_time);
        if let (0, Some(process)) = (left, process)
            && let Err(error) = proc::signal(&process, Signal::KILL)
        {
            tracing::warn!(pid = process.pid, "a hanging shim cannot be killed: {error}");
        }
        Ok(())
    }

    /// Whoever takes the attempt has it: if a shim was quicker, it lives and we adopt it at the next look.
    fn give_up(&mut self) -> Result<(), AgentError> {
        if !self.folder.take(&Claim::Abandoned)? {
            return Ok(());
        }
        if !self.is_ours {
            return self
                .record(Exit::Unknown("the launch was interrupted; nothing shows that it ran".to_string()));
        }
        let (said, _) =
            logs::read_from(&self.folder.file("shim.log"), 0, SHIM_LOG_BYTES_MAX).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).trim().to_string();
        self.record(Exit::NotStarted(format!("the shim ended before it started anything: {said}")))
    }

    fn sweep(&mut self, why: String, shim: Option<&ShimRecord>) -> Result<(), AgentError> {
        let left = members::kill(shim, self.folder.path())?;
        if left > 0 {
            return Ok(()); // The dead must be gone before we say so; we look again.
        }
        self.record(Exit::Unknown(why))
    }

    fn record(&self, exit: Exit) -> Result<(), AgentError> {
        let placed_at_ms = self.placed_at_ms.or(self.order.as_ref().map(|order| order.placed_at_ms));
        let stopped = self.folder.stop().is_ok_and(|stop| stop.is_some());
        self.folder.end(&ExitRecord { exit, stopped, placed_at_ms: placed_at_ms.unwrap_or_default() })
    }

    /// Said until the orders know it.
    fn say_started(&mut self, site: &Site, now_ms: i64) {
        let unheard = self.order.as_ref().is_some_and(|order| !order.started);
        if unheard && self.started.is_due(now_ms, site.every_ms) {
            let (job, attempt) = self.key.clone();
            (site.mouth)(Report::Started { node: site.node.clone(), job, attempt });
        }
    }

    /// One that was too quick to be seen running did run: its start is said first.
    fn say_ended(&mut self, site: &Site, now_ms: i64, exit: Exit, stopped: bool) {
        if matches!(exit, Exit::Code(_) | Exit::Signal(_)) && !self.started.has_begun() {
            self.say_started(site, now_ms);
        }
        if self.ended.is_due(now_ms, site.every_ms) {
            let (job, attempt) = self.key.clone();
            (site.mouth)(Report::Ended { node: site.node.clone(), job, attempt, exit, stopped });
        }
    }

    fn tidy(&mut self) -> Result<bool, AgentError> {
        self.folder.tidy()?;
        let Some(placed_at_ms) = self.placed_at_ms.filter(|_| self.is_of_another_life()) else {
            return Ok(self.child.is_some());
        };
        self.folder.set_aside(placed_at_ms)?;
        self.placed_at_ms = None;
        self.stop = None;
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

fn spawn_shim(site: &Site, folder: &Folder) -> Result<Child, AgentError> {
    let Some((program, args)) = site.shim_command.split_first() else { return Err(AgentError::NoShim) };
    let log_path = folder.file("shim.log");
    let log =
        logs::open_to_append(&log_path).map_err(|source| AgentError::Write { path: log_path, source })?;
    let mut command = Command::new(program);
    command.args(args).arg(folder.path()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().map_err(|source| AgentError::Shim { program: program.into(), source })
}
