//! Errors: the problem document of REST as a gRPC status.
//!
//! The message is the sentence of the problem. The metadata `muster-code` is its stable code, and the details (of the
//! standard type `google.rpc.Status`) contain the whole `muster.v1.Problem` with the hint.

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use muster_protocol::problem::Problem;
use muster_wire::v1;
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::http::ApiError;

/// Metadata of errors.
const CODE_METADATA: &str = "muster-code";

const PROBLEM_TYPE_URL: &str = "type.googleapis.com/muster.v1.Problem";

/// Headers of REST responses that are metadata too.
const FORWARDED_HEADERS: [HeaderName; 2] = [header::RETRY_AFTER, HeaderName::from_static("x-request-id")];

/// `google.rpc.Status`, the type of the details of an error.
#[derive(Clone, PartialEq, Message)]
struct ErrorDetails {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<ErrorDetail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct ErrorDetail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The status of a response of REST that is no success.
pub fn status_of_response(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Status {
    match muster_json::from_slice::<Problem>(body) {
        Ok(problem) => status_of_problem(problem, metadata(headers)),
        Err(_) => Status::unknown(format!("the REST operation answered {status}")),
    }
}

/// The status of an error that is found before or after the REST operation.
pub fn status_of_error(error: &ApiError) -> Status {
    status_of_problem(error.problem(), MetadataMap::new())
}

pub fn status_of_problem(problem: Problem, mut metadata: MetadataMap) -> Status {
    let code = grpc_code(&problem);
    if let Ok(text) = MetadataValue::try_from(problem.code.as_str()) {
        metadata.insert(CODE_METADATA, text);
    }
    let message = problem.detail.clone();
    let detail = ErrorDetail { type_url: PROBLEM_TYPE_URL.to_string(), value: wire_problem(problem).encode_to_vec() };
    let details = ErrorDetails { code: code as i32, message: message.clone(), details: vec![detail] };
    Status::with_details_and_metadata(code, message, details.encode_to_vec().into(), metadata)
}

/// Metadata of a response: the headers that a client of gRPC needs.
pub fn metadata(headers: &HeaderMap) -> MetadataMap {
    let value = |name: HeaderName| headers.get(&name).cloned().map(|value| (name, value));
    MetadataMap::from_headers(FORWARDED_HEADERS.into_iter().filter_map(value).collect())
}

fn grpc_code(problem: &Problem) -> Code {
    match (problem.status, problem.code.as_str()) {
        (409, "duplicate-tenant" | "duplicate-token") => Code::AlreadyExists,
        (409, "lagged") => Code::Aborted,
        (409, _) => Code::FailedPrecondition,
        (400 | 415 | 422, _) => Code::InvalidArgument,
        (401, _) => Code::Unauthenticated,
        (403 | 421, _) => Code::PermissionDenied,
        (404, _) => Code::NotFound,
        (405 | 501, _) => Code::Unimplemented,
        (413 | 429, _) => Code::ResourceExhausted,
        (500, _) => Code::Internal,
        (503, _) => Code::Unavailable,
        _ => Code::Unknown,
    }
}

fn wire_problem(problem: Problem) -> v1::Problem {
    v1::Problem {
        r#type: problem.kind,
        title: problem.title,
        status: u32::from(problem.status),
        code: problem.code,
        detail: problem.detail,
        hint: problem.hint,
        error: problem.error,
    }
}
