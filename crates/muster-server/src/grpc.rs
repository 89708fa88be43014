//! Inbound adapter: the public gRPC API. Every method is an operation of the REST API.
//!
//! A call becomes the request of its REST operation, passes the layers and the handler of REST in this process, and the
//! answer becomes its response. So roles, tenants, limits, validation, error codes and the audit log are those of REST:
//! nothing about an operation is written twice. `rest.proto` names the operation of each method, and the fields of
//! messages have the names of the JSON fields.

mod codec;
mod health;
mod operations;
mod reflection;
mod rest_request;
mod status;

mod answer;
mod event_stream;

mod call;

pub mod listener;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use tonic::Status;
use tonic::service::Routes;

use crate::http::AppState;
use crate::http::access::check_caller;
use call::call_operation;
use operations::Operations;
use status::status_of_error;

pub use listener::GrpcListener;

/// What all calls share.
#[derive(Clone)]
struct Api {
    app: AppState,
    operations: Arc<Operations>,
    /// The REST API with its layers.
    rest: Router,
}

/// The routes of gRPC: the public services, health and reflection. `rest` is the router of the REST API.
///
/// # Panics
///
/// If the descriptors in the program are damaged.
pub async fn router(app: &AppState, rest: Router) -> Router {
    let operations = Operations::of_this_version();
    let routes = Routes::new(health::service(app, operations.services()).await);
    let routes = reflection::add_reflection(routes, operations.services());
    let api = Api { app: app.clone(), operations: Arc::new(operations), rest };
    routes.prepare().into_axum_router().fallback(move |request| serve_call(api, request))
}

async fn serve_call(api: Api, request: Request) -> Response {
    // Web pages can send other content types without asking first.
    if !is_grpc(request.headers()) {
        let sentence = "this port serves gRPC only: send `content-type: application/grpc`\n";
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, sentence).into_response();
    }
    let Some(operation) = api.operations.find(request.uri().path()) else {
        let sentence = format!("no such method `{}`; reflection lists the methods", request.uri().path());
        return Status::unimplemented(sentence).into_http::<Body>();
    };
    // Before the message is read: it may be large.
    if let Err(error) = check_caller(&api.app, (&operation.method, &operation.path), &request) {
        return status_of_error(&error).into_http::<Body>();
    }
    call_operation(api.rest.clone(), operation.clone(), request).await
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let rest = content_type.strip_prefix("application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("+proto") || rest.starts_with(';'))
}
