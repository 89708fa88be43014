//! Step 4, decide: the commands about tenants, tokens and the settings of the cluster.

use crate::facts::command::Actor;
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::ids::TenantId;
use crate::objects::settings::{PRIORITY_MAX, Settings};
use crate::objects::tenant::TenantConfig;
use crate::objects::token::{Token, is_reserved_name};
use crate::state::State;
use crate::state::decision::Decision;
use crate::time::Timestamp;

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

    pub(super) fn decide_delete_tenant(&self, by: &Actor, id: &TenantId, now: Timestamp) -> Result<Decision, Refusal> {
        let tenant = self.tenant(id)?;
        if id.as_str() == DEFAULT_TENANT {
            return Err(Refusal::DefaultTenant);
        }
        if tenant.live_jobs > 0 {
            return Err(Refusal::TenantBusy { tenant: id.clone(), jobs: tenant.live_jobs });
        }
        let child = self.tenants.values().find(|other| other.config.parent.as_ref() == Some(id));
        if let Some(child) = child {
            let problem = format!("tenant `{}` is its child", child.id);
            return Err(Refusal::Invalid { field: "tenant", problem });
        }
        let tokens = self.tokens.values().filter(|token| token.tenant.as_ref() == Some(id));
        let revoked = tokens.map(|token| Event::TokenRevoked { id: token.id.clone(), at: now });
        let deleted = Event::TenantDeleted { id: id.clone(), at: now };
        let without_policies = self.tenant_policies_removed(by, id, now);
        let without_secrets = self.secrets_removed(id, now);
        Ok(Decision::done(revoked.chain(without_policies).chain(without_secrets).chain([deleted]).collect()))
    }

    fn check_config(&self, id: &TenantId, config: &TenantConfig) -> Result<(), Refusal> {
        if config.name.is_empty() || config.name.chars().count() > 255 {
            return Err(Refusal::Invalid { field: "name", problem: "must be 1 to 255 characters".into() });
        }
        if config.priority_max.is_some_and(|priority| priority > PRIORITY_MAX) {
            let problem = format!("{} is above {PRIORITY_MAX}", config.priority_max.unwrap_or_default());
            return Err(Refusal::Invalid { field: "max_priority", problem });
        }
        if config.weight == 0 {
            return Err(Refusal::Invalid { field: "weight", problem: "must be above zero".into() });
        }
        check_guarantees(config)?;
        // The chain of ancestors must end, and must not contain the tenant itself.
        let mut ancestor = config.parent.as_ref();
        while let Some(parent) = ancestor {
            if parent == id {
                return Err(Refusal::Invalid { field: "parent", problem: "a tenant cannot be above itself".into() });
            }
            ancestor = self.tenant(parent)?.config.parent.as_ref();
        }
        Ok(())
    }

    pub(super) fn decide_configure(&self, settings: &Settings, now: Timestamp) -> Decision {
        if self.settings == *settings {
            return Decision::done(Vec::new());
        }
        Decision::done(vec![Event::Configured { settings: Box::new(settings.clone()), at: now }])
    }

    pub(super) fn decide_add_token(&self, by: &Actor, token: &Token, now: Timestamp) -> Result<Decision, Refusal> {
        if self.tokens.contains_key(&token.id) {
            return Err(Refusal::DuplicateToken { id: token.id.clone() });
        }
        // The server itself creates the token of the first administrator.
        if !by.is_system() && is_reserved_name(&token.name) {
            return Err(Refusal::ReservedName { name: token.name.clone() });
        }
        match (&token.tenant, token.role.is_cluster_wide()) {
            (Some(tenant), false) => self.tenant(tenant).map(|_| ())?,
            (None, true) => {}
            (None, false) => {
                let problem = format!("role {} applies to one tenant; name the tenant", token.role.as_str());
                return Err(Refusal::Invalid { field: "tenant", problem });
            }
            (Some(_), true) => {
                let problem = format!("role {} applies to all tenants; do not name one", token.role.as_str());
                return Err(Refusal::Invalid { field: "tenant", problem });
            }
        }
        self.check_grant(by, token)?;
        Ok(Decision::done(vec![Event::TokenAdded { token: token.clone(), at: now }]))
    }

    /// A token is granted at most the priority ceiling of the actor that creates it.
    fn check_grant(&self, by: &Actor, token: &Token) -> Result<(), Refusal> {
        let Some(granted) = token.priority_max else { return Ok(()) };
        if granted > PRIORITY_MAX {
            let problem = format!("{granted} is above {PRIORITY_MAX}");
            return Err(Refusal::Invalid { field: "max_priority", problem });
        }
        match &token.tenant {
            Some(tenant) => self.check_priority(by, tenant, granted),
            None => {
                let problem = format!("role {} has no priority ceiling to raise", token.role.as_str());
                Err(Refusal::Invalid { field: "max_priority", problem })
            }
        }
    }

    pub(super) fn decide_revoke_token(&self, id: &str, now: Timestamp) -> Result<Decision, Refusal> {
        if !self.tokens.contains_key(id) {
            return Err(Refusal::UnknownToken { id: id.to_string() });
        }
        Ok(Decision::done(vec![Event::TokenRevoked { id: id.to_string(), at: now }]))
    }
}

/// A guarantee is at most the quota.
fn check_guarantees(config: &TenantConfig) -> Result<(), Refusal> {
    let (quota, guarantee) = (&config.maximum, &config.guaranteed);
    let amounts = [
        ("guaranteed_gpus", "GPUs", guarantee.gpus, quota.gpus),
        ("guaranteed_gpu_memory_mb", "MiB of GPU memory", guarantee.gpu_memory_mib, quota.gpu_memory_mib),
        ("guaranteed_cpu_cores", "CPU cores", guarantee.cpus, quota.cpus),
        ("guaranteed_memory_mb", "MiB of memory", guarantee.memory_mib, quota.memory_mib),
        ("guaranteed_concurrent_jobs", "running jobs", guarantee.jobs, quota.jobs),
    ];
    for (field, unit, guaranteed, most) in amounts {
        let above = guaranteed.zip(most).filter(|(guaranteed, most)| guaranteed > most);
        if let Some((guaranteed, most)) = above {
            let problem = format!(
                "{guaranteed} {unit} are more than the tenant's maximum of {most}; raise the maximum or guarantee \
                 less"
            );
            return Err(Refusal::Invalid { field, problem });
        }
    }
    for (model, guaranteed) in &config.guaranteed_by_model {
        let limits = [config.maximum_by_model.get(model).copied(), config.maximum.gpus];
        if let Some(most) = limits.into_iter().flatten().find(|most| guaranteed > most) {
            let problem = format!(
                "{guaranteed} GPUs of model {model} are more than the tenant's maximum of {most}; raise the \
                 maximum or guarantee less"
            );
            return Err(Refusal::Invalid { field: "guaranteed_gpus_by_model", problem });
        }
    }
    Ok(())
}
