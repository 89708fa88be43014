//! A story: what people and misfortune do to a cluster, all of it drawn from one seed.

use std::fmt;

use crate::random::Random;

/// A story in full. The same story always goes the same way.
#[derive(Debug, Clone)]
pub struct Story {
    /// Everything that is not told here is drawn from it: delays, losses, fates of jobs.
    pub seed: u64,
    /// So many things happen before the world is healed.
    pub steps: u64,
    /// How many servers there are.
    pub servers: usize,
    /// GPUs of each node.
    pub nodes: Vec<u32>,
    /// What is done, and when, in milliseconds from the beginning.
    pub acts: Vec<(i64, Act)>,
}

/// Something that someone does, or that befalls the cluster. Numbers that choose something count round: any will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A user submits a job.
    Submit(Wish),
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
    Quota(usize, u64),
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
    FailDisk(usize, u32),
    /// A server cannot reach the database for some time.
    LoseDatabase(usize, i64),
    /// The database does what a server asks next, and the answer is lost.
    SilenceDatabase(usize),
    /// The database breaks down in the middle of what a server asks next.
    TearDatabase(usize),
    /// A server and a node cannot reach each other for some time.
    Partition(usize, usize, i64),
    /// For some time so many messages in a thousand are lost, as many come twice, and they take up to so long.
    Weather(i64, u64, i64),
    /// Somebody sets the clock of a server.
    SetServerClock(usize, i64),
    /// Somebody sets the clock of a node.
    SetNodeClock(usize, i64),
    /// The clocks of a server count so many milliseconds in a second from now on.
    PaceServerClock(usize, i64),
    /// The clocks of a node do.
    PaceNodeClock(usize, i64),
    /// A GPU becomes warm, or has errors.
    GpuReading(usize, u8, i32, u32),
    /// A GPU fails: whoever uses it dies, and so many errors are read.
    GpuFault(usize, u8, u32),
}

/// A job as a user wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
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
    pub milli: u32,
    /// How long it may run.
    pub limit_ms: Option<i64>,
    /// It is tried again after a failure, so many times.
    pub restarts: u32,
    /// It saves its work.
    pub saves: bool,
    /// It waits for the end of the job before it.
    pub after_last: bool,
    /// An array of so many tasks.
    pub array: Option<u32>,
    /// How often the user asks again with the same key until there is an answer.
    pub patience: u32,
}

impl Act {
    /// Whether a clock is wrong from then on, or stands still.
    pub fn disturbs_clocks(&self) -> bool {
        matches!(
            self,
            Act::FreezeServer(..)
                | Act::FreezeNode(..)
                | Act::SetServerClock(..)
                | Act::SetNodeClock(..)
                | Act::PaceServerClock(..)
                | Act::PaceNodeClock(..)
        )
    }

    /// Whether it befalls the cluster, and nobody wants it.
    pub fn is_misfortune(&self) -> bool {
        !matches!(
            self,
            Act::Submit(_)
                | Act::Cancel(_)
                | Act::Hold(_)
                | Act::Release(_)
                | Act::Requeue(_)
                | Act::Reprioritise(..)
                | Act::Drain(_)
                | Act::Resume(_)
                | Act::Quota(..)
                | Act::Configure(_)
        )
    }
}

impl Story {
    /// The story of a seed, with so many steps.
    pub fn of_seed(seed: u64, steps: u64) -> Story {
        let mut random = Random(seed);
        let servers = if random.happens(700) { 2 } else { 1 };
        let nodes: Vec<u32> = (0..random.between(1, 5)).map(|_| *random.of(&[1, 2, 2, 4, 4, 8])).collect();
        // Some stories are calm, some are all misfortune.
        let misfortune = *random.of(&[0, 150, 300, 450]);
        // About so many things happen in a second.
        let length_ms = steps as i64 * 60;
        let acts = steps / 25;
        let mut acts: Vec<(i64, Act)> = (0..acts)
            .map(|_| {
                let at = random.between(0, length_ms);
                let act =
                    if random.happens(misfortune) { misfortune_of(&mut random) } else { deed(&mut random) };
                (at, act)
            })
            .collect();
        acts.sort_by_key(|(at, _)| *at);
        Story { seed, steps, servers, nodes, acts }
    }
}

fn deed(random: &mut Random) -> Act {
    match random.below(100) {
        0..72 => Act::Submit(wish(random)),
        72..78 => Act::Cancel(random.number()),
        78..81 => Act::Hold(random.number()),
        81..85 => Act::Release(random.number()),
        85..88 => Act::Requeue(random.number()),
        88..90 => Act::Reprioritise(random.number(), random.below(200) as u32),
        90..93 => Act::Drain(random.below(8) as usize),
        93..97 => Act::Resume(random.below(8) as usize),
        97..99 => Act::Quota(random.below(3) as usize, random.below(9)),
        _ => Act::Configure(random.number()),
    }
}

fn wish(random: &mut Random) -> Wish {
    let shared = random.happens(250);
    Wish {
        tenant: random.below(3) as usize,
        user: random.below(2) as usize,
        priority: *random.of(&[0, 50, 100, 100, 100, 150]),
        tasks: *random.of(&[1, 1, 1, 1, 2, 3]),
        gpus: if shared { 1 } else { *random.of(&[0, 1, 1, 1, 2, 2, 4]) },
        milli: if shared { *random.of(&[100, 250, 500, 700]) } else { 1_000 },
        limit_ms: if random.happens(400) { Some(random.between(500, 40_000)) } else { None },
        restarts: random.below(3) as u32,
        saves: random.happens(300),
        after_last: random.happens(80),
        array: if random.happens(50) { Some(random.between(2, 4) as u32) } else { None },
        patience: random.below(6) as u32,
    }
}

fn misfortune_of(random: &mut Random) -> Act {
    let short = |random: &mut Random| random.between(50, 4_000);
    let long =
        |random: &mut Random| if random.happens(300) { random.between(4_000, 60_000) } else { short(random) };
    let any = |random: &mut Random| random.below(8) as usize;
    match random.below(24) {
        0 | 1 => Act::CrashServer(any(random), long(random)),
        2 if random.happens(600) => Act::PauseServer(any(random), long(random)),
        2 => Act::FreezeServer(any(random), long(random)),
        3 | 4 => Act::CrashAgent(any(random), long(random)),
        5 => Act::CrashNode(any(random), long(random)),
        6 => Act::LoseDisk(any(random), long(random)),
        7 => Act::KillShim(any(random)),
        8 => Act::FailDisk(any(random), random.between(1, 4) as u32),
        9 => Act::LoseDatabase(any(random), long(random)),
        10 => Act::SilenceDatabase(any(random)),
        11 => Act::TearDatabase(any(random)),
        12 => Act::Partition(any(random), any(random), long(random)),
        13 => Act::Weather(long(random), *random.of(&[20, 100, 300]), *random.of(&[50, 500, 3_000])),
        14 if random.happens(500) => Act::SetServerClock(any(random), random.between(-20_000, 20_000)),
        14 => Act::SetNodeClock(any(random), random.between(-20_000, 20_000)),
        15 => {
            let celsius = random.between(40, 100) as i32;
            Act::GpuReading(any(random), random.below(8) as u8, celsius, random.below(3) as u32)
        }
        16 => Act::PauseAgent(any(random), long(random)),
        17 => Act::PauseShim(any(random), random.number(), long(random)),
        18 => Act::FreezeNode(any(random), long(random)),
        19 if random.happens(500) => Act::PaceServerClock(any(random), pace(random)),
        19 => Act::PaceNodeClock(any(random), pace(random)),
        _ => hardware_fault(random),
    }
}

/// Most clocks that are wrong are wrong by a little; some are those of a machine that is not given its time.
fn pace(random: &mut Random) -> i64 {
    if random.happens(700) { random.between(950, 1_050) } else { *random.of(&[100, 500, 800, 1_300, 3_000]) }
}

/// What fails in large clusters, as often as it did in the 54 days of Llama 3 405B (419 interruptions of 16,384 H100, Meta
/// 2024): 268 by GPUs, 53 by hosts and their maintenance, 35 by the network. The rest, software, is in the fates of jobs.
/// A story sees about half a million times as many of them as such a cluster does in the same time.
fn hardware_fault(random: &mut Random) -> Act {
    let node = random.below(8) as usize;
    match random.below(268 + 53 + 35) {
        0..268 => Act::GpuFault(node, random.below(8) as u8, random.between(1, 12) as u32),
        268..321 => Act::CrashNode(node, random.between(5_000, 90_000)),
        _ => Act::Partition(random.below(2) as usize, node, random.between(1_000, 60_000)),
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Story { seed, steps, servers, nodes, acts } = self;
        writeln!(f, "seed {seed}, {steps} steps, {servers} servers, nodes with {nodes:?} GPUs")?;
        for (at, act) in acts {
            writeln!(f, "  {:>9.3} s  {act:?}", *at as f64 / 1_000.0)?;
        }
        Ok(())
    }
}
