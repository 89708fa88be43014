//! A what-if change applied to a history: as events at its start, and to every later event and command.

use std::sync::Arc;

use muster_core::facts::command::{Actor, Command};
use muster_core::facts::event::Event;
use muster_core::objects::node::NodeStatus;
use muster_core::objects::policy::{PolicyBundle, PolicyScope};
use muster_core::objects::tenant::TenantConfig;
use muster_core::{NodeId, State, TenantId};
use muster_server::policies::Interpreter;
use muster_server::whatif::{WhatIfChange, WhatIfError};

use super::journal_history::JournalHistory;
use crate::trace_replay::ReplayCluster;

/// A change and its effects on a history.
#[derive(Debug, Clone, Default)]
pub struct AppliedChange {
    change: WhatIfChange,
    /// The compiled policies of the change.
    policies: Option<Arc<PolicyBundle>>,
    /// The events of the change at the start of the history.
    pub events: Vec<Event>,
}

impl AppliedChange {
    /// Applies a change at the start of a journal, or says why it cannot be applied.
    pub fn new(
        change: &WhatIfChange,
        journal: &JournalHistory,
        interpreter: Option<&Arc<dyn Interpreter>>,
    ) -> Result<AppliedChange, WhatIfError> {
        if let Some(tenant) = change.tenants().find(|tenant| !is_tenant_known(journal, tenant)) {
            return Err(WhatIfError::invalid("set", format!("there was no tenant `{tenant}` in that time")));
        }
        if let Some(node) = change.removed_nodes.iter().find(|node| !is_node_known(journal, node)) {
            return Err(WhatIfError::invalid("remove_nodes", format!("there was no node `{node}` in that time")));
        }
        let policies = compile_policies(change, interpreter)?;
        let mut applied = AppliedChange { change: change.clone(), policies, events: Vec::new() };
        let mut state = journal.start_state.clone();
        for command in applied.commands(&state)? {
            let decision = state.decide(&Actor::system(), &command, journal.since)?;
            for event in decision.events {
                state.apply(&event);
                applied.events.push(event);
            }
        }
        Ok(applied)
    }

    fn commands(&self, state: &State) -> Result<Vec<Command>, WhatIfError> {
        let mut commands = Vec::new();
        let settings = self.change.settings(&state.settings);
        if settings != state.settings {
            commands.push(Command::Configure { settings: Box::new(settings) });
        }
        for id in self.change.tenants() {
            if let Some(tenant) = state.tenants.get(id) {
                let config = Box::new(self.change.tenant(id, &tenant.config));
                commands.push(Command::ChangeTenant { id: id.clone(), config });
            }
        }
        for (node, facts) in added_nodes(&self.change)? {
            if state.nodes.contains_key(&node) {
                return Err(WhatIfError::invalid("add_nodes", format!("there is a node `{node}` already")));
            }
            commands.push(Command::RegisterNode { node, facts });
        }
        let removed = self.change.removed_nodes.iter().filter(|node| state.nodes.contains_key(node));
        commands.extend(removed.map(drain_command));
        commands.extend(self.policies.iter().map(|bundle| Command::ApplyPolicy {
            scope: PolicyScope::Cluster,
            bundle: bundle.clone(),
            why: "what if".to_string(),
        }));
        Ok(commands)
    }

    /// A later command under the change; `None` if the change overrides it.
    pub fn amended_command(&self, command: Command) -> Option<Command> {
        Some(match command {
            Command::CreateTenant { id, config } => {
                let config = self.tenant(&id, &config);
                Command::CreateTenant { id, config }
            }
            Command::ChangeTenant { id, config } => {
                let config = self.tenant(&id, &config);
                Command::ChangeTenant { id, config }
            }
            Command::Configure { settings } => {
                Command::Configure { settings: Box::new(self.change.settings(&settings)) }
            }
            Command::SetNodeState { node, .. } | Command::DrainNode { node, .. }
                if self.change.removed_nodes.contains(&node) =>
            {
                return None;
            }
            Command::ApplyPolicy { scope: PolicyScope::Cluster, .. } if self.policies.is_some() => {
                return None;
            }
            other => other,
        })
    }

    /// True if the simulation starts at once: the journal does not contain the answers of other policies.
    pub fn replans_from_start(&self) -> bool {
        self.policies.is_some()
    }

    /// A recorded event under the change.
    pub fn amended_event(&self, event: &Event) -> Event {
        match event {
            Event::TenantCreated { id, config, at } => {
                Event::TenantCreated { id: id.clone(), config: self.tenant(id, config), at: *at }
            }
            Event::TenantChanged { id, config, at } => {
                Event::TenantChanged { id: id.clone(), config: self.tenant(id, config), at: *at }
            }
            Event::Configured { settings, at } => {
                Event::Configured { settings: Box::new(self.change.settings(settings)), at: *at }
            }
            other => other.clone(),
        }
    }

    /// The command that follows an event under the change: a removed node that registers again is drained at once.
    pub fn follow_up_command(&self, event: &Event) -> Option<Command> {
        match event {
            Event::NodeRegistered { node, .. } if self.change.removed_nodes.contains(node) => Some(drain_command(node)),
            _ => None,
        }
    }

    fn tenant(&self, id: &TenantId, config: &TenantConfig) -> Box<TenantConfig> {
        Box::new(self.change.tenant(id, config))
    }

    pub fn is_empty(&self) -> bool {
        self.change.is_empty()
    }

    /// True if the change drops an event: a removed node stays drained.
    pub fn suppresses(&self, event: &Event) -> bool {
        matches!(event, Event::NodeStateChanged { node, .. } | Event::NodeServiceChanged { node, .. }
            if self.change.removed_nodes.contains(node))
    }
}

fn compile_policies(
    change: &WhatIfChange,
    interpreter: Option<&Arc<dyn Interpreter>>,
) -> Result<Option<Arc<PolicyBundle>>, WhatIfError> {
    let Some(files) = &change.policies else { return Ok(None) };
    let no_interpreter =
        || WhatIfError::invalid("policies", "policies cannot be evaluated: no interpreter is configured");
    let compiled = interpreter.ok_or_else(no_interpreter)?.compile(&PolicyScope::Cluster, files.clone());
    let bundle = compiled.map_err(|errors| WhatIfError::invalid("policies", errors.join("\n")))?;
    Ok(Some(Arc::new(bundle)))
}

fn drain_command(node: &NodeId) -> Command {
    Command::SetNodeState { node: node.clone(), status: NodeStatus::Draining, why: "what if".to_string() }
}

fn is_node_known(journal: &JournalHistory, node: &NodeId) -> bool {
    let is_registration = |event: &Event| matches!(event, Event::NodeRegistered { node: id, .. } if id == node);
    journal.start_state.nodes.contains_key(node) || journal.entries.iter().any(|entry| is_registration(&entry.event))
}

fn is_tenant_known(journal: &JournalHistory, tenant: &TenantId) -> bool {
    let is_creation = |event: &Event| matches!(event, Event::TenantCreated { id, .. } if id == tenant);
    journal.start_state.tenants.contains_key(tenant) || journal.entries.iter().any(|entry| is_creation(&entry.event))
}

/// The added nodes, under the names `what-if-N`.
fn added_nodes(
    change: &WhatIfChange,
) -> Result<Vec<(NodeId, Box<muster_core::objects::node::NodeFacts>)>, WhatIfError> {
    if change.added_nodes.is_empty() {
        return Ok(Vec::new());
    }
    let spec = change.added_nodes.join(",");
    let cluster = ReplayCluster::parse(&spec).map_err(|error| WhatIfError::invalid("add_nodes", error.to_string()))?;
    let with_name = |(number, (_, facts)): (usize, &(NodeId, muster_core::objects::node::NodeFacts))| {
        let name = format!("what-if-{}", number + 1);
        let node = name.parse().map_err(|error| WhatIfError::internal(format!("{error}")))?;
        Ok((node, Box::new(facts.clone())))
    };
    cluster.nodes().iter().enumerate().map(with_name).collect()
}
