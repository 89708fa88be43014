//! Secrets of jobs: set, list, remove. No response contains a value.

use axum::extract::{Path, State};
use muster_core::objects::secret::{Secret as Core, SecretId};
use muster_core::objects::token::Role;
use muster_core::state::SECRET_BYTES_MAX;
use muster_protocol::secret::{Secret, SecretList, SecretSpec};
use muster_protocol::submit::Acknowledgement;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::json::Json;
use crate::http::query::Query;
use crate::identity::Caller;
use crate::secrets::SecretFault;

/// Which of the secrets of a name is meant.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct SecretQuery {
    /// Tenant of the secret. Default: the caller's tenant, or `default`.
    tenant_id: Option<String>,
    /// User whose jobs get it. Default: the caller.
    user: Option<String>,
    /// True for a secret of all users of the tenant.
    shared: bool,
}

/// Set the value of a secret
///
/// The value is stored sealed and is never shown again. Running jobs keep the value with which they started. Members set
/// their own secrets; a tenant-admin also those of the tenant and of its users.
#[utoipa::path(put, path = "/api/v1/secrets/{name}", tag = "secrets", request_body = SecretSpec,
    params(("name" = String, Path, description = "Name, as that of an environment variable")),
    responses((status = 200, description = "Set", body = Secret)))]
pub async fn set(
    State(app): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Json(spec): Json<SecretSpec>,
) -> Result<Json<Secret>, ApiError> {
    // A standby says so before it reads the key.
    app.read_state(|_| ())?;
    if spec.value.len() as u64 > SECRET_BYTES_MAX {
        let problem = format!("has {} bytes; at most {SECRET_BYTES_MAX} are allowed", spec.value.len());
        return Err(ApiError::invalid("value", problem));
    }
    let scope = (spec.tenant_id.as_deref(), spec.user.as_deref(), spec.shared);
    let id = secret_id(&caller, name, scope)?;
    app.secrets.set(&app.cluster, caller.actor, (id.clone(), spec.value)).await?;
    let shown = app.read_state(|state| state.secrets.get(&id).map(api_secret))?;
    shown.map(Json).ok_or_else(|| ApiError::unavailable("the secret was removed meanwhile"))
}

/// List secrets
///
/// Names, owners and sizes. A member sees its own secrets and those of the tenant, a tenant-admin all secrets of the tenant.
#[utoipa::path(get, path = "/api/v1/secrets", tag = "secrets",
    responses((status = 200, description = "The secrets that the caller may use or manage", body = SecretList)))]
pub async fn list(State(app): State<AppState>, caller: Caller) -> Result<Json<SecretList>, ApiError> {
    let secrets: Vec<Secret> = app.read_state(|state| {
        let seen = state.secrets.values().filter(|secret| sees_secret(&caller, &secret.id));
        seen.map(api_secret).collect()
    })?;
    Ok(Json(SecretList { total: secrets.len() as u64, secrets }))
}

fn sees_secret(caller: &Caller, id: &SecretId) -> bool {
    let is_own = id.owner.as_ref().is_none_or(|owner| *owner == caller.actor.name);
    caller.sees_tenant(id.tenant.as_str()) && (is_own || caller.role >= Role::TenantAdmin)
}

/// Remove a secret
///
/// Running jobs keep what they have. A job that uses it and starts later fails with the reason.
#[utoipa::path(delete, path = "/api/v1/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, description = "The secret"), SecretQuery),
    responses((status = 200, description = "Removed", body = Acknowledgement)))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<SecretQuery>,
) -> Result<Json<Acknowledgement>, ApiError> {
    let scope = (query.tenant_id.as_deref(), query.user.as_deref(), query.shared);
    let id = secret_id(&caller, name, scope)?;
    let message = format!("secret `{}` was removed", id.name);
    app.secrets.remove(&app.cluster, caller.actor, id).await?;
    Ok(Json(Acknowledgement { message }))
}

fn secret_id(
    caller: &Caller,
    name: String,
    (tenant, user, shared): (Option<&str>, Option<&str>, bool),
) -> Result<SecretId, ApiError> {
    let owner = match (shared, user) {
        (true, Some(_)) => return Err(ApiError::invalid("user", "a shared secret belongs to no user")),
        (true, None) => None,
        (false, Some(user)) if user.is_empty() || user.chars().count() > 255 || user.chars().any(char::is_control) => {
            return Err(ApiError::invalid("user", "must be 1 to 255 printable characters"));
        }
        (false, user) => Some(user.unwrap_or(&caller.actor.name).to_string()),
    };
    Ok(SecretId { tenant: caller.target_tenant(tenant)?, owner, name })
}

fn api_secret(secret: &Core) -> Secret {
    Secret {
        name: secret.id.name.clone(),
        tenant_id: secret.id.tenant.to_string(),
        user: secret.id.owner.clone(),
        bytes: secret.bytes,
        set_at: rfc3339(secret.set_at.0),
        set_by: secret.set_by.clone(),
    }
}

impl From<SecretFault> for ApiError {
    fn from(fault: SecretFault) -> ApiError {
        match fault.into_refusal() {
            Ok(refusal) => refusal.into(),
            Err(SecretFault::Command(error)) => error.into(),
            Err(fault @ (SecretFault::NoKey { .. } | SecretFault::WrongKey { .. })) => {
                ApiError::unavailable(fault.to_string())
            }
            Err(SecretFault::Store(error)) => error.into(),
            Err(fault) => ApiError::internal(fault.to_string()),
        }
    }
}
