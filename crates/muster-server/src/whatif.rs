//! Port: what-if replay of a cluster's history. This module parses and checks the query; the simulator replays.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::objects::tenant::TenantConfig;
use muster_core::time;
use muster_core::{NodeId, Refusal, Settings, TenantId, Timestamp};
use muster_protocol::tenant::TenantChange;
use muster_protocol::whatif::{Setting, WhatIf, WhatIfRequest};
use muster_store::{StoreError, Tables};

use crate::config;
use crate::conversions::{invalid, parse_timestamp_text};
use crate::request_json::{self, RequestJsonError};
use crate::tenant_config;

/// Length of the replayed history, unless given.
const DEFAULT_SPAN: &str = "7d";
/// Jobs listed in the answer, unless given.
const DEFAULT_JOBS_LISTED: u32 = 20;

/// Replays the history of a cluster under a change.
pub trait WhatIfReplay: Send + Sync {
    /// Answer from the journal in the tables. Takes time in proportion to the length of the history: use a blocking
    /// thread.
    fn answer(&self, history: &dyn Tables, query: &WhatIfQuery) -> Result<WhatIf, WhatIfError>;
}

/// Why a what-if query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// A value of the query is not valid.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A field of a tenant is unknown, or its value is of the wrong type.
    #[error(transparent)]
    Json(#[from] RequestJsonError),
    /// The tables cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A bug, or a damaged journal.
    #[error("{0}")]
    Internal(String),
}

impl WhatIfError {
    /// A value of the query is not valid.
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> WhatIfError {
        invalid(field, problem).into()
    }

    /// The next thing to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            WhatIfError::Refused(refusal) => refusal.hint(),
            WhatIfError::Json(error) => error.hint.clone(),
            WhatIfError::Store(_) | WhatIfError::Internal(_) => None,
        }
    }

    pub fn internal(detail: impl Into<String>) -> WhatIfError {
        WhatIfError::Internal(detail.into())
    }
}

/// A checked what-if query.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIfQuery {
    pub since: Timestamp,
    pub until: Timestamp,
    pub change: WhatIfChange,
    pub jobs_listed_max: usize,
}

/// Fields of a tenant with their changed values.
type TenantFields = BTreeMap<String, Setting>;

/// The changes under which the history is replayed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WhatIfChange {
    tenants: BTreeMap<TenantId, TenantFields>,
    settings: BTreeMap<String, String>,
    /// Additional nodes, such as `4x8xH100`.
    pub added_nodes: Vec<String>,
    /// Nodes that take no more work.
    pub removed_nodes: BTreeSet<NodeId>,
    /// Policies of the cluster in place of all active ones: files by name.
    pub policies: Option<BTreeMap<String, String>>,
}

impl WhatIfQuery {
    /// Parse and check a request that arrived at `now`.
    pub fn from_request(request: &WhatIfRequest, now: Timestamp) -> Result<WhatIfQuery, WhatIfError> {
        let since = parse_moment("since", request.since.as_deref().unwrap_or(DEFAULT_SPAN), now)?;
        let until = request.until.as_deref().map(|text| parse_moment("until", text, now)).transpose()?.unwrap_or(now);
        if since >= until {
            return Err(WhatIfError::invalid("since", "must be before `until`"));
        }
        Ok(WhatIfQuery {
            since,
            until,
            change: WhatIfChange::from_request(request)?,
            jobs_listed_max: request.jobs.unwrap_or(DEFAULT_JOBS_LISTED) as usize,
        })
    }
}

/// A duration before now, or a timestamp.
fn parse_moment(field: &'static str, text: &str, now: Timestamp) -> Result<Timestamp, Refusal> {
    match time::parse_duration_ms(text) {
        Ok(ms) => Ok(now.plus(-ms)),
        Err(_) => parse_timestamp_text(field, text).map_err(|_| {
            let example = "write for example `7d` or `2026-03-01T09:00:00Z`";
            invalid(field, format!("`{text}` is neither a duration nor a timestamp; {example}"))
        }),
    }
}

impl WhatIfChange {
    fn from_request(request: &WhatIfRequest) -> Result<WhatIfChange, WhatIfError> {
        let (added_nodes, policies) = (request.add_nodes.clone(), request.policies.clone());
        let mut change = WhatIfChange { added_nodes, policies, ..WhatIfChange::default() };
        for name in &request.remove_nodes {
            let node = name.parse().map_err(|error| invalid("remove_nodes", format!("{error}")))?;
            change.removed_nodes.insert(node);
        }
        for (key, value) in &request.set {
            change.set(key, value)?;
        }
        Ok(change)
    }

    fn set(&mut self, key: &str, value: &Setting) -> Result<(), WhatIfError> {
        if let Some(field) = key.strip_prefix("tenants.") {
            let without_field = || invalid("set", format!("`{key}` names no field; write `tenants.NAME.FIELD`"));
            let (tenant, field) = field.rsplit_once('.').ok_or_else(without_field)?;
            let id: TenantId = tenant.parse().map_err(|error| invalid("set", format!("{error}")))?;
            let fields = self.tenants.entry(id).or_default();
            fields.insert(field.to_string(), value.clone());
            // Any tenant shows whether the field exists and the value is valid.
            tenant_config::apply_change(&mut TenantConfig::unlimited("any"), tenant_change(fields)?)?;
            return Ok(());
        }
        let text = value.to_string();
        config::override_setting(&mut Settings::default(), key, &text).map_err(|problem| invalid("set", problem))?;
        self.settings.insert(key.to_string(), text);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        *self == WhatIfChange::default()
    }

    /// The changed tenants.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.keys()
    }

    /// The configuration of a tenant under the change.
    pub fn tenant(&self, id: &TenantId, config: &TenantConfig) -> TenantConfig {
        let mut config = config.clone();
        let change = self.tenants.get(id).and_then(|fields| tenant_change(fields).ok());
        if let Some(change) = change {
            // `set` has checked the change.
            let _ = tenant_config::apply_change(&mut config, change);
        }
        config
    }

    /// The settings under the change.
    pub fn settings(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        for (key, value) in &self.settings {
            let _ = config::override_setting(&mut settings, key, value);
        }
        settings
    }

    /// One line per change, for people.
    pub fn description_lines(&self) -> Vec<String> {
        let of_tenant = |(tenant, fields): (&TenantId, &TenantFields)| {
            let line = |(field, value): (&String, &Setting)| format!("tenants.{tenant}.{field}={value}");
            fields.iter().map(line).collect::<Vec<_>>()
        };
        let tenants = self.tenants.iter().flat_map(of_tenant);
        let settings = self.settings.iter().map(|(key, value)| format!("{key}={value}"));
        let added = self.added_nodes.iter().map(|nodes| format!("nodes added: {nodes}"));
        let removed = self.removed_nodes.iter().map(|node| format!("node removed: {node}"));
        let policies = self.policies.iter().map(|files| match files.is_empty() {
            true => "no policies".to_string(),
            false => format!("policies: {}", files.keys().cloned().collect::<Vec<_>>().join(", ")),
        });
        tenants.chain(settings).chain(added).chain(removed).chain(policies).collect()
    }
}

/// Parsed as the request that changes a tenant, so that a misspelt field gets the nearest field as a hint.
fn tenant_change(fields: &TenantFields) -> Result<TenantChange, RequestJsonError> {
    request_json::parse(&muster_json::to_vec(fields))
}
