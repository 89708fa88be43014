//! Adapter (Machine): a node's disk, shims and processes, in simulated time.
//!
//! What was written survives everything but is refused while the disk fails; processes survive their agent and die with
//! the power. Shims and tasks do nothing by themselves: what they will do stands in `due`, and the world wakes them.

mod stopped;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use muster_agent::AgentError;
use muster_agent::machine::{AttemptKey, Machine};
use muster_agent::records::{Claim, ExitRecord, Intent, ShimRecord, StopRecord};
use muster_agent::shim::watch::{Act, Watch};
use muster_protocol::agent::{Exit, Gpu, Order, Registration};

use super::clock::MachineClock;
use crate::random::Random;

/// What will happen on the machine, and to which shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The shim takes the attempt.
    ShimBegins(i32),
    /// Its tasks run.
    TasksBegin(i32),
    /// A task has done its work.
    TaskEnds(i32, u32),
    /// A task goes because it was asked to.
    TaskGoes(i32, u32),
    /// The shim looks after its tasks.
    ShimLooks(i32),
    /// It writes down how they ended, and goes.
    ShimWrites(i32),
    /// It was stopped, and may go on.
    ShimGoesOn(i32),
}

/// What happened that laws look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Tasks of an attempt began to run.
    Began(Box<Order>),
    /// All tasks of an attempt are gone.
    Gone {
        job: String,
        attempt: u32,
        /// The exit codes of those that left by themselves.
        codes: Vec<i32>,
        /// How long after the end of their grace, if they had to end and someone looked after them all the time.
        late_ms: Option<i64>,
    },
    /// An agent wants an attempt to end.
    ToldToStop { job: String, attempt: u32 },
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
    /// Of one task; those of a gang take about as long.
    fn of(seed: u64, order: &Order, rank: u32) -> Fate {
        let letters = order.job.bytes().fold(seed, |sum, letter| sum.wrapping_mul(131) ^ u64::from(letter));
        let mut random = Random(letters ^ u64::from(order.attempt) << 32);
        let runs_ms = match random.below(10) {
            0 => random.between(1, 50),
            1 => random.between(60_000, 120_000),
            _ => random.between(1_000, 25_000),
        };
        let runs_ms = runs_ms + i64::from(rank) * random.between(0, 500);
        let code = if random.happens(150) && rank == 0 { 1 } else { 0 };
        let goes_ms = if random.happens(200) { None } else { Some(random.between(1, 1_500)) };
        Fate { runs_ms, code, goes_ms }
    }
}

#[derive(Debug, Clone, Default)]
struct Folder {
    intent: Option<Intent>,
    claim: Option<Claim>,
    stop: Option<StopRecord>,
    /// When its grace is over, by the clock of the machine.
    gone_by_ms: Option<i64>,
    exit: Option<ExitRecord>,
}

#[derive(Debug)]
struct Shim {
    record: ShimRecord,
    key: AttemptKey,
    lives: bool,
    /// What it runs, once it has taken the attempt.
    order: Option<Order>,
    /// Which life of the agent started it.
    parent: u64,
    /// What it would have done, while it is stopped.
    waits: Option<Vec<Due>>,
    /// It was stopped once: whatever it does may be late.
    was_stopped: bool,
    /// Its eye on the tasks, from when they run.
    watch: Option<Watch>,
    /// Tasks that run, by rank.
    running: BTreeSet<u32>,
    /// Codes of those that left by themselves.
    codes: Vec<i32>,
}

/// One machine. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Host(Rc<RefCell<Inside>>);

#[derive(Debug)]
struct Inside {
    seed: u64,
    clock: MachineClock,
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
    pub fn new(seed: u64, clock: &MachineClock) -> Host {
        Host(Rc::new(RefCell::new(Inside {
            seed,
            clock: clock.clone(),
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
            inside.kill(pid);
        }
        inside.shims.clear();
        inside.due.clear();
        inside.boot += 1;
        inside.boot_id = format!("boot-{}", inside.boot);
    }

    /// Whether nothing but ends is left of all attempts.
    pub fn is_tidy(&self) -> bool {
        self.0.borrow().folders.values().all(|folder| folder.intent.is_none())
    }

    /// Nothing that was written is left.
    pub fn lose_disk(&self) {
        self.0.borrow_mut().folders.clear();
    }

    /// The next writes fail.
    pub fn fail_writes(&self, count: u32) {
        self.0.borrow_mut().failing = count;
    }

    /// Something kills a shim; its tasks run on.
    pub fn kill_a_shim(&self) {
        let mut inside = self.0.borrow_mut();
        if let Some(shim) = inside.shims.values_mut().find(|shim| shim.lives && !shim.running.is_empty()) {
            shim.lives = false;
        }
    }

    /// A GPU fails under whoever uses it.
    pub fn gpu_fails(&self, gpu: u8) {
        let mut inside = self.0.borrow_mut();
        let pids: Vec<i32> = inside.shims.keys().copied().collect();
        for pid in pids {
            let tasks = inside.order(pid).map(|order| order.tasks).unwrap_or_default();
            for task in tasks.iter().filter(|task| task.gpus.contains(&gpu)) {
                inside.task_is_gone(pid, task.rank, Exit::Signal(6));
            }
        }
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
        if inside.is_put_off(due) {
            return;
        }
        match due {
            Due::ShimBegins(pid) => inside.shim_begins(pid),
            Due::TasksBegin(pid) => inside.tasks_begin(pid),
            Due::TaskEnds(pid, rank) => inside.task_leaves(pid, rank, false),
            Due::TaskGoes(pid, rank) => inside.task_leaves(pid, rank, true),
            Due::ShimLooks(pid) => inside.shim_looks(pid),
            Due::ShimWrites(pid) => inside.shim_writes(pid),
            Due::ShimGoesOn(pid) => inside.shim_goes_on(pid),
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
        let order = folder.intent.as_ref().map(|intent| intent.order.clone());
        self.shims.entry(pid).and_modify(|shim| shim.order = order);
        self.later(1, 60, Due::TasksBegin(pid));
    }

    fn tasks_begin(&mut self, pid: i32) {
        let Some((key, order)) = self.alive(pid).zip(self.order(pid)) else { return };
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        shim.watch = Some(Watch::new(order.tasks.len()));
        shim.running = order.tasks.iter().map(|task| task.rank).collect();
        shim.record.group = Some(pid + 1);
        let record = shim.record.clone();
        self.folder(&key).claim = Some(Claim::Shim(record));
        for task in &order.tasks {
            let fate = Fate::of(self.seed, &order, task.rank);
            self.due.push((fate.runs_ms, Due::TaskEnds(pid, task.rank)));
        }
        self.seen.push(Seen::Began(Box::new(order)));
        self.later(50, 300, Due::ShimLooks(pid));
    }

    /// What is run, as its shim remembers it: the folder may be gone.
    fn order(&self, pid: i32) -> Option<Order> {
        self.shims.get(&pid)?.order.clone()
    }

    /// A task leaves by itself: its work is done, or it was asked to go. Its shim sees it if it lives.
    fn task_leaves(&mut self, pid: i32, rank: u32, was_asked: bool) {
        let Some(order) = self.order(pid) else { return };
        let fate = Fate::of(self.seed, &order, rank);
        let exit = match was_asked {
            // Some save their work and leave in order.
            true if fate.runs_ms % 3 == 0 => Exit::Code(0),
            true => Exit::Signal(15),
            false => Exit::Code(fate.code),
        };
        self.task_is_gone(pid, rank, exit);
        if !self.is_stopped(pid) {
            self.shim_looks_once(pid);
        }
    }

    fn task_is_gone(&mut self, pid: i32, rank: u32, exit: Exit) {
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        if !shim.running.remove(&rank) {
            return;
        }
        if let Exit::Code(code) = exit {
            shim.codes.push(code);
        }
        if let Some(watch) = &mut shim.watch {
            watch.note(rank, exit);
        }
        if shim.running.is_empty() {
            let (key, codes) = (shim.key.clone(), shim.codes.clone());
            let is_watched = shim.lives && !shim.was_stopped;
            let by_ms = self.folder(&key).gone_by_ms.filter(|_| is_watched);
            let late_ms = by_ms.map(|by_ms| self.clock.mono_ms() - by_ms);
            let (job, attempt) = (key.job().to_string(), key.attempt());
            self.seen.push(Seen::Gone { job, attempt, codes, late_ms });
            self.later(1, 40, Due::ShimWrites(pid));
        }
    }

    /// Every task of a shim is killed; how many there were.
    fn kill(&mut self, pid: i32) -> usize {
        let running: Vec<u32> =
            self.shims.get(&pid).into_iter().flat_map(|shim| shim.running.clone()).collect();
        for rank in &running {
            self.task_is_gone(pid, *rank, Exit::Signal(9));
        }
        running.len()
    }

    /// A shim that lives and has tasks looks again and again.
    fn shim_looks(&mut self, pid: i32) {
        self.shim_looks_once(pid);
        if self.alive(pid).is_some() && !self.shims[&pid].running.is_empty() {
            self.later(50, 300, Due::ShimLooks(pid));
        }
    }

    fn shim_looks_once(&mut self, pid: i32) {
        let now_ms = self.clock.mono_ms();
        let Some(key) = self.alive(pid) else { return };
        let stop = Ok(self.folder(&key).stop.clone());
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        let act = shim.watch.as_mut().map(|watch| watch.next(now_ms, &stop));
        match act {
            Some(Act::Tell) => self.ask_to_go(pid),
            Some(Act::Kill) => drop(self.kill(pid)),
            Some(Act::Wait) | None => {}
        }
    }

    fn ask_to_go(&mut self, pid: i32) {
        let Some(order) = self.order(pid) else { return };
        for rank in self.shims[&pid].running.clone() {
            if let Some(goes_ms) = Fate::of(self.seed, &order, rank).goes_ms {
                self.due.push((goes_ms, Due::TaskGoes(pid, rank)));
            }
        }
    }

    fn shim_writes(&mut self, pid: i32) {
        let Some(key) = self.alive(pid) else { return };
        let (order, now_ms) = (self.order(pid), self.clock.wall_ms());
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        shim.lives = false;
        if let (Some(watch), Some(order)) = (shim.watch.take(), order) {
            self.folder(&key).exit = Some(watch.into_record(&order, now_ms));
        }
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
        let living = inside.shims.values().filter(|shim| shim.lives).map(|shim| &shim.key);
        let untidied: BTreeSet<&AttemptKey> = untidied.map(|(key, _)| key).chain(living).collect();
        untidied.into_iter().cloned().collect()
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

    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError> {
        let inside = self.host.0.borrow();
        let found = inside.shims.values().find(|shim| shim.lives && shim.key == *key);
        Ok(found.map(|shim| shim.record.clone()))
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
        let shim = Shim {
            record,
            key: key.clone(),
            lives: true,
            order: None,
            parent: self.life,
            waits: None,
            was_stopped: false,
            watch: None,
            running: BTreeSet::new(),
            codes: Vec::new(),
        };
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
        let by_ms = inside.clock.mono_ms() + stop.grace_ms;
        let folder = inside.folder(key);
        folder.stop = Some(stop.clone());
        folder.gone_by_ms = Some(folder.gone_by_ms.map_or(by_ms, |known| known.min(by_ms)));
        inside.seen.push(Seen::ToldToStop { job: key.job().to_string(), attempt: key.attempt() });
        Ok(())
    }

    fn kill(&mut self, key: &AttemptKey, _: Option<&ShimRecord>) -> Result<usize, AgentError> {
        let mut inside = self.host.0.borrow_mut();
        let pids: Vec<i32> =
            inside.shims.iter().filter(|(_, shim)| shim.key == *key).map(|(pid, _)| *pid).collect();
        Ok(pids.into_iter().map(|pid| inside.kill(pid)).sum())
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
        *folder = Folder { exit: folder.exit.take(), ..Folder::default() };
        Ok(())
    }

    fn set_aside(&mut self, key: &AttemptKey, _: i64) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.write()?;
        *inside.folder(key) = Folder::default();
        Ok(())
    }
}

/// What the agent of a machine says that it is.
pub fn registration(name: &str, gpus: u32) -> Registration {
    let gpu = |index: u32| Gpu {
        uuid: format!("{name}-{index}"),
        model: "NVIDIA H100 80GB HBM3".to_string(),
        memory_mib: 81_559,
        numa_node: Some(index / 4),
        nvlink: Vec::new(),
        socket: None,
        pcie_switch: None,
        mig: Vec::new(),
        power_limit_milliwatts: Some(700_000),
    };
    Registration {
        node: name.to_string(),
        hostname: name.to_string(),
        address: String::new(),
        cpus: 64,
        memory_mib: 262_144,
        gpus: (0..gpus).map(gpu).collect(),
        numa: Vec::new(),
        rack: None,
        block: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: "simulated".to_string(),
        incarnation: String::new(),
        simulated: true,
    }
}
