//! Guards of the commands about tenants, tokens and the settings of the cluster.

use crate::command::Actor;
use crate::event::Event;
use crate::ids::TenantId;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::state::State;
use crate::state::decide::Decision;
use crate::tenant::TenantConfig;
use crate::time::Timestamp;
use crate::token::Token;

/// The tenant that exists from the first start.
pub const DEFAULT_TENANT: &str = "default";

impl State {
    pub(super) fn decide_create_tenant(
        &self,
        id: &TenantId,
        config: &TenantConfig,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        self.check_config(id, config)?;
        if self.tenants.contains_key(id) {
            return Err(Refusal::DuplicateTenant { tenant: id.clone() });
        }
        let config = Box::new(config.clone());
        Ok(Decision::done(vec![Event::TenantCreated { id: id.clone(), config, at: now }]))
    }

    pub(super) fn decide_change_tenant(
        &self,
        id: &TenantId,
        config: &TenantConfig,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let tenant = self.tenant(id)?;
        self.check_config(id, config)?;
        if tenant.config == *config {
            return Ok(Decision::done(Vec::new()));
        }
        let config = Box::new(config.clone());
        Ok(Decision::done(vec![Event::TenantChanged { id: id.clone(), config, at: now }]))
    }

    pub(super) fn decide_delete_tenant(
        &self,
        by: &Actor,
        id: &TenantId,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let tenant = self.tenant(id)?;
        if id.as_str() == DEFAULT_TENANT {
            return Err(Refusal::DefaultTenant);
        }
        if tenant.live_jobs > 0 {
            return Err(Refusal::TenantBusy { tenant: id.clone(), jobs: tenant.live_jobs });
        }
        let child = self.tenants.values().find(|other| other.config.parent.as_ref() == Some(id));
        if let Some(child) = child {
            let problem = format!("tenant `{}` is below it", child.id);
            return Err(Refusal::Invalid { field: "tenant", problem });
        }
        let tokens = self.tokens.values().filter(|token| token.tenant.as_ref() == Some(id));
        let revoked = tokens.map(|token| Event::TokenRevoked { id: token.id.clone(), at: now });
        let deleted = Event::TenantDeleted { id: id.clone(), at: now };
        let without_policies = self.policies_taken(by, id, now);
        Ok(Decision::done(revoked.chain(without_policies).chain([deleted]).collect()))
    }

    fn check_config(&self, id: &TenantId, config: &TenantConfig) -> Result<(), Refusal> {
        if config.name.is_empty() || config.name.chars().count() > 255 {
            return Err(Refusal::Invalid { field: "name", problem: "must be 1 to 255 characters".into() });
        }
        if config.weight == 0 {
            return Err(Refusal::Invalid { field: "weight", problem: "must be above zero".into() });
        }
        // Following parents upwards must end, and not pass the tenant itself.
        let mut above = config.parent.as_ref();
        while let Some(parent) = above {
            if parent == id {
                return Err(Refusal::Invalid {
                    field: "parent",
                    problem: "a tenant cannot be above itself".into(),
                });
            }
            above = self.tenant(parent)?.config.parent.as_ref();
        }
        Ok(())
    }

    pub(super) fn decide_configure(&self, settings: &Settings, now: Timestamp) -> Decision {
        if self.settings == *settings {
            return Decision::done(Vec::new());
        }
        Decision::done(vec![Event::Configured { settings: Box::new(settings.clone()), at: now }])
    }

    pub(super) fn decide_add_token(&self, token: &Token, now: Timestamp) -> Result<Decision, Refusal> {
        if self.tokens.contains_key(&token.id) {
            return Err(Refusal::DuplicateToken { id: token.id.clone() });
        }
        match (&token.tenant, token.role.is_cluster_wide()) {
            (Some(tenant), false) => self.tenant(tenant).map(|_| ())?,
            (None, true) => {}
            (None, false) => {
                let problem = format!("role {} belongs to one tenant; name it", token.role.word());
                return Err(Refusal::Invalid { field: "tenant", problem });
            }
            (Some(_), true) => {
                let problem = format!("role {} reaches every tenant; name none", token.role.word());
                return Err(Refusal::Invalid { field: "tenant", problem });
            }
        }
        Ok(Decision::done(vec![Event::TokenAdded { token: token.clone(), at: now }]))
    }

    pub(super) fn decide_revoke_token(&self, id: &str, now: Timestamp) -> Result<Decision, Refusal> {
        if !self.tokens.contains_key(id) {
            return Err(Refusal::UnknownToken { id: id.to_string() });
        }
        Ok(Decision::done(vec![Event::TokenRevoked { id: id.to_string(), at: now }]))
    }
}
