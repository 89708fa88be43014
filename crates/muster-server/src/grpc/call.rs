//! One call: from the bytes of the request message to those of the response.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Response as HttpResponse};
use axum::response::Response;
use prost_reflect::DynamicMessage;
use tonic::Status;
use tonic::server::Grpc;
use tower::{ServiceExt, service_fn};

use super::answer::reply;
use super::codec::MessageCodec;
use super::event_stream::stream_reply;
use super::operations::Operation;
use super::rest_request::rest_request;
use super::status::status_of_error;
use crate::http::BODY_BYTES_MAX;
use crate::tls::ClientConnection;

/// Metadata of calls that are headers of REST requests.
const FORWARDED_METADATA: [HeaderName; 5] =
    [AUTHORIZATION, HOST, ORIGIN, HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-request-id")];

/// Who calls, and what is called.
struct Call {
    rest: Router,
    operation: Arc<Operation>,
    headers: HeaderMap,
    authority: Option<String>,
    peer: Option<ConnectInfo<SocketAddr>>,
    connection: Option<ClientConnection>,
}

pub async fn call_operation(rest: Router, operation: Arc<Operation>, request: Request) -> Response {
    let codec = MessageCodec { input: operation.input.clone() };
    let mut grpc = Grpc::new(codec).max_decoding_message_size(BODY_BYTES_MAX);
    let streaming = operation.streaming;
    let call = Arc::new(Call::new(rest, operation, &request));
    let response = match streaming {
        false => {
            let unary = service_fn(|request: tonic::Request<DynamicMessage>| {
                let call = call.clone();
                async move { reply(call.rest_response(request.get_ref()).await?, call.operation.output.clone()).await }
            });
            grpc.unary(unary, request).await
        }
        true => {
            let stream = service_fn(|request: tonic::Request<DynamicMessage>| {
                let call = call.clone();
                async move {
                    let message = request.into_inner();
                    let response = call.rest_response(&message).await?;
                    stream_reply(response, call.operation.output.clone(), outputs(&message)).await
                }
            });
            grpc.server_streaming(stream, request).await
        }
    };
    response.map(Body::new)
}

impl Call {
    fn new(rest: Router, operation: Arc<Operation>, request: &Request) -> Call {
        let mut headers = HeaderMap::new();
        for name in &FORWARDED_METADATA {
            for value in request.headers().get_all(name) {
                headers.append(name, value.clone());
            }
        }
        Call {
            rest,
            operation,
            headers,
            authority: request.uri().authority().map(ToString::to_string),
            peer: request.extensions().get().cloned(),
            connection: request.extensions().get().cloned(),
        }
    }

    /// The answer of the REST operation.
    async fn rest_response(&self, message: &DynamicMessage) -> Result<HttpResponse<Body>, Status> {
        let built = rest_request(&self.operation, message, self.authority.as_deref());
        let mut request = built.map_err(|error| status_of_error(&error))?;
        request.headers_mut().extend(self.headers.clone());
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(connection) = self.connection.clone() {
            request.extensions_mut().insert(connection);
        }
        match self.rest.clone().oneshot(request).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }
}

/// How many outputs a request follows: each of them ends by itself.
fn outputs(message: &DynamicMessage) -> usize {
    let streams = message.get_field_by_name("streams");
    let list = streams.as_ref().and_then(|value| value.as_str()).unwrap_or_default();
    list.split(',').count()
}
