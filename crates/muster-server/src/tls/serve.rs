//! The accept loop for plain HTTP and HTTPS, HTTP/1.1 and HTTP/2.
//!
//! axum's own loop has neither TLS nor rules. This loop limits the time of each handshake and of request headers, gives
//! handlers the address of the peer, and lets open requests finish at shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::connections::{AnonymousTimeouts, ClientConnection, Connection, Connections};

/// Most bytes of request headers, ten times the size of a token and a few cookies.
const HEADER_BYTES_MAX: usize = 32 * 1024;
/// Requests of one HTTP/2 connection at a time. An agent has one, and at times a second to renew its certificate.
const STREAMS_MAX: u32 = 200;
const AGENT_STREAMS_MAX: u32 = 16;
/// Pause after a failed accept, usually for lack of descriptors: other connections may end meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The certificate that a client has shown in the TLS handshake, as an extension of its requests.
#[derive(Debug, Clone)]
pub struct PeerCertificate(pub CertificateDer<'static>);

/// The client of a connection.
#[derive(Clone)]
struct Peer {
    address: SocketAddr,
    certificate: Option<PeerCertificate>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionRules {
    /// TLS handshake.
    pub handshake: Duration,
    /// Head of the first request on a new connection, and the authentication of its client.
    pub anonymous: AnonymousTimeouts,
    /// Headers of a request.
    pub headers: Duration,
    /// Answer of an HTTP/2 client to a ping.
    pub ping: Duration,
    /// Open requests at shutdown.
    pub drain: Duration,
    /// Requests of one HTTP/2 connection at a time.
    pub streams_max: u32,
}

impl Default for ConnectionRules {
    fn default() -> ConnectionRules {
        ConnectionRules {
            handshake: Duration::from_secs(10),
            anonymous: AnonymousTimeouts {
                first_request: Duration::from_secs(8),
                authentication: Duration::from_secs(60),
            },
            headers: Duration::from_secs(15),
            ping: Duration::from_secs(20),
            drain: Duration::from_secs(30),
            streams_max: STREAMS_MAX,
        }
    }
}

/// Serve until `shutdown` is ready, then refuse new connections and give requests 30 s to finish.
///
/// With an acceptor, connections are encrypted. Handlers find the peer as `ConnectInfo<SocketAddr>`.
pub async fn serve(
    (listener, connections): (TcpListener, Connections),
    acceptor: Option<TlsAcceptor>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    serve_with(ConnectionRules::default(), (listener, connections), acceptor, router, shutdown).await;
}

/// [`serve`] for the agent link. A client authenticates with its certificate in the handshake.
pub async fn serve_agents(
    (listener, connections): (TcpListener, Connections),
    acceptor: TlsAcceptor,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let rules = ConnectionRules { streams_max: AGENT_STREAMS_MAX, ..ConnectionRules::default() };
    serve_with(rules, (listener, connections), Some(acceptor), router, shutdown).await;
}

pub(super) async fn serve_with(
    rules: ConnectionRules,
    (listener, connections): (TcpListener, Connections),
    acceptor: Option<TlsAcceptor>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let handler = ConnectionHandler { acceptor, router, builder: http_builder(rules), rules };
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            (stream, peer) = accept(&listener) => {
                // If the connection is not admitted, the stream is dropped, which closes it.
                if let Some(connection) = connections.admit(peer.ip()) {
                    tasks.spawn(handler.clone().serve_until_closed((stream, peer), connection, graceful.watcher()));
                }
            }
            Some(_) = tasks.join_next() => {} // Frees the memory of tasks that have ended.
        }
    }
    drop(listener); // From here on the system refuses new connections.
    drain(graceful, tasks, rules.drain).await;
}

/// The next connection. Errors of a client are skipped; any other error is retried after a pause.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_client_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn drain(graceful: GracefulShutdown, mut tasks: JoinSet<()>, limit: Duration) {
    let open = graceful.count();
    if open > 0 {
        tracing::info!(connections = open, "waiting for requests to finish");
    }
    if timeout(limit, graceful.shutdown()).await.is_err() {
        while tasks.try_join_next().is_some() {}
        tracing::warn!(connections = tasks.len(), "drain timeout: closed connections with unfinished requests");
    }
    tasks.shutdown().await;
}

/// What every connection needs.
#[derive(Clone)]
struct ConnectionHandler {
    acceptor: Option<TlsAcceptor>,
    router: Router,
    builder: Builder<TokioExecutor>,
    rules: ConnectionRules,
}

impl ConnectionHandler {
    /// Serve a connection until it ends or is closed for another one.
    async fn serve_until_closed(
        self,
        (stream, peer): (TcpStream, SocketAddr),
        connection: Connection,
        watcher: Watcher,
    ) {
        let (connection, anonymous) = (Arc::new(connection), self.rules.anonymous);
        tokio::select! {
            () = self.accept_and_serve((stream, peer), connection.clone(), watcher) => {}
            () = connection.wait_until_closed(anonymous) => {
                tracing::debug!(%peer, "closed: no request or no authentication in time, or its slot was needed");
            }
        }
    }

    async fn accept_and_serve(
        self,
        (stream, peer): (TcpStream, SocketAddr),
        connection: Arc<Connection>,
        watcher: Watcher,
    ) {
        // Without this the kernel delays small responses; an error here has no other effect.
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = &self.acceptor else {
            let peer = Peer { address: peer, certificate: None };
            return self.serve_requests(stream, (peer, connection), watcher).await;
        };
        match timeout(self.rules.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let certificate = chain.first().map(|first| PeerCertificate(first.clone().into_owned()));
                if certificate.is_some() {
                    connection.note_authenticated();
                }
                let peer = Peer { address: peer, certificate };
                self.serve_requests(stream, (peer, connection), watcher).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "the TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
        }
    }

    async fn serve_requests<S>(&self, stream: S, (peer, connection): (Peer, Arc<Connection>), watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (router, address) = (self.router.clone(), peer.address);
        let service = service_fn(move |request| {
            connection.note_request();
            route_request(router.clone(), (peer.clone(), ClientConnection(connection.clone())), request)
        });
        let serving = self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(serving).await {
            tracing::debug!(peer = %address, error = %error, "connection error");
        }
    }
}

async fn route_request(
    router: Router,
    (peer, connection): (Peer, ClientConnection),
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    request.extensions_mut().insert(ConnectInfo(peer.address));
    request.extensions_mut().insert(connection);
    peer.certificate.map(|certificate| request.extensions_mut().insert(certificate));
    router.oneshot(request.map(Body::new)).await
}

fn http_builder(rules: ConnectionRules) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(rules.headers).max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(rules.ping)
        .keep_alive_timeout(rules.ping)
        .max_concurrent_streams(rules.streams_max)
        .max_header_list_size(HEADER_BYTES_MAX as u32);
    builder
}
