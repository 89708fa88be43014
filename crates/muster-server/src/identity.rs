//! Who asks, and what they may do. Every door asks here before it hands a command on.
//!
//! In local mode whoever reaches the loopback address is the administrator. Otherwise a request brings a token;
//! the state knows its hash, its role and its tenant. Nothing is decided here about objects that do not exist:
//! what a caller may not see is answered like what is not there, and that is the doors' business.

mod file;
mod secret;

use std::path::Path;

use muster_core::token::{FIRST_ADMIN_NAME, LOCAL_NAME, Role, Token};
use muster_core::{Actor, State, TenantId, Timestamp};

pub use file::{FileError, admin_token_path, read_token_file, write_private};
pub use secret::{NoRandomness, Secret, Wish, mint};

use crate::config::AuthMode;

/// How callers are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Everybody who reaches us is the person at this machine.
    Local,
    /// Everybody brings a token.
    Tokens,
}

/// Who asks, as established from their token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// The name under which acts are recorded.
    pub actor: Actor,
    /// What they may do.
    pub role: Role,
    /// Where; `None` reaches every tenant.
    pub tenant: Option<TenantId>,
    /// The id of the token they brought.
    pub token: Option<String>,
}

/// What somebody wants to do, in kinds that differ in the role they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Look at a tenant's objects, or at the nodes and figures that concern everybody.
    Look,
    /// Submit jobs, and cancel, hold, release, requeue and change those that the core lets them change.
    Work,
    /// Make and revoke tokens.
    Manage,
    /// Nodes, GPUs, the audit log.
    Operate,
    /// Tenants and the settings of the cluster.
    Administer,
}

/// Why a caller is not let in. All variants read the same, so that nobody learns from the answer which tokens
/// exist; [`AuthError::reason`] is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a valid token is needed; send `Authorization: Bearer mst_…`")]
pub enum AuthError {
    /// No token came with the request.
    Missing,
    /// It is not a token of ours, or was damaged in copying.
    Malformed,
    /// No such token, or it was revoked.
    Unknown {
        /// Its public part.
        id: String,
    },
    /// The public part exists, the secret is another.
    WrongSecret {
        /// Its public part.
        id: String,
    },
    /// It has ended by itself.
    Expired {
        /// Its public part.
        id: String,
    },
}

impl From<AuthMode> for Identity {
    fn from(mode: AuthMode) -> Identity {
        match mode {
            AuthMode::Local => Identity::Local,
            AuthMode::Tokens => Identity::Tokens,
        }
    }
}

impl Identity {
    /// Establish who asks. `bearer` is what stands behind `Authorization: Bearer`.
    pub fn authenticate(self, bearer: Option<&str>, state: &State, now: Timestamp) -> Result<Who, AuthError> {
        match (self, bearer) {
            (Identity::Local, _) => Ok(Who::local()),
            (Identity::Tokens, None) => Err(AuthError::Missing),
            (Identity::Tokens, Some(text)) => known_token(text, state, now).map(Who::with),
        }
    }
}

fn known_token<'a>(text: &str, state: &'a State, now: Timestamp) -> Result<&'a Token, AuthError> {
    let id = secret::id_of(text).ok_or(AuthError::Malformed)?;
    let Some(token) = state.tokens.get(id) else {
        return Err(AuthError::Unknown { id: id.to_string() });
    };
    if !secret::fits(text, &token.hash) {
        return Err(AuthError::WrongSecret { id: id.to_string() });
    }
    if token.expires_at.is_some_and(|end| end <= now) {
        return Err(AuthError::Expired { id: id.to_string() });
    }
    Ok(token)
}

impl AuthError {
    /// What really happened, for the log and never for the caller.
    pub fn reason(&self) -> String {
        match self {
            AuthError::Missing => "no token".to_string(),
            AuthError::Malformed => "not a token, or damaged".to_string(),
            AuthError::Unknown { id } => format!("token `{id}` is unknown or revoked"),
            AuthError::WrongSecret { id } => format!("token `{id}` came with a wrong secret"),
            AuthError::Expired { id } => format!("token `{id}` has expired"),
        }
    }
}

impl Who {
    /// The person at this machine.
    pub fn local() -> Who {
        Who { actor: Actor::local(LOCAL_NAME), role: Role::Admin, tenant: None, token: None }
    }

    fn with(token: &Token) -> Who {
        Who {
            actor: Actor::bearer(token),
            role: token.role,
            tenant: token.tenant.clone(),
            token: Some(token.id.clone()),
        }
    }

    /// The user whose jobs are the caller's own; `None` in local mode, where all jobs are.
    pub fn user(&self) -> Option<&str> {
        self.token.is_some().then_some(self.actor.name.as_str())
    }

    /// Whether objects of this tenant exist for them.
    pub fn sees(&self, tenant: &TenantId) -> bool {
        self.role.is_cluster_wide() || self.tenant.as_ref() == Some(tenant)
    }

    /// Whether they may do this to objects of a tenant, or to the cluster itself where `tenant` is `None`.
    pub fn may(&self, verb: Verb, tenant: Option<&TenantId>) -> bool {
        let within_reach = match tenant {
            Some(tenant) => self.sees(tenant),
            None => verb == Verb::Look || self.role.is_cluster_wide(),
        };
        within_reach && self.role >= verb.needs()
    }

    /// Whether they may make or revoke a token of this role: nobody hands out more than they have.
    pub fn may_grant(&self, role: Role, tenant: Option<&TenantId>) -> bool {
        self.may(Verb::Manage, tenant) && role <= self.role && role.is_cluster_wide() == tenant.is_none()
    }
}

impl Verb {
    /// The least role that may.
    pub fn needs(self) -> Role {
        match self {
            Verb::Look => Role::Viewer,
            Verb::Work => Role::Member,
            Verb::Manage => Role::TenantAdmin,
            Verb::Operate => Role::Operator,
            Verb::Administer => Role::Admin,
        }
    }
}

/// Why the first token could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The system gave no random numbers.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// It could not be written down.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Make the first administrator's token, unless there is one that still works.
///
/// The caller prints the secret once and adds the token by `Command::AddToken`. The file comes first: if we die
/// in between, the next start finds no administrator and makes another, while a token that nobody wrote down
/// would lock everybody out. The same way an operator with access to the data folder gets back in after the
/// last administrator's token was revoked: restart.
pub fn bootstrap(
    data_dir: &Path,
    state: &State,
    now: Timestamp,
) -> Result<Option<(Token, Secret)>, BootstrapError> {
    let works = |token: &Token| token.role == Role::Admin && token.expires_at.is_none_or(|end| end > now);
    if state.tokens.values().any(works) {
        return Ok(None);
    }
    let name = FIRST_ADMIN_NAME.to_string();
    let wish = Wish { name, role: Role::Admin, tenant: None, expires_at: None, priority_max: None };
    let (token, secret) = mint(wish, now)?;
    write_private(&admin_token_path(data_dir), format!("{}\n", secret.reveal()).as_bytes())?;
    Ok(Some((token, secret)))
}

#[cfg(test)]
mod tests;
