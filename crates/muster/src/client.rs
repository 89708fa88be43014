//! HTTP client of the server: JSON requests and server-sent events, over HTTP/1.1 with or without TLS.
//!
//! Commands are synchronous; the single-threaded runtime of the client makes each request a blocking call. A request
//! opens its own connection: most commands send one request, and an idle connection may have been closed meanwhile.

mod connect;
mod failure;
mod log_bytes;
mod retry;
mod sse;
mod target;

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, UPGRADE, USER_AGENT};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use muster_protocol::exec::ExecRequest;
use muster_server::identity::Secret;
use muster_wire::exec_frames;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use crate::connection::Connection;
use crate::error::CliError;
use connect::Connector;
pub use failure::{CallFailure, exit_for_status, stream_error};
pub use log_bytes::LogBytes;
pub use retry::new_idempotency_key;
pub use sse::{EventStream, SseEvent};
pub use target::RequestTarget;

/// Timeout of a request. Streams have none.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a request that is known to take long, such as a what-if.
const LONG_CALL_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Timeout of the start of a program inside a job; the server has a shorter one.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// Far above any page that a command requests; it stops a response that never ends.
const BODY_BYTES_MAX: usize = 256 << 20;

pub struct Client {
    connector: Connector,
    authorization: Option<HeaderValue>,
    runtime: Runtime,
}

/// A request before it is sent, kept so that it can be retried.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    method: Method,
    target: String,
    body: Option<Bytes>,
    idempotency_key: Option<String>,
    timeout: Duration,
}

impl Client {
    /// Opens no connection yet.
    pub fn new(connection: &Connection) -> Result<Client, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| CliError::failed(format!("cannot start the async runtime: {error}")))?;
        let authorization = connection.token.as_ref().map(authorization_header).transpose()?;
        Ok(Client { connector: Connector::new(connection)?, authorization, runtime })
    }

    /// The address of the server, for messages.
    pub fn server(&self) -> &str {
        self.connector.server()
    }

    pub fn get<T: DeserializeOwned>(&self, target: impl Into<RequestTarget>) -> Result<T, CliError> {
        self.fetch_json(&self.api_request(Method::GET, target.into(), None))
    }

    /// A request with a JSON body, sent once.
    pub fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        target: impl Into<RequestTarget>,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        self.fetch_json(&self.api_request(method, target.into(), Some(muster_json::to_vec(body).into())))
    }

    /// A POST request that the server may need minutes to answer.
    pub fn post_long_running<T: DeserializeOwned>(
        &self,
        target: impl Into<RequestTarget>,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        let call = self.api_request(Method::POST, target.into(), Some(muster_json::to_vec(body).into()));
        self.fetch_json(&ApiRequest { timeout: LONG_CALL_TIMEOUT, ..call })
    }

    /// A request without a body, sent once.
    pub fn send_without_body<T: DeserializeOwned>(
        &self,
        method: Method,
        target: impl Into<RequestTarget>,
    ) -> Result<T, CliError> {
        self.fetch_json(&self.api_request(method, target.into(), None))
    }

    /// A POST request that takes effect once, even if it is retried after a broken connection.
    pub fn post_idempotent<T: DeserializeOwned>(
        &self,
        target: impl Into<RequestTarget>,
        body: &impl Serialize,
        key: String,
    ) -> Result<T, CliError> {
        let body = Some(muster_json::to_vec(body).into());
        let call = ApiRequest { idempotency_key: Some(key), ..self.api_request(Method::POST, target.into(), body) };
        let body = retry::retry_until_answered(|| self.fetch_body(&call), |pause| self.sleep(pause));
        self.parse_json(body.map_err(|failure| failure.into_error(self.server()))?)
    }

    /// Unchanged bytes of an output: the target has `format=raw`.
    pub fn get_log_piece(&self, target: impl Into<RequestTarget>) -> Result<LogBytes, CliError> {
        let call = self.api_request(Method::GET, target.into(), None);
        let exchange = async {
            let response = self.send_and_check_status(&call, "application/octet-stream").await?;
            let headers = response.headers().clone();
            Ok(LogBytes::new(&headers, read_body(response).await?))
        };
        let piece = self.block_on_within(call.timeout, exchange);
        piece.map_err(|failure| failure.into_error(self.server()))?
    }

    /// Opens a stream of server-sent events.
    pub fn open_event_stream(&self, target: impl Into<RequestTarget>) -> Result<EventStream, CliError> {
        let call = self.api_request(Method::GET, target.into(), None);
        let response = self.runtime.block_on(self.send_and_check_status(&call, "text/event-stream"));
        response.map(EventStream::new).map_err(|failure| failure.into_error(self.server()))
    }

    /// Starts a program inside a job, and returns the connection to it.
    pub fn open_exec(&self, target: impl Into<RequestTarget>, request: &ExecRequest) -> Result<Upgraded, CliError> {
        let body = Some(muster_json::to_vec(request).into());
        let call = ApiRequest { timeout: START_TIMEOUT, ..self.api_request(Method::POST, target.into(), body) };
        let exchange = async {
            let mut sender = self.connector.open().await?;
            let mut request = self.http_request(&call, "application/json")?;
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            request.headers_mut().insert(UPGRADE, HeaderValue::from_static(exec_frames::UPGRADE));
            let response = sender.send_request(request).await.map_err(CallFailure::connection_dropped)?;
            let status = response.status();
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return hyper::upgrade::on(response).await.map_err(CallFailure::connection_dropped);
            }
            Err(CallFailure::from_response(status, &read_body(response).await?))
        };
        self.block_on_within(call.timeout, exchange).map_err(|failure| failure.into_error(self.server()))
    }

    /// Runs a future to completion on the client's runtime.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn sleep(&self, pause: Duration) {
        // Inside a future, because a timer can only be created on the runtime.
        self.runtime.block_on(async { tokio::time::sleep(pause).await });
    }

    fn api_request(&self, method: Method, target: RequestTarget, body: Option<Bytes>) -> ApiRequest {
        ApiRequest { method, target: target.to_string(), body, idempotency_key: None, timeout: CALL_TIMEOUT }
    }

    fn fetch_json<T: DeserializeOwned>(&self, call: &ApiRequest) -> Result<T, CliError> {
        self.parse_json(self.fetch_body(call).map_err(|failure| failure.into_error(self.server()))?)
    }

    fn parse_json<T: DeserializeOwned>(&self, body: Bytes) -> Result<T, CliError> {
        muster_json::from_slice(&body).map_err(|error| {
            CliError::failed(format!("{} sent a response that this version cannot parse: {error}", self.server()))
                .hint("`muster doctor` compares the versions")
        })
    }

    /// One exchange, including the whole body of the response.
    fn fetch_body(&self, call: &ApiRequest) -> Result<Bytes, CallFailure> {
        let exchange = async {
            let response = self.send_and_check_status(call, "application/json").await?;
            read_body(response).await
        };
        self.block_on_within(call.timeout, exchange)
    }

    fn block_on_within<T>(
        &self,
        limit: Duration,
        exchange: impl Future<Output = Result<T, CallFailure>>,
    ) -> Result<T, CallFailure> {
        self.runtime.block_on(async {
            tokio::time::timeout(limit, exchange).await.unwrap_or(Err(CallFailure::TimedOut(limit)))
        })
    }

    /// Sends a request and waits for the head of a successful response.
    async fn send_and_check_status(
        &self,
        call: &ApiRequest,
        accept: &'static str,
    ) -> Result<Response<Incoming>, CallFailure> {
        let mut sender = self.connector.open().await?;
        let response =
            sender.send_request(self.http_request(call, accept)?).await.map_err(CallFailure::connection_dropped)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = read_body(response).await?;
        Err(CallFailure::from_response(status, &body))
    }

    fn http_request(&self, call: &ApiRequest, accept: &'static str) -> Result<Request<Full<Bytes>>, CallFailure> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(self.connector.path(&call.target))
            .header(HOST, self.connector.host())
            .header(USER_AGENT, concat!("muster/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, accept);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(key) = &call.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::new(call.body.clone().unwrap_or_default());
        request.body(body).map_err(|error| CallFailure::InvalidRequest(error.to_string()))
    }
}

fn authorization_header(token: &Secret) -> Result<HeaderValue, CliError> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
        .map_err(|_| CliError::usage("the token contains characters that are not allowed in an HTTP header"))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn read_body(response: Response<Incoming>) -> Result<Bytes, CallFailure> {
    let limited = http_body_util::Limited::new(response.into_body(), BODY_BYTES_MAX);
    let body = limited.collect().await.map_err(|error| CallFailure::Dropped(error.to_string()))?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests;
