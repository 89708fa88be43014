//! The port of gRPC. It is bound before the server's threads start, so that a port in use stops the start.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::config::{Config, GrpcPort};
use crate::start_error::StartError;

/// Port of gRPC when none is configured.
pub const DEFAULT_PORT: u16 = 50_051;

/// A port that is bound.
pub struct GrpcListener {
    pub listener: TcpListener,
    pub address: SocketAddr,
}

impl GrpcListener {
    /// `None` if gRPC is off.
    pub async fn bind(config: &Config) -> Result<Option<GrpcListener>, StartError> {
        let host = config.listen.ip();
        let listener = match config.grpc_port {
            GrpcPort::Off => return Ok(None),
            GrpcPort::At(port) => bind(SocketAddr::new(host, port)).await?,
            GrpcPort::Auto => match bind(SocketAddr::new(host, DEFAULT_PORT)).await {
                // Servers for trying out share a machine. Elsewhere clients would look for the server in vain.
                Err(error) if host.is_loopback() && is_in_use(&error) => {
                    let listener = bind(SocketAddr::new(host, 0)).await?;
                    warn!(
                        default = DEFAULT_PORT,
                        address = %listener.local_addr()?,
                        "the default port of gRPC is in use, so another one was chosen; set `api.grpc_port` to keep it"
                    );
                    listener
                }
                bound => bound?,
            },
        };
        let address = listener.local_addr()?;
        info!(%address, "gRPC is served");
        Ok(Some(GrpcListener { listener, address }))
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::ListenForGrpc { address, source })
}

fn is_in_use(error: &StartError) -> bool {
    matches!(error, StartError::ListenForGrpc { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse)
}
