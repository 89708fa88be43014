//! The accept loop: one for plain HTTP and HTTPS, HTTP/1.1 and HTTP/2.
//!
//! axum's own loop knows neither TLS nor patience. This one gives each connection a limited time for its
//! handshake and its headers, tells handlers who the peer is, and at the end lets requests finish.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::connections::{Connection, Connections};

/// Bytes of request headers. A token and a few cookies fit ten times over.
const HEADER_BYTES_MAX: usize = 32 * 1024;
/// When the system has no descriptor left for a new connection, wait for others to end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long we wait for whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For a client to finish the TLS handshake.
    pub handshake: Duration,
    /// For the head of the first request on a new connection.
    pub first_request: Duration,
    /// For a client to send the headers of a request; the seed's figure.
    pub headers: Duration,
    /// For an HTTP/2 client to answer a ping.
    pub ping: Duration,
    /// For requests to finish when the server stops; the seed's figure.
    pub drain: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(8),
            headers: Duration::from_secs(15),
            ping: Duration::from_secs(20),
            drain: Duration::from_secs(30),
        }
    }
}

/// Serve until `shutdown` is ready, then refuse new connections and give requests 30 s to finish.
///
/// With an acceptor connections are encrypted. Handlers find the peer as `ConnectInfo<SocketAddr>`.
pub async fn serve(
    (listener, places): (TcpListener, Connections),
    acceptor: Option<TlsAcceptor>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    serve_with(Patience::default(), (listener, places), acceptor, router, shutdown).await;
}

pub(super) async fn serve_with(
    patience: Patience,
    (listener, places): (TcpListener, Connections),
    acceptor: Option<TlsAcceptor>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let door = Door { acceptor, router, builder: builder(patience), patience };
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            (stream, peer) = accept(&listener) => {
                // Without a place the stream is dropped, which closes it.
                if let Some(place) = places.admit(peer.ip()) {
                    connections.spawn(door.clone().keep((stream, peer), place, graceful.watcher()));
                }
            }
            Some(_) = connections.join_next() => {} // Ended ones are forgotten.
        }
    }
    drop(listener); // From here on new connections are refused by the system.
    drain(graceful, connections, patience.drain).await;
}

/// The next connection. What fails here is the client's affair, or passes when others end.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_clients_affair(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_clients_affair(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn drain(graceful: GracefulShutdown, mut connections: JoinSet<()>, limit: Duration) {
    let open = graceful.count();
    if open > 0 {
        tracing::info!(connections = open, "waiting for requests to finish");
    }
    if timeout(limit, graceful.shutdown()).await.is_err() {
        while connections.try_join_next().is_some() {}
        tracing::warn!(connections = connections.len(), "cut off: not finished in time");
    }
    connections.shutdown().await;
}

/// What every connection needs.
#[derive(Clone)]
struct Door {
    acceptor: Option<TlsAcceptor>,
    router: Router,
    builder: Builder<TokioExecutor>,
    patience: Patience,
}

impl Door {
    /// Serve a connection for as long as it keeps its place.
    async fn keep(self, (stream, peer): (TcpStream, SocketAddr), place: Connection, watcher: Watcher) {
        let (place, patience) = (Arc::new(place), self.patience.first_request);
        tokio::select! {
            () = self.connection((stream, peer), place.clone(), watcher) => {}
            () = place.closes(patience) => tracing::debug!(%peer, "closed: no request came in time"),
        }
    }

    async fn connection(
        self,
        (stream, peer): (TcpStream, SocketAddr),
        place: Arc<Connection>,
        watcher: Watcher,
    ) {
        // Without this small answers wait for more to come; a failure only costs that.
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = &self.acceptor else {
            return self.requests(stream, (peer, place), watcher).await;
        };
        match timeout(self.patience.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.requests(stream, (peer, place), watcher).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "the TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
        }
    }

    async fn requests<S>(&self, stream: S, (peer, place): (SocketAddr, Arc<Connection>), watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let router = self.router.clone();
        let service = service_fn(move |request| {
            place.asks();
            answer(router.clone(), peer, request)
        });
        let connection = self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%peer, error = %error, "the connection ended badly");
        }
    }
}

async fn answer(
    router: Router,
    peer: SocketAddr,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    request.extensions_mut().insert(ConnectInfo(peer));
    router.oneshot(request.map(Body::new)).await
}

fn builder(patience: Patience) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.headers)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(patience.ping)
        .keep_alive_timeout(patience.ping)
        .max_header_list_size(HEADER_BYTES_MAX as u32);
    builder
}
