//! Errors of the API and their problem documents (RFC 9457, `application/problem+json`).
//!
//! A refusal of the core keeps its code, its sentence and its hint; the table here only adds the HTTP status.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use muster_core::Refusal;
use muster_protocol::problem::Problem;
use muster_store::StoreError;

use crate::cluster::CommandError;
use crate::evaluations::EvaluationRefusal;
use crate::request_json::RequestJsonError;
use crate::whatif::WhatIfError;

/// The media type of every error.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Seconds after which a client may retry while the server is unavailable.
const RETRY_SECONDS: u64 = 1;

/// Why a request was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    detail: String,
    hint: Option<String>,
    retry_after_s: Option<u64>,
}

impl ApiError {
    /// An error with a stable code and a sentence for people.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> ApiError {
        ApiError { status, code, detail: detail.into(), hint: None, retry_after_s: None }
    }

    /// The same error with a hint: the next thing to try.
    pub fn hint(self, hint: impl Into<String>) -> ApiError {
        ApiError { hint: Some(hint.into()), ..self }
    }

    /// The same error with a `Retry-After` header.
    pub fn retry_after(self, seconds: u64) -> ApiError {
        ApiError { retry_after_s: Some(seconds), ..self }
    }

    /// The request cannot be parsed (400).
    pub fn malformed(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    /// A value parses and is out of range or not allowed (422).
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> ApiError {
        Refusal::Invalid { field, problem: problem.into() }.into()
    }

    /// The caller's role or tenant does not allow this (403).
    pub fn forbidden(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// The server cannot serve at the moment (503); the client may retry.
    pub fn unavailable(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retry_after(RETRY_SECONDS)
    }

    /// A failure of the server itself (500); the server log has the details.
    pub fn internal(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The body of the response.
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

impl IntoResponse for ApiError {
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

/// The HTTP status of each refusal; the only such table.
fn http_status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::UnknownJob { .. }
        | Refusal::UnknownTenant { .. }
        | Refusal::UnknownNode { .. }
        | Refusal::UnknownGpu { .. }
        | Refusal::UnknownToken { .. }
        | Refusal::UnknownWindow { .. }
        | Refusal::UnknownSecret { .. }
        | Refusal::UnknownPolicy { .. } => StatusCode::NOT_FOUND,
        Refusal::OverQuota { .. }
        | Refusal::OverUserQuota { .. }
        | Refusal::InactiveTenant { .. }
        | Refusal::OverPriorityCeiling { .. }
        | Refusal::NotOwner { .. }
        | Refusal::NotOwnSecret { .. }
        | Refusal::JoinTokenUnusable { .. }
        | Refusal::JoinTokenOfAnotherNode { .. }
        | Refusal::PolicyRefuses { .. } => StatusCode::FORBIDDEN,
        Refusal::DuplicateTenant { .. }
        | Refusal::DuplicateToken { .. }
        | Refusal::NodeEnrolled { .. }
        | Refusal::OtherClusterCa { .. }
        | Refusal::TenantBusy { .. }
        | Refusal::DefaultTenant
        | Refusal::NodeJoined { .. }
        | Refusal::NodeBusy { .. }
        | Refusal::NoBootId { .. }
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

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        let status = http_status(&refusal);
        let error = ApiError::new(status, refusal.code(), refusal.to_string());
        let error = ApiError { hint: refusal.hint(), ..error };
        if status == StatusCode::TOO_MANY_REQUESTS { error.retry_after(RETRY_SECONDS) } else { error }
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> ApiError {
        match error {
            CommandError::Refused(refusal) => refusal.into(),
            CommandError::Unavailable { why } => ApiError::unavailable(why),
        }
    }
}

impl From<RequestJsonError> for ApiError {
    fn from(error: RequestJsonError) -> ApiError {
        let RequestJsonError { code, detail, hint } = error;
        ApiError { hint, ..ApiError::new(StatusCode::BAD_REQUEST, code, detail) }
    }
}

impl From<EvaluationRefusal> for ApiError {
    fn from(refusal: EvaluationRefusal) -> ApiError {
        let status = match refusal {
            EvaluationRefusal::CallerOpenLimit { .. } | EvaluationRefusal::CallerTimeLimit { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            EvaluationRefusal::ServerBusy => StatusCode::SERVICE_UNAVAILABLE,
        };
        ApiError::new(status, refusal.code(), refusal.to_string())
            .hint(refusal.hint())
            .retry_after(refusal.retry_after_s())
    }
}

impl From<WhatIfError> for ApiError {
    fn from(error: WhatIfError) -> ApiError {
        match error {
            WhatIfError::Refused(refusal) => refusal.into(),
            WhatIfError::Json(error) => error.into(),
            WhatIfError::Store(fault) => fault.into(),
            WhatIfError::Internal(detail) => ApiError::internal(detail),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        tracing::warn!(%error, "could not read the database");
        if error.is_recoverable_by_reload() {
            return ApiError::unavailable("the database does not answer");
        }
        ApiError::internal("could not read the database; see the server log")
    }
}
