//! Fault schedules: user actions, operator actions and faults of a simulated cluster, all drawn from one seed.

use std::fmt;

use crate::random::Random;

/// A fault schedule. The same schedule always gives the same run.
#[derive(Debug, Clone)]
pub struct FaultSchedule {
    /// Delays, message losses and the behaviour of jobs are drawn from it.
    pub seed: u64,
    /// Simulated events before all faults are removed.
    pub steps: u64,
    pub server_count: usize,
    /// The number of GPUs of each node.
    pub node_gpus: Vec<u32>,
    /// The self-fence deadline in milliseconds, if jobs may have `on_node_lost: requeue`. Then no fault breaks what a
    /// self-fence counts on: a clock that is right within its tolerance, and a shim that runs.
    pub self_fence_ms: Option<i64>,
    /// Each action with its time, in milliseconds from the start.
    pub actions: Vec<(i64, ScheduledAction)>,
}

/// A user action, operator action or fault. Indexes wrap around the number of servers, nodes or jobs. An `i64` is a
/// duration in milliseconds unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduledAction {
    Submit(JobRequest),
    Cancel(u64),
    Hold(u64),
    Release(u64),
    Requeue(u64),
    /// Changes the priority of a job.
    Reprioritise(u64, u32),
    Drain(usize),
    /// Returns a node to service.
    Resume(usize),
    /// Sets the GPU quota of a tenant.
    SetQuota(usize, u64),
    /// Changes the settings; the number is a seed for them.
    Configure(u64),

    /// A server process dies and restarts after the duration.
    CrashServer(usize, i64),
    /// A server process is paused. Its clocks go on.
    PauseServer(usize, i64),
    /// The machine of a server is paused, with its clocks.
    FreezeServer(usize, i64),
    /// An agent dies and restarts after the duration. Its attempts keep running.
    CrashAgent(usize, i64),
    /// An agent is paused. Its attempts and the clocks go on.
    PauseAgent(usize, i64),
    /// The shim of one attempt on a node is paused. Its tasks go on.
    PauseShim(usize, u64, i64),
    /// A whole node is paused: agent, shims, tasks and clocks.
    FreezeNode(usize, i64),
    /// A node loses power and boots after the duration.
    CrashNode(usize, i64),
    /// A node loses power and its disk, and boots after the duration.
    LoseDisk(usize, i64),
    /// A shim on a node is killed.
    KillShim(usize),
    /// The given number of disk writes of a node fail.
    FailDiskWrites(usize, u32),
    /// A server cannot reach the database.
    DisconnectDatabase(usize, i64),
    /// The database executes the next request of a server, and the reply is lost.
    LoseDatabaseReply(usize),
    /// The database fails in the middle of the next request of a server.
    TearDatabaseWrite(usize),
    /// A server and a node cannot reach each other.
    PartitionNetwork(usize, usize, i64),
    /// Messages between a server and a node are lost in one direction: to the server if the flag is set.
    CutOneWay(usize, usize, bool, i64),
    /// No server can reach a node, and the node no server.
    IsolateNode(usize, i64),
    /// For a duration, the given per mille of messages are lost and as many are duplicated; the last number is the
    /// longest delay in milliseconds.
    DegradeNetwork(i64, u64, i64),
    /// Sets the wall clock of a server to an offset from the true time.
    SetServerClock(usize, i64),
    /// Sets the wall clock of a node to an offset from the true time.
    SetNodeClock(usize, i64),
    /// The clocks of a server count this many milliseconds per second from now on.
    SkewServerClock(usize, i64),
    /// The clocks of a node count this many milliseconds per second from now on.
    SkewNodeClock(usize, i64),
    /// The connection of a node breaks in the middle of a frame. The number says how much of what is on the way arrives,
    /// and when each side notices, if at all.
    BreakConnection(usize, u64),
    /// A node, or with the flag its server, reads nothing from their connection.
    StallReader(usize, bool, i64),
    /// Somebody uses the last join token of a node: under another name, or before its owner.
    ReuseJoinToken(usize, u64),
    /// The agent of a node joins again with a new join token, while its jobs run.
    JoinAgain(usize),
    /// An operator removes a node, and lets it join again later.
    RemoveNode(usize),
    /// Another machine joins under the name of a node, while the former one keeps running.
    ReplaceMachine(usize),
    /// A GPU reports a temperature in °C and an error count.
    ReportGpuReading(usize, u8, i32, u32),
    /// A GPU fails: its tasks die, and it reports an error count.
    FailGpu(usize, u8, u32),
}

/// A job to submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRequest {
    pub tenant: usize,
    pub user: usize,
    pub priority: u32,
    /// The size of the gang.
    pub tasks: u32,
    /// GPUs per task.
    pub gpus: u32,
    /// Thousandths of each GPU.
    pub gpu_milli: u32,
    pub time_limit_ms: Option<i64>,
    /// Restarts after a failure.
    pub restarts: u32,
    pub has_checkpoints: bool,
    /// The job waits for the end of the job submitted before it.
    pub depends_on_last: bool,
    pub array_size: Option<u32>,
    /// How often the client repeats the request with the same idempotency key until it is answered.
    pub retries_max: u32,
}

impl ScheduledAction {
    /// True if the action makes a clock wrong or freezes it.
    pub fn disturbs_clocks(&self) -> bool {
        matches!(
            self,
            ScheduledAction::FreezeServer(..)
                | ScheduledAction::FreezeNode(..)
                | ScheduledAction::SetServerClock(..)
                | ScheduledAction::SetNodeClock(..)
                | ScheduledAction::SkewServerClock(..)
                | ScheduledAction::SkewNodeClock(..)
        )
    }

    /// True if the action is a fault, not the action of a user or operator.
    pub fn is_fault(&self) -> bool {
        !matches!(
            self,
            ScheduledAction::Submit(_)
                | ScheduledAction::Cancel(_)
                | ScheduledAction::Hold(_)
                | ScheduledAction::Release(_)
                | ScheduledAction::Requeue(_)
                | ScheduledAction::Reprioritise(..)
                | ScheduledAction::Drain(_)
                | ScheduledAction::Resume(_)
                | ScheduledAction::SetQuota(..)
                | ScheduledAction::Configure(_)
        )
    }
}

impl FaultSchedule {
    /// The schedule of a seed.
    pub fn from_seed(seed: u64, steps: u64) -> FaultSchedule {
        let mut random = Random(seed);
        let servers = if random.chance_per_mille(700) { 2 } else { 1 };
        let nodes: Vec<u32> = (0..random.between(1, 5)).map(|_| *random.choose(&[1, 2, 2, 4, 4, 8])).collect();
        // Some schedules are free of faults, in others almost half of the actions are faults.
        let fault_per_mille = *random.choose(&[0, 150, 300, 450]);
        // A second has about 17 simulated events.
        let length_ms = steps as i64 * 60;
        let actions = steps / 25;
        let mut actions: Vec<(i64, ScheduledAction)> = (0..actions)
            .map(|_| {
                let at = random.between(0, length_ms);
                let action = if random.chance_per_mille(fault_per_mille) {
                    random_fault(&mut random)
                } else {
                    random_request(&mut random)
                };
                (at, action)
            })
            .collect();
        // From a generator of its own, so that the other schedules stay the same.
        let mut random = Random(seed ^ 0xfe7ce);
        let self_fence_ms = random.chance_per_mille(400).then(|| *random.choose(&[12_000, 20_000, 40_000]));
        if self_fence_ms.is_some() {
            for (at, action) in &mut actions {
                soften_for_fencing(action, &mut random);
                // Cuts come early enough for a fence before the faults end.
                if matches!(action, ScheduledAction::IsolateNode(..)) {
                    *at = *at * 3 / 4;
                }
            }
        }
        actions.sort_by_key(|(at, _)| *at);
        FaultSchedule { seed, steps, server_count: servers, node_gpus: nodes, self_fence_ms, actions }
    }
}

/// Replaces the faults that a self-fence by time cannot survive: a frozen machine whose clock is frozen too, a dead or
/// stopped shim, a clock beyond the tolerance. Cuts of the network take their place, some longer than any deadline.
fn soften_for_fencing(action: &mut ScheduledAction, random: &mut Random) {
    let cut_ms = |random: &mut Random| *random.choose(&[3_000, 10_000, 30_000, 60_000, 90_000]);
    *action = match *action {
        ScheduledAction::FreezeNode(node, _) | ScheduledAction::FailGpu(node, ..) => {
            ScheduledAction::IsolateNode(node, cut_ms(random))
        }
        ScheduledAction::KillShim(node) | ScheduledAction::PauseShim(node, ..) => {
            let (server, to_server) = (random.below(2) as usize, random.chance_per_mille(500));
            ScheduledAction::CutOneWay(server, node, to_server, cut_ms(random))
        }
        // Node and server together stay within the tolerance of 1 %.
        ScheduledAction::SkewNodeClock(node, _) => ScheduledAction::SkewNodeClock(node, random.between(996, 1_004)),
        ScheduledAction::SkewServerClock(server, _) => {
            ScheduledAction::SkewServerClock(server, random.between(996, 1_004))
        }
        _ => return,
    };
}

fn random_request(random: &mut Random) -> ScheduledAction {
    match random.below(100) {
        0..72 => ScheduledAction::Submit(random_job(random)),
        72..78 => ScheduledAction::Cancel(random.next_u64()),
        78..81 => ScheduledAction::Hold(random.next_u64()),
        81..85 => ScheduledAction::Release(random.next_u64()),
        85..88 => ScheduledAction::Requeue(random.next_u64()),
        88..90 => ScheduledAction::Reprioritise(random.next_u64(), random.below(200) as u32),
        90..93 => ScheduledAction::Drain(random.below(8) as usize),
        93..97 => ScheduledAction::Resume(random.below(8) as usize),
        97..99 => ScheduledAction::SetQuota(random.below(3) as usize, random.below(9)),
        _ => ScheduledAction::Configure(random.next_u64()),
    }
}

fn random_job(random: &mut Random) -> JobRequest {
    let shared = random.chance_per_mille(250);
    JobRequest {
        tenant: random.below(3) as usize,
        user: random.below(2) as usize,
        priority: *random.choose(&[0, 50, 100, 100, 100, 150]),
        tasks: *random.choose(&[1, 1, 1, 1, 2, 3]),
        gpus: if shared { 1 } else { *random.choose(&[0, 1, 1, 1, 2, 2, 4]) },
        gpu_milli: if shared { *random.choose(&[100, 250, 500, 700]) } else { 1_000 },
        time_limit_ms: if random.chance_per_mille(400) { Some(random.between(500, 40_000)) } else { None },
        restarts: random.below(3) as u32,
        has_checkpoints: random.chance_per_mille(300),
        depends_on_last: random.chance_per_mille(80),
        array_size: if random.chance_per_mille(50) { Some(random.between(2, 4) as u32) } else { None },
        retries_max: random.below(6) as u32,
    }
}

fn random_fault(random: &mut Random) -> ScheduledAction {
    let short = |random: &mut Random| random.between(50, 4_000);
    let long = |random: &mut Random| {
        if random.chance_per_mille(300) { random.between(4_000, 60_000) } else { short(random) }
    };
    let index = |random: &mut Random| random.below(8) as usize;
    match random.below(33) {
        0 | 1 => ScheduledAction::CrashServer(index(random), long(random)),
        2 if random.chance_per_mille(600) => ScheduledAction::PauseServer(index(random), long(random)),
        2 => ScheduledAction::FreezeServer(index(random), long(random)),
        3 | 4 => ScheduledAction::CrashAgent(index(random), long(random)),
        5 => ScheduledAction::CrashNode(index(random), long(random)),
        6 => ScheduledAction::LoseDisk(index(random), long(random)),
        7 => ScheduledAction::KillShim(index(random)),
        8 => ScheduledAction::FailDiskWrites(index(random), random.between(1, 4) as u32),
        9 => ScheduledAction::DisconnectDatabase(index(random), long(random)),
        10 => ScheduledAction::LoseDatabaseReply(index(random)),
        11 => ScheduledAction::TearDatabaseWrite(index(random)),
        12 => ScheduledAction::PartitionNetwork(index(random), index(random), long(random)),
        13 => ScheduledAction::DegradeNetwork(
            long(random),
            *random.choose(&[20, 100, 300]),
            *random.choose(&[50, 500, 3_000]),
        ),
        14 if random.chance_per_mille(500) => {
            ScheduledAction::SetServerClock(index(random), random.between(-20_000, 20_000))
        }
        14 => ScheduledAction::SetNodeClock(index(random), random.between(-20_000, 20_000)),
        15 => {
            let celsius = random.between(40, 100) as i32;
            ScheduledAction::ReportGpuReading(index(random), random.below(8) as u8, celsius, random.below(3) as u32)
        }
        16 => ScheduledAction::PauseAgent(index(random), long(random)),
        17 => ScheduledAction::PauseShim(index(random), random.next_u64(), long(random)),
        18 => ScheduledAction::FreezeNode(index(random), long(random)),
        19 if random.chance_per_mille(500) => {
            ScheduledAction::SkewServerClock(index(random), random_clock_rate(random))
        }
        19 => ScheduledAction::SkewNodeClock(index(random), random_clock_rate(random)),
        20..=23 => ScheduledAction::BreakConnection(index(random), random.next_u64()),
        24 | 25 => ScheduledAction::StallReader(index(random), random.chance_per_mille(500), long(random)),
        26 | 27 => random_membership_change(random),
        _ => random_hardware_fault(random),
    }
}

fn random_membership_change(random: &mut Random) -> ScheduledAction {
    let node = random.below(8) as usize;
    match random.below(8) {
        0..=2 => ScheduledAction::ReuseJoinToken(node, random.next_u64()),
        3 | 4 => ScheduledAction::JoinAgain(node),
        5 | 6 => ScheduledAction::RemoveNode(node),
        _ => ScheduledAction::ReplaceMachine(node),
    }
}

/// Most rates are off by at most 5 %; some are those of a machine that gets too little CPU time.
fn random_clock_rate(random: &mut Random) -> i64 {
    if random.chance_per_mille(700) {
        random.between(950, 1_050)
    } else {
        *random.choose(&[100, 500, 800, 1_300, 3_000])
    }
}

/// Hardware faults in the proportions of the 54 days of Llama 3 405B (419 interruptions of 16,384 H100, Meta 2024):
/// 268 by GPUs, 53 by hosts and their maintenance, 35 by the network. The rest, software, is in the behaviour of
/// jobs. A schedule has about half a million times as many faults as such a cluster in the same time.
fn random_hardware_fault(random: &mut Random) -> ScheduledAction {
    let node = random.below(8) as usize;
    match random.below(268 + 53 + 35) {
        0..268 => ScheduledAction::FailGpu(node, random.below(8) as u8, random.between(1, 12) as u32),
        268..321 => ScheduledAction::CrashNode(node, random.between(5_000, 90_000)),
        _ => ScheduledAction::PartitionNetwork(random.below(2) as usize, node, random.between(1_000, 60_000)),
    }
}

impl fmt::Display for FaultSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultSchedule { seed, steps, server_count: servers, node_gpus: nodes, self_fence_ms, actions } = self;
        writeln!(f, "seed {seed}, {steps} steps, {servers} servers, nodes with {nodes:?} GPUs")?;
        if let Some(self_fence_ms) = self_fence_ms {
            writeln!(f, "  self-fence after {self_fence_ms} ms")?;
        }
        for (at, action) in actions {
            writeln!(f, "  {:>9.3} s  {action:?}", *at as f64 / 1_000.0)?;
        }
        Ok(())
    }
}
