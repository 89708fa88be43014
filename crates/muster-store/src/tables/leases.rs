//! Rows of leases, and the usage counters of GPUs and tenants, whose constraints prevent double allocation.

use muster_core::gpu::gpu_share::{ShareMode, WHOLE};
use muster_core::objects::job::PlacedTask;
use muster_core::{JobId, Timestamp};

use super::{BoundStatement, BulkStatement, ExpectedRows, Statement, Value, index_column};

// The join checks that the GPU exists. The row count of `TAKE_GPU` cannot, because several tasks may share a GPU.
static ADD_LEASE: Statement = Statement {
    name: "add a lease",
    sql: "INSERT INTO leases (number, idx, attempt, rank, node, gpu, job, seq, tenant, slot, compute_milli, \
          memory_milli, memory_mib, from_ms) \
          SELECT j.number, j.idx, CAST(?3 AS BIGINT), CAST(?4 AS BIGINT), g.node, g.idx, j.id, CAST(?7 AS BIGINT), \
          j.tenant, CAST(?8 AS TEXT), CAST(?9 AS BIGINT), CAST(?10 AS BIGINT), CAST(?11 AS BIGINT), \
          CAST(?12 AS BIGINT) FROM jobs AS j JOIN gpus AS g ON g.node = ?5 AND g.idx = ?6 AND g.removed_at IS NULL \
          WHERE j.number = ?1 AND j.idx = ?2",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "INSERT INTO leases (number, idx, attempt, rank, node, gpu, job, seq, tenant, slot, compute_milli, \
              memory_milli, memory_mib, from_ms) \
              SELECT j.number, j.idx, u.attempt, u.rank, g.node, g.idx, j.id, u.seq, j.tenant, u.slot, u.compute, \
              u.memory, u.mib, u.at FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], \
              $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[]) \
              AS u (number, idx, attempt, rank, node, gpu, seq, slot, compute, memory, mib, at) \
              JOIN jobs AS j ON j.number = u.number AND j.idx = u.idx \
              JOIN gpus AS g ON g.node = u.node AND g.idx = u.gpu AND g.removed_at IS NULL",
        rows: ExpectedRows::OnePerChange,
    }),
};

static TAKE_GPU: Statement = Statement {
    name: "add to the usage of a GPU",
    sql: "UPDATE gpus SET used_milli = used_milli + ?3, used_memory_milli = used_memory_milli + ?4 \
          WHERE node = ?1 AND idx = ?2 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        // Summed first: a statement updates each row only once.
        sql: "UPDATE gpus SET used_milli = used_milli + t.compute, used_memory_milli = used_memory_milli + t.memory \
              FROM (SELECT node, idx, CAST(sum(compute) AS BIGINT) AS compute, CAST(sum(memory) AS BIGINT) AS memory \
              FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (node, idx, compute, memory) \
              GROUP BY node, idx) AS t \
              WHERE gpus.node = t.node AND gpus.idx = t.idx AND gpus.removed_at IS NULL",
        rows: ExpectedRows::AtLeastOne,
    }),
};

/// SQL of what a lease counts against its GPU; the same rule as [`counted_thousandths`].
macro_rules! counted_sql {
    ($column:literal) => {
        concat!($column, " - CASE WHEN slot LIKE 'mig:%' AND ", $column, " > 1 THEN 1 ELSE 0 END")
    };
}

static RELEASE_GPUS: Statement = Statement {
    name: "release GPUs",
    sql: concat!(
        "UPDATE gpus SET used_milli = used_milli - l.compute, used_memory_milli = used_memory_milli - l.memory FROM \
          (SELECT node, gpu, CAST(sum(",
        counted_sql!("compute_milli"),
        ") AS BIGINT) AS compute, \
          CAST(sum(",
        counted_sql!("memory_milli"),
        ") AS BIGINT) AS memory FROM leases \
          WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND to_ms IS NULL GROUP BY node, gpu) AS l \
          WHERE gpus.node = l.node AND gpus.idx = l.gpu"
    ),
    rows: ExpectedRows::Any,
    bulk: Some(BulkStatement {
        sql: concat!(
            "UPDATE gpus SET used_milli = used_milli - l.compute, \
              used_memory_milli = used_memory_milli - l.memory FROM \
              (SELECT leases.node, leases.gpu, CAST(sum(",
            counted_sql!("leases.compute_milli"),
            ") AS BIGINT) AS compute, \
              CAST(sum(",
            counted_sql!("leases.memory_milli"),
            ") AS BIGINT) AS memory \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u (number, idx, attempt) \
              JOIN leases ON leases.number = u.number AND leases.idx = u.idx AND leases.attempt = u.attempt \
              AND leases.to_ms IS NULL GROUP BY leases.node, leases.gpu) AS l \
              WHERE gpus.node = l.node AND gpus.idx = l.gpu"
        ),
        rows: ExpectedRows::Any,
    }),
};

static END_LEASES: Statement = Statement {
    name: "end leases",
    sql: "UPDATE leases SET to_ms = ?4 WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND to_ms IS NULL",
    rows: ExpectedRows::Any,
    bulk: Some(BulkStatement {
        sql: "UPDATE leases SET to_ms = u.at \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (number, idx, attempt, at) \
              WHERE leases.number = u.number AND leases.idx = u.idx AND leases.attempt = u.attempt \
              AND leases.to_ms IS NULL",
        rows: ExpectedRows::Any,
    }),
};

/// Demand of one attempt, as `d`.
macro_rules! demand_of_one {
    () => {
        "FROM (SELECT tenant, gpu_milli, gpu_memory_mib, cpus, memory_mib, 1 AS jobs FROM attempts \
         WHERE number = ?1 AND idx = ?2 AND attempt = ?3) AS d WHERE tenants.id = d.tenant"
    };
}

/// Demand of many attempts, summed by tenant, as `d`: a statement updates each row only once.
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

// Where the usage exceeds a lowered quota, the ceiling follows the usage down to the quota. Without a quota the
// comparison with NULL selects the ELSE branch, so the ceiling stays NULL.
macro_rules! release_quota {
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
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement { sql: concat!(take_quota!(), demand_of_many!()), rows: ExpectedRows::AtLeastOne }),
};

static RELEASE_QUOTA: Statement = Statement {
    name: "release the quota of a tenant",
    sql: concat!(release_quota!(), demand_of_one!()),
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement { sql: concat!(release_quota!(), demand_of_many!()), rows: ExpectedRows::AtLeastOne }),
};

/// A gang acquires its GPUs and the quota of its tenant.
pub fn acquired(seq: u64, job: JobId, attempt: u32, tasks: &[PlacedTask], at: Timestamp) -> Vec<BoundStatement> {
    let lease = |(task, gpu): (&PlacedTask, u8)| {
        let (compute, memory) = held_thousandths(task);
        ADD_LEASE.bind(vec![
            job.number.into(),
            index_column(job).into(),
            attempt.into(),
            task.rank.into(),
            (&task.node).into(),
            gpu.into(),
            seq.into(),
            slot_name(task).into(),
            compute.into(),
            memory.into(),
            task.share.as_ref().map(|share| share.memory_mib).into(),
            at.into(),
        ])
    };
    let usage = |(task, gpu): (&PlacedTask, u8)| {
        let (compute, memory) = counted_thousandths(task);
        TAKE_GPU.bind(vec![(&task.node).into(), gpu.into(), compute.into(), memory.into()])
    };
    let quota = TAKE_QUOTA.bind(vec![job.number.into(), index_column(job).into(), attempt.into()]);
    devices(tasks).map(lease).chain(devices(tasks).map(usage)).chain([quota]).collect()
}

fn devices(tasks: &[PlacedTask]) -> impl Iterator<Item = (&PlacedTask, u8)> {
    tasks.iter().flat_map(|task| task.gpus.iter().map(move |gpu| (task, *gpu)))
}

/// Share of each of its GPUs that a task holds: thousandths of compute and of memory.
fn held_thousandths(task: &PlacedTask) -> (u32, u32) {
    task.share.as_ref().map_or((WHOLE, WHOLE), |share| (share.compute_milli, share.memory_milli))
}

/// Thousandths that are counted against the GPU. A MIG instance counts one less, because seven sevenths, each rounded
/// up, exceed 1000.
fn counted_thousandths(task: &PlacedTask) -> (u32, u32) {
    let (compute, memory) = held_thousandths(task);
    match task.share.as_ref().map(|share| &share.mode) {
        Some(ShareMode::Mig { .. }) => (compute.saturating_sub(1).max(1), memory.saturating_sub(1).max(1)),
        _ => (compute, memory),
    }
}

/// Slot that a task holds of each of its GPUs; empty for a whole GPU.
fn slot_name(task: &PlacedTask) -> String {
    match task.share.as_ref().map(|share| &share.mode) {
        None => String::new(),
        Some(ShareMode::Mig { profile, start }) => format!("mig:{profile}@{start}"),
        Some(mode @ (ShareMode::Mps | ShareMode::TimeSlice)) => mode.as_str().to_string(),
    }
}

/// An attempt releases its leases. The GPUs are found by their live leases, so they are released first.
pub fn released(job: JobId, attempt: u32, at: Timestamp) -> [BoundStatement; 3] {
    let key: Vec<Value> = vec![job.number.into(), index_column(job).into(), attempt.into()];
    let mut key_and_end = key.clone();
    key_and_end.push(at.into());
    [RELEASE_GPUS.bind(key.clone()), END_LEASES.bind(key_and_end), RELEASE_QUOTA.bind(key)]
}
