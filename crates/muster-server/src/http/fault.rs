//! Every way in which a request is not done, and the problem document that says so.
//!
//! A refusal keeps its code, its sentence and its hint; the table here only adds the HTTP status.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use muster_core::Refusal;
use muster_protocol::problem::Problem;
use muster_store::StoreError;

use crate::cluster::Declined;

/// The media type of every error.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Seconds after which a client may try again when the server cannot serve.
const RETRY_SECONDS: u64 = 1;

/// Why a request is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    status: StatusCode,
    code: &'static str,
    detail: String,
    hint: Option<String>,
    retry_after_s: Option<u64>,
}

impl Fault {
    /// A fault with a stable code and a sentence for people.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Fault {
        Fault { status, code, detail: detail.into(), hint: None, retry_after_s: None }
    }

    /// The same with the next thing to try.
    pub fn hint(self, hint: impl Into<String>) -> Fault {
        Fault { hint: Some(hint.into()), ..self }
    }

    /// The same with the time after which to try again.
    pub fn retry_after(self, seconds: u64) -> Fault {
        Fault { retry_after_s: Some(seconds), ..self }
    }

    /// The request cannot be read.
    pub fn malformed(detail: impl Into<String>) -> Fault {
        Fault::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// A value can be read and cannot be.
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Fault {
        Refusal::Invalid { field, problem: problem.into() }.into()
    }

    /// The caller may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Fault {
        Fault::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// The server cannot serve at the moment.
    pub fn unavailable(detail: impl Into<String>) -> Fault {
        Fault::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retry_after(RETRY_SECONDS)
    }

    /// Something went wrong that should not; the log has the details.
    pub fn internal(detail: impl Into<String>) -> Fault {
        Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The document that is sent.
    pub fn problem(&self) -> Problem {
        Problem {
            kind: format!("urn:muster:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Error").to_string(),
            status: self.status.as_u16(),
            code: self.code.to_string(),
            detail: self.detail.clone(),
            hint: self.hint.clone(),
            error: self.detail.clone(),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let body = muster_json::to_vec(&self.problem());
        let content_type = [(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON))];
        let mut response = (self.status, content_type, body).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The one table from refusals to HTTP.
fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::UnknownJob { .. }
        | Refusal::UnknownTenant { .. }
        | Refusal::UnknownNode { .. }
        | Refusal::UnknownGpu { .. }
        | Refusal::UnknownToken { .. }
        | Refusal::UnknownWindow { .. }
        | Refusal::UnknownPolicy { .. } => StatusCode::NOT_FOUND,
        Refusal::OverQuota { .. }
        | Refusal::OverUserQuota { .. }
        | Refusal::InactiveTenant { .. }
        | Refusal::OverPriorityCeiling { .. }
        | Refusal::NotOwner { .. }
        | Refusal::PolicyRefuses { .. } => StatusCode::FORBIDDEN,
        Refusal::DuplicateTenant { .. }
        | Refusal::DuplicateToken { .. }
        | Refusal::TenantBusy { .. }
        | Refusal::DefaultTenant
        | Refusal::NodeJoined { .. }
        | Refusal::NodeBusy { .. }
        | Refusal::GpuBusy { .. }
        | Refusal::PoolInUse { .. }
        | Refusal::KeyReused { .. }
        | Refusal::WrongPhase { .. }
        | Refusal::StaleReport { .. } => StatusCode::CONFLICT,
        Refusal::QueueFull { .. } | Refusal::TenantQueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
        Refusal::Invalid { .. }
        | Refusal::UnknownPool { .. }
        | Refusal::Infeasible { .. }
        | Refusal::ReservedName { .. }
        | Refusal::DeadDependency { .. }
        | Refusal::GangsOff { .. }
        | Refusal::Unsupported { .. } => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        let status = status_of(&refusal);
        let fault = Fault::new(status, refusal.code(), refusal.to_string());
        let fault = Fault { hint: refusal.hint(), ..fault };
        if status == StatusCode::TOO_MANY_REQUESTS { fault.retry_after(RETRY_SECONDS) } else { fault }
    }
}

impl From<Declined> for Fault {
    fn from(declined: Declined) -> Fault {
        match declined {
            Declined::Refused(refusal) => refusal.into(),
            Declined::Unavailable { why } => Fault::unavailable(why),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(fault: StoreError) -> Fault {
        tracing::warn!(%fault, "a table could not be read");
        if fault.heals_by_reload() {
            return Fault::unavailable("the database does not answer");
        }
        Fault::internal("the tables could not be read; the server's log says why")
    }
}
