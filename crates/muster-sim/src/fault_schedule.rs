//! A story: what people and misfortune do to a cluster, all of it drawn from one seed.

use std::fmt;

use crate::random::Random;

/// A story in full. The same story always goes the same way.
#[derive(Debug, Clone)]
pub struct FaultSchedule {
    /// Everything that is not told here is drawn from it: delays, losses, fates of jobs.
    pub seed: u64,
    /// So many things happen before the world is healed.
    pub steps: u64,
    /// How many servers there are.
    pub server_count: usize,
    /// GPUs of each node.
    pub node_gpus: Vec<u32>,
    /// What is done, and when, in milliseconds from the beginning.
    pub actions: Vec<(i64, ScheduledAction)>,
}

/// Something that someone does, or that befalls the cluster. Numbers that choose something count round: any will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduledAction {
    /// A user submits a job.
    Submit(JobRequest),
    /// Somebody cancels a job.
    Cancel(u64),
    /// Somebody holds a job, or lets it go again.
    Hold(u64),
    /// A held job may queue again.
    Release(u64),
    /// Somebody requeues a job.
    Requeue(u64),
    /// Somebody changes the priority of a job.
    Reprioritise(u64, u32),
    /// An operator takes a node out of service, gently.
    Drain(usize),
    /// And back.
    Resume(usize),
    /// An operator lets a tenant have so many GPUs and no more.
    SetQuota(usize, u64),
    /// An operator changes the settings, from a few that are known.
    Configure(u64),

    /// A server process dies, and is back after some time.
    CrashServer(usize, i64),
    /// A server process stands still for some time. Its clocks go on.
    PauseServer(usize, i64),
    /// The machine of a server stands still for some time, and its clocks with it.
    FreezeServer(usize, i64),
    /// An agent dies, and is back after some time. Jobs run on.
    CrashAgent(usize, i64),
    /// An agent stands still for some time. Jobs and clocks go on.
    PauseAgent(usize, i64),
    /// The shim of one of the attempts on a node stands still for some time. Its tasks go on.
    PauseShim(usize, u64, i64),
    /// A whole node stands still for some time: agent, shims, tasks and clocks.
    FreezeNode(usize, i64),
    /// A node loses power, and is back after some time.
    CrashNode(usize, i64),
    /// The same, and its disk is lost: it comes back knowing nothing.
    LoseDisk(usize, i64),
    /// Something kills a shim.
    KillShim(usize),
    /// The disk of a node refuses so many writes.
    FailDiskWrites(usize, u32),
    /// A server cannot reach the database for some time.
    DisconnectDatabase(usize, i64),
    /// The database does what a server asks next, and the answer is lost.
    LoseDatabaseReply(usize),
    /// The database breaks down in the middle of what a server asks next.
    TearDatabaseWrite(usize),
    /// A server and a node cannot reach each other for some time.
    PartitionNetwork(usize, usize, i64),
    /// For some time so many messages in a thousand are lost, as many come twice, and they take up to so long.
    DegradeNetwork(i64, u64, i64),
    /// Somebody sets the clock of a server.
    SetServerClock(usize, i64),
    /// Somebody sets the clock of a node.
    SetNodeClock(usize, i64),
    /// The clocks of a server count so many milliseconds in a second from now on.
    SkewServerClock(usize, i64),
    /// The clocks of a node do.
    SkewNodeClock(usize, i64),
    /// A GPU becomes warm, or has errors.
    ReportGpuReading(usize, u8, i32, u32),
    /// A GPU fails: whoever uses it dies, and so many errors are read.
    FailGpu(usize, u8, u32),
}

/// A job as a user wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRequest {
    /// Which of the tenants.
    pub tenant: usize,
    /// Which of its users.
    pub user: usize,
    /// How urgent.
    pub priority: u32,
    /// Tasks of the gang.
    pub tasks: u32,
    /// GPUs of each.
    pub gpus: u32,
    /// Thousandths of each GPU.
    pub gpu_milli: u32,
    /// How long it may run.
    pub time_limit_ms: Option<i64>,
    /// It is tried again after a failure, so many times.
    pub restarts: u32,
    /// It saves its work.
    pub has_checkpoints: bool,
    /// It waits for the end of the job before it.
    pub depends_on_last: bool,
    /// An array of so many tasks.
    pub array_size: Option<u32>,
    /// How often the user asks again with the same key until there is an answer.
    pub retries_max: u32,
}

impl ScheduledAction {
    /// Whether a clock is wrong from then on, or stands still.
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

    /// Whether it befalls the cluster, and nobody wants it.
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
    /// The story of a seed, with so many steps.
    pub fn from_seed(seed: u64, steps: u64) -> FaultSchedule {
        let mut random = Random(seed);
        let servers = if random.chance_per_mille(700) { 2 } else { 1 };
        let nodes: Vec<u32> = (0..random.between(1, 5)).map(|_| *random.choose(&[1, 2, 2, 4, 4, 8])).collect();
        // Some stories are calm, some are all misfortune.
        let misfortune = *random.choose(&[0, 150, 300, 450]);
        // About so many things happen in a second.
        let length_ms = steps as i64 * 60;
        let acts = steps / 25;
        let mut acts: Vec<(i64, ScheduledAction)> = (0..acts)
            .map(|_| {
                let at = random.between(0, length_ms);
                let act =
                    if random.chance_per_mille(misfortune) { random_fault(&mut random) } else { random_request(&mut random) };
                (at, act)
            })
            .collect();
        acts.sort_by_key(|(at, _)| *at);
        FaultSchedule { seed, steps, server_count: servers, node_gpus: nodes, actions: acts }
    }
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
    let long =
        |random: &mut Random| if random.chance_per_mille(300) { random.between(4_000, 60_000) } else { short(random) };
    let any = |random: &mut Random| random.below(8) as usize;
    match random.below(24) {
        0 | 1 => ScheduledAction::CrashServer(any(random), long(random)),
        2 if random.chance_per_mille(600) => ScheduledAction::PauseServer(any(random), long(random)),
        2 => ScheduledAction::FreezeServer(any(random), long(random)),
        3 | 4 => ScheduledAction::CrashAgent(any(random), long(random)),
        5 => ScheduledAction::CrashNode(any(random), long(random)),
        6 => ScheduledAction::LoseDisk(any(random), long(random)),
        7 => ScheduledAction::KillShim(any(random)),
        8 => ScheduledAction::FailDiskWrites(any(random), random.between(1, 4) as u32),
        9 => ScheduledAction::DisconnectDatabase(any(random), long(random)),
        10 => ScheduledAction::LoseDatabaseReply(any(random)),
        11 => ScheduledAction::TearDatabaseWrite(any(random)),
        12 => ScheduledAction::PartitionNetwork(any(random), any(random), long(random)),
        13 => ScheduledAction::DegradeNetwork(long(random), *random.choose(&[20, 100, 300]), *random.choose(&[50, 500, 3_000])),
        14 if random.chance_per_mille(500) => ScheduledAction::SetServerClock(any(random), random.between(-20_000, 20_000)),
        14 => ScheduledAction::SetNodeClock(any(random), random.between(-20_000, 20_000)),
        15 => {
            let celsius = random.between(40, 100) as i32;
            ScheduledAction::ReportGpuReading(any(random), random.below(8) as u8, celsius, random.below(3) as u32)
        }
        16 => ScheduledAction::PauseAgent(any(random), long(random)),
        17 => ScheduledAction::PauseShim(any(random), random.next_u64(), long(random)),
        18 => ScheduledAction::FreezeNode(any(random), long(random)),
        19 if random.chance_per_mille(500) => ScheduledAction::SkewServerClock(any(random), random_clock_rate(random)),
        19 => ScheduledAction::SkewNodeClock(any(random), random_clock_rate(random)),
        _ => random_hardware_fault(random),
    }
}

/// Most clocks that are wrong are wrong by a little; some are those of a machine that is not given its time.
fn random_clock_rate(random: &mut Random) -> i64 {
    if random.chance_per_mille(700) { random.between(950, 1_050) } else { *random.choose(&[100, 500, 800, 1_300, 3_000]) }
}

/// What fails in large clusters, as often as it did in the 54 days of Llama 3 405B (419 interruptions of 16,384 H100, Meta
/// 2024): 268 by GPUs, 53 by hosts and their maintenance, 35 by the network. The rest, software, is in the fates of jobs.
/// A story sees about half a million times as many of them as such a cluster does in the same time.
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
        let FaultSchedule { seed, steps, server_count: servers, node_gpus: nodes, actions: acts } = self;
        writeln!(f, "seed {seed}, {steps} steps, {servers} servers, nodes with {nodes:?} GPUs")?;
        for (at, act) in acts {
            writeln!(f, "  {:>9.3} s  {act:?}", *at as f64 / 1_000.0)?;
        }
        Ok(())
    }
}
