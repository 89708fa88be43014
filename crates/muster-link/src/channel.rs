//! A gRPC channel over one TLS connection to one server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Pings find a server that is gone, also while a call waits for its answer.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to `HOST:PORT`. The channel does not reconnect: the caller decides where to go next.
pub(crate) async fn connect(server: &str, tls: Arc<ClientConfig>) -> Result<Channel, String> {
    // The connector below encrypts; the scheme only keeps tonic from doing it a second time.
    let endpoint = Endpoint::from_static("http://server.link.muster.internal")
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    let server = server.to_string();
    let connector = service_fn(move |_: Uri| {
        let (server, tls) = (server.clone(), tls.clone());
        async move { open(&server, tls).await.map(TokioIo::new) }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| innermost(&error))
}

async fn open(server: &str, tls: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    // The name is not used: the verifier checks the name that all servers of the link share.
    let name = ServerName::try_from(muster_wire::certificate_names::SERVER_NAME).map_err(io::Error::other)?;
    TlsConnector::from(tls).connect(name, stream).await
}

/// The cause at the root of an error; the layers above it only say that the transport failed.
fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => innermost(source),
        None => error.to_string(),
    }
}
