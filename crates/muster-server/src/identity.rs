//! Authentication of callers and their permissions. Every API checks here before it sends a command.
//!
//! In local mode every caller on the loopback address is the administrator. Otherwise a request carries a token; the
//! state holds the token's hash, role and tenant. This module only says whether a caller may see an object; the APIs
//! answer for an invisible object as if it did not exist.

mod file;
mod secret;

use std::path::Path;

use muster_core::objects::token::{FIRST_ADMIN_NAME, LOCAL_NAME, Role, Token};
use muster_core::{Actor, State, TenantId, Timestamp};

pub use file::{FileError, admin_token_path, read_token_file, write_private};
pub use secret::{NewToken, NoRandomness, Secret, TokenNumbers, mint, mint_join_token, mint_join_token_of};

use crate::config::AuthMode;

/// How callers are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authenticator {
    /// Every caller is the administrator of this machine.
    Local,
    /// Every caller needs a token.
    Tokens,
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name in the audit log and as owner of jobs.
    pub actor: Actor,
    pub role: Role,
    /// `None` for all tenants.
    pub tenant: Option<TenantId>,
    /// Id of the caller's token; `None` in local mode.
    pub token: Option<String>,
}

/// A kind of request; each kind needs a minimum role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Read a tenant's objects, or the nodes and figures that every caller may see.
    Read,
    /// Submit jobs, and cancel, hold, release, requeue and change jobs. The core checks the owner of a job.
    ManageJobs,
    /// Create and revoke tokens.
    ManageTenant,
    /// Nodes, GPUs, the audit log.
    Operate,
    /// Tenants and the settings of the cluster.
    Administer,
}

/// Why authentication fails. All variants have the same message, so that a caller cannot learn which tokens exist;
/// [`AuthError::reason`] is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a valid token is needed; send `Authorization: Bearer mst_…`")]
pub enum AuthError {
    /// The request carries no token.
    Missing,
    /// The text is not a token, or the token was damaged in copying.
    Malformed,
    /// There is no token with this id, or it was revoked.
    Unknown {
        id: String,
    },
    /// The id exists, but the secret does not match.
    WrongSecret {
        id: String,
    },
    Expired {
        id: String,
    },
}

impl From<AuthMode> for Authenticator {
    fn from(mode: AuthMode) -> Authenticator {
        match mode {
            AuthMode::Local => Authenticator::Local,
            AuthMode::Tokens => Authenticator::Tokens,
        }
    }
}

impl Authenticator {
    /// Authenticate a caller. `bearer` is the value after `Authorization: Bearer`.
    pub fn authenticate(self, bearer: Option<&str>, state: &State, now: Timestamp) -> Result<Caller, AuthError> {
        match (self, bearer) {
            (Authenticator::Local, _) => Ok(Caller::local()),
            (Authenticator::Tokens, None) => Err(AuthError::Missing),
            (Authenticator::Tokens, Some(text)) => verify_token(text, state, now).map(Caller::from_token),
        }
    }
}

fn verify_token<'a>(text: &str, state: &'a State, now: Timestamp) -> Result<&'a Token, AuthError> {
    let id = secret::token_id(text).ok_or(AuthError::Malformed)?;
    let Some(token) = state.tokens.get(id) else {
        return Err(AuthError::Unknown { id: id.to_string() });
    };
    if !secret::matches_hash(text, &token.hash) {
        return Err(AuthError::WrongSecret { id: id.to_string() });
    }
    if token.expires_at.is_some_and(|end| end <= now) {
        return Err(AuthError::Expired { id: id.to_string() });
    }
    Ok(token)
}

/// The id of an unused join token, if the text is its secret. Whether the token has expired is decided by the state.
pub fn verify_join_token(text: &str, state: &State) -> Option<String> {
    let token = state.join_tokens.get(secret::join_token_id(text)?)?;
    secret::matches_hash(text, &token.hash).then(|| token.id.clone())
}

impl AuthError {
    /// The actual reason, for the log and never for the caller.
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

impl Caller {
    /// The administrator of this machine, in local mode.
    pub fn local() -> Caller {
        Caller { actor: Actor::local(LOCAL_NAME), role: Role::Admin, tenant: None, token: None }
    }

    fn from_token(token: &Token) -> Caller {
        Caller {
            actor: Actor::bearer(token),
            role: token.role,
            tenant: token.tenant.clone(),
            token: Some(token.id.clone()),
        }
    }

    /// The user whose jobs are the caller's own; `None` in local mode, where all jobs are the caller's.
    pub fn user(&self) -> Option<&str> {
        self.token.is_some().then_some(self.actor.name.as_str())
    }

    /// Whether the caller may see objects of this tenant.
    pub fn sees(&self, tenant: &TenantId) -> bool {
        self.role.is_cluster_wide() || self.tenant.as_ref() == Some(tenant)
    }

    /// Whether the caller has a permission for objects of a tenant, or for the cluster itself if `tenant` is `None`.
    pub fn may(&self, permission: Permission, tenant: Option<&TenantId>) -> bool {
        let is_in_scope = match tenant {
            Some(tenant) => self.sees(tenant),
            None => permission == Permission::Read || self.role.is_cluster_wide(),
        };
        is_in_scope && self.role >= permission.minimum_role()
    }

    /// Whether the caller may create or revoke a token of this role: never one above the caller's own.
    pub fn may_grant(&self, role: Role, tenant: Option<&TenantId>) -> bool {
        self.may(Permission::ManageTenant, tenant) && role <= self.role && role.is_cluster_wide() == tenant.is_none()
    }
}

impl Permission {
    pub fn minimum_role(self) -> Role {
        match self {
            Permission::Read => Role::Viewer,
            Permission::ManageJobs => Role::Member,
            Permission::ManageTenant => Role::TenantAdmin,
            Permission::Operate => Role::Operator,
            Permission::Administer => Role::Admin,
        }
    }
}

/// Why the first administrator token could not be created.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The token file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Create the first administrator token, unless a valid administrator token exists.
///
/// The caller prints the secret once and adds the token by `Command::AddToken`. The file is written first: if the server
/// dies in between, the next start finds no administrator and creates another token, while a token without a file would
/// lock everybody out. A restart also helps an operator with access to the data folder after the last administrator token
/// was revoked.
pub fn bootstrap(data_dir: &Path, state: &State, now: Timestamp) -> Result<Option<(Token, Secret)>, BootstrapError> {
    let is_valid = |token: &Token| token.role == Role::Admin && token.expires_at.is_none_or(|end| end > now);
    if state.tokens.values().any(is_valid) {
        return Ok(None);
    }
    let name = FIRST_ADMIN_NAME.to_string();
    let new = NewToken { name, role: Role::Admin, tenant: None, expires_at: None, priority_max: None };
    let (token, secret) = mint(new, now)?;
    write_private(&admin_token_path(data_dir), format!("{}\n", secret.reveal()).as_bytes())?;
    Ok(Some((token, secret)))
}

#[cfg(test)]
mod tests;
