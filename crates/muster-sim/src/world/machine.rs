//! Adapter (Machine): a node's disk, shims and processes, in simulated time.
//!
//! What was written survives everything but is refused while the disk fails; processes survive their agent and die with
//! the power. Shims and tasks do nothing by themselves: what they will do stands in `due`, and the world wakes them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use muster_agent::AgentError;
use muster_agent::machine::{AttemptKey, Machine};
use muster_agent::records::{Claim, ExitRecord, Intent, ShimRecord, StopRecord};
use muster_protocol::agent::{Exit, Order};

use crate::random::Random;

/// What will happen on the machine, and to which shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The shim takes the attempt.
    ShimBegins(i32),
    /// Its tasks run.
    TasksBegin(i32),
    /// Its tasks end by themselves.
    TasksEnd(i32),
    /// It looks whether it must stop.
    LooksForStop(i32),
    /// The tasks have had their grace.
    GraceIsOver(i32),
    /// It writes down how they ended, and goes.
    ShimWrites(i32),
}

/// What happened that laws look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Tasks of an attempt began to run.
    Began(Box<Order>),
    /// Tasks of an attempt are gone; whether they had done all their work.
    Gone { job: String, attempt: u32, finished: bool },
}

/// What a job does when it runs, drawn from its name.
#[derive(Debug, Clone, Copy)]
struct Fate {
    runs_ms: i64,
    code: i32,
    /// How long it takes to go when asked; some never do.
    goes_ms: Option<i64>,
}

impl Fate {
    fn of(seed: u64, order: &Order) -> Fate {
        let letters = order.job.bytes().fold(seed, |sum, letter| sum.wrapping_mul(131) ^ u64::from(letter));
        let mut random = Random(letters ^ u64::from(order.attempt) << 32);
        let runs_ms = match random.below(10) {
            0 => random.between(1, 50),
            1 => random.between(60_000, 120_000),
            _ => random.between(1_000, 25_000),
        };
        let code = if random.happens(150) { 1 } else { 0 };
        let goes_ms = if random.happens(200) { None } else { Some(random.between(1, 1_500)) };
        Fate { runs_ms, code, goes_ms }
    }
}

#[derive(Debug, Clone, Default)]
struct Folder {
    intent: Option<Intent>,
    claim: Option<Claim>,
    stop: Option<StopRecord>,
    exit: Option<ExitRecord>,
}

#[derive(Debug, Clone)]
struct Shim {
    record: ShimRecord,
    key: AttemptKey,
    lives: bool,
    /// Which life of the agent started it.
    parent: u64,
    tasks: Tasks,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Tasks {
    Coming,
    Run,
    Ended(Exit),
}

/// One machine. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Host(Rc<RefCell<Inside>>);

#[derive(Debug)]
struct Inside {
    seed: u64,
    random: Random,
    boot: u64,
    boot_id: String,
    folders: BTreeMap<AttemptKey, Folder>,
    shims: BTreeMap<i32, Shim>,
    next_pid: i32,
    /// Writes that will fail.
    failing: u32,
    due: Vec<(i64, Due)>,
    seen: Vec<Seen>,
}

/// The machine as one life of its agent sees it.
pub struct HostOfAgent {
    host: Host,
    life: u64,
    boot_id: String,
}

impl Host {
    /// A machine that has just been switched on for the first time.
    pub fn new(seed: u64) -> Host {
        Host(Rc::new(RefCell::new(Inside {
            seed,
            random: Random(seed),
            boot: 0,
            boot_id: "boot-0".to_string(),
            folders: BTreeMap::new(),
            shims: BTreeMap::new(),
            next_pid: 100,
            failing: 0,
            due: Vec::new(),
            seen: Vec::new(),
        })))
    }

    /// For a new life of its agent.
    pub fn for_agent(&self, life: u64) -> HostOfAgent {
        HostOfAgent { host: self.clone(), life, boot_id: self.0.borrow().boot_id.clone() }
    }

    /// Which boot it is.
    pub fn boot(&self) -> u64 {
        self.0.borrow().boot
    }

    /// The power is cut: all processes are gone, the disk stays.
    pub fn power_cut(&self) {
        let mut inside = self.0.borrow_mut();
        let pids: Vec<i32> = inside.shims.keys().copied().collect();
        for pid in pids {
            inside.tasks_are_gone(pid, false);
        }
        inside.shims.clear();
        inside.due.clear();
        inside.boot += 1;
        inside.boot_id = format!("boot-{}", inside.boot);
    }

    /// The next writes fail.
    pub fn fail_writes(&self, count: u32) {
        self.0.borrow_mut().failing = count;
    }

    /// Something kills a shim; its tasks run on.
    pub fn kill_a_shim(&self) {
        let mut inside = self.0.borrow_mut();
        if let Some(shim) = inside.shims.values_mut().find(|shim| shim.lives && shim.tasks == Tasks::Run) {
            shim.lives = false;
        }
    }

    /// Attempts whose tasks run.
    pub fn running(&self) -> BTreeSet<AttemptKey> {
        let inside = self.0.borrow();
        let running = inside.shims.values().filter(|shim| shim.tasks == Tasks::Run);
        running.map(|shim| shim.key.clone()).collect()
    }

    /// What will happen, each with its delay. Taken once.
    pub fn take_due(&self) -> Vec<(i64, Due)> {
        std::mem::take(&mut self.0.borrow_mut().due)
    }

    /// What happened. Taken once.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.borrow_mut().seen)
    }

    /// Its time has come.
    pub fn happen(&self, due: Due) {
        let mut inside = self.0.borrow_mut();
        match due {
            Due::ShimBegins(pid) => inside.shim_begins(pid),
            Due::TasksBegin(pid) => inside.tasks_begin(pid),
            Due::TasksEnd(pid) => inside.tasks_end(pid),
            Due::LooksForStop(pid) => inside.looks_for_stop(pid),
            Due::GraceIsOver(pid) => inside.end_tasks(pid, Exit::Signal(9), false),
            Due::ShimWrites(pid) => inside.shim_writes(pid),
        }
    }
}

impl Inside {
    fn later(&mut self, from_ms: i64, to_ms: i64, due: Due) {
        let ms = self.random.between(from_ms, to_ms);
        self.due.push((ms, due));
    }

    fn folder(&mut self, key: &AttemptKey) -> &mut Folder {
        self.folders.entry(key.clone()).or_default()
    }

    /// The shim, if it lives, and its attempt.
    fn alive(&self, pid: i32) -> Option<AttemptKey> {
        self.shims.get(&pid).filter(|shim| shim.lives).map(|shim| shim.key.clone())
    }

    fn shim_begins(&mut self, pid: i32) {
        let Some(key) = self.alive(pid) else { return };
        let record = self.shims[&pid].record.clone();
        let folder = self.folder(&key);
        if folder.claim.is_some() || folder.intent.is_none() {
            // Somebody was quicker; nothing may run.
            self.shims.entry(pid).and_modify(|shim| shim.lives = false);
            return;
        }
        folder.claim = Some(Claim::Shim(record));
        self.later(1, 60, Due::TasksBegin(pid));
    }

    fn tasks_begin(&mut self, pid: i32) {
        let Some(key) = self.alive(pid) else { return };
        let Some(order) = self.folder(&key).intent.as_ref().map(|intent| intent.order.clone()) else {
            return;
        };
        let fate = Fate::of(self.seed, &order);
        self.seen.push(Seen::Began(Box::new(order)));
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        shim.tasks = Tasks::Run;
        shim.record.group = Some(pid + 1);
        let record = shim.record.clone();
        self.folder(&key).claim = Some(Claim::Shim(record));
        self.due.push((fate.runs_ms, Due::TasksEnd(pid)));
        self.later(50, 300, Due::LooksForStop(pid));
    }

    fn fate(&mut self, pid: i32) -> Option<Fate> {
        let key = self.shims.get(&pid)?.key.clone();
        let order = self.folder(&key).intent.as_ref()?.order.clone();
        Some(Fate::of(self.seed, &order))
    }

    fn tasks_end(&mut self, pid: i32) {
        if let Some(fate) = self.fate(pid) {
            self.end_tasks(pid, Exit::Code(fate.code), true);
        }
    }

    /// The tasks end; their shim sees it if it lives.
    fn end_tasks(&mut self, pid: i32, exit: Exit, finished: bool) {
        if self.tasks_are_gone(pid, finished) {
            self.shims.entry(pid).and_modify(|shim| shim.tasks = Tasks::Ended(exit));
            self.later(1, 40, Due::ShimWrites(pid));
        }
    }

    fn tasks_are_gone(&mut self, pid: i32, finished: bool) -> bool {
        let Some(shim) = self.shims.get_mut(&pid).filter(|shim| shim.tasks == Tasks::Run) else {
            return false;
        };
        shim.tasks = Tasks::Ended(Exit::Signal(9));
        let (job, attempt) = (shim.key.job().to_string(), shim.key.attempt());
        self.seen.push(Seen::Gone { job, attempt, finished });
        true
    }

    /// A shim that lives and has tasks looks again and again.
    fn looks_for_stop(&mut self, pid: i32) {
        let Some(key) = self.alive(pid) else { return };
        if self.shims[&pid].tasks != Tasks::Run {
            return;
        }
        let (stop, fate) = (self.folder(&key).stop.clone(), self.fate(pid));
        if let (Some(stop), Some(fate)) = (stop, fate) {
            let grace_ms = stop.grace_ms.max(0);
            let goes_ms = fate.goes_ms.unwrap_or(i64::MAX).min(grace_ms);
            self.due.push((goes_ms, Due::GraceIsOver(pid)));
        }
        self.later(50, 300, Due::LooksForStop(pid));
    }

    fn shim_writes(&mut self, pid: i32) {
        let Some(key) = self.alive(pid) else { return };
        let Some(Tasks::Ended(exit)) = self.shims.get(&pid).map(|shim| shim.tasks.clone()) else { return };
        let folder = self.folder(&key);
        let placed_at_ms = folder.intent.as_ref().map_or(0, |intent| intent.order.placed_at_ms);
        let stopped = folder.stop.is_some();
        folder.exit = Some(ExitRecord { exit, stopped, placed_at_ms });
        self.shims.entry(pid).and_modify(|shim| shim.lives = false);
    }

    fn write(&mut self) -> Result<(), AgentError> {
        match self.failing {
            0 => Ok(()),
            _ => {
                self.failing -= 1;
                let source = std::io::Error::other("the simulated disk refuses");
                Err(AgentError::Write { path: "/simulated".into(), source })
            }
        }
    }
}

impl Machine for HostOfAgent {
    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn untidied(&mut self) -> Vec<AttemptKey> {
        let inside = self.host.0.borrow();
        let untidied = inside.folders.iter().filter(|(_, folder)| folder.intent.is_some());
        untidied.map(|(key, _)| key.clone()).collect()
    }

    fn intent(&mut self, key: &AttemptKey) -> Result<Option<Intent>, AgentError> {
        Ok(self.host.0.borrow_mut().folder(key).intent.clone())
    }

    fn claim(&mut self, key: &AttemptKey) -> Result<Option<Claim>, AgentError> {
        Ok(self.host.0.borrow_mut().folder(key).claim.clone())
    }

    fn stop(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError> {
        Ok(self.host.0.borrow_mut().folder(key).stop.clone())
    }

    fn exit(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError> {
        Ok(self.host.0.borrow_mut().folder(key).exit.clone())
    }

    fn lives(&mut self, shim: &ShimRecord) -> bool {
        let inside = self.host.0.borrow();
        let known = inside.shims.get(&shim.pid);
        known.is_some_and(|known| known.lives && known.record.start_time == shim.start_time)
    }

    fn begin(&mut self, key: &AttemptKey, intent: &Intent) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.write()?;
        inside.folder(key).intent = Some(intent.clone());
        Ok(())
    }

    fn start_shim(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.write()?;
        let pid = inside.next_pid;
        inside.next_pid += 2;
        let record = ShimRecord {
            pid,
            start_time: pid.unsigned_abs().into(),
            boot_id: self.boot_id.clone(),
            session: pid,
            group: None,
        };
        let shim = Shim { record, key: key.clone(), lives: true, parent: self.life, tasks: Tasks::Coming };
        inside.shims.insert(pid, shim);
        inside.later(1, 400, Due::ShimBegins(pid));
        Ok(())
    }

    fn is_our_shim_up(&mut self, key: &AttemptKey) -> bool {
        let inside = self.host.0.borrow();
        inside.shims.values().any(|shim| shim.key == *key && shim.lives && shim.parent == self.life)
    }

    fn shim_log(&mut self, _: &AttemptKey, _: usize) -> String {
        String::new()
    }

    fn abandon(&mut self, key: &AttemptKey) -> Result<bool, AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.write()?;
        let folder = inside.folder(key);
        let free = folder.claim.is_none();
        if free {
            folder.claim = Some(Claim::Abandoned);
        }
        Ok(free)
    }

    fn ask_to_stop(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.write()?;
        inside.folder(key).stop = Some(stop.clone());
        Ok(())
    }

    fn kill(&mut self, key: &AttemptKey, _: Option<&ShimRecord>) -> Result<usize, AgentError> {
        let mut inside = self.host.0.borrow_mut();
        let pids: Vec<i32> =
            inside.shims.iter().filter(|(_, shim)| shim.key == *key).map(|(pid, _)| *pid).collect();
        let mut killed = 0;
        for pid in pids {
            if inside.shims[&pid].tasks == Tasks::Run {
                inside.end_tasks(pid, Exit::Signal(9), false);
                killed += 1;
            }
        }
        Ok(killed)
    }

    fn kill_shim(&mut self, shim: &ShimRecord) {
        let mut inside = self.host.0.borrow_mut();
        if let Some(known) = inside.shims.get_mut(&shim.pid) {
            known.lives = false;
        }
    }

    fn end(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.write()?;
        inside.folder(key).exit = Some(exit.clone());
        Ok(())
    }

    fn tidy(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.write()?;
        let folder = inside.folder(key);
        (folder.stop, folder.claim, folder.intent) = (None, None, None);
        Ok(())
    }

    fn set_aside(&mut self, key: &AttemptKey, _: i64) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.write()?;
        *inside.folder(key) = Folder::default();
        Ok(())
    }
}
