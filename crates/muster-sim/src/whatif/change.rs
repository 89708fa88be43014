//! A change, as the cluster would have known it: as events at its beginning, and in everything said later.

use std::sync::Arc;

use muster_core::command::{Actor, Command};
use muster_core::event::Event;
use muster_core::node::NodeWord;
use muster_core::policy::{Bundle, Scope};
use muster_core::tenant::TenantConfig;
use muster_core::{NodeId, State, TenantId};
use muster_server::http::Fault;
use muster_server::policies::Interpreter;
use muster_server::whatif::Change;

use super::chronicle::Chronicle;
use crate::rehearsal::Site;

/// What would be otherwise.
#[derive(Debug, Clone, Default)]
pub struct Otherwise {
    change: Change,
    /// The policies that would have been in force.
    policies: Option<Arc<Bundle>>,
    /// What would have happened at the beginning.
    pub events: Vec<Event>,
}

impl Otherwise {
    /// See whether a change can be made at the beginning of a chronicle.
    pub fn of(
        change: &Change,
        chronicle: &Chronicle,
        interpreter: Option<&Arc<dyn Interpreter>>,
    ) -> Result<Otherwise, Fault> {
        if let Some(tenant) = change.tenants().find(|tenant| !is_tenant_known(chronicle, tenant)) {
            return Err(Fault::invalid("set", format!("there was no tenant `{tenant}` in that time")));
        }
        if let Some(node) = change.removed.iter().find(|node| !is_node_known(chronicle, node)) {
            return Err(Fault::invalid("remove_nodes", format!("there was no node `{node}` in that time")));
        }
        let policies = compiled(change, interpreter)?;
        let mut otherwise = Otherwise { change: change.clone(), policies, events: Vec::new() };
        let mut state = chronicle.start.clone();
        for command in otherwise.commands(&state)? {
            let decision = state.decide(&Actor::system(), &command, chronicle.since)?;
            for event in decision.events {
                state.apply(&event);
                otherwise.events.push(event);
            }
        }
        Ok(otherwise)
    }

    fn commands(&self, state: &State) -> Result<Vec<Command>, Fault> {
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
        for (node, facts) in added(&self.change)? {
            if state.nodes.contains_key(&node) {
                return Err(Fault::invalid("add_nodes", format!("there is a node `{node}` already")));
            }
            commands.push(Command::RegisterNode { node, facts });
        }
        let removed = self.change.removed.iter().filter(|node| state.nodes.contains_key(node));
        commands.extend(removed.map(drain));
        commands.extend(self.policies.iter().map(|bundle| Command::ApplyPolicy {
            scope: Scope::Cluster,
            bundle: bundle.clone(),
            why: "what if".to_string(),
        }));
        Ok(commands)
    }

    /// What someone asked of the cluster later, as it would have been asked.
    pub fn amended(&self, command: Command) -> Option<Command> {
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
            Command::SetNodeState { node, .. } if self.change.removed.contains(&node) => return None,
            Command::ApplyPolicy { scope: Scope::Cluster, .. } if self.policies.is_some() => return None,
            other => other,
        })
    }

    /// Whether everything is decided anew from the beginning: of what other policies would have answered nothing is on
    /// record.
    pub fn begins_anew(&self) -> bool {
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
    pub fn consequence(&self, event: &Event) -> Option<Command> {
        match event {
            Event::NodeRegistered { node, .. } if self.change.removed.contains(node) => Some(drain(node)),
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
    pub fn passes_over(&self, event: &Event) -> bool {
        matches!(event, Event::NodeStateChanged { node, .. } if self.change.removed.contains(node))
    }
}

fn compiled(
    change: &Change,
    interpreter: Option<&Arc<dyn Interpreter>>,
) -> Result<Option<Arc<Bundle>>, Fault> {
    let Some(files) = &change.policies else { return Ok(None) };
    let nobody = || Fault::invalid("policies", "there is nobody here to run them");
    let compiled = interpreter.ok_or_else(nobody)?.compile(&Scope::Cluster, files.clone());
    let bundle = compiled.map_err(|errors| Fault::invalid("policies", errors.join("\n")))?;
    Ok(Some(Arc::new(bundle)))
}

fn drain(node: &NodeId) -> Command {
    Command::SetNodeState { node: node.clone(), word: NodeWord::Draining, why: "what if".to_string() }
}

fn is_node_known(chronicle: &Chronicle, node: &NodeId) -> bool {
    let came = |event: &Event| matches!(event, Event::NodeRegistered { node: id, .. } if id == node);
    chronicle.start.nodes.contains_key(node) || chronicle.entries.iter().any(|entry| came(&entry.event))
}

fn is_tenant_known(chronicle: &Chronicle, tenant: &TenantId) -> bool {
    let made = |event: &Event| matches!(event, Event::TenantCreated { id, .. } if id == tenant);
    chronicle.start.tenants.contains_key(tenant) || chronicle.entries.iter().any(|entry| made(&entry.event))
}

/// The nodes that would be there, under names of their own.
fn added(change: &Change) -> Result<Vec<(NodeId, Box<muster_core::node::NodeFacts>)>, Fault> {
    if change.added.is_empty() {
        return Ok(Vec::new());
    }
    let words = change.added.join(",");
    let site = Site::of_words(&words).map_err(|error| Fault::invalid("add_nodes", error.to_string()))?;
    let named = |(number, (_, facts)): (usize, &(NodeId, muster_core::node::NodeFacts))| {
        let name = format!("what-if-{}", number + 1);
        let node = name.parse().map_err(|error| Fault::internal(format!("{error}")))?;
        Ok((node, Box::new(facts.clone())))
    };
    site.nodes().iter().enumerate().map(named).collect()
}
