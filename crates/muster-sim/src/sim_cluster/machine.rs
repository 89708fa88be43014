//! Adapter (Machine): a node's disk, shims and processes, in simulated time.
//!
//! What was written survives everything but is refused while the disk fails; processes survive their agent and die with
//! the power. Shims and tasks do nothing by themselves: what they will do stands in `due`, and the world wakes them.

mod paused_shims;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use muster_agent::AgentError;
use muster_agent::machine::{AttemptKey, Machine};
use muster_agent::records::{LaunchLock, ExitRecord, LaunchIntent, ShimRecord, StopRecord};
use muster_agent::shim::gang_monitor::{StopAction, GangMonitor};
use muster_protocol::agent::{Exit, RegisteredGpu, AttemptOrder, Registration};

use super::clock::MachineClock;
use crate::random::Random;

/// What will happen on the machine, and to which shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineEvent {
    /// The shim takes the attempt.
    ShimStarts(i32),
    /// Its tasks run.
    TasksStart(i32),
    /// A task has done its work.
    TaskCompletes(i32, u32),
    /// A task goes because it was asked to.
    TaskExitsOnTerm(i32, u32),
    /// The shim looks after its tasks.
    ShimPolls(i32),
    /// It writes down how they ended, and goes.
    ShimWritesExit(i32),
    /// It was stopped, and may go on.
    ShimResumes(i32),
}

/// What happened that laws look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineObservation {
    /// Tasks of an attempt began to run.
    TasksStarted(Box<AttemptOrder>),
    /// All tasks of an attempt are gone.
    TasksGone {
        job: String,
        attempt: u32,
        /// The exit codes of those that left by themselves.
        exit_codes: Vec<i32>,
        /// How long after the end of their grace, if they had to end and someone looked after them all the time.
        kill_delay_ms: Option<i64>,
    },
    /// An agent wants an attempt to end.
    StopRequested { job: String, attempt: u32 },
}

/// What a job does when it runs, drawn from its name.
#[derive(Debug, Clone, Copy)]
struct TaskBehaviour {
    runs_ms: i64,
    exit_code: i32,
    /// How long it takes to go when asked; some never do.
    term_delay_ms: Option<i64>,
}

impl TaskBehaviour {
    /// Of one task; those of a gang take about as long.
    fn drawn_for(seed: u64, order: &AttemptOrder, rank: u32) -> TaskBehaviour {
        let letters = order.job.bytes().fold(seed, |sum, letter| sum.wrapping_mul(131) ^ u64::from(letter));
        let mut random = Random(letters ^ u64::from(order.attempt) << 32);
        let runs_ms = match random.below(10) {
            0 => random.between(1, 50),
            1 => random.between(60_000, 120_000),
            _ => random.between(1_000, 25_000),
        };
        let runs_ms = runs_ms + i64::from(rank) * random.between(0, 500);
        let code = if random.chance_per_mille(150) && rank == 0 { 1 } else { 0 };
        let goes_ms = if random.chance_per_mille(200) { None } else { Some(random.between(1, 1_500)) };
        TaskBehaviour { runs_ms, exit_code: code, term_delay_ms: goes_ms }
    }
}

#[derive(Debug, Clone, Default)]
struct SimAttemptDir {
    intent: Option<LaunchIntent>,
    claim: Option<LaunchLock>,
    stop: Option<StopRecord>,
    /// When its grace is over, by the clock of the machine.
    kill_deadline_ms: Option<i64>,
    exit: Option<ExitRecord>,
}

#[derive(Debug)]
struct SimShim {
    record: ShimRecord,
    key: AttemptKey,
    is_alive: bool,
    /// What it runs, once it has taken the attempt.
    order: Option<AttemptOrder>,
    /// Which life of the agent started it.
    parent_agent_start: u64,
    /// What it would have done, while it is stopped.
    deferred_events: Option<Vec<MachineEvent>>,
    /// It was stopped once: whatever it does may be late.
    was_paused: bool,
    /// Its eye on the tasks, from when they run.
    monitor: Option<GangMonitor>,
    /// Tasks that run, by rank.
    running: BTreeSet<u32>,
    /// Codes of those that left by themselves.
    exit_codes: Vec<i32>,
}

/// One machine. Clones are the same one.
#[derive(Debug, Clone)]
pub struct SimMachine(Rc<RefCell<SimMachineState>>);

#[derive(Debug)]
struct SimMachineState {
    seed: u64,
    clock: MachineClock,
    random: Random,
    boot: u64,
    boot_id: String,
    attempt_dirs: BTreeMap<AttemptKey, SimAttemptDir>,
    shims: BTreeMap<i32, SimShim>,
    next_pid: i32,
    /// Writes that will fail.
    failing_writes: u32,
    pending_events: Vec<(i64, MachineEvent)>,
    observations: Vec<MachineObservation>,
}

/// The machine as one life of its agent sees it.
pub struct AgentMachine {
    host: SimMachine,
    agent_start: u64,
    boot_id: String,
}

impl SimMachine {
    /// A machine that has just been switched on for the first time.
    pub fn new(seed: u64, clock: &MachineClock) -> SimMachine {
        SimMachine(Rc::new(RefCell::new(SimMachineState {
            seed,
            clock: clock.clone(),
            random: Random(seed),
            boot: 0,
            boot_id: "boot-0".to_string(),
            attempt_dirs: BTreeMap::new(),
            shims: BTreeMap::new(),
            next_pid: 100,
            failing_writes: 0,
            pending_events: Vec::new(),
            observations: Vec::new(),
        })))
    }

    /// For a new life of its agent.
    pub fn for_agent(&self, life: u64) -> AgentMachine {
        AgentMachine { host: self.clone(), agent_start: life, boot_id: self.0.borrow().boot_id.clone() }
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
            inside.kill_tasks(pid);
        }
        inside.shims.clear();
        inside.pending_events.clear();
        inside.boot += 1;
        inside.boot_id = format!("boot-{}", inside.boot);
    }

    /// Whether nothing but ends is left of all attempts.
    pub fn is_clean(&self) -> bool {
        self.0.borrow().attempt_dirs.values().all(|folder| folder.intent.is_none())
    }

    /// Nothing that was written is left.
    pub fn lose_disk(&self) {
        self.0.borrow_mut().attempt_dirs.clear();
    }

    /// The next writes fail.
    pub fn fail_writes(&self, count: u32) {
        self.0.borrow_mut().failing_writes = count;
    }

    /// Something kills a shim; its tasks run on.
    pub fn kill_any_shim(&self) {
        let mut inside = self.0.borrow_mut();
        if let Some(shim) = inside.shims.values_mut().find(|shim| shim.is_alive && !shim.running.is_empty()) {
            shim.is_alive = false;
        }
    }

    /// A GPU fails under whoever uses it.
    pub fn fail_gpu(&self, gpu: u8) {
        let mut inside = self.0.borrow_mut();
        let pids: Vec<i32> = inside.shims.keys().copied().collect();
        for pid in pids {
            let tasks = inside.order(pid).map(|order| order.tasks).unwrap_or_default();
            for task in tasks.iter().filter(|task| task.gpus.contains(&gpu)) {
                inside.remove_task(pid, task.rank, Exit::Signal(6));
            }
        }
    }

    /// What will happen, each with its delay. Taken once.
    pub fn take_pending_events(&self) -> Vec<(i64, MachineEvent)> {
        std::mem::take(&mut self.0.borrow_mut().pending_events)
    }

    /// What happened. Taken once.
    pub fn take_observations(&self) -> Vec<MachineObservation> {
        std::mem::take(&mut self.0.borrow_mut().observations)
    }

    /// Its time has come.
    pub fn handle_event(&self, due: MachineEvent) {
        let mut inside = self.0.borrow_mut();
        if inside.defer_if_paused(due) {
            return;
        }
        match due {
            MachineEvent::ShimStarts(pid) => inside.take_launch_lock(pid),
            MachineEvent::TasksStart(pid) => inside.start_tasks(pid),
            MachineEvent::TaskCompletes(pid, rank) => inside.exit_task(pid, rank, false),
            MachineEvent::TaskExitsOnTerm(pid, rank) => inside.exit_task(pid, rank, true),
            MachineEvent::ShimPolls(pid) => inside.poll_shim(pid),
            MachineEvent::ShimWritesExit(pid) => inside.write_exit_record(pid),
            MachineEvent::ShimResumes(pid) => inside.resume_shim(pid),
        }
    }
}

impl SimMachineState {
    fn schedule(&mut self, from_ms: i64, to_ms: i64, due: MachineEvent) {
        let ms = self.random.between(from_ms, to_ms);
        self.pending_events.push((ms, due));
    }

    fn attempt_dir(&mut self, key: &AttemptKey) -> &mut SimAttemptDir {
        self.attempt_dirs.entry(key.clone()).or_default()
    }

    /// The shim, if it lives, and its attempt.
    fn attempt_of_live_shim(&self, pid: i32) -> Option<AttemptKey> {
        self.shims.get(&pid).filter(|shim| shim.is_alive).map(|shim| shim.key.clone())
    }

    fn take_launch_lock(&mut self, pid: i32) {
        let Some(key) = self.attempt_of_live_shim(pid) else { return };
        let record = self.shims[&pid].record.clone();
        let folder = self.attempt_dir(&key);
        if folder.claim.is_some() || folder.intent.is_none() {
            // Somebody was quicker; nothing may run.
            self.shims.entry(pid).and_modify(|shim| shim.is_alive = false);
            return;
        }
        folder.claim = Some(LaunchLock::Shim(record));
        let order = folder.intent.as_ref().map(|intent| intent.order.clone());
        self.shims.entry(pid).and_modify(|shim| shim.order = order);
        self.schedule(1, 60, MachineEvent::TasksStart(pid));
    }

    fn start_tasks(&mut self, pid: i32) {
        let Some((key, order)) = self.attempt_of_live_shim(pid).zip(self.order(pid)) else { return };
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        shim.monitor = Some(GangMonitor::new(order.tasks.len()));
        shim.running = order.tasks.iter().map(|task| task.rank).collect();
        shim.record.process_group = Some(pid + 1);
        let record = shim.record.clone();
        self.attempt_dir(&key).claim = Some(LaunchLock::Shim(record));
        for task in &order.tasks {
            let fate = TaskBehaviour::drawn_for(self.seed, &order, task.rank);
            self.pending_events.push((fate.runs_ms, MachineEvent::TaskCompletes(pid, task.rank)));
        }
        self.observations.push(MachineObservation::TasksStarted(Box::new(order)));
        self.schedule(50, 300, MachineEvent::ShimPolls(pid));
    }

    /// What is run, as its shim remembers it: the folder may be gone.
    fn order(&self, pid: i32) -> Option<AttemptOrder> {
        self.shims.get(&pid)?.order.clone()
    }

    /// A task leaves by itself: its work is done, or it was asked to go. Its shim sees it if it lives.
    fn exit_task(&mut self, pid: i32, rank: u32, was_asked: bool) {
        let Some(order) = self.order(pid) else { return };
        let fate = TaskBehaviour::drawn_for(self.seed, &order, rank);
        let exit = match was_asked {
            // Some save their work and leave in order.
            true if fate.runs_ms % 3 == 0 => Exit::Code(0),
            true => Exit::Signal(15),
            false => Exit::Code(fate.exit_code),
        };
        self.remove_task(pid, rank, exit);
        if !self.is_paused(pid) {
            self.poll_shim_once(pid);
        }
    }

    fn remove_task(&mut self, pid: i32, rank: u32, exit: Exit) {
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        if !shim.running.remove(&rank) {
            return;
        }
        if let Exit::Code(code) = exit {
            shim.exit_codes.push(code);
        }
        if let Some(watch) = &mut shim.monitor {
            watch.record_task_exit(rank, exit);
        }
        if shim.running.is_empty() {
            let (key, codes) = (shim.key.clone(), shim.exit_codes.clone());
            let is_watched = shim.is_alive && !shim.was_paused;
            let by_ms = self.attempt_dir(&key).kill_deadline_ms.filter(|_| is_watched);
            let late_ms = by_ms.map(|by_ms| self.clock.monotonic_ms() - by_ms);
            let (job, attempt) = (key.job().to_string(), key.attempt());
            self.observations.push(MachineObservation::TasksGone { job, attempt, exit_codes: codes, kill_delay_ms: late_ms });
            self.schedule(1, 40, MachineEvent::ShimWritesExit(pid));
        }
    }

    /// Every task of a shim is killed; how many there were.
    fn kill_tasks(&mut self, pid: i32) -> usize {
        let running: Vec<u32> =
            self.shims.get(&pid).into_iter().flat_map(|shim| shim.running.clone()).collect();
        for rank in &running {
            self.remove_task(pid, *rank, Exit::Signal(9));
        }
        running.len()
    }

    /// A shim that lives and has tasks looks again and again.
    fn poll_shim(&mut self, pid: i32) {
        self.poll_shim_once(pid);
        if self.attempt_of_live_shim(pid).is_some() && !self.shims[&pid].running.is_empty() {
            self.schedule(50, 300, MachineEvent::ShimPolls(pid));
        }
    }

    fn poll_shim_once(&mut self, pid: i32) {
        let now_ms = self.clock.monotonic_ms();
        let Some(key) = self.attempt_of_live_shim(pid) else { return };
        let stop = Ok(self.attempt_dir(&key).stop.clone());
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        let act = shim.monitor.as_mut().map(|watch| watch.next_action(now_ms, &stop));
        match act {
            Some(StopAction::Terminate) => self.send_term(pid),
            Some(StopAction::Kill) => drop(self.kill_tasks(pid)),
            Some(StopAction::Wait) | None => {}
        }
    }

    fn send_term(&mut self, pid: i32) {
        let Some(order) = self.order(pid) else { return };
        for rank in self.shims[&pid].running.clone() {
            if let Some(goes_ms) = TaskBehaviour::drawn_for(self.seed, &order, rank).term_delay_ms {
                self.pending_events.push((goes_ms, MachineEvent::TaskExitsOnTerm(pid, rank)));
            }
        }
    }

    fn write_exit_record(&mut self, pid: i32) {
        let Some(key) = self.attempt_of_live_shim(pid) else { return };
        let (order, now_ms) = (self.order(pid), self.clock.wall_ms());
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        shim.is_alive = false;
        if let (Some(watch), Some(order)) = (shim.monitor.take(), order) {
            self.attempt_dir(&key).exit = Some(watch.into_exit_record(&order, now_ms));
        }
    }

    fn check_disk_write(&mut self) -> Result<(), AgentError> {
        match self.failing_writes {
            0 => Ok(()),
            _ => {
                self.failing_writes -= 1;
                let source = std::io::Error::other("the simulated disk refuses");
                Err(AgentError::Write { path: "/simulated".into(), source })
            }
        }
    }
}

impl Machine for AgentMachine {
    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn uncleaned_attempts(&mut self) -> Vec<AttemptKey> {
        let inside = self.host.0.borrow();
        let untidied = inside.attempt_dirs.iter().filter(|(_, folder)| folder.intent.is_some());
        let living = inside.shims.values().filter(|shim| shim.is_alive).map(|shim| &shim.key);
        let untidied: BTreeSet<&AttemptKey> = untidied.map(|(key, _)| key).chain(living).collect();
        untidied.into_iter().cloned().collect()
    }

    fn launch_intent(&mut self, key: &AttemptKey) -> Result<Option<LaunchIntent>, AgentError> {
        Ok(self.host.0.borrow_mut().attempt_dir(key).intent.clone())
    }

    fn launch_lock(&mut self, key: &AttemptKey) -> Result<Option<LaunchLock>, AgentError> {
        Ok(self.host.0.borrow_mut().attempt_dir(key).claim.clone())
    }

    fn stop_record(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError> {
        Ok(self.host.0.borrow_mut().attempt_dir(key).stop.clone())
    }

    fn exit_record(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError> {
        Ok(self.host.0.borrow_mut().attempt_dir(key).exit.clone())
    }

    fn is_shim_alive(&mut self, shim: &ShimRecord) -> bool {
        let inside = self.host.0.borrow();
        let known = inside.shims.get(&shim.pid);
        known.is_some_and(|known| known.is_alive && known.record.start_time == shim.start_time)
    }

    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError> {
        let inside = self.host.0.borrow();
        let found = inside.shims.values().find(|shim| shim.is_alive && shim.key == *key);
        Ok(found.map(|shim| shim.record.clone()))
    }

    fn write_launch_intent(&mut self, key: &AttemptKey, intent: &LaunchIntent) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.check_disk_write()?;
        inside.attempt_dir(key).intent = Some(intent.clone());
        Ok(())
    }

    fn start_shim(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.check_disk_write()?;
        let pid = inside.next_pid;
        inside.next_pid += 2;
        let record = ShimRecord {
            pid,
            start_time: pid.unsigned_abs().into(),
            boot_id: self.boot_id.clone(),
            session: pid,
            process_group: None,
        };
        let shim = SimShim {
            record,
            key: key.clone(),
            is_alive: true,
            order: None,
            parent_agent_start: self.agent_start,
            deferred_events: None,
            was_paused: false,
            monitor: None,
            running: BTreeSet::new(),
            exit_codes: Vec::new(),
        };
        inside.shims.insert(pid, shim);
        inside.schedule(1, 400, MachineEvent::ShimStarts(pid));
        Ok(())
    }

    fn is_child_shim_running(&mut self, key: &AttemptKey) -> bool {
        let inside = self.host.0.borrow();
        inside.shims.values().any(|shim| shim.key == *key && shim.is_alive && shim.parent_agent_start == self.agent_start)
    }

    fn shim_log(&mut self, _: &AttemptKey, _: usize) -> String {
        String::new()
    }

    fn abandon_launch(&mut self, key: &AttemptKey) -> Result<bool, AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.check_disk_write()?;
        let folder = inside.attempt_dir(key);
        let free = folder.claim.is_none();
        if free {
            folder.claim = Some(LaunchLock::Abandoned);
        }
        Ok(free)
    }

    fn write_stop_record(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.check_disk_write()?;
        let by_ms = inside.clock.monotonic_ms() + stop.grace_ms;
        let folder = inside.attempt_dir(key);
        folder.stop = Some(stop.clone());
        folder.kill_deadline_ms = Some(folder.kill_deadline_ms.map_or(by_ms, |known| known.min(by_ms)));
        inside.observations.push(MachineObservation::StopRequested { job: key.job().to_string(), attempt: key.attempt() });
        Ok(())
    }

    fn kill_attempt_processes(&mut self, key: &AttemptKey, _: Option<&ShimRecord>) -> Result<usize, AgentError> {
        let mut inside = self.host.0.borrow_mut();
        let pids: Vec<i32> =
            inside.shims.iter().filter(|(_, shim)| shim.key == *key).map(|(pid, _)| *pid).collect();
        Ok(pids.into_iter().map(|pid| inside.kill_tasks(pid)).sum())
    }

    fn kill_shim(&mut self, shim: &ShimRecord) {
        let mut inside = self.host.0.borrow_mut();
        if let Some(known) = inside.shims.get_mut(&shim.pid) {
            known.is_alive = false;
        }
    }

    fn write_exit_record(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.check_disk_write()?;
        inside.attempt_dir(key).exit = Some(exit.clone());
        Ok(())
    }

    fn clean_up(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.check_disk_write()?;
        let folder = inside.attempt_dir(key);
        *folder = SimAttemptDir { exit: folder.exit.take(), ..SimAttemptDir::default() };
        Ok(())
    }

    fn archive_attempt_dir(&mut self, key: &AttemptKey, _: i64) -> Result<(), AgentError> {
        let mut inside = self.host.0.borrow_mut();
        inside.check_disk_write()?;
        *inside.attempt_dir(key) = SimAttemptDir::default();
        Ok(())
    }
}

/// What the agent of a machine says that it is.
pub fn registration(name: &str, gpus: u32) -> Registration {
    let gpu = |index: u32| RegisteredGpu {
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
