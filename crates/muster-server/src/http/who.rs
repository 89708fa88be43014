//! Who asks, as handlers need it: established by `access`, confined to what they may see.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use muster_core::{Refusal, TenantId};

use crate::http::access::Caller;
use crate::http::fault::Fault;
use crate::identity::Who;

/// The tenant that exists from the first start.
const DEFAULT_TENANT: &str = "default";

/// The token a request brings.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
}

/// How far a caller reaches, by the names of tenants as rows hold them.
pub trait Reach {
    /// The only tenant whose objects exist for them; `None` when all do.
    fn confined_to(&self) -> Option<&TenantId>;

    /// Whether objects of this tenant exist for them.
    fn sees_tenant(&self, tenant: &str) -> bool {
        self.confined_to().is_none_or(|own| own.as_str() == tenant)
    }

    /// The tenants to look for: those asked for, as far as they may be seen.
    fn tenants(&self, asked: Option<&str>) -> Option<Vec<String>> {
        match (self.confined_to(), asked) {
            (None, asked) => asked.map(|asked| vec![asked.to_string()]),
            (Some(own), asked) if asked.is_none_or(|asked| asked == own.as_str()) => {
                Some(vec![own.to_string()])
            }
            (Some(_), _) => Some(Vec::new()),
        }
    }

    /// The tenant to act for: the one asked for, else their own, else the one that always exists.
    fn acts_for(&self, asked: Option<&str>) -> Result<TenantId, Fault> {
        let text = match (asked, self.confined_to()) {
            (None, Some(own)) => return Ok(own.clone()),
            (asked, _) => asked.unwrap_or(DEFAULT_TENANT),
        };
        let tenant: TenantId =
            text.parse().map_err(|error| Fault::invalid("tenant_id", format!("{error}")))?;
        match self.sees_tenant(tenant.as_str()) {
            true => Ok(tenant),
            false => Err(Refusal::UnknownTenant { tenant }.into()),
        }
    }
}

impl Reach for Who {
    fn confined_to(&self) -> Option<&TenantId> {
        self.tenant.as_ref().filter(|_| !self.role.is_cluster_wide())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Who, Fault> {
        let established = parts.extensions.get::<Who>().cloned();
        established.ok_or_else(|| Fault::internal("nobody asked who this is"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Fault> {
        let established = parts.extensions.get::<Caller>().cloned();
        established.ok_or_else(|| Fault::internal("nobody asked who this is"))
    }
}
