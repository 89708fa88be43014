//! What the planner says of a job that waits: all its blockers, with numbers.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, TenantId};
use crate::tenant::Excess;
use crate::time::Timestamp;

/// Why a job waits: every reason that holds, the most telling first. Never empty for a waiting job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The blockers.
    pub reasons: Vec<Reason>,
}

/// One reason to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason")]
pub enum Reason {
    /// Too few free GPUs, cores or memory in the whole cluster.
    Capacity {
        /// GPUs the gang needs.
        needs_gpus: u32,
        /// Free GPUs that would do, in the whole cluster.
        free_gpus: u32,
        /// What runs short, for example `GPUs`, `CPU cores`, `memory`.
        short_of: String,
    },
    /// Enough is free in all, but not together on one node.
    Fragmented {
        /// GPUs the gang needs on one node.
        needs_gpus: u32,
        /// Most free on one node.
        largest_block: u32,
        /// Free in all.
        free_gpus: u32,
    },
    /// The tenant holds too much already.
    QuotaTenant {
        /// Whose quota.
        tenant: TenantId,
        /// Which limit, and what would be held.
        excess: Excess,
    },
    /// Nodes that would do are out of service.
    NodeHealth {
        /// How many.
        nodes: u32,
        /// GPUs on them that would do.
        gpus: u32,
    },
    /// Space is kept for jobs that come first.
    Reservation {
        /// For which job.
        job: JobId,
    },
    /// Room is being made for it: others are stopping.
    Claimed {
        /// Who makes room.
        victims: Vec<JobId>,
    },
    /// Other jobs have not ended yet.
    Dependency {
        /// Which.
        jobs: Vec<JobId>,
    },
    /// Its start time has not come, or it pauses after a failed launch.
    StartTime {
        /// When it may start.
        at: Timestamp,
    },
    /// The array runs as many tasks as it may.
    ArrayLimit {
        /// How many run.
        running: u32,
        /// How many may.
        limit: u32,
    },
    /// A person holds it.
    Held {
        /// Who.
        by: String,
        /// Why.
        why: String,
    },
    /// Jobs of its own kind or of others are ahead of it.
    Priority {
        /// How many are ahead.
        ahead: u64,
    },
    /// No registered node could hold it; it waits for one that can.
    Infeasible {
        /// What is missing.
        problem: String,
    },
    /// It arrived after the last round; the next one looks at it.
    Considering,
}

impl Reason {
    /// The fixed word of the reason, the same in command line, API and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Capacity { .. } => "Capacity",
            Reason::Fragmented { .. } => "Fragmented",
            Reason::QuotaTenant { .. } => "QuotaTenant",
            Reason::NodeHealth { .. } => "NodeHealth",
            Reason::Reservation { .. } => "Reservation",
            Reason::Claimed { .. } => "Claimed",
            Reason::Dependency { .. } => "Dependency",
            Reason::StartTime { .. } => "StartTime",
            Reason::ArrayLimit { .. } => "ArrayLimit",
            Reason::Held { .. } => "Held",
            Reason::Priority { .. } => "Priority",
            Reason::Infeasible { .. } => "Infeasible",
            Reason::Considering => "Considering",
        }
    }

    /// One sentence for people, lower case, without a period.
    pub fn sentence(&self) -> String {
        match self {
            Reason::Capacity { needs_gpus, free_gpus, short_of } if short_of == "GPUs" => {
                format!("needs {needs_gpus} GPUs, {free_gpus} that would do are free")
            }
            Reason::Capacity { needs_gpus, short_of, .. } => {
                format!("no node with {needs_gpus} free GPUs has enough {short_of} left")
            }
            Reason::Fragmented { needs_gpus, largest_block, free_gpus } => format!(
                "needs {needs_gpus} GPUs on one node, the largest free block is {largest_block} ({free_gpus} free in all)"
            ),
            Reason::QuotaTenant { tenant, excess } => format!(
                "tenant `{tenant}` would hold {} {}, its limit is {}",
                excess.wanted,
                excess.resource.words(),
                excess.limit
            ),
            Reason::NodeHealth { nodes, gpus } => {
                format!("{nodes} nodes with {gpus} GPUs that would do are out of service")
            }
            Reason::Reservation { job } => format!("free space is kept for `{job}`, which has waited longest"),
            Reason::Claimed { victims } => format!("room is being made by {}", list(victims)),
            Reason::Dependency { jobs } => format!("waits for {} to end", list(jobs)),
            Reason::StartTime { at } => format!("may start at {} (Unix ms)", at.0),
            Reason::ArrayLimit { running, limit } => format!("{running} tasks of the array run, {limit} may"),
            Reason::Held { by, why } if why.is_empty() => format!("held by {by}"),
            Reason::Held { by, why } => format!("held by {by}: {why}"),
            Reason::Priority { ahead } => format!("{ahead} jobs are ahead"),
            Reason::Infeasible { problem } => format!("no registered node could hold it: {problem}"),
            Reason::Considering => "arrived just now, the next round looks at it".to_string(),
        }
    }
}

fn list(jobs: &[JobId]) -> String {
    let shown: Vec<String> = jobs.iter().take(5).map(|job| format!("`{job}`")).collect();
    let more = jobs.len().saturating_sub(5);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}
