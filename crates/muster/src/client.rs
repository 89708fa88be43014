//! The way to the server: JSON calls and followed streams, over HTTP/1.1 with or without TLS.
//!
//! Commands are plain functions; the small runtime in here turns each call into a blocking one. A call opens
//! its own connection: most commands make one call, and a connection that was left idle can only surprise.

mod connect;
mod failure;
mod retry;
mod sse;
mod target;

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response};
use muster_server::identity::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use crate::error::CliError;
use crate::options::Connection;
use connect::Connector;
pub use failure::{Failure, exit_of, stream_error};
pub use retry::new_key;
pub use sse::{Message, Stream};
pub use target::Target;

/// How long a call may take before we give up on it. Streams may take for ever.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for what is known to take long.
const LONG_CALL_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Far above any page we ask for; it only stops a server that never ends.
const BODY_BYTES_MAX: usize = 256 << 20;

/// A server to talk to.
pub struct Client {
    connector: Connector,
    authorization: Option<HeaderValue>,
    runtime: Runtime,
}

/// A request before it is sent; kept whole so that it can be sent again.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: Method,
    target: String,
    body: Option<Bytes>,
    key: Option<String>,
    /// How long it may take.
    patience: Duration,
}

impl Client {
    /// A client for a server. Nothing is connected yet.
    pub fn new(connection: &Connection) -> Result<Client, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| CliError::failed(format!("cannot start: {error}")))?;
        let authorization = connection.token.as_ref().map(authorization).transpose()?;
        Ok(Client { connector: Connector::new(connection)?, authorization, runtime })
    }

    /// The address, for messages.
    pub fn server(&self) -> &str {
        self.connector.server()
    }

    /// Read something.
    pub fn get<T: DeserializeOwned>(&self, target: impl Into<Target>) -> Result<T, CliError> {
        self.read(&self.call(Method::GET, target.into(), None))
    }

    /// Change something, with a body.
    pub fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        target: impl Into<Target>,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        self.read(&self.call(method, target.into(), Some(muster_json::to_vec(body).into())))
    }

    /// Ask something that takes its time to be answered.
    pub fn ask_at_length<T: DeserializeOwned>(
        &self,
        target: impl Into<Target>,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        let call = self.call(Method::POST, target.into(), Some(muster_json::to_vec(body).into()));
        self.read(&Call { patience: LONG_CALL_TIMEOUT, ..call })
    }

    /// Change something; the address says it all.
    pub fn act<T: DeserializeOwned>(&self, method: Method, target: impl Into<Target>) -> Result<T, CliError> {
        self.read(&self.call(method, target.into(), None))
    }

    /// Send something that must happen once, however often the connection breaks.
    pub fn send_once<T: DeserializeOwned>(
        &self,
        target: impl Into<Target>,
        body: &impl Serialize,
        key: String,
    ) -> Result<T, CliError> {
        let body = Some(muster_json::to_vec(body).into());
        let call = Call { key: Some(key), ..self.call(Method::POST, target.into(), body) };
        let body = retry::until_answered(|| self.whole(&call), |pause| self.sleep(pause));
        self.parse(body.map_err(|failure| failure.into_error(self.server()))?)
    }

    /// Follow a stream of server-sent events.
    pub fn follow(&self, target: impl Into<Target>) -> Result<Stream, CliError> {
        let call = self.call(Method::GET, target.into(), None);
        let response = self.runtime.block_on(self.respond(&call, "text/event-stream"));
        response.map(Stream::new).map_err(|failure| failure.into_error(self.server()))
    }

    /// Wait for something on the client's runtime.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Let something go on beside what is waited for.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    fn sleep(&self, pause: Duration) {
        // Inside a future, because a timer can only be made on the runtime.
        self.runtime.block_on(async { tokio::time::sleep(pause).await });
    }

    fn call(&self, method: Method, target: Target, body: Option<Bytes>) -> Call {
        Call { method, target: target.to_string(), body, key: None, patience: CALL_TIMEOUT }
    }

    fn read<T: DeserializeOwned>(&self, call: &Call) -> Result<T, CliError> {
        self.parse(self.whole(call).map_err(|failure| failure.into_error(self.server()))?)
    }

    fn parse<T: DeserializeOwned>(&self, body: Bytes) -> Result<T, CliError> {
        muster_json::from_slice(&body).map_err(|error| {
            CliError::failed(format!(
                "{} answers something else than this version expects: {error}",
                self.server()
            ))
            .hint("`muster doctor` compares the versions")
        })
    }

    /// One exchange, with its whole body.
    fn whole(&self, call: &Call) -> Result<Bytes, Failure> {
        let exchange = async {
            let response = self.respond(call, "application/json").await?;
            body_of(response).await
        };
        self.runtime.block_on(async {
            tokio::time::timeout(call.patience, exchange).await.unwrap_or(Err(Failure::Silent(call.patience)))
        })
    }

    /// Send a call, and wait for the head of a good answer.
    async fn respond(&self, call: &Call, accept: &'static str) -> Result<Response<Incoming>, Failure> {
        let mut sender = self.connector.open().await?;
        let response = sender.send_request(self.request(call, accept)?).await.map_err(Failure::dropped)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = body_of(response).await?;
        Err(Failure::declined(status, &body))
    }

    fn request(&self, call: &Call, accept: &'static str) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(self.connector.path(&call.target))
            .header(HOST, self.connector.host())
            .header(USER_AGENT, concat!("muster/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, accept);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key);
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::new(call.body.clone().unwrap_or_default());
        request.body(body).map_err(|error| Failure::Nonsense(error.to_string()))
    }
}

fn authorization(token: &Secret) -> Result<HeaderValue, CliError> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
        .map_err(|_| CliError::usage("the token has letters in it that no token has"))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn body_of(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let limited = http_body_util::Limited::new(response.into_body(), BODY_BYTES_MAX);
    let body = limited.collect().await.map_err(|error| Failure::Dropped(error.to_string()))?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests;
