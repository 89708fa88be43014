//! Rows of attempts: placement, start, stop and end, with the charge of each attempt.

use std::collections::BTreeSet;

use muster_core::facts::event::{NextPhase, RequeueCause};
use muster_core::objects::charge::{Charge, HeldResources};
use muster_core::objects::demand::Demand;
use muster_core::objects::job::{Exit, PlacedTask, StopCause};
use muster_core::{JobId, NodeId, Timestamp};

use super::jobs::final_state;
use super::leases;
use super::{BoundStatement, BulkStatement, ExpectedRows, Statement, Value, index_column};

static ADD_ATTEMPT: Statement = Statement {
    name: "add an attempt",
    sql: "INSERT INTO attempts (number, idx, attempt, job, seq, tenant, epoch, state, placed_at, gpus, nodes, \
          gpu_milli, gpu_memory_mib, cpus, memory_mib, master, master_port) \
          SELECT number, idx, CAST(?3 AS BIGINT), id, CAST(?4 AS BIGINT), tenant, CAST(?5 AS BIGINT), \
          'Starting', CAST(?6 AS BIGINT), CAST(?7 AS BIGINT), CAST(?8 AS TEXT), \
          COALESCE(CAST(?9 AS BIGINT), gpu_milli), COALESCE(CAST(?10 AS BIGINT), gpu_memory_mib), \
          COALESCE(CAST(?11 AS BIGINT), cpus), COALESCE(CAST(?12 AS BIGINT), memory_mib), \
          CAST(?13 AS TEXT), CAST(?14 AS BIGINT) FROM jobs WHERE number = ?1 AND idx = ?2",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "INSERT INTO attempts (number, idx, attempt, job, seq, tenant, epoch, state, placed_at, gpus, nodes, \
              gpu_milli, gpu_memory_mib, cpus, memory_mib, master, master_port) \
              SELECT j.number, j.idx, u.attempt, j.id, u.seq, j.tenant, u.epoch, 'Starting', u.at, u.gpus, u.nodes, \
              COALESCE(u.gpu_milli, j.gpu_milli), COALESCE(u.gpu_memory_mib, j.gpu_memory_mib), \
              COALESCE(u.cpus, j.cpus), COALESCE(u.memory_mib, j.memory_mib), u.master, u.master_port \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], \
              $7::bigint[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], \
              $14::bigint[]) AS u (number, idx, attempt, seq, epoch, at, gpus, nodes, gpu_milli, gpu_memory_mib, cpus, \
              memory_mib, master, master_port) \
              JOIN jobs j ON j.number = u.number AND j.idx = u.idx",
        rows: ExpectedRows::OnePerChange,
    }),
};

static PLACE_JOB: Statement = Statement {
    name: "place a queued job",
    sql: "UPDATE jobs SET state = 'pending', phase = 'Starting', why = '', attempt = ?3, nodes = ?4, \
          placed_at = ?5, started_at = NULL, exit_code = NULL, signal = NULL \
          WHERE number = ?1 AND idx = ?2 AND phase = 'Queued'",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "UPDATE jobs SET state = 'pending', phase = 'Starting', why = '', attempt = u.attempt, \
              nodes = u.nodes, placed_at = u.at, started_at = NULL, exit_code = NULL, signal = NULL \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[]) \
              AS u (number, idx, attempt, nodes, at) \
              WHERE jobs.number = u.number AND jobs.idx = u.idx AND jobs.phase = 'Queued'",
        rows: ExpectedRows::OnePerChange,
    }),
};

static START_ATTEMPT: Statement = Statement {
    name: "start an attempt",
    sql: "UPDATE attempts SET started_at = ?4, \
          state = CASE WHEN state = 'Stopping' THEN state ELSE 'Running' END \
          WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND ended_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "UPDATE attempts SET started_at = u.at, \
              state = CASE WHEN attempts.state = 'Stopping' THEN attempts.state ELSE 'Running' END \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (number, idx, attempt, at) \
              WHERE attempts.number = u.number AND attempts.idx = u.idx AND attempts.attempt = u.attempt \
              AND attempts.ended_at IS NULL",
        rows: ExpectedRows::OnePerChange,
    }),
};

static START_JOB: Statement = Statement {
    name: "start a placed job",
    sql: "UPDATE jobs SET started_at = ?4, state = 'running', \
          phase = CASE WHEN phase = 'Stopping' THEN phase ELSE 'Running' END \
          WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND phase IN ('Starting', 'Stopping')",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "UPDATE jobs SET started_at = u.at, state = 'running', \
              phase = CASE WHEN jobs.phase = 'Stopping' THEN jobs.phase ELSE 'Running' END \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (number, idx, attempt, at) \
              WHERE jobs.number = u.number AND jobs.idx = u.idx AND jobs.attempt = u.attempt \
              AND jobs.phase IN ('Starting', 'Stopping')",
        rows: ExpectedRows::OnePerChange,
    }),
};

static STOP_ATTEMPT: Statement = Statement {
    name: "stop an attempt",
    sql: "UPDATE attempts SET state = 'Stopping', stopping_at = ?4, stop_cause = ?5 \
          WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND ended_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static STOP_JOB: Statement = Statement {
    name: "stop a placed job",
    sql: "UPDATE jobs SET state = 'running', phase = 'Stopping' \
          WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND phase IN ('Starting', 'Running', 'Stopping')",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static ADD_USAGE: Statement = Statement {
    name: "charge an attempt",
    sql: "INSERT INTO usage (number, idx, attempt, job, tenant, user_name, gpus, from_ms, to_ms, gpu_ms, cpu_ms, \
          memory_gib_ms, cost_micro, energy_mj) SELECT j.number, j.idx, a.attempt, j.id, j.tenant, j.user_name, a.gpus, \
          a.placed_at, CAST(?4 AS BIGINT), CAST(?5 AS BIGINT), CAST(?6 AS BIGINT), CAST(?7 AS BIGINT), \
          CAST(?8 AS BIGINT), CAST(?9 AS BIGINT) FROM jobs AS j JOIN attempts AS a ON a.number = j.number AND a.idx = j.idx \
          WHERE j.number = ?1 AND j.idx = ?2 AND a.attempt = ?3",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "INSERT INTO usage (number, idx, attempt, job, tenant, user_name, gpus, from_ms, to_ms, gpu_ms, \
              cpu_ms, memory_gib_ms, cost_micro, energy_mj) \
              SELECT j.number, j.idx, a.attempt, j.id, j.tenant, j.user_name, \
              a.gpus, a.placed_at, u.at, u.gpu_ms, u.cpu_ms, u.memory_gib_ms, u.cost_micro, u.energy_mj \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], \
              $7::bigint[], $8::bigint[], $9::bigint[]) \
              AS u (number, idx, attempt, at, gpu_ms, cpu_ms, memory_gib_ms, cost_micro, energy_mj) \
              JOIN jobs AS j ON j.number = u.number AND j.idx = u.idx \
              JOIN attempts AS a ON a.number = u.number AND a.idx = u.idx AND a.attempt = u.attempt",
        rows: ExpectedRows::OnePerChange,
    }),
};

static END_ATTEMPT: Statement = Statement {
    name: "end an attempt",
    sql: "UPDATE attempts SET state = ?4, ended_at = ?5, exit = ?6, exit_code = ?7, signal = ?8, why = ?9, \
          gpu_ms = ?10, cpu_ms = ?11, memory_gib_ms = ?12, cost_micro = ?13, charged_until = ?14, \
          cpus = COALESCE(?15, cpus), memory_mib = COALESCE(?16, memory_mib), planned_ms = ?17, cost_per_hour_micro = ?18 \
          WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND ended_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "UPDATE attempts SET state = u.state, ended_at = u.at, exit = u.exit, exit_code = u.exit_code, \
              signal = u.signal, why = u.why, gpu_ms = u.gpu_ms, cpu_ms = u.cpu_ms, \
              memory_gib_ms = u.memory_gib_ms, cost_micro = u.cost_micro, charged_until = u.charged_until, \
              cpus = COALESCE(u.cpus, attempts.cpus), memory_mib = COALESCE(u.memory_mib, attempts.memory_mib), planned_ms = u.planned_ms, \
              cost_per_hour_micro = u.cost_per_hour_micro \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], \
              $7::bigint[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], \
              $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[]) \
              AS u (number, idx, attempt, state, at, exit, exit_code, signal, why, gpu_ms, cpu_ms, memory_gib_ms, \
              cost_micro, charged_until, cpus, memory_mib, planned_ms, cost_per_hour_micro) \
              WHERE attempts.number = u.number AND attempts.idx = u.idx \
              AND attempts.attempt = u.attempt AND attempts.ended_at IS NULL",
        rows: ExpectedRows::OnePerChange,
    }),
};

static UPDATE_JOB_AFTER_ATTEMPT: Statement = Statement {
    name: "update a job after its attempt",
    sql: "UPDATE jobs SET state = ?4, phase = ?5, why = ?6, held_by = ?7, ended_at = ?8, wakes_at = ?9, \
          exit_code = ?10, signal = ?11, preemptions = preemptions + ?12, restarts = restarts + ?13, \
          requeues = requeues + ?14, gpu_ms = gpu_ms + ?15, cpu_ms = cpu_ms + ?16, cost_micro = cost_micro + ?17 \
          WHERE number = ?1 AND idx = ?2 AND attempt = ?3 AND phase IN ('Starting', 'Running', 'Stopping')",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "UPDATE jobs SET state = u.state, phase = u.phase, why = u.why, held_by = u.held_by, ended_at = u.at, \
              wakes_at = u.wakes_at, exit_code = u.exit_code, signal = u.signal, \
              preemptions = preemptions + u.preempted, restarts = restarts + u.restarted, \
              requeues = requeues + u.requeued, gpu_ms = jobs.gpu_ms + u.gpu_ms, cpu_ms = jobs.cpu_ms + u.cpu_ms, \
              cost_micro = jobs.cost_micro + u.cost_micro \
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], \
              $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], \
              $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[]) AS u (number, idx, attempt, \
              state, phase, why, held_by, at, wakes_at, exit_code, signal, preempted, restarted, requeued, gpu_ms, \
              cpu_ms, cost_micro) WHERE jobs.number = u.number AND jobs.idx = u.idx AND jobs.attempt = u.attempt \
              AND jobs.phase IN ('Starting', 'Running', 'Stopping')",
        rows: ExpectedRows::OnePerChange,
    }),
};

/// What an attempt holds from its placement.
pub struct PlacedLeases<'a> {
    pub tasks: &'a [PlacedTask],
    pub held: Option<Demand>,
    pub master_port: Option<u16>,
}

/// A gang was placed: its leases begin. The usage counters check quota and capacity, and an index the ports of masters.
pub fn placed(
    seq: u64,
    job: JobId,
    (attempt, epoch): (u32, u64),
    PlacedLeases { tasks, held, master_port }: PlacedLeases,
    at: Timestamp,
) -> Vec<BoundStatement> {
    let gpus: usize = tasks.iter().map(|task| task.gpus.len()).sum();
    let nodes: BTreeSet<&NodeId> = tasks.iter().map(|task| &task.node).collect();
    let nodes = muster_json::to_string(&nodes);
    let master = tasks.first().map(|task| &task.node).filter(|_| master_port.is_some());
    let key = || [Value::from(job.number), index_column(job).into(), attempt.into()];
    let with = |rest: Vec<Value>| key().into_iter().chain(rest).collect::<Vec<Value>>();

    let mut changes = vec![
        ADD_ATTEMPT.bind(with(vec![
            seq.into(),
            epoch.into(),
            at.into(),
            (gpus as u64).into(),
            nodes.as_str().into(),
            held.map(|held| held.gpu_milli).into(),
            held.map(|held| held.gpu_memory_mib).into(),
            held.map(|held| held.cpus).into(),
            held.map(|held| held.memory_mib).into(),
            master.into(),
            master_port.map(u32::from).into(),
        ])),
        PLACE_JOB.bind(with(vec![nodes.into(), at.into()])),
    ];
    changes.extend(leases::acquired(seq, job, attempt, tasks, at));
    changes
}

/// All nodes of the gang have reported their tasks as running.
pub fn started(job: JobId, attempt: u32, at: Timestamp) -> Vec<BoundStatement> {
    let values = vec![job.number.into(), index_column(job).into(), attempt.into(), at.into()];
    vec![START_ATTEMPT.bind(values.clone()), START_JOB.bind(values)]
}

/// An attempt was ordered to stop.
pub fn stopping(job: JobId, attempt: u32, cause: &StopCause, at: Timestamp) -> Vec<BoundStatement> {
    let key = vec![job.number.into(), index_column(job).into(), attempt.into()];
    let mut values = key.clone();
    values.extend([at.into(), muster_json::to_string(cause).into()]);
    vec![STOP_ATTEMPT.bind(values), STOP_JOB.bind(key)]
}

/// Fields of `AttemptEnded`.
pub struct EndedAttempt<'a> {
    pub job: JobId,
    pub attempt: u32,
    pub exit: &'a Exit,
    pub next: &'a NextPhase,
    pub charge: &'a Charge,
    pub held: Option<&'a HeldResources>,
    /// End of the charged time.
    pub charged_until: Timestamp,
    /// End of its leases.
    pub at: Timestamp,
}

/// An attempt ended: its leases end, its usage is charged, and the job enters its next phase.
pub fn ended(end: &EndedAttempt) -> Vec<BoundStatement> {
    let charge = end.charge;
    let key = || vec![Value::from(end.job.number), index_column(end.job).into(), end.attempt.into()];
    let with = |rest: Vec<Value>| key().into_iter().chain(rest).collect::<Vec<Value>>();
    let (exit, exit_code, signal, exit_why) = exit_columns(end.exit);

    let mut changes = Vec::from(leases::released(end.job, end.attempt, end.at));
    changes.extend([
        ADD_USAGE.bind(with(vec![
            end.charged_until.into(),
            charge.gpu_ms.into(),
            charge.cpu_ms.into(),
            charge.memory_gib_ms.into(),
            charge.cost_micro.into(),
            charge.energy_mj.into(),
        ])),
        END_ATTEMPT.bind(with(vec![
            attempt_state(end.next).into(),
            end.at.into(),
            exit.into(),
            exit_code.into(),
            signal.into(),
            exit_why.into(),
            charge.gpu_ms.into(),
            charge.cpu_ms.into(),
            charge.memory_gib_ms.into(),
            charge.cost_micro.into(),
            end.charged_until.into(),
            end.held.map(|held| held.cpus).into(),
            end.held.map(|held| held.memory_mib).into(),
            end.held.and_then(|held| held.planned_ms).into(),
            end.held.map(|held| held.cost_per_hour_micro).into(),
        ])),
        UPDATE_JOB_AFTER_ATTEMPT.bind(with(job_values_after(end, exit_code, signal))),
    ]);
    changes
}

fn job_values_after(end: &EndedAttempt, exit_code: Option<i32>, signal: Option<i32>) -> Vec<Value> {
    let (state, phase, why, held_by) = match end.next {
        NextPhase::Ended { outcome, why } => (final_state(*outcome).as_str(), outcome.as_str(), why.as_str(), None),
        NextPhase::Queued { cause: RequeueCause::Preempted, .. } => ("preempted", "Queued", "preempted", None),
        NextPhase::Queued { cause: RequeueCause::Restarted, .. } => ("pending", "Queued", "restarted", None),
        NextPhase::Queued { cause: RequeueCause::Requeued, .. } => ("pending", "Queued", "requeued", None),
        NextPhase::Queued { cause: RequeueCause::NodeFault, .. } => ("pending", "Queued", "prolog failed", None),
        NextPhase::Held { by, why } => ("pending", "Held", why.as_str(), Some(by.as_str())),
    };
    let (ended_at, wakes_at) = match end.next {
        NextPhase::Ended { .. } => (Some(end.at), None),
        NextPhase::Queued { wakes_at, .. } => (None, *wakes_at),
        NextPhase::Held { .. } => (None, None),
    };
    let requeued_as = |wanted: RequeueCause| -> Value {
        let matches = matches!(end.next, NextPhase::Queued { cause, .. } if *cause == wanted);
        i64::from(matches).into()
    };
    vec![
        state.into(),
        phase.into(),
        why.into(),
        held_by.into(),
        ended_at.into(),
        wakes_at.into(),
        exit_code.into(),
        signal.into(),
        requeued_as(RequeueCause::Preempted),
        requeued_as(RequeueCause::Restarted),
        requeued_as(RequeueCause::Requeued),
        end.charge.gpu_ms.into(),
        end.charge.cpu_ms.into(),
        end.charge.cost_micro.into(),
    ]
}

/// State of an attempt that has ended.
fn attempt_state(next: &NextPhase) -> &'static str {
    match next {
        NextPhase::Ended { outcome, .. } => outcome.as_str(),
        NextPhase::Queued { cause: RequeueCause::Preempted, .. } => "Preempted",
        NextPhase::Queued { cause: RequeueCause::Restarted, .. } => "Restarted",
        NextPhase::Queued { cause: RequeueCause::Requeued | RequeueCause::NodeFault, .. } => "Requeued",
        NextPhase::Held { .. } => "Held",
    }
}

/// The signal by which the kernel ends a task that is out of memory.
const SIGKILL: i32 = 9;

fn exit_columns(exit: &Exit) -> (&'static str, Option<i32>, Option<i32>, &str) {
    match exit {
        Exit::Code { code } => ("code", Some(*code), None, ""),
        Exit::Signal { signal } => ("signal", None, Some(*signal), ""),
        Exit::OutOfMemory { .. } => ("out-of-memory", None, Some(SIGKILL), ""), // The sentence is that of the phase.
        Exit::NotStarted { why } => ("not-started", None, None, why),
        Exit::InvalidJob { why } => ("invalid-job", None, None, why),
        Exit::Unknown { why } => ("unknown", None, None, why),
    }
}
