//! Port: what if. The door reads the question; who can replay the history of a cluster answers it.

use std::collections::{BTreeMap, BTreeSet};

use muster_agent::duration;
use muster_core::tenant::TenantConfig;
use muster_core::{NodeId, Settings, TenantId, Timestamp};
use muster_protocol::tenant::TenantChange;
use muster_protocol::whatif::{Setting, WhatIf, WhatIfAsk};
use muster_store::Tables;

use crate::config;
use crate::http::fault::Fault;
use crate::http::written::moment_text;
use crate::http::{json, tenants};

/// The span when nothing is said.
const SPAN: &str = "7d";
/// Jobs that are told of when nothing is said.
const JOBS: u32 = 20;

/// Who can say what would have been.
pub trait Oracle: Send + Sync {
    /// Answer from the history in the tables. Takes as long as the history is long, so it is for a thread of its own.
    fn answer(&self, history: &dyn Tables, question: &Question) -> Result<WhatIf, Fault>;
}

/// A question that makes sense by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// From when on.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// What would be otherwise.
    pub change: Change,
    /// Tell of so many jobs.
    pub jobs: usize,
}

/// Fields of a tenant and their other values.
type Fields = BTreeMap<String, Setting>;

/// What would be otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    tenants: BTreeMap<TenantId, Fields>,
    settings: BTreeMap<String, String>,
    /// Nodes that would be there, in words.
    pub added: Vec<String>,
    /// Nodes that would take no more work.
    pub removed: BTreeSet<NodeId>,
    /// The policies of the cluster, in place of all that were in force: files by name.
    pub policies: Option<BTreeMap<String, String>>,
}

impl Question {
    /// Read a question that was asked at a moment.
    pub fn of(ask: &WhatIfAsk, now: Timestamp) -> Result<Question, Fault> {
        let since = moment("since", ask.since.as_deref().unwrap_or(SPAN), now)?;
        let until = ask.until.as_deref().map(|text| moment("until", text, now)).transpose()?.unwrap_or(now);
        if since >= until {
            return Err(Fault::invalid("since", "must be before `until`"));
        }
        Ok(Question { since, until, change: Change::of(ask)?, jobs: ask.jobs.unwrap_or(JOBS) as usize })
    }
}

/// A span before now, or a moment.
fn moment(field: &'static str, text: &str, now: Timestamp) -> Result<Timestamp, Fault> {
    match duration::parse_ms(text) {
        Ok(ms) => Ok(now.plus(-ms)),
        Err(_) => moment_text(field, text).map_err(|_| {
            let example = "write for example `7d` or `2026-03-01T09:00:00Z`";
            Fault::invalid(field, format!("`{text}` is neither a span nor a moment; {example}"))
        }),
    }
}

impl Change {
    fn of(ask: &WhatIfAsk) -> Result<Change, Fault> {
        let (added, policies) = (ask.add_nodes.clone(), ask.policies.clone());
        let mut change = Change { added, policies, ..Change::default() };
        for name in &ask.remove_nodes {
            let node = name.parse().map_err(|error| Fault::invalid("remove_nodes", format!("{error}")))?;
            change.removed.insert(node);
        }
        for (key, value) in &ask.set {
            change.set(key, value)?;
        }
        Ok(change)
    }

    fn set(&mut self, key: &str, value: &Setting) -> Result<(), Fault> {
        if let Some(field) = key.strip_prefix("tenants.") {
            let wrong =
                || Fault::invalid("set", format!("`{key}` names no field; write `tenants.NAME.FIELD`"));
            let (tenant, field) = field.rsplit_once('.').ok_or_else(wrong)?;
            let id: TenantId = tenant.parse().map_err(|error| Fault::invalid("set", format!("{error}")))?;
            let fields = self.tenants.entry(id).or_default();
            fields.insert(field.to_string(), value.clone());
            // Whether the field exists and fits is found out on any tenant.
            return tenants::apply(&mut TenantConfig::unlimited("any"), tenant_change(fields)?);
        }
        let text = value.to_string();
        config::amend(&mut Settings::default(), key, &text)
            .map_err(|problem| Fault::invalid("set", problem))?;
        self.settings.insert(key.to_string(), text);
        Ok(())
    }

    /// Whether nothing is otherwise.
    pub fn is_empty(&self) -> bool {
        *self == Change::default()
    }

    /// The tenants of which something would be otherwise.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.keys()
    }

    /// A tenant as it would be.
    pub fn tenant(&self, id: &TenantId, config: &TenantConfig) -> TenantConfig {
        let mut config = config.clone();
        let change = self.tenants.get(id).and_then(|fields| tenant_change(fields).ok());
        if let Some(change) = change {
            // It fitted when the question was read.
            let _ = tenants::apply(&mut config, change);
        }
        config
    }

    /// The settings as they would be.
    pub fn settings(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        for (key, value) in &self.settings {
            let _ = config::amend(&mut settings, key, value);
        }
        settings
    }

    /// For people, a line for each.
    pub fn words(&self) -> Vec<String> {
        let of_tenant = |(tenant, fields): (&TenantId, &Fields)| {
            let line = |(field, value): (&String, &Setting)| format!("tenants.{tenant}.{field}={value}");
            fields.iter().map(line).collect::<Vec<_>>()
        };
        let tenants = self.tenants.iter().flat_map(of_tenant);
        let settings = self.settings.iter().map(|(key, value)| format!("{key}={value}"));
        let added = self.added.iter().map(|words| format!("nodes added: {words}"));
        let removed = self.removed.iter().map(|node| format!("node removed: {node}"));
        let policies = self.policies.iter().map(|files| match files.is_empty() {
            true => "no policies".to_string(),
            false => format!("policies: {}", files.keys().cloned().collect::<Vec<_>>().join(", ")),
        });
        tenants.chain(settings).chain(added).chain(removed).chain(policies).collect()
    }
}

/// The same reading as of a request to change a tenant, so that a misspelt field is answered with the nearest one.
fn tenant_change(fields: &Fields) -> Result<TenantChange, Fault> {
    json::parse(&muster_json::to_vec(fields))
}
