//! The settings of the cluster that decisions depend on. They enter the state by an event, so that replay
//! decides under the same rules.

use serde::{Deserialize, Serialize};

use crate::time::{HOUR, MINUTE, SECOND};

/// What the order of jobs is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Everyone has their share: by priority, age and fair share.
    #[default]
    Fair,
    /// Jobs are done soon: the least GPU time first, and long ones give way where that gains more than it costs.
    Fast,
}

/// What is done about idle GPUs that are partitioned otherwise than those who wait need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repartition {
    /// Nothing.
    Off,
    /// `why` tells what would help, and an operator does it.
    #[default]
    Propose,
    /// Simulated devices are partitioned at once; others are proposed.
    Apply,
}

/// What a policy that fails means: one that takes too long, runs into an error, or answers nonsense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyFailure {
    /// The jobs it was asked about wait, and nobody is displaced for them.
    #[default]
    Closed,
    /// As if it had not been asked.
    Open,
}

/// What each term of a score counts, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Weights {
    /// GPU that is going to be left over.
    pub waste: u32,
    /// Slow links between the devices of a task.
    pub locality: u32,
    /// Devices that are warm or have had errors.
    pub health: u32,
    /// What was learned of such jobs on a model.
    pub learned: u32,
    /// What policies say.
    pub policy: u32,
    /// What it takes of the power that is left.
    pub power: u32,
}

impl Default for Weights {
    fn default() -> Weights {
        let (waste, locality, health) = (1_000, 1_000, 1_000);
        Weights { waste, locality, health, learned: 1_000, policy: 1_000, power: 1_000 }
    }
}

/// Settings that the planner and the guards read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// What the order of jobs is for.
    pub objective: Objective,
    /// Priority of a job that names none and whose tenant names none.
    pub default_priority: u32,
    /// Most jobs waiting at once.
    pub queue_size_max: u64,
    /// Most jobs of one tenant that have not ended, waiting or running; 0 for no limit. Two of the largest arrays fit.
    pub tenant_jobs_max: u64,
    /// A job gains nothing for its first wait of this length.
    pub aging_after_ms: i64,
    /// Priority gained per minute of further waiting.
    pub aging_per_minute: u32,
    /// Most that aging can add.
    pub aging_max: u32,
    /// What having much more than one's fair share takes away; just the share takes half. 0 switches it off.
    pub fair_share_max: u32,
    /// Past usage counts half after this time.
    pub usage_half_life_ms: i64,
    /// After this wait a job comes before all others, and only jobs with a time limit may pass it: this bounds every
    /// wait.
    pub max_wait_ms: i64,
    /// How many of the first jobs that are blocked have a place in the future which nobody may delay.
    pub reservations: u32,
    /// No more of them once one node in so many is needed for those there are: what is free there may stand idle.
    pub reserve_one_node_in: u32,
    /// How long a job without a time limit is expected to run while nothing is known of its owner's jobs.
    pub default_runtime_ms: i64,
    /// Whether running jobs may be displaced at all.
    pub preemption: bool,
    /// A job that has run for less than this is not displaced.
    pub preemption_min_runtime_ms: i64,
    /// A job that was displaced runs this long undisturbed when it is back.
    pub preemption_cooldown_ms: i64,
    /// How long processes may take to stop before they are killed.
    pub stop_grace_ms: i64,
    /// How long freed space is held for the job that it was freed for, after the victims are gone.
    pub claim_ms: i64,
    /// Pause after a launch that failed, doubled each time up to ten minutes.
    pub launch_backoff_ms: i64,
    /// How long outcomes of ended jobs and idempotency keys are remembered.
    pub memory_ms: i64,
    /// How many ended jobs, and how many keys, are remembered in memory at most; older ones are read from the tables.
    pub remembered_max: u64,
    /// Whether gangs of several tasks are accepted.
    pub gangs: bool,
    /// Whether hot GPUs are avoided.
    pub thermal: bool,
    /// Above this temperature in °C a GPU cools before it is given out again.
    pub thermal_limit_c: i32,
    /// How long it cools.
    pub cooling_ms: i64,
    /// Whether running jobs that save their work are moved so that others fit, where that pays.
    pub defragment: bool,
    /// What each term of a score counts.
    pub weights: Weights,
    /// What is done about idle GPUs that are partitioned otherwise than those who wait need them.
    pub repartition: Repartition,
    /// Only for those who have waited this long.
    pub repartition_after_ms: i64,
    /// A GPU that was partitioned stays so for this long.
    pub repartition_cooldown_ms: i64,
    /// The ruleset of the policies that counts; the only one where none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruleset: Option<String>,
    /// What a policy that fails means.
    pub policy_failure: PolicyFailure,
    /// How far the clocks on the walls are ahead of UTC, in minutes, for policies that look at the hour.
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
            // Never more than the step from one tier to the next.
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

/// Highest priority a job may ask for.
pub const PRIORITY_MAX: u32 = 10_000;
