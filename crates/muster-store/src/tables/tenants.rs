//! Rows of tenants: their quotas. Usage counters of tenants are updated in `leases`.

use muster_core::objects::tenant::{TenantConfig, Tier};
use muster_core::{TenantId, Timestamp};

use super::{BoundStatement, ExpectedRows, Statement, Value};

/// Highest quota whose thousandths fit into a column.
const GPUS_MAX: u64 = i64::MAX as u64 / 1_000;

// The id of a deleted tenant may be used again. An existing tenant is not overwritten: then no row is affected.
static CREATE: Statement = Statement {
    name: "create a tenant",
    sql: "INSERT INTO tenants (id, created_at, updated_at, name, email, organization, parent, priority_tier, \
          weight, allow_preemption, can_preempt_others, active, config, max_gpus, max_gpu_memory_mib, max_cpus, \
          max_memory_mib, max_jobs, gpu_milli_ceiling, gpu_memory_mib_ceiling, cpus_ceiling, memory_mib_ceiling, \
          jobs_ceiling) VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
          CAST(?13 AS BIGINT) * 1000, ?14, ?15, ?16, ?17) \
          ON CONFLICT (id) DO UPDATE SET created_at = excluded.created_at, updated_at = excluded.updated_at, \
          deleted_at = NULL, name = excluded.name, email = excluded.email, organization = excluded.organization, \
          parent = excluded.parent, priority_tier = excluded.priority_tier, weight = excluded.weight, \
          allow_preemption = excluded.allow_preemption, can_preempt_others = excluded.can_preempt_others, \
          active = excluded.active, config = excluded.config, max_gpus = excluded.max_gpus, \
          max_gpu_memory_mib = excluded.max_gpu_memory_mib, max_cpus = excluded.max_cpus, \
          max_memory_mib = excluded.max_memory_mib, max_jobs = excluded.max_jobs, \
          gpu_milli_ceiling = excluded.gpu_milli_ceiling, gpu_memory_mib_ceiling = excluded.gpu_memory_mib_ceiling, \
          cpus_ceiling = excluded.cpus_ceiling, memory_mib_ceiling = excluded.memory_mib_ceiling, \
          jobs_ceiling = excluded.jobs_ceiling WHERE tenants.deleted_at IS NOT NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static CHANGE: Statement = Statement {
    name: "change a tenant",
    sql: "UPDATE tenants SET updated_at = ?2, name = ?3, email = ?4, organization = ?5, parent = ?6, \
          priority_tier = ?7, weight = ?8, allow_preemption = ?9, can_preempt_others = ?10, active = ?11, \
          config = ?12, max_gpus = ?13, max_gpu_memory_mib = ?14, max_cpus = ?15, max_memory_mib = ?16, \
          max_jobs = ?17, \
          gpu_milli_ceiling = CASE WHEN gpu_milli_used > CAST(?13 AS BIGINT) * 1000 THEN gpu_milli_used \
          ELSE CAST(?13 AS BIGINT) * 1000 END, \
          gpu_memory_mib_ceiling = CASE WHEN gpu_memory_mib_used > CAST(?14 AS BIGINT) \
          THEN gpu_memory_mib_used ELSE ?14 END, \
          cpus_ceiling = CASE WHEN cpus_used > CAST(?15 AS BIGINT) THEN cpus_used ELSE ?15 END, \
          memory_mib_ceiling = CASE WHEN memory_mib_used > CAST(?16 AS BIGINT) THEN memory_mib_used ELSE ?16 END, \
          jobs_ceiling = CASE WHEN jobs_used > CAST(?17 AS BIGINT) THEN jobs_used ELSE ?17 END \
          WHERE id = ?1 AND deleted_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

// The row stays, because history refers to it.
static DELETE: Statement = Statement {
    name: "delete a tenant",
    sql: "UPDATE tenants SET deleted_at = ?2, updated_at = ?2, active = ?3 \
          WHERE id = ?1 AND deleted_at IS NULL AND jobs_used = 0",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

pub fn created(id: &TenantId, config: &TenantConfig, at: Timestamp) -> Vec<BoundStatement> {
    vec![CREATE.bind(values(id, config, at))]
}

pub fn changed(id: &TenantId, config: &TenantConfig, at: Timestamp) -> Vec<BoundStatement> {
    vec![CHANGE.bind(values(id, config, at))]
}

pub fn deleted(id: &TenantId, at: Timestamp) -> Vec<BoundStatement> {
    vec![DELETE.bind(vec![id.into(), at.into(), false.into()])]
}

fn values(id: &TenantId, config: &TenantConfig, at: Timestamp) -> Vec<Value> {
    let maximum = &config.maximum;
    vec![
        id.into(),
        at.into(),
        config.name.as_str().into(),
        config.email.as_str().into(),
        config.organization.as_str().into(),
        config.parent.as_ref().into(),
        tier_name(config.tier).into(),
        config.weight.into(),
        config.may_be_preempted.into(),
        config.may_preempt.into(),
        config.active.into(),
        muster_json::to_string(config).into(),
        maximum.gpus.map(|gpus| gpus.min(GPUS_MAX)).into(),
        maximum.gpu_memory_mib.into(),
        maximum.cpus.into(),
        maximum.memory_mib.into(),
        maximum.jobs.into(),
    ]
}

fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Low => "low",
        Tier::Medium => "medium",
        Tier::High => "high",
        Tier::Critical => "critical",
    }
}
