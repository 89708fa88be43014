//! Leases, and the counters that forbid giving anything out twice.

use muster_core::job::PlacedTask;
use muster_core::share::{ShareMode, WHOLE};
use muster_core::{JobId, Timestamp};

use super::{Bulk, Change, Rows, Statement, Value, idx};

// The device is looked up with the lease: many tasks may take parts of one, so that the rows taken from do not tell
// whether all of them exist.
static ADD_LEASE: Statement = Statement {
    name: "add a lease",
    sql: "INSERT INTO leases (number, idx, attempt, rank, node, gpu, job, seq, tenant, slot, compute_milli, \
          memory_milli, memory_mib, from_ms) \
          SELECT j.number, j.idx, CAST(?3 AS BIGINT), CAST(?4 AS BIGINT), g.node, g.idx, j.id, CAST(?7 AS BIGINT), \
          j.tenant, CAST(?8 AS TEXT), CAST(?9 AS BIGINT), CAST(?10 AS BIGINT), CAST(?11 AS BIGINT), \
          CAST(?12 AS BIGINT) FROM jobs AS j JOIN gpus AS g ON g.node = ?5 AND g.idx = ?6 AND g.removed_at IS NULL \
          WHERE j.number = ?1 AND j.idx = ?2",
    rows: Rows::Each,
    bulk: Some(Bulk {
        sql: "INSERT INTO leases (number, idx, attempt, rank, node, gpu, job, seq, tenant, slot, compute_milli, \
              memory_milli, memory_mib, from_ms) \
              SELECT j.number, j.idx, u.attempt, u.rank, g.node, g.idx, j.id, u.seq, j.tenant, u.slot, u.compute, \
              u.memory, u.mib, u.at FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], \
              $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[]) \
              AS u (number, idx, attempt, rank, node, gpu, seq, slot, compute, memory, mib, at) \
              JOIN jobs AS j ON j.number = u.number AND j.idx = u.idx \
              JOIN gpus AS g ON g.node = u.node AND g.idx = u.gpu AND g.removed_at IS NULL",
        rows: Rows::Each,
    }),
};

static TAKE_GPU: Statement = Statement {
    name: "take a GPU",
    sql: "UPDATE gpus SET used_milli = used_milli + ?3, used_memory_milli = used_memory_milli + ?4 \
          WHERE node = ?1 AND idx = ?2 AND removed_at IS NULL",
    rows: Rows::Each,
    bulk: Some(Bulk {
        // Only one row of a device can be written in one statement.
        sql: "UPDATE gpus SET used_milli = used_milli + t.compute, used_memory_milli = used_memory_milli + t.memory \
              FROM (SELECT node, idx, CAST(sum(compute) AS BIGINT) AS compute, CAST(sum(memory) AS BIGINT) AS memory \
              FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (node, idx, compute, memory) \
              GROUP BY node, idx) AS t \
              WHERE gpus.node = t.node AND gpus.idx = t.idx AND gpus.removed_at IS NULL",
        rows: Rows::Some,
    }),
};

/// What a lease counts, as `thousandths` has it.
macro_rules! counted {
    ($column:literal) => {
        concat!($column, " - CASE WHEN slot LIKE 'mig:%' AND ", $column, " > 1 THEN 1 ELSE 0 END")
    };
}

static GIVE_GPUS: Statement = Statement {
    name: "give GPUs back",
    sql: concat!(
        "UPDATE gpus SET used_milli = used_milli - l.compute, used_memory_milli = used_memory_milli - l.memory FROM \
          (SELECT node, gpu, CAST(sum(",
        counted!("compute_milli"),
        ") AS BIGINT) AS compute, \
          CAST(sum(",
        counted!("memory_milli"),
        ") AS BIGINT) AS memory FROM leases \
          WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND to_ms IS NULL GROUP BY node, gpu) AS l \
          WHERE gpus.node = l.node AND gpus.idx = l.gpu"
    ),
    rows: Rows::Any,
    bulk: Some(Bulk {
        sql: concat!(
            "UPDATE gpus SET used_milli = used_milli - l.compute, \
              used_memory_milli = used_memory_milli - l.memory FROM \
              (SELECT leases.node, leases.gpu, CAST(sum(",
            counted!("leases.compute_milli"),
            ") AS BIGINT) AS compute, \
              CAST(sum(",
            counted!("leases.memory_milli"),
            ") AS BIGINT) AS memory \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u (number, idx, attempt) \
              JOIN leases ON leases.number = u.number AND leases.idx = u.idx AND leases.attempt = u.attempt \
              AND leases.to_ms IS NULL GROUP BY leases.node, leases.gpu) AS l \
              WHERE gpus.node = l.node AND gpus.idx = l.gpu"
        ),
        rows: Rows::Any,
    }),
};

static END_LEASES: Statement = Statement {
    name: "end leases",
    sql: "UPDATE leases SET to_ms = ?4 WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND to_ms IS NULL",
    rows: Rows::Any,
    bulk: Some(Bulk {
        sql: "UPDATE leases SET to_ms = u.at \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (number, idx, attempt, at) \
              WHERE leases.number = u.number AND leases.idx = u.idx AND leases.attempt = u.attempt \
              AND leases.to_ms IS NULL",
        rows: Rows::Any,
    }),
};

/// What one attempt takes from its tenant, as `d`.
macro_rules! demand_of_one {
    () => {
        "FROM (SELECT tenant, gpu_milli, gpu_memory_mib, cpus, memory_mib, 1 AS jobs FROM attempts \
         WHERE number = ?1 AND idx = ?2 AND attempt = ?3) AS d WHERE tenants.id = d.tenant"
    };
}

/// What many attempts take from each tenant, as `d`. Only one row of a tenant can be written in one statement.
macro_rules! demand_of_many {
    () => {
        "FROM (SELECT a.tenant, CAST(sum(a.gpu_milli) AS BIGINT) AS gpu_milli, \
         CAST(sum(a.gpu_memory_mib) AS BIGINT) AS gpu_memory_mib, CAST(sum(a.cpus) AS BIGINT) AS cpus, \
         CAST(sum(a.memory_mib) AS BIGINT) AS memory_mib, count(*) AS jobs \
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u (number, idx, attempt) \
         JOIN attempts a ON a.number = u.number AND a.idx = u.idx AND a.attempt = u.attempt GROUP BY a.tenant) AS d \
         WHERE tenants.id = d.tenant"
    };
}

macro_rules! take_quota {
    () => {
        "UPDATE tenants SET gpu_milli_used = gpu_milli_used + d.gpu_milli, \
         gpu_memory_mib_used = gpu_memory_mib_used + d.gpu_memory_mib, cpus_used = cpus_used + d.cpus, \
         memory_mib_used = memory_mib_used + d.memory_mib, jobs_used = jobs_used + d.jobs "
    };
}

// The ceiling sinks with what is held, down to the limit. Comparing with no limit is neither true nor false,
// and leaves no ceiling.
macro_rules! give_quota {
    () => {
        "UPDATE tenants SET gpu_milli_used = gpu_milli_used - d.gpu_milli, \
         gpu_memory_mib_used = gpu_memory_mib_used - d.gpu_memory_mib, cpus_used = cpus_used - d.cpus, \
         memory_mib_used = memory_mib_used - d.memory_mib, jobs_used = jobs_used - d.jobs, \
         gpu_milli_ceiling = CASE WHEN gpu_milli_used - d.gpu_milli > max_gpus * 1000 \
         THEN gpu_milli_used - d.gpu_milli ELSE max_gpus * 1000 END, \
         gpu_memory_mib_ceiling = CASE WHEN gpu_memory_mib_used - d.gpu_memory_mib > max_gpu_memory_mib \
         THEN gpu_memory_mib_used - d.gpu_memory_mib ELSE max_gpu_memory_mib END, \
         cpus_ceiling = CASE WHEN cpus_used - d.cpus > max_cpus THEN cpus_used - d.cpus ELSE max_cpus END, \
         memory_mib_ceiling = CASE WHEN memory_mib_used - d.memory_mib > max_memory_mib \
         THEN memory_mib_used - d.memory_mib ELSE max_memory_mib END, \
         jobs_ceiling = CASE WHEN jobs_used - d.jobs > max_jobs THEN jobs_used - d.jobs ELSE max_jobs END "
    };
}

static TAKE_QUOTA: Statement = Statement {
    name: "take from a tenant's quota",
    sql: concat!(take_quota!(), demand_of_one!()),
    rows: Rows::Each,
    bulk: Some(Bulk { sql: concat!(take_quota!(), demand_of_many!()), rows: Rows::Some }),
};

static GIVE_QUOTA: Statement = Statement {
    name: "give quota back to a tenant",
    sql: concat!(give_quota!(), demand_of_one!()),
    rows: Rows::Each,
    bulk: Some(Bulk { sql: concat!(give_quota!(), demand_of_many!()), rows: Rows::Some }),
};

/// A gang takes its devices and its share of the quota.
pub fn begun(seq: u64, job: JobId, attempt: u32, tasks: &[PlacedTask], at: Timestamp) -> Vec<Change> {
    let lease = |(task, gpu): (&PlacedTask, u8)| {
        let (compute, memory) = thousandths(task);
        ADD_LEASE.change(vec![
            job.number.into(),
            idx(job).into(),
            attempt.into(),
            task.rank.into(),
            (&task.node).into(),
            gpu.into(),
            seq.into(),
            slot(task).into(),
            compute.into(),
            memory.into(),
            task.share.as_ref().map(|share| share.memory_mib).into(),
            at.into(),
        ])
    };
    let take = |(task, gpu): (&PlacedTask, u8)| {
        let (compute, memory) = counted(task);
        TAKE_GPU.change(vec![(&task.node).into(), gpu.into(), compute.into(), memory.into()])
    };
    let quota = TAKE_QUOTA.change(vec![job.number.into(), idx(job).into(), attempt.into()]);
    devices(tasks).map(lease).chain(devices(tasks).map(take)).chain([quota]).collect()
}

fn devices(tasks: &[PlacedTask]) -> impl Iterator<Item = (&PlacedTask, u8)> {
    tasks.iter().flat_map(|task| task.gpus.iter().map(move |gpu| (task, *gpu)))
}

/// What a task has of each of its devices: thousandths of compute and of memory.
fn thousandths(task: &PlacedTask) -> (u32, u32) {
    task.share.as_ref().map_or((WHOLE, WHOLE), |share| (share.compute_milli, share.memory_milli))
}

/// What of that is counted against the device. An instance counts one less, because seven sevenths that are each rounded
/// up are more than one.
fn counted(task: &PlacedTask) -> (u32, u32) {
    let (compute, memory) = thousandths(task);
    match task.share.as_ref().map(|share| &share.mode) {
        Some(ShareMode::Mig { .. }) => (compute.saturating_sub(1).max(1), memory.saturating_sub(1).max(1)),
        _ => (compute, memory),
    }
}

/// What a task holds of each of its devices, in a word; none for all of it.
fn slot(task: &PlacedTask) -> String {
    match task.share.as_ref().map(|share| &share.mode) {
        None => String::new(),
        Some(ShareMode::Mig { profile, start }) => format!("mig:{profile}@{start}"),
        Some(mode @ (ShareMode::Mps | ShareMode::TimeSlice)) => mode.word().to_string(),
    }
}

/// An attempt gives all of it back. GPUs are found by their live leases, so they go first.
pub fn ended(job: JobId, attempt: u32, at: Timestamp) -> [Change; 3] {
    let key: Vec<Value> = vec![job.number.into(), idx(job).into(), attempt.into()];
    let mut ends = key.clone();
    ends.push(at.into());
    [GIVE_GPUS.change(key.clone()), END_LEASES.change(ends), GIVE_QUOTA.change(key)]
}
