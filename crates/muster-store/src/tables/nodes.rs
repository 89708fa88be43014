//! Rows of nodes and their GPUs.

use std::collections::BTreeMap;

use muster_core::node::{GpuFacts, GpuWord, NodeFacts, NodeWord};
use muster_core::partition::MigInstance;
use muster_core::{GpuId, NodeId, Timestamp};

use super::{Change, Rows, Statement};

// A node that says anew what it is keeps its state; one that comes back after it was removed begins afresh.
static REGISTER: Statement = Statement {
    name: "register a node",
    sql: "INSERT INTO nodes (id, registered_at, updated_at, hostname, address, cpus, memory_mib, gpus, rack, \
          power_feed, agent_version, simulated, facts, state, set_by, why, since) \
          VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'Ready', 'muster', 'registered', ?2) \
          ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at, hostname = excluded.hostname, \
          address = excluded.address, cpus = excluded.cpus, memory_mib = excluded.memory_mib, \
          gpus = excluded.gpus, rack = excluded.rack, power_feed = excluded.power_feed, \
          agent_version = excluded.agent_version, simulated = excluded.simulated, facts = excluded.facts, \
          state = CASE WHEN nodes.removed_at IS NULL THEN nodes.state ELSE excluded.state END, \
          set_by = CASE WHEN nodes.removed_at IS NULL THEN nodes.set_by ELSE excluded.set_by END, \
          why = CASE WHEN nodes.removed_at IS NULL THEN nodes.why ELSE excluded.why END, \
          since = CASE WHEN nodes.removed_at IS NULL THEN nodes.since ELSE excluded.since END, \
          registered_at = CASE WHEN nodes.removed_at IS NULL THEN nodes.registered_at \
          ELSE excluded.registered_at END, \
          labels = CASE WHEN nodes.removed_at IS NULL THEN nodes.labels ELSE NULL END, \
          taints = CASE WHEN nodes.removed_at IS NULL THEN nodes.taints ELSE NULL END, \
          declared = FALSE, removed_at = NULL",
    rows: Rows::Each,
    bulk: None,
};

static DECLARE: Statement = Statement {
    name: "declare a node",
    sql: "UPDATE nodes SET declared = TRUE WHERE id = ?1 AND removed_at IS NULL",
    rows: Rows::Each,
    bulk: None,
};

static LABEL: Statement = Statement {
    name: "label a node",
    sql: "UPDATE nodes SET labels = ?2, taints = ?3, updated_at = ?4 WHERE id = ?1 AND removed_at IS NULL",
    rows: Rows::Each,
    bulk: None,
};

static REMOVE_GPUS_FROM: Statement = Statement {
    name: "remove GPUs of a node",
    sql: "UPDATE gpus SET removed_at = ?3 WHERE node = ?1 AND idx >= ?2 AND removed_at IS NULL",
    rows: Rows::Any,
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
    rows: Rows::Each,
    bulk: None,
};

static SET_STATE: Statement = Statement {
    name: "set the state of a node",
    sql: "UPDATE nodes SET state = ?2, set_by = ?3, why = ?4, since = ?5, updated_at = ?5 \
          WHERE id = ?1 AND removed_at IS NULL",
    rows: Rows::Each,
    bulk: None,
};

static REMOVE: Statement = Statement {
    name: "remove a node",
    sql: "UPDATE nodes SET removed_at = ?2, updated_at = ?2 WHERE id = ?1 AND removed_at IS NULL",
    rows: Rows::Each,
    bulk: None,
};

static PARTITION: Statement = Statement {
    name: "partition a GPU",
    sql: "UPDATE gpus SET mig = ?3 WHERE node = ?1 AND idx = ?2 AND removed_at IS NULL",
    rows: Rows::Each,
    bulk: None,
};

static SET_HEALTH: Statement = Statement {
    name: "set the health of a GPU",
    sql: "UPDATE gpus SET health = ?3, why = ?4, cooling_until = ?5, since = ?6 \
          WHERE node = ?1 AND idx = ?2 AND removed_at IS NULL",
    rows: Rows::Each,
    bulk: None,
};

/// A node appeared, or says anew what it is.
pub fn registered(node: &NodeId, facts: &NodeFacts, at: Timestamp) -> Vec<Change> {
    let gpus = facts.gpus.len() as u64;
    let register = REGISTER.change(vec![
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
    let vanish = REMOVE_GPUS_FROM.change(vec![node.into(), gpus.into(), at.into()]);
    let gpus = facts.gpus.iter().enumerate().map(|(index, gpu)| registered_gpu(node, index as u64, gpu, at));
    [register, vanish].into_iter().chain(gpus).collect()
}

/// An operator announced a node, or described it again.
pub fn declared(node: &NodeId, facts: &NodeFacts, at: Timestamp) -> Vec<Change> {
    let mut changes = registered(node, facts, at);
    changes.push(DECLARE.change(vec![node.into()]));
    changes
}

/// An operator set the labels and taints of a node.
pub fn labelled(
    node: &NodeId,
    (labels, taints): (Option<&BTreeMap<String, String>>, Option<&Vec<String>>),
    at: Timestamp,
) -> Vec<Change> {
    vec![LABEL.change(vec![
        node.into(),
        labels.map(muster_json::to_string).into(),
        taints.map(muster_json::to_string).into(),
        at.into(),
    ])]
}

fn registered_gpu(node: &NodeId, index: u64, gpu: &GpuFacts, at: Timestamp) -> Change {
    REGISTER_GPU.change(vec![
        node.into(),
        index.into(),
        gpu.uuid.as_str().into(),
        gpu.model.as_str().into(),
        gpu.memory_mib.into(),
        at.into(),
    ])
}

/// A node takes work, or no longer does.
pub fn state_changed(node: &NodeId, word: NodeWord, (by, why): (&str, &str), at: Timestamp) -> Vec<Change> {
    vec![SET_STATE.change(vec![node.into(), word.word().into(), by.into(), why.into(), at.into()])]
}

/// A node was forgotten; its rows stay, because leases point at them.
pub fn removed(node: &NodeId, at: Timestamp) -> Vec<Change> {
    vec![
        REMOVE.change(vec![node.into(), at.into()]),
        REMOVE_GPUS_FROM.change(vec![node.into(), 0_i64.into(), at.into()]),
    ]
}

/// A GPU was partitioned otherwise.
pub fn partitioned(gpu: &GpuId, instances: &[MigInstance]) -> Vec<Change> {
    vec![PARTITION.change(vec![
        (&gpu.node).into(),
        gpu.index.into(),
        muster_json::to_string(&instances).into(),
    ])]
}

/// The health of a GPU changed.
pub fn health_changed(
    gpu: &GpuId,
    word: GpuWord,
    why: &str,
    cooling_until: Option<Timestamp>,
    at: Timestamp,
) -> Vec<Change> {
    vec![SET_HEALTH.change(vec![
        (&gpu.node).into(),
        gpu.index.into(),
        word.word().into(),
        why.into(),
        cooling_until.into(),
        at.into(),
    ])]
}
