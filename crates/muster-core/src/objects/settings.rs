//! The settings of the cluster that decisions depend on. They enter the state by an event, so that replay decides under
//! the same rules.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::{HOUR, MINUTE, SECOND};

/// The objective of the queue order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Fairness: orders by priority, aging and fair share.
    #[default]
    Fair,
    /// Short completion times (SRPT): least remaining GPU time first, and long jobs are preempted if that gains more
    /// than it costs.
    Fast,
}

/// What happens to idle GPUs whose MIG layout does not fit the waiting jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repartition {
    Off,
    /// `muster why` proposes the layout, and an operator applies it.
    #[default]
    Propose,
    /// Simulated devices are repartitioned at once; for others the layout is proposed.
    Apply,
}

/// What happens when a policy fails: it times out, raises an error, or returns an invalid answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyFailure {
    /// Fail closed: the jobs in question wait, and no job is preempted for them.
    #[default]
    Closed,
    /// Fail open: the policy is ignored.
    Open,
}

/// The weight of each term of a score, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Weights {
    pub fragmentation: u32,
    pub locality: u32,
    pub health: u32,
    pub policy: u32,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights { fragmentation: 1_000, locality: 1_000, health: 1_000, policy: 1_000 }
    }
}

/// Settings that the planner and the guards of `decide` read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub objective: Objective,
    /// Priority of a job if neither the job nor its tenant sets one.
    pub default_priority: u32,
    /// Most jobs in the queue.
    pub queue_size_max: u64,
    /// Most jobs of one tenant that have not ended, waiting or running; 0 for no limit. The default fits two of the
    /// largest arrays.
    pub tenant_jobs_max: u64,
    /// Aging starts after this wait.
    pub aging_after_ms: i64,
    /// Priority that aging adds per further minute.
    pub aging_per_minute: u32,
    /// Most priority that aging adds.
    pub aging_max: u32,
    /// Largest fair-share penalty, for a tenant far above its fair share; a tenant at its share has half of it. 0
    /// disables the penalty.
    pub fair_share_max: u32,
    /// Half-life of past usage in the fair share.
    pub usage_half_life_ms: i64,
    /// After this wait a job is overdue: it precedes all but operator priority, and only jobs with a time limit may
    /// backfill ahead of it. This bounds every wait.
    pub max_wait_ms: i64,
    /// Number of blocked jobs at the head of the queue that get a reservation, which no backfilled job may delay.
    pub reservations: u32,
    /// Stop reserving once reservations cover 1/N of the nodes: free resources on reserved nodes may stay idle.
    pub reserve_one_node_in: u32,
    /// Runtime estimate of a job without a time limit while its owner has no job history.
    pub default_runtime_ms: i64,
    /// Whether preemption is enabled.
    pub preemption: bool,
    /// A job that has run for less than this is not preempted.
    pub preemption_min_runtime_ms: i64,
    /// A job that was preempted before is protected for this long after it runs again.
    pub preemption_cooldown_ms: i64,
    /// Grace between SIGTERM and SIGKILL.
    pub stop_grace_ms: i64,
    /// A job with `on_node_lost: requeue` is killed by its node this long after the last heartbeat that a leader
    /// acknowledged; 0 disables that, so that such a job waits for an operator's fence.
    #[serde(skip_serializing_if = "is_default_self_fence")]
    pub self_fence_ms: i64,
    /// How much the clock of a node may be slow, in thousandths.
    #[serde(skip_serializing_if = "is_default_fence_drift")]
    pub fence_drift_per_mille: i64,
    /// Further time until the self-fence counts as proven.
    #[serde(skip_serializing_if = "is_default_fence_margin")]
    pub fence_margin_ms: i64,
    /// Ports of which each gang holds one on its first node, for its tasks to meet (`MASTER_PORT`).
    #[serde(skip_serializing_if = "PortRange::is_default")]
    pub master_ports: PortRange,
    /// A gang is stopped if one of its nodes has not started this long after the first one did; 0 disables that.
    #[serde(skip_serializing_if = "is_default_gang_start_timeout")]
    pub gang_start_timeout_ms: i64,
    /// Whether a node that its health program has drained returns to service when the program succeeds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub health_resumes: bool,
    /// How long a claim holds freed space for the preemptor after its victims are gone.
    pub claim_ms: i64,
    /// Backoff after a failed launch, doubled each time up to ten minutes.
    pub launch_backoff_ms: i64,
    /// How long the state keeps outcomes of ended jobs and idempotency keys.
    pub memory_ms: i64,
    /// Most ended jobs, and most idempotency keys, in the state; older ones are read from the tables.
    pub remembered_max: u64,
    /// Whether jobs with several tasks are accepted.
    pub gangs: bool,
    /// Whether hot GPUs are avoided.
    pub thermal: bool,
    /// Temperature in °C above which a GPU gets no job for the cooling period.
    pub thermal_limit_c: i32,
    /// Length of the cooling period.
    pub cooling_ms: i64,
    /// Whether checkpointing jobs are moved so that waiting jobs fit, if the gain exceeds the cost.
    pub defragment: bool,
    pub weights: Weights,
    pub repartition: Repartition,
    /// Repartitioning considers only jobs that have waited this long.
    pub repartition_after_ms: i64,
    /// A repartitioned GPU keeps its layout for this long.
    pub repartition_cooldown_ms: i64,
    /// The active ruleset of the policies; `None` selects the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruleset: Option<String>,
    pub policy_failure: PolicyFailure,
    /// Offset of local time from UTC in minutes, for policies that read the hour.
    pub utc_offset_minutes: i32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            objective: Objective::Fair,
            default_priority: 100,
            queue_size_max: 1_000_000,
            tenant_jobs_max: 200_000,
            aging_after_ms: 5 * MINUTE,
            aging_per_minute: 10,
            aging_max: 500,
            // Never more than the difference between two adjacent tiers.
            fair_share_max: 400,
            usage_half_life_ms: 7 * 24 * HOUR,
            max_wait_ms: 12 * HOUR,
            reservations: 16,
            reserve_one_node_in: 8,
            default_runtime_ms: HOUR,
            preemption: true,
            preemption_min_runtime_ms: 0,
            preemption_cooldown_ms: 10 * MINUTE,
            stop_grace_ms: 30 * SECOND,
            self_fence_ms: SELF_FENCE_MS,
            fence_drift_per_mille: FENCE_DRIFT_PER_MILLE,
            fence_margin_ms: FENCE_MARGIN_MS,
            master_ports: PortRange::default(),
            gang_start_timeout_ms: GANG_START_TIMEOUT_MS,
            health_resumes: false,
            claim_ms: MINUTE,
            launch_backoff_ms: 5 * SECOND,
            memory_ms: 24 * HOUR,
            remembered_max: 100_000,
            gangs: true,
            thermal: true,
            thermal_limit_c: 75,
            cooling_ms: 5 * MINUTE,
            defragment: false,
            weights: Weights::default(),
            repartition: Repartition::Propose,
            repartition_after_ms: MINUTE,
            repartition_cooldown_ms: 10 * MINUTE,
            ruleset: None,
            policy_failure: PolicyFailure::Closed,
            utc_offset_minutes: 0,
        }
    }
}

/// A range of TCP ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl Default for PortRange {
    /// 29500 is the port that PyTorch uses by itself.
    fn default() -> PortRange {
        PortRange { first: 29_500, last: 29_999 }
    }
}

impl PortRange {
    pub fn ports(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }

    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// The number of ports.
    pub fn len(self) -> usize {
        self.ports().count()
    }

    /// True if it has no port.
    pub fn is_empty(self) -> bool {
        self.first > self.last
    }

    fn is_default(&self) -> bool {
        *self == PortRange::default()
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

const GANG_START_TIMEOUT_MS: i64 = 5 * MINUTE;
const SELF_FENCE_MS: i64 = 5 * MINUTE;
const FENCE_DRIFT_PER_MILLE: i64 = 10;
const FENCE_MARGIN_MS: i64 = 5 * SECOND;

// Settings that were added after a release are written only if they differ from their default: the records of that
// release must read back and write as they are, because their checksums are verified.

fn is_default_self_fence(ms: &i64) -> bool {
    *ms == SELF_FENCE_MS
}

fn is_default_gang_start_timeout(ms: &i64) -> bool {
    *ms == GANG_START_TIMEOUT_MS
}

fn is_default_fence_drift(per_mille: &i64) -> bool {
    *per_mille == FENCE_DRIFT_PER_MILLE
}

fn is_default_fence_margin(ms: &i64) -> bool {
    *ms == FENCE_MARGIN_MS
}

/// The highest priority of a job.
pub const PRIORITY_MAX: u32 = 10_000;
