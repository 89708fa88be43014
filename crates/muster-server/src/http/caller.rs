//! The caller of a request as handlers extract it: authenticated by `access`, and restricted to the tenants it may see.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use muster_core::{Refusal, TenantId};

use crate::http::api_error::ApiError;
use crate::identity::Caller;

/// The tenant that exists from the first start.
const DEFAULT_TENANT: &str = "default";

const NOT_AUTHENTICATED: &str = "the request was not authenticated (no access rule ran before the handler)";

/// The key under which a caller's requests and streams are counted: its token id, or its address without a token.
#[derive(Debug, Clone)]
pub struct CallerKey(pub String);

/// The bearer token of a request.
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
}

/// Which tenants' objects a caller may see. Tenants are compared by name, as the tables hold them.
pub trait TenantVisibility {
    /// The only tenant whose objects the caller sees; `None` if it sees all.
    fn tenant_scope(&self) -> Option<&TenantId>;

    /// Whether the caller sees objects of this tenant.
    fn sees_tenant(&self, tenant: &str) -> bool {
        self.tenant_scope().is_none_or(|own| own.as_str() == tenant)
    }

    /// The tenants to query: the requested one, or all that the caller sees. `None` means all tenants.
    fn tenant_filter(&self, requested: Option<&str>) -> Option<Vec<String>> {
        match (self.tenant_scope(), requested) {
            (None, requested) => requested.map(|requested| vec![requested.to_string()]),
            (Some(own), requested) if requested.is_none_or(|requested| requested == own.as_str()) => {
                Some(vec![own.to_string()])
            }
            (Some(_), _) => Some(Vec::new()),
        }
    }

    /// The tenant to act for: the requested one, else the caller's own, else the default tenant.
    fn target_tenant(&self, requested: Option<&str>) -> Result<TenantId, ApiError> {
        let text = match (requested, self.tenant_scope()) {
            (None, Some(own)) => return Ok(own.clone()),
            (requested, _) => requested.unwrap_or(DEFAULT_TENANT),
        };
        let tenant: TenantId = text.parse().map_err(|error| ApiError::invalid("tenant_id", format!("{error}")))?;
        match self.sees_tenant(tenant.as_str()) {
            true => Ok(tenant),
            false => Err(Refusal::UnknownTenant { tenant }.into()),
        }
    }
}

impl TenantVisibility for Caller {
    fn tenant_scope(&self) -> Option<&TenantId> {
        self.tenant.as_ref().filter(|_| !self.role.is_cluster_wide())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, ApiError> {
        let established = parts.extensions.get::<Caller>().cloned();
        established.ok_or_else(|| ApiError::internal(NOT_AUTHENTICATED))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for CallerKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<CallerKey, ApiError> {
        let established = parts.extensions.get::<CallerKey>().cloned();
        established.ok_or_else(|| ApiError::internal(NOT_AUTHENTICATED))
    }
}
