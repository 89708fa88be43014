//! Port: what if. The door reads the question; who can replay the history of a cluster answers it.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::objects::tenant::TenantConfig;
use muster_core::time;
use muster_core::{NodeId, Settings, TenantId, Timestamp};
use muster_protocol::tenant::TenantChange;
use muster_protocol::whatif::{Setting, WhatIf, WhatIfRequest};
use muster_store::Tables;

use crate::config;
use crate::http::api_error::ApiError;
use crate::http::conversions::parse_timestamp_text;
use crate::http::{json, tenants};

/// The span when nothing is said.
const DEFAULT_SPAN: &str = "7d";
/// Jobs that are told of when nothing is said.
const DEFAULT_JOBS_LISTED: u32 = 20;

/// Who can say what would have been.
pub trait WhatIfReplay: Send + Sync {
    /// Answer from the history in the tables. Takes as long as the history is long, so it is for a thread of its own.
    fn answer(&self, history: &dyn Tables, question: &WhatIfQuery) -> Result<WhatIf, ApiError>;
}

/// A question that makes sense by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIfQuery {
    /// From when on.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// What would be otherwise.
    pub change: WhatIfChange,
    /// Tell of so many jobs.
    pub jobs_listed_max: usize,
}

/// Fields of a tenant and their other values.
type TenantFields = BTreeMap<String, Setting>;

/// What would be otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WhatIfChange {
    tenants: BTreeMap<TenantId, TenantFields>,
    settings: BTreeMap<String, String>,
    /// Nodes that would be there, in words.
    pub added_nodes: Vec<String>,
    /// Nodes that would take no more work.
    pub removed_nodes: BTreeSet<NodeId>,
    /// The policies of the cluster, in place of all that were in force: files by name.
    pub policies: Option<BTreeMap<String, String>>,
}

impl WhatIfQuery {
    /// Read a question that was asked at a moment.
    pub fn from_request(ask: &WhatIfRequest, now: Timestamp) -> Result<WhatIfQuery, ApiError> {
        let since = parse_moment("since", ask.since.as_deref().unwrap_or(DEFAULT_SPAN), now)?;
        let until = ask.until.as_deref().map(|text| parse_moment("until", text, now)).transpose()?.unwrap_or(now);
        if since >= until {
            return Err(ApiError::invalid("since", "must be before `until`"));
        }
        Ok(WhatIfQuery { since, until, change: WhatIfChange::from_request(ask)?, jobs_listed_max: ask.jobs.unwrap_or(DEFAULT_JOBS_LISTED) as usize })
    }
}

/// A span before now, or a moment.
fn parse_moment(field: &'static str, text: &str, now: Timestamp) -> Result<Timestamp, ApiError> {
    match time::parse_duration_ms(text) {
        Ok(ms) => Ok(now.plus(-ms)),
        Err(_) => parse_timestamp_text(field, text).map_err(|_| {
            let example = "write for example `7d` or `2026-03-01T09:00:00Z`";
            ApiError::invalid(field, format!("`{text}` is neither a span nor a moment; {example}"))
        }),
    }
}

impl WhatIfChange {
    fn from_request(ask: &WhatIfRequest) -> Result<WhatIfChange, ApiError> {
        let (added, policies) = (ask.add_nodes.clone(), ask.policies.clone());
        let mut change = WhatIfChange { added_nodes: added, policies, ..WhatIfChange::default() };
        for name in &ask.remove_nodes {
            let node = name.parse().map_err(|error| ApiError::invalid("remove_nodes", format!("{error}")))?;
            change.removed_nodes.insert(node);
        }
        for (key, value) in &ask.set {
            change.set(key, value)?;
        }
        Ok(change)
    }

    fn set(&mut self, key: &str, value: &Setting) -> Result<(), ApiError> {
        if let Some(field) = key.strip_prefix("tenants.") {
            let wrong =
                || ApiError::invalid("set", format!("`{key}` names no field; write `tenants.NAME.FIELD`"));
            let (tenant, field) = field.rsplit_once('.').ok_or_else(wrong)?;
            let id: TenantId = tenant.parse().map_err(|error| ApiError::invalid("set", format!("{error}")))?;
            let fields = self.tenants.entry(id).or_default();
            fields.insert(field.to_string(), value.clone());
            // Whether the field exists and fits is found out on any tenant.
            return tenants::apply_change(&mut TenantConfig::unlimited("any"), tenant_change(fields)?);
        }
        let text = value.to_string();
        config::override_setting(&mut Settings::default(), key, &text)
            .map_err(|problem| ApiError::invalid("set", problem))?;
        self.settings.insert(key.to_string(), text);
        Ok(())
    }

    /// Whether nothing is otherwise.
    pub fn is_empty(&self) -> bool {
        *self == WhatIfChange::default()
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
            let _ = tenants::apply_change(&mut config, change);
        }
        config
    }

    /// The settings as they would be.
    pub fn settings(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        for (key, value) in &self.settings {
            let _ = config::override_setting(&mut settings, key, value);
        }
        settings
    }

    /// For people, a line for each.
    pub fn description_lines(&self) -> Vec<String> {
        let of_tenant = |(tenant, fields): (&TenantId, &TenantFields)| {
            let line = |(field, value): (&String, &Setting)| format!("tenants.{tenant}.{field}={value}");
            fields.iter().map(line).collect::<Vec<_>>()
        };
        let tenants = self.tenants.iter().flat_map(of_tenant);
        let settings = self.settings.iter().map(|(key, value)| format!("{key}={value}"));
        let added = self.added_nodes.iter().map(|words| format!("nodes added: {words}"));
        let removed = self.removed_nodes.iter().map(|node| format!("node removed: {node}"));
        let policies = self.policies.iter().map(|files| match files.is_empty() {
            true => "no policies".to_string(),
            false => format!("policies: {}", files.keys().cloned().collect::<Vec<_>>().join(", ")),
        });
        tenants.chain(settings).chain(added).chain(removed).chain(policies).collect()
    }
}

/// The same reading as of a request to change a tenant, so that a misspelt field is answered with the nearest one.
fn tenant_change(fields: &TenantFields) -> Result<TenantChange, ApiError> {
    json::parse(&muster_json::to_vec(fields))
}
