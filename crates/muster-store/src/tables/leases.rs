//! Leases, and the counters that forbid giving anything out twice.

use muster_core::job::PlacedTask;
use muster_core::{JobId, Timestamp};

use super::{Bulk, Change, Rows, Statement, Value, idx};

// Sharing a GPU is not offered yet; `leases_live` would have to become a counter then.
const WHOLE_GPU_MILLI: u32 = 1_000;

static ADD_LEASE: Statement = Statement {
    name: "add a lease",
    sql: "INSERT INTO leases (number, idx, attempt, node, gpu, job, seq, rank, tenant, compute_milli, from_ms) \
          SELECT number, idx, CAST(?3 AS BIGINT), CAST(?4 AS TEXT), CAST(?5 AS BIGINT), id, CAST(?6 AS BIGINT), \
          CAST(?7 AS BIGINT), tenant, CAST(?8 AS BIGINT), CAST(?9 AS BIGINT) \
          FROM jobs WHERE number = ?1 AND idx = ?2",
    rows: Rows::Each,
    bulk: Some(Bulk {
        sql: "INSERT INTO leases (number, idx, attempt, node, gpu, job, seq, rank, tenant, compute_milli, from_ms) \
              SELECT j.number, j.idx, u.attempt, u.node, u.gpu, j.id, u.seq, u.rank, j.tenant, u.milli, u.at \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], \
              $7::bigint[], $8::bigint[], $9::bigint[]) AS u (number, idx, attempt, node, gpu, seq, rank, milli, at) \
              JOIN jobs j ON j.number = u.number AND j.idx = u.idx",
        rows: Rows::Each,
    }),
};

static TAKE_GPU: Statement = Statement {
    name: "take a GPU",
    sql: "UPDATE gpus SET used_milli = used_milli + ?3 WHERE node = ?1 AND idx = ?2 AND removed_at IS NULL",
    rows: Rows::Each,
    bulk: Some(Bulk {
        sql: "UPDATE gpus SET used_milli = used_milli + u.milli \
              FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u (node, idx, milli) \
              WHERE gpus.node = u.node AND gpus.idx = u.idx AND gpus.removed_at IS NULL",
        rows: Rows::Each,
    }),
};

static GIVE_GPUS: Statement = Statement {
    name: "give GPUs back",
    sql: "UPDATE gpus SET used_milli = used_milli - l.milli FROM \
          (SELECT node, gpu, CAST(sum(compute_milli) AS BIGINT) AS milli FROM leases \
          WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND to_ms IS NULL GROUP BY node, gpu) AS l \
          WHERE gpus.node = l.node AND gpus.idx = l.gpu",
    rows: Rows::Any,
    bulk: Some(Bulk {
        sql: "UPDATE gpus SET used_milli = used_milli - l.milli FROM \
              (SELECT leases.node, leases.gpu, CAST(sum(leases.compute_milli) AS BIGINT) AS milli \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u (number, idx, attempt) \
              JOIN leases ON leases.number = u.number AND leases.idx = u.idx AND leases.attempt = u.attempt \
              AND leases.to_ms IS NULL GROUP BY leases.node, leases.gpu) AS l \
              WHERE gpus.node = l.node AND gpus.idx = l.gpu",
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

/// What one job takes from its tenant, as `d`.
macro_rules! demand_of_one {
    () => {
        "FROM (SELECT tenant, gpus, gpu_memory_mib, cpus, memory_mib, 1 AS jobs FROM jobs \
         WHERE number = ?1 AND idx = ?2) AS d WHERE tenants.id = d.tenant"
    };
}

/// What many jobs take from each tenant, as `d`. Only one row of a tenant can be written in one statement.
macro_rules! demand_of_many {
    () => {
        "FROM (SELECT j.tenant, CAST(sum(j.gpus) AS BIGINT) AS gpus, \
         CAST(sum(j.gpu_memory_mib) AS BIGINT) AS gpu_memory_mib, CAST(sum(j.cpus) AS BIGINT) AS cpus, \
         CAST(sum(j.memory_mib) AS BIGINT) AS memory_mib, count(*) AS jobs \
         FROM unnest($1::bigint[], $2::bigint[]) AS u (number, idx) \
         JOIN jobs j ON j.number = u.number AND j.idx = u.idx GROUP BY j.tenant) AS d \
         WHERE tenants.id = d.tenant"
    };
}

macro_rules! take_quota {
    () => {
        "UPDATE tenants SET gpus_used = gpus_used + d.gpus, \
         gpu_memory_mib_used = gpu_memory_mib_used + d.gpu_memory_mib, cpus_used = cpus_used + d.cpus, \
         memory_mib_used = memory_mib_used + d.memory_mib, jobs_used = jobs_used + d.jobs "
    };
}

// The ceiling sinks with what is held, down to the limit. Comparing with no limit is neither true nor false,
// and leaves no ceiling.
macro_rules! give_quota {
    () => {
        "UPDATE tenants SET gpus_used = gpus_used - d.gpus, \
         gpu_memory_mib_used = gpu_memory_mib_used - d.gpu_memory_mib, cpus_used = cpus_used - d.cpus, \
         memory_mib_used = memory_mib_used - d.memory_mib, jobs_used = jobs_used - d.jobs, \
         gpus_ceiling = CASE WHEN gpus_used - d.gpus > max_gpus THEN gpus_used - d.gpus ELSE max_gpus END, \
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
        ADD_LEASE.change(vec![
            job.number.into(),
            idx(job).into(),
            attempt.into(),
            (&task.node).into(),
            gpu.into(),
            seq.into(),
            task.rank.into(),
            WHOLE_GPU_MILLI.into(),
            at.into(),
        ])
    };
    let take = |(task, gpu): (&PlacedTask, u8)| {
        TAKE_GPU.change(vec![(&task.node).into(), gpu.into(), WHOLE_GPU_MILLI.into()])
    };
    let quota = TAKE_QUOTA.change(vec![job.number.into(), idx(job).into()]);
    devices(tasks).map(lease).chain(devices(tasks).map(take)).chain([quota]).collect()
}

fn devices(tasks: &[PlacedTask]) -> impl Iterator<Item = (&PlacedTask, u8)> {
    tasks.iter().flat_map(|task| task.gpus.iter().map(move |gpu| (task, *gpu)))
}

/// An attempt gives all of it back. GPUs are found by their live leases, so they go first.
pub fn ended(job: JobId, attempt: u32, at: Timestamp) -> [Change; 3] {
    let key: Vec<Value> = vec![job.number.into(), idx(job).into(), attempt.into()];
    let mut ends = key.clone();
    ends.push(at.into());
    [
        GIVE_GPUS.change(key),
        END_LEASES.change(ends),
        GIVE_QUOTA.change(vec![job.number.into(), idx(job).into()]),
    ]
}
