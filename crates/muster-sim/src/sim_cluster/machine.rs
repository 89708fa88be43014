//! Adapter (Machine): the disk, shims and processes of a node, in simulated time.
//!
//! Records survive power cuts unless the disk is lost; writes fail while the disk fails. Processes outlive their
//! agent and die with the power. Shims and tasks are passive: their next events are in `pending_events`, and the
//! simulator delivers them.

mod paused_shims;
mod shim_wakeups;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use muster_agent::AgentError;
use muster_agent::machine::{AttemptKey, EpilogStatus, InMemoryRecords, Machine};
use muster_agent::records::{ExitRecord, LaunchIntent, LaunchLock, SelfFence, ShimRecord, SignalRecord, StopRecord};
use muster_agent::shim::gang_monitor::GangMonitor;
use muster_protocol::agent::{AttemptOrder, Exit, RegisteredGpu, Registration, SecretFile};

use super::clock::MachineClock;
use crate::random::Random;
use shim_wakeups::ShimTimer;

/// A future event of a shim, given by its pid, or of one of its tasks, given by rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineEvent {
    /// The shim takes the launch lock.
    ShimStarts(i32),
    /// The tasks of the shim start.
    TasksStart(i32),
    /// A task ends by itself.
    TaskCompletes(i32, u32),
    /// A task exits because of SIGTERM.
    TaskExitsOnTerm(i32, u32),
    /// A message of the agent or the end of a task wakes the shim: it reads the stop record and signals its tasks.
    ShimWakes(i32),
    /// A timer of the shim, by its number; an older number was replaced.
    ShimTimer(i32, u64),
    /// A renewal of the self-fence arrives at the shim.
    ShimIsRenewed(i32, SelfFence),
    /// The shim writes the exit record and exits.
    ShimWritesExit(i32),
    /// A paused shim resumes.
    ShimResumes(i32),
}

/// An observation of the real processes, for the laws.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineObservation {
    /// The tasks of an attempt started.
    TasksStarted(Box<AttemptOrder>),
    /// All tasks of an attempt are gone.
    TasksGone {
        job: String,
        attempt: u32,
        /// The exit codes of the tasks that exited by themselves.
        exit_codes: Vec<i32>,
        /// The time from the end of the grace, if a stop was requested and the shim was never paused or lost.
        kill_delay_ms: Option<i64>,
    },
    /// An agent wrote a stop record.
    StopRequested { job: String, attempt: u32 },
}

/// The behaviour of a task, drawn from the job id and the attempt.
#[derive(Debug, Clone, Copy)]
struct TaskBehaviour {
    runs_ms: i64,
    exit_code: i32,
    /// From SIGTERM to the exit; `None` if the task ignores SIGTERM.
    term_delay_ms: Option<i64>,
}

impl TaskBehaviour {
    /// The tasks of one gang have similar runtimes.
    fn drawn_for(seed: u64, order: &AttemptOrder, rank: u32) -> TaskBehaviour {
        let hash = order.job.bytes().fold(seed, |sum, letter| sum.wrapping_mul(131) ^ u64::from(letter));
        let mut random = Random(hash ^ u64::from(order.attempt) << 32);
        let runs_ms = match random.below(10) {
            0 => random.between(1, 50),
            1 => random.between(60_000, 120_000),
            _ => random.between(1_000, 25_000),
        };
        let runs_ms = runs_ms + i64::from(rank) * random.between(0, 500);
        let exit_code = if random.chance_per_mille(150) && rank == 0 { 1 } else { 0 };
        let term_delay_ms = if random.chance_per_mille(200) { None } else { Some(random.between(1, 1_500)) };
        TaskBehaviour { runs_ms, exit_code, term_delay_ms }
    }
}

#[derive(Debug, Clone, Default)]
struct SimAttemptDir {
    records: InMemoryRecords,
    /// The end of the grace, by the monotonic clock of the machine.
    kill_deadline_ms: Option<i64>,
}

#[derive(Debug)]
struct SimShim {
    record: ShimRecord,
    key: AttemptKey,
    is_alive: bool,
    /// `None` until the shim has taken the launch lock.
    order: Option<AttemptOrder>,
    /// The self-fence at the launch.
    self_fence: Option<SelfFence>,
    timer: ShimTimer,
    /// The start number of the agent that started the shim.
    parent_agent_start: u64,
    /// The deferred events of a paused shim; `None` if the shim is not paused.
    deferred_events: Option<Vec<MachineEvent>>,
    /// The shim was paused at least once, so its actions may be late.
    was_paused: bool,
    /// `None` until the tasks run.
    monitor: Option<GangMonitor>,
    /// The ranks of running tasks.
    running: BTreeSet<u32>,
    /// The exit codes of the tasks that exited by themselves.
    exit_codes: Vec<i32>,
}

/// A simulated machine. Clones share their state.
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
    /// The number of next writes that fail.
    failing_writes: u32,
    pending_events: Vec<(i64, MachineEvent)>,
    observations: Vec<MachineObservation>,
    /// The attempts of which the agent gets an event.
    changed_attempts: BTreeSet<AttemptKey>,
    /// The agent has an event that it was not woken for.
    has_new_changes: bool,
}

/// The machine as one start of its agent sees it.
pub struct AgentMachine {
    host: SimMachine,
    agent_start: u64,
    boot_id: String,
}

impl SimMachine {
    /// A machine at its first boot.
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
            changed_attempts: BTreeSet::new(),
            has_new_changes: false,
        })))
    }

    /// The machine for a new start of its agent.
    pub fn for_agent(&self, agent_start: u64) -> AgentMachine {
        self.0.borrow_mut().changed_attempts.clear(); // Its predecessor was the one who listened.
        AgentMachine { host: self.clone(), agent_start, boot_id: self.0.borrow().boot_id.clone() }
    }

    /// The number of the current boot.
    pub fn boot(&self) -> u64 {
        self.0.borrow().boot
    }

    /// Ends all processes; the disk stays.
    pub fn power_cut(&self) {
        let mut state = self.0.borrow_mut();
        let pids: Vec<i32> = state.shims.keys().copied().collect();
        for pid in pids {
            state.kill_tasks(pid);
        }
        state.shims.clear();
        state.pending_events.clear();
        state.boot += 1;
        state.boot_id = format!("boot-{}", state.boot);
    }

    /// True if all attempts are cleaned up.
    pub fn is_clean(&self) -> bool {
        self.0.borrow().attempt_dirs.values().all(|dir| !dir.records.is_launched())
    }

    /// Deletes all records.
    pub fn lose_disk(&self) {
        self.0.borrow_mut().attempt_dirs.clear();
    }

    pub fn fail_writes(&self, count: u32) {
        self.0.borrow_mut().failing_writes = count;
    }

    /// Kills a shim; its tasks keep running.
    pub fn kill_any_shim(&self) {
        let mut state = self.0.borrow_mut();
        if let Some(shim) = state.shims.values_mut().find(|shim| shim.is_alive && !shim.running.is_empty()) {
            shim.is_alive = false;
            let key = shim.key.clone();
            state.notify_agent(key);
        }
    }

    /// Kills the tasks on a GPU.
    pub fn fail_gpu(&self, gpu: u8) {
        let mut state = self.0.borrow_mut();
        let pids: Vec<i32> = state.shims.keys().copied().collect();
        for pid in pids {
            let tasks = state.order(pid).map(|order| order.tasks).unwrap_or_default();
            for task in tasks.iter().filter(|task| task.gpus.contains(&gpu)) {
                state.remove_task(pid, task.rank, Exit::Signal(6));
            }
        }
    }

    /// Takes the pending events, each with its delay.
    pub fn take_pending_events(&self) -> Vec<(i64, MachineEvent)> {
        std::mem::take(&mut self.0.borrow_mut().pending_events)
    }

    /// Takes the observations since the last call.
    pub fn take_observations(&self) -> Vec<MachineObservation> {
        std::mem::take(&mut self.0.borrow_mut().observations)
    }

    pub fn handle_event(&self, event: MachineEvent) {
        let mut state = self.0.borrow_mut();
        if state.defer_if_paused(event) {
            return;
        }
        match event {
            MachineEvent::ShimStarts(pid) => state.take_launch_lock(pid),
            MachineEvent::TasksStart(pid) => state.start_tasks(pid),
            MachineEvent::TaskCompletes(pid, rank) => state.exit_task(pid, rank, false),
            MachineEvent::TaskExitsOnTerm(pid, rank) => state.exit_task(pid, rank, true),
            MachineEvent::ShimWakes(pid) => state.wake_shim(pid),
            MachineEvent::ShimTimer(pid, number) => state.handle_shim_timer(pid, number),
            MachineEvent::ShimIsRenewed(pid, renewal) => state.renew_shim(pid, renewal),
            MachineEvent::ShimWritesExit(pid) => state.write_exit_record(pid),
            MachineEvent::ShimResumes(pid) => state.resume_shim(pid),
        }
    }
}

impl SimMachineState {
    fn schedule(&mut self, from_ms: i64, to_ms: i64, event: MachineEvent) {
        let ms = self.random.between(from_ms, to_ms);
        self.pending_events.push((ms, event));
    }

    fn attempt_dir(&mut self, key: &AttemptKey) -> &mut SimAttemptDir {
        self.attempt_dirs.entry(key.clone()).or_default()
    }

    /// The attempt of a shim; `None` if the shim is dead.
    fn attempt_of_live_shim(&self, pid: i32) -> Option<AttemptKey> {
        self.shims.get(&pid).filter(|shim| shim.is_alive).map(|shim| shim.key.clone())
    }

    fn take_launch_lock(&mut self, pid: i32) {
        let Some(key) = self.attempt_of_live_shim(pid) else { return };
        let record = self.shims[&pid].record.clone();
        let records = &mut self.attempt_dir(&key).records;
        if !records.take_launch_lock(record) {
            self.shims.entry(pid).and_modify(|shim| shim.is_alive = false);
            self.notify_agent(key);
            return;
        }
        let order = records.intent.as_ref().map(|intent| intent.order.clone());
        let self_fence = records.intent.as_ref().and_then(|intent| intent.self_fence);
        self.shims.entry(pid).and_modify(|shim| (shim.order, shim.self_fence) = (order, self_fence));
        self.schedule(1, 60, MachineEvent::TasksStart(pid));
    }

    fn start_tasks(&mut self, pid: i32) {
        let Some((key, order)) = self.attempt_of_live_shim(pid).zip(self.order(pid)) else { return };
        let now_ms = self.clock.monotonic_ms();
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        if let Some(fence) = shim.self_fence.filter(|fence| fence.has_passed(now_ms)) {
            return self.end_before_the_start(pid, &order, fence);
        }
        shim.monitor = Some(GangMonitor::new(order.tasks.len(), shim.self_fence));
        shim.running = order.tasks.iter().map(|task| task.rank).collect();
        shim.record.process_group = Some(pid + 1);
        let record = shim.record.clone();
        self.attempt_dir(&key).records.launch_lock = Some(LaunchLock::Shim(record));
        for task in &order.tasks {
            let behaviour = TaskBehaviour::drawn_for(self.seed, &order, task.rank);
            self.pending_events.push((behaviour.runs_ms, MachineEvent::TaskCompletes(pid, task.rank)));
        }
        self.observations.push(MachineObservation::TasksStarted(Box::new(order)));
        self.notify_agent(key);
        self.wake_shim(pid);
    }

    /// The order in the memory of the shim: the attempt directory may be gone.
    fn order(&self, pid: i32) -> Option<AttemptOrder> {
        self.shims.get(&pid)?.order.clone()
    }

    /// A task exits by itself: it is complete, or it got SIGTERM. A live shim sees the exit.
    fn exit_task(&mut self, pid: i32, rank: u32, on_term: bool) {
        let Some(order) = self.order(pid) else { return };
        let behaviour = TaskBehaviour::drawn_for(self.seed, &order, rank);
        let exit = match on_term {
            // Some tasks handle SIGTERM and exit with code 0.
            true if behaviour.runs_ms % 3 == 0 => Exit::Code(0),
            true => Exit::Signal(15),
            false => Exit::Code(behaviour.exit_code),
        };
        self.remove_task(pid, rank, exit);
        if !self.is_paused(pid) {
            self.wake_shim(pid);
        }
    }

    fn remove_task(&mut self, pid: i32, rank: u32, exit: Exit) {
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        if !shim.running.remove(&rank) {
            return;
        }
        if let Exit::Code(exit_code) = exit {
            shim.exit_codes.push(exit_code);
        }
        if let Some(monitor) = &mut shim.monitor {
            monitor.record_task_exit(rank, exit);
        }
        if shim.running.is_empty() {
            let (key, exit_codes) = (shim.key.clone(), shim.exit_codes.clone());
            let is_watched = shim.is_alive && !shim.was_paused;
            let deadline_ms = self.attempt_dir(&key).kill_deadline_ms.filter(|_| is_watched);
            let kill_delay_ms = deadline_ms.map(|deadline_ms| self.clock.monotonic_ms() - deadline_ms);
            let (job, attempt) = (key.job().to_string(), key.attempt());
            self.observations.push(MachineObservation::TasksGone { job, attempt, exit_codes, kill_delay_ms });
            self.schedule(1, 40, MachineEvent::ShimWritesExit(pid));
        }
    }

    /// Kills every task of a shim and returns their number.
    fn kill_tasks(&mut self, pid: i32) -> usize {
        let running: Vec<u32> = self.shims.get(&pid).into_iter().flat_map(|shim| shim.running.clone()).collect();
        for rank in &running {
            self.remove_task(pid, *rank, Exit::Signal(9));
        }
        running.len()
    }

    fn send_term(&mut self, pid: i32) {
        let Some(order) = self.order(pid) else { return };
        for rank in self.shims[&pid].running.clone() {
            if let Some(term_delay_ms) = TaskBehaviour::drawn_for(self.seed, &order, rank).term_delay_ms {
                self.pending_events.push((term_delay_ms, MachineEvent::TaskExitsOnTerm(pid, rank)));
            }
        }
    }

    fn write_exit_record(&mut self, pid: i32) {
        let Some(key) = self.attempt_of_live_shim(pid) else { return };
        let (order, now_ms) = (self.order(pid), self.clock.wall_ms());
        let Some(shim) = self.shims.get_mut(&pid) else { return };
        shim.is_alive = false;
        if let (Some(monitor), Some(order)) = (shim.monitor.take(), order) {
            self.attempt_dir(&key).records.exit = Some(monitor.into_exit_record(&order, now_ms));
        }
        self.notify_agent(key);
    }

    fn check_disk_write(&mut self) -> Result<(), AgentError> {
        match self.failing_writes {
            0 => Ok(()),
            _ => {
                self.failing_writes -= 1;
                let source = std::io::Error::other("simulated disk fault");
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
        let state = self.host.0.borrow();
        let uncleaned = state.attempt_dirs.iter().filter(|(_, dir)| dir.records.is_launched());
        let live = state.shims.values().filter(|shim| shim.is_alive).map(|shim| &shim.key);
        let uncleaned: BTreeSet<&AttemptKey> = uncleaned.map(|(key, _)| key).chain(live).collect();
        uncleaned.into_iter().cloned().collect()
    }

    fn launch_intent(&mut self, key: &AttemptKey) -> Result<Option<LaunchIntent>, AgentError> {
        Ok(self.host.0.borrow_mut().attempt_dir(key).records.intent.clone())
    }

    fn launch_lock(&mut self, key: &AttemptKey) -> Result<Option<LaunchLock>, AgentError> {
        Ok(self.host.0.borrow_mut().attempt_dir(key).records.launch_lock.clone())
    }

    fn stop_record(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError> {
        Ok(self.host.0.borrow_mut().attempt_dir(key).records.stop.clone())
    }

    fn exit_record(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError> {
        Ok(self.host.0.borrow_mut().attempt_dir(key).records.exit.clone())
    }

    fn is_shim_alive(&mut self, shim: &ShimRecord) -> bool {
        let state = self.host.0.borrow();
        let known = state.shims.get(&shim.pid);
        known.is_some_and(|known| known.is_alive && known.record.start_time == shim.start_time)
    }

    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError> {
        let state = self.host.0.borrow();
        let found = state.shims.values().find(|shim| shim.is_alive && shim.key == *key);
        Ok(found.map(|shim| shim.record.clone()))
    }

    fn write_launch_intent(&mut self, key: &AttemptKey, intent: &LaunchIntent) -> Result<(), AgentError> {
        let mut state = self.host.0.borrow_mut();
        state.check_disk_write()?;
        state.attempt_dir(key).records.intent = Some(intent.clone());
        Ok(())
    }

    fn start_shim(&mut self, key: &AttemptKey, _: &[SecretFile]) -> Result<(), AgentError> {
        let mut state = self.host.0.borrow_mut();
        state.check_disk_write()?;
        let pid = state.next_pid;
        state.next_pid += 2;
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
            self_fence: None,
            timer: ShimTimer::default(),
            parent_agent_start: self.agent_start,
            deferred_events: None,
            was_paused: false,
            monitor: None,
            running: BTreeSet::new(),
            exit_codes: Vec::new(),
        };
        state.shims.insert(pid, shim);
        state.schedule(1, 400, MachineEvent::ShimStarts(pid));
        Ok(())
    }

    fn is_child_shim_running(&mut self, key: &AttemptKey) -> bool {
        let state = self.host.0.borrow();
        state
            .shims
            .values()
            .any(|shim| shim.key == *key && shim.is_alive && shim.parent_agent_start == self.agent_start)
    }

    fn shim_log(&mut self, _: &AttemptKey, _: usize) -> String {
        String::new()
    }

    fn abandon_launch(&mut self, key: &AttemptKey) -> Result<bool, AgentError> {
        let mut state = self.host.0.borrow_mut();
        state.check_disk_write()?;
        Ok(state.attempt_dir(key).records.abandon_launch())
    }

    fn take_changed_attempts(&mut self) -> Vec<AttemptKey> {
        std::mem::take(&mut self.host.0.borrow_mut().changed_attempts).into_iter().collect()
    }

    /// Ends of all shims are reported anyway.
    fn watch_shim(&mut self, _: &AttemptKey, _: &ShimRecord) -> bool {
        false
    }

    fn renew_self_fence(&mut self, key: &AttemptKey, renewal: &SelfFence) {
        self.host.0.borrow_mut().send_renewal(key, *renewal);
    }

    fn write_stop_record(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        let mut state = self.host.0.borrow_mut();
        state.check_disk_write()?;
        let lost_ms = state.send_stop_message(key);
        let deadline_ms = state.clock.monotonic_ms() + stop.grace_ms + lost_ms;
        let dir = state.attempt_dir(key);
        dir.records.stop = Some(stop.clone());
        dir.kill_deadline_ms = Some(dir.kill_deadline_ms.map_or(deadline_ms, |known| known.min(deadline_ms)));
        state
            .observations
            .push(MachineObservation::StopRequested { job: key.job().to_string(), attempt: key.attempt() });
        Ok(())
    }

    fn kill_attempt_processes(&mut self, key: &AttemptKey, _: Option<&ShimRecord>) -> Result<usize, AgentError> {
        let mut state = self.host.0.borrow_mut();
        let pids: Vec<i32> = state.shims.iter().filter(|(_, shim)| shim.key == *key).map(|(pid, _)| *pid).collect();
        Ok(pids.into_iter().map(|pid| state.kill_tasks(pid)).sum())
    }

    /// Simulated tasks have no handler for it.
    fn deliver_signal(&mut self, _: &AttemptKey, _: &SignalRecord) -> Result<(), AgentError> {
        Ok(())
    }

    /// Simulated processes obey SIGKILL.
    fn unkillable_processes(&mut self, _: &AttemptKey) -> Option<String> {
        None
    }

    fn describe_attempt_processes(&mut self, _: &AttemptKey, _: Option<&ShimRecord>) -> String {
        String::new()
    }

    /// Simulated nodes have no site programs.
    fn epilog_status(&mut self, _: &AttemptKey) -> Result<EpilogStatus, AgentError> {
        Ok(EpilogStatus::NotOwed)
    }

    fn start_epilog(&mut self, _: &AttemptKey) -> Result<(), AgentError> {
        Ok(())
    }

    fn kill_shim(&mut self, shim: &ShimRecord) {
        let mut state = self.host.0.borrow_mut();
        if let Some(known) = state.shims.get_mut(&shim.pid) {
            known.is_alive = false;
        }
    }

    fn write_exit_record(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError> {
        let mut state = self.host.0.borrow_mut();
        state.check_disk_write()?;
        state.attempt_dir(key).records.exit = Some(exit.clone());
        Ok(())
    }

    fn clean_up(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let mut state = self.host.0.borrow_mut();
        state.check_disk_write()?;
        let dir = state.attempt_dir(key);
        dir.records.clean_up();
        dir.kill_deadline_ms = None;
        Ok(())
    }

    fn archive_attempt_dir(&mut self, key: &AttemptKey, _: i64) -> Result<(), AgentError> {
        let mut state = self.host.0.borrow_mut();
        state.check_disk_write()?;
        *state.attempt_dir(key) = SimAttemptDir::default();
        Ok(())
    }
}

/// The registration of a simulated node.
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
        heartbeat_interval_ms: None,
        boot_id: String::new(),
        simulated: true,
    }
}
