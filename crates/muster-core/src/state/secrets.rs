//! Secrets of jobs: the commands about them (step 4), and which secret a job gets. Values never come here.

use std::collections::BTreeSet;

use crate::facts::command::{Actor, ActorKind};
use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::ids::TenantId;
use crate::objects::job::JobSpec;
use crate::objects::secret::{Secret, SecretId};
use crate::objects::token::Role;
use crate::state::State;
use crate::state::decision::Decision;
use crate::time::Timestamp;

/// Longest value: a certificate chain or a kubeconfig fits, a data set does not.
pub const SECRET_BYTES_MAX: u64 = 64 << 10;
/// Longest name, of a secret and of its file.
const NAME_LENGTH_MAX: usize = 128;
/// Most secrets of one tenant and its users.
const SECRETS_PER_TENANT_MAX: usize = 256;
/// Most secrets of one job: together they fit into one message to an agent.
const SECRETS_PER_JOB_MAX: usize = 16;

impl State {
    pub(super) fn decide_set_secret(&self, by: &Actor, secret: &Secret, now: Timestamp) -> Result<Decision, Refusal> {
        self.tenant(&secret.id.tenant)?;
        check_may_manage(by, &secret.id)?;
        check_secret_name(&secret.id.name)?;
        if secret.bytes > SECRET_BYTES_MAX {
            let problem = format!("has {} bytes; at most {SECRET_BYTES_MAX} are allowed", secret.bytes);
            return Err(Refusal::Invalid { field: "value", problem });
        }
        let tenant = &secret.id.tenant;
        let count = self.secrets.keys().filter(|id| id.tenant == *tenant).count();
        if !self.secrets.contains_key(&secret.id) && count >= SECRETS_PER_TENANT_MAX {
            let problem = format!("tenant `{tenant}` has {SECRETS_PER_TENANT_MAX} secrets already; remove one");
            return Err(Refusal::Invalid { field: "name", problem });
        }
        let secret = Secret { set_by: by.name.clone(), set_at: now, ..secret.clone() };
        Ok(Decision::done(vec![Event::SecretSet { secret: Box::new(secret), at: now }]))
    }

    pub(super) fn decide_remove_secret(&self, by: &Actor, id: &SecretId, now: Timestamp) -> Result<Decision, Refusal> {
        check_may_manage(by, id)?;
        match self.secrets.contains_key(id) {
            true => Ok(Decision::done(vec![Event::SecretRemoved { id: id.clone(), at: now }])),
            false => Err(Refusal::UnknownSecret { name: id.name.clone(), user: id.owner.clone() }),
        }
    }

    /// The removal of all secrets of a tenant.
    pub(super) fn secrets_removed(&self, tenant: &TenantId, at: Timestamp) -> Vec<Event> {
        let of_tenant = self.secrets.keys().filter(|id| id.tenant == *tenant);
        of_tenant.map(|id| Event::SecretRemoved { id: id.clone(), at }).collect()
    }

    /// The secret that a job of a user gets under a name: the user's own, or else that of the tenant.
    pub fn secret_for(&self, tenant: &TenantId, user: &str, name: &str) -> Option<&Secret> {
        let id = |owner: Option<&str>| SecretId {
            tenant: tenant.clone(),
            owner: owner.map(str::to_string),
            name: name.to_string(),
        };
        self.secrets.get(&id(Some(user))).or_else(|| self.secrets.get(&id(None)))
    }

    /// The guard of a submission.
    pub(super) fn check_secrets(&self, spec: &JobSpec) -> Result<(), Refusal> {
        let invalid = |problem: String| Err(Refusal::Invalid { field: "secrets", problem });
        let uses = &spec.run.secrets;
        if uses.len() > SECRETS_PER_JOB_MAX {
            return invalid(format!("a job uses at most {SECRETS_PER_JOB_MAX} secrets, not {}", uses.len()));
        }
        let mut files = BTreeSet::new();
        for one in uses {
            if !is_file_name(&one.file) {
                return invalid(format!("`{}` cannot be the name of a file", one.file));
            }
            if !files.insert(&one.file) {
                return invalid(format!("two secrets cannot be the one file `{}`", one.file));
            }
            if self.secret_for(&spec.tenant, &spec.user, &one.name).is_none() {
                return Err(Refusal::UnknownSecret { name: one.name.clone(), user: Some(spec.user.clone()) });
            }
        }
        Ok(())
    }
}

/// The owner of a secret, the tenant-admin of its tenant, operators and admins set and remove it. A secret of the whole
/// tenant has no owner.
fn check_may_manage(by: &Actor, id: &SecretId) -> Result<(), Refusal> {
    let may = match &by.kind {
        ActorKind::System | ActorKind::Local => true,
        ActorKind::Token { role, .. } if role.is_cluster_wide() => true,
        ActorKind::Token { role: Role::TenantAdmin, tenant, .. } => tenant.as_ref() == Some(&id.tenant),
        ActorKind::Token { role, .. } => {
            *role >= Role::Member && id.owner.as_deref().is_some_and(|owner| by.owns(id.tenant.as_str(), owner))
        }
    };
    if may { Ok(()) } else { Err(Refusal::NotOwnSecret { name: id.name.clone(), owner: id.owner.clone() }) }
}

/// As the name of an environment variable, so that every name is a plain name of a file.
fn check_secret_name(name: &str) -> Result<(), Refusal> {
    let is_first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let is_word = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    match name.starts_with(is_first) && is_word && name.len() <= NAME_LENGTH_MAX {
        true => Ok(()),
        false => Err(Refusal::Invalid {
            field: "name",
            problem: format!(
                "must be 1 to {NAME_LENGTH_MAX} of a-z, A-Z, 0-9 and `_`, as that of a variable, and not begin with a digit"
            ),
        }),
    }
}

/// A name in the directory of the secrets, not a path.
fn is_file_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    !name.is_empty() && name.len() <= NAME_LENGTH_MAX && !name.starts_with('.') && name.chars().all(is_plain)
}
