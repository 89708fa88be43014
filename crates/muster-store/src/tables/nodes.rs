//! Rows of nodes and their GPUs.

use std::collections::BTreeMap;

use muster_core::gpu::device::{GpuFacts, GpuStatus, MigInstance};
use muster_core::objects::node::{NodeFacts, NodeState, NodeStatus, Recorded, Service, Sight};
use muster_core::{GpuId, NodeId, Timestamp};

use super::{BoundStatement, ExpectedRows, Statement};

// A node that registers again keeps its state; a node that was removed before starts as new.
static REGISTER: Statement = Statement {
    name: "register a node",
    sql: "INSERT INTO nodes (id, registered_at, updated_at, hostname, address, cpus, memory_mib, gpus, rack, \
          power_feed, agent_version, simulated, facts, state, set_by, why, since, \
          service, service_by, service_why, service_since, sight, sight_by, sight_why, sight_since) \
          VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'Ready', 'muster', 'registered', ?2, \
          'Ready', 'muster', 'registered', ?2, 'Seen', 'muster', 'registered', ?2) \
          ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at, hostname = excluded.hostname, \
          address = excluded.address, cpus = excluded.cpus, memory_mib = excluded.memory_mib, \
          gpus = excluded.gpus, rack = excluded.rack, power_feed = excluded.power_feed, \
          agent_version = excluded.agent_version, simulated = excluded.simulated, facts = excluded.facts, \
          state = CASE WHEN nodes.removed_at IS NULL THEN nodes.state ELSE excluded.state END, \
          set_by = CASE WHEN nodes.removed_at IS NULL THEN nodes.set_by ELSE excluded.set_by END, \
          why = CASE WHEN nodes.removed_at IS NULL THEN nodes.why ELSE excluded.why END, \
          since = CASE WHEN nodes.removed_at IS NULL THEN nodes.since ELSE excluded.since END, \
          service = CASE WHEN nodes.removed_at IS NULL THEN nodes.service \
          ELSE excluded.service END, \
          service_by = CASE WHEN nodes.removed_at IS NULL THEN nodes.service_by \
          ELSE excluded.service_by END, \
          service_why = CASE WHEN nodes.removed_at IS NULL THEN nodes.service_why \
          ELSE excluded.service_why END, \
          service_since = CASE WHEN nodes.removed_at IS NULL THEN nodes.service_since \
          ELSE excluded.service_since END, \
          sight = CASE WHEN nodes.removed_at IS NULL THEN nodes.sight \
          ELSE excluded.sight END, \
          sight_by = CASE WHEN nodes.removed_at IS NULL THEN nodes.sight_by \
          ELSE excluded.sight_by END, \
          sight_why = CASE WHEN nodes.removed_at IS NULL THEN nodes.sight_why \
          ELSE excluded.sight_why END, \
          sight_since = CASE WHEN nodes.removed_at IS NULL THEN nodes.sight_since \
          ELSE excluded.sight_since END, \
          registered_at = CASE WHEN nodes.removed_at IS NULL THEN nodes.registered_at \
          ELSE excluded.registered_at END, \
          labels = CASE WHEN nodes.removed_at IS NULL THEN nodes.labels ELSE NULL END, \
          taints = CASE WHEN nodes.removed_at IS NULL THEN nodes.taints ELSE NULL END, \
          declared = FALSE, removed_at = NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static DECLARE: Statement = Statement {
    name: "declare a node",
    sql: "UPDATE nodes SET declared = TRUE WHERE id = ?1 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static LABEL: Statement = Statement {
    name: "label a node",
    sql: "UPDATE nodes SET labels = ?2, taints = ?3, updated_at = ?4 WHERE id = ?1 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static REMOVE_GPUS_FROM: Statement = Statement {
    name: "remove GPUs of a node",
    sql: "UPDATE gpus SET removed_at = ?3 WHERE node = ?1 AND idx >= ?2 AND removed_at IS NULL",
    rows: ExpectedRows::Any,
    bulk: None,
};

static REGISTER_GPU: Statement = Statement {
    name: "register a GPU",
    sql: "INSERT INTO gpus (node, idx, uuid, model, memory_mib, health, why, since) \
          VALUES (?1, ?2, ?3, ?4, ?5, 'healthy', '', ?6) \
          ON CONFLICT (node, idx) DO UPDATE SET uuid = excluded.uuid, model = excluded.model, \
          memory_mib = excluded.memory_mib, \
          health = CASE WHEN gpus.removed_at IS NULL THEN gpus.health ELSE excluded.health END, \
          why = CASE WHEN gpus.removed_at IS NULL THEN gpus.why ELSE excluded.why END, \
          since = CASE WHEN gpus.removed_at IS NULL THEN gpus.since ELSE excluded.since END, \
          cooling_until = CASE WHEN gpus.removed_at IS NULL THEN gpus.cooling_until ELSE NULL END, \
          mig = CASE WHEN gpus.removed_at IS NULL THEN gpus.mig ELSE excluded.mig END, removed_at = NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static SET_SERVICE: Statement = Statement {
    name: "set the service of a node",
    sql: "UPDATE nodes SET service = ?2, service_by = ?3, service_why = ?4, service_since = ?5, updated_at = ?5 \
          WHERE id = ?1 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

// A new leader records the silence of a lost node again; the node is lost since before.
static SET_SIGHT: Statement = Statement {
    name: "set the sight of a node",
    sql: "UPDATE nodes SET sight_since = CASE WHEN sight = ?2 THEN sight_since ELSE ?5 END, \
          sight = ?2, sight_by = ?3, sight_why = ?4, updated_at = ?5 WHERE id = ?1 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

// Of earlier releases, in which a new word replaced the former one: both axes are as old as the word.
static SET_SIGHT_SINCE: Statement = Statement {
    name: "set the time of the sight of a node",
    sql: "UPDATE nodes SET sight_since = ?2 WHERE id = ?1 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

// The one word for both axes, by the same rule as `NodeState::combined`.
static COMBINE_AXES: Statement = Statement {
    name: "combine the axes of a node",
    sql: "UPDATE nodes SET \
          state = CASE WHEN sight IN ('Fenced', 'Unreachable') THEN sight WHEN service <> 'Ready' THEN service \
          WHEN sight = 'Suspect' THEN sight ELSE 'Ready' END, \
          set_by = CASE WHEN sight IN ('Fenced', 'Unreachable') OR (service = 'Ready' AND \
          (sight = 'Suspect' OR sight_since > service_since)) THEN sight_by ELSE service_by END, \
          why = CASE WHEN sight IN ('Fenced', 'Unreachable') OR (service = 'Ready' AND \
          (sight = 'Suspect' OR sight_since > service_since)) THEN sight_why ELSE service_why END, \
          since = CASE WHEN sight IN ('Fenced', 'Unreachable') OR (service = 'Ready' AND \
          (sight = 'Suspect' OR sight_since > service_since)) THEN sight_since ELSE service_since END \
          WHERE id = ?1 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static REMOVE: Statement = Statement {
    name: "remove a node",
    sql: "UPDATE nodes SET removed_at = ?2, updated_at = ?2 WHERE id = ?1 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static PARTITION: Statement = Statement {
    name: "partition a GPU",
    sql: "UPDATE gpus SET mig = ?3 WHERE node = ?1 AND idx = ?2 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static SET_HEALTH: Statement = Statement {
    name: "set the health of a GPU",
    sql: "UPDATE gpus SET health = ?3, why = ?4, cooling_until = ?5, since = ?6 \
          WHERE node = ?1 AND idx = ?2 AND removed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

/// A node registered, for the first time or again.
pub fn registered(node: &NodeId, facts: &NodeFacts, at: Timestamp) -> Vec<BoundStatement> {
    let gpus = facts.gpus.len() as u64;
    let register = REGISTER.bind(vec![
        node.into(),
        at.into(),
        facts.hostname.as_str().into(),
        facts.address.as_str().into(),
        facts.cpus.into(),
        facts.memory_mib.into(),
        gpus.into(),
        facts.rack.as_deref().into(),
        facts.power_feed.as_deref().into(),
        facts.agent_version.as_str().into(),
        facts.simulated.into(),
        muster_json::to_string(facts).into(),
    ]);
    let remove_excess = REMOVE_GPUS_FROM.bind(vec![node.into(), gpus.into(), at.into()]);
    let gpus = facts.gpus.iter().enumerate().map(|(index, gpu)| registered_gpu(node, index as u64, gpu, at));
    [register, remove_excess].into_iter().chain(gpus).collect()
}

/// An operator declared a node, or replaced its declaration.
pub fn declared(node: &NodeId, facts: &NodeFacts, at: Timestamp) -> Vec<BoundStatement> {
    let mut changes = registered(node, facts, at);
    changes.push(DECLARE.bind(vec![node.into()]));
    changes
}

/// An operator set the labels and taints of a node.
pub fn labelled(
    node: &NodeId,
    (labels, taints): (Option<&BTreeMap<String, String>>, Option<&Vec<String>>),
    at: Timestamp,
) -> Vec<BoundStatement> {
    vec![LABEL.bind(vec![
        node.into(),
        labels.map(muster_json::to_string).into(),
        taints.map(muster_json::to_string).into(),
        at.into(),
    ])]
}

fn registered_gpu(node: &NodeId, index: u64, gpu: &GpuFacts, at: Timestamp) -> BoundStatement {
    REGISTER_GPU.bind(vec![
        node.into(),
        index.into(),
        gpu.uuid.as_str().into(),
        gpu.model.as_str().into(),
        gpu.memory_mib.into(),
        at.into(),
    ])
}

/// Of earlier releases: one word for both axes.
pub fn state_changed(node: &NodeId, status: NodeStatus, (by, why): (&str, &str), at: Timestamp) -> Vec<BoundStatement> {
    let both = NodeState::of_single_status(Recorded { status, by: by.to_string(), why: why.to_string(), since: at });
    let set = |statement: &'static Statement, word: &str| {
        statement.bind(vec![node.into(), word.into(), by.into(), why.into(), at.into()])
    };
    vec![
        set(&SET_SERVICE, both.service.status.as_str()),
        set(&SET_SIGHT, both.sight.status.as_str()),
        SET_SIGHT_SINCE.bind(vec![node.into(), at.into()]),
        COMBINE_AXES.bind(vec![node.into()]),
    ]
}

pub fn service_changed(node: &NodeId, service: Service, (by, why): (&str, &str), at: Timestamp) -> Vec<BoundStatement> {
    let values = vec![node.into(), service.as_str().into(), by.into(), why.into(), at.into()];
    vec![SET_SERVICE.bind(values), COMBINE_AXES.bind(vec![node.into()])]
}

pub fn sight_changed(node: &NodeId, sight: Sight, (by, why): (&str, &str), at: Timestamp) -> Vec<BoundStatement> {
    let values = vec![node.into(), sight.as_str().into(), by.into(), why.into(), at.into()];
    vec![SET_SIGHT.bind(values), COMBINE_AXES.bind(vec![node.into()])]
}

/// A node was removed. Its rows stay, because leases refer to them.
pub fn removed(node: &NodeId, at: Timestamp) -> Vec<BoundStatement> {
    vec![REMOVE.bind(vec![node.into(), at.into()]), REMOVE_GPUS_FROM.bind(vec![node.into(), 0_i64.into(), at.into()])]
}

pub fn partitioned(gpu: &GpuId, instances: &[MigInstance]) -> Vec<BoundStatement> {
    vec![PARTITION.bind(vec![(&gpu.node).into(), gpu.index.into(), muster_json::to_string(&instances).into()])]
}

pub fn health_changed(
    gpu: &GpuId,
    status: GpuStatus,
    why: &str,
    cooling_until: Option<Timestamp>,
    at: Timestamp,
) -> Vec<BoundStatement> {
    vec![SET_HEALTH.bind(vec![
        (&gpu.node).into(),
        gpu.index.into(),
        status.as_str().into(),
        why.into(),
        cooling_until.into(),
        at.into(),
    ])]
}
