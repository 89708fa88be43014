//! A change, as the cluster would have known it: as events at its beginning, and in everything said later.

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

/// What would be otherwise.
#[derive(Debug, Clone, Default)]
pub struct AppliedChange {
    change: WhatIfChange,
    /// The policies that would have been in force.
    policies: Option<Arc<PolicyBundle>>,
    /// What would have happened at the beginning.
    pub events: Vec<Event>,
}

impl AppliedChange {
    /// See whether a change can be made at the beginning of a chronicle.
    pub fn new(
        change: &WhatIfChange,
        chronicle: &JournalHistory,
        interpreter: Option<&Arc<dyn Interpreter>>,
    ) -> Result<AppliedChange, WhatIfError> {
        if let Some(tenant) = change.tenants().find(|tenant| !is_tenant_known(chronicle, tenant)) {
            return Err(WhatIfError::invalid("set", format!("there was no tenant `{tenant}` in that time")));
        }
        if let Some(node) = change.removed_nodes.iter().find(|node| !is_node_known(chronicle, node)) {
            return Err(WhatIfError::invalid(
                "remove_nodes",
                format!("there was no node `{node}` in that time"),
            ));
        }
        let policies = compile_policies(change, interpreter)?;
        let mut otherwise = AppliedChange { change: change.clone(), policies, events: Vec::new() };
        let mut state = chronicle.start_state.clone();
        for command in otherwise.commands(&state)? {
            let decision = state.decide(&Actor::system(), &command, chronicle.since)?;
            for event in decision.events {
                state.apply(&event);
                otherwise.events.push(event);
            }
        }
        Ok(otherwise)
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

    /// What someone asked of the cluster later, as it would have been asked.
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
            Command::SetNodeState { node, .. } if self.change.removed_nodes.contains(&node) => return None,
            Command::ApplyPolicy { scope: PolicyScope::Cluster, .. } if self.policies.is_some() => {
                return None;
            }
            other => other,
        })
    }

    /// Whether everything is decided anew from the beginning: of what other policies would have answered nothing is on
    /// record.
    pub fn replans_from_start(&self) -> bool {
        self.policies.is_some()
    }

    /// An event that happened, as it would have happened.
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

    /// What would have been done at once about something that happened: a node that was to take no work came back.
    pub fn follow_up_command(&self, event: &Event) -> Option<Command> {
        match event {
            Event::NodeRegistered { node, .. } if self.change.removed_nodes.contains(node) => {
                Some(drain_command(node))
            }
            _ => None,
        }
    }

    fn tenant(&self, id: &TenantId, config: &TenantConfig) -> Box<TenantConfig> {
        Box::new(self.change.tenant(id, config))
    }

    /// Whether nothing is otherwise.
    pub fn is_empty(&self) -> bool {
        self.change.is_empty()
    }

    /// Whether an event of a node is to be passed over: it would have stayed drained.
    pub fn suppresses(&self, event: &Event) -> bool {
        matches!(event, Event::NodeStateChanged { node, .. } if self.change.removed_nodes.contains(node))
    }
}

fn compile_policies(
    change: &WhatIfChange,
    interpreter: Option<&Arc<dyn Interpreter>>,
) -> Result<Option<Arc<PolicyBundle>>, WhatIfError> {
    let Some(files) = &change.policies else { return Ok(None) };
    let nobody = || WhatIfError::invalid("policies", "there is nobody here to run them");
    let compiled = interpreter.ok_or_else(nobody)?.compile(&PolicyScope::Cluster, files.clone());
    let bundle = compiled.map_err(|errors| WhatIfError::invalid("policies", errors.join("\n")))?;
    Ok(Some(Arc::new(bundle)))
}

fn drain_command(node: &NodeId) -> Command {
    Command::SetNodeState { node: node.clone(), status: NodeStatus::Draining, why: "what if".to_string() }
}

fn is_node_known(chronicle: &JournalHistory, node: &NodeId) -> bool {
    let came = |event: &Event| matches!(event, Event::NodeRegistered { node: id, .. } if id == node);
    chronicle.start_state.nodes.contains_key(node) || chronicle.entries.iter().any(|entry| came(&entry.event))
}

fn is_tenant_known(chronicle: &JournalHistory, tenant: &TenantId) -> bool {
    let made = |event: &Event| matches!(event, Event::TenantCreated { id, .. } if id == tenant);
    chronicle.start_state.tenants.contains_key(tenant)
        || chronicle.entries.iter().any(|entry| made(&entry.event))
}

/// The nodes that would be there, under names of their own.
fn added_nodes(
    change: &WhatIfChange,
) -> Result<Vec<(NodeId, Box<muster_core::objects::node::NodeFacts>)>, WhatIfError> {
    if change.added_nodes.is_empty() {
        return Ok(Vec::new());
    }
    let words = change.added_nodes.join(",");
    let site =
        ReplayCluster::parse(&words).map_err(|error| WhatIfError::invalid("add_nodes", error.to_string()))?;
    let named = |(number, (_, facts)): (usize, &(NodeId, muster_core::objects::node::NodeFacts))| {
        let name = format!("what-if-{}", number + 1);
        let node = name.parse().map_err(|error| WhatIfError::internal(format!("{error}")))?;
        Ok((node, Box::new(facts.clone())))
    };
    site.nodes().iter().enumerate().map(named).collect()
}
