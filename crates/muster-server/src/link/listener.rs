//! The agent link of one server: it listens before the server's threads start, and serves when they run.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::certificates::LinkCertificates;
use super::connections::LinkConnections;
use super::service::{self, LinkServiceInner};
use crate::agents::ReportReceiver;
use crate::cluster::Cluster;
use crate::config::{AgentLinkListen, Config};
use crate::start_error::StartError;
use crate::tls::{self, ConnectionLimits, Connections};

/// What a new agent needs to know about the link, for join URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkAddress {
    /// `HOST:PORT` of the link on each server of the cluster.
    pub servers: Vec<String>,
    /// SHA-256 of the CA certificate, in hexadecimal.
    pub ca_fingerprint: String,
}

/// A link that listens.
pub struct LinkListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    certificates: LinkCertificates,
    address: LinkAddress,
    pub connections: Arc<LinkConnections>,
}

impl LinkListener {
    /// `None` if the configuration has no agent link. By default a server that runs nodes itself has none.
    pub async fn bind(config: &Config, runs_nodes: bool) -> Result<Option<LinkListener>, StartError> {
        let listen_at = match config.agent_link.listen {
            AgentLinkListen::Auto if runs_nodes => AgentLinkListen::Off,
            listen_at => listen_at,
        };
        let Some(listener) = listen(config, listen_at).await? else { return Ok(None) };
        let certificates = LinkCertificates::open(&config.data_dir)?;
        let tls = certificates.server_config(&config.data_dir)?;
        let servers = match config.agent_link.advertise.is_empty() {
            false => config.agent_link.advertise.clone(),
            true => vec![default_address(listener.local_addr()?)],
        };
        let address = LinkAddress { servers, ca_fingerprint: certificates.ca_fingerprint() };
        info!(address = %listener.local_addr()?, advertised = address.servers.join(", "), "agents may connect");
        let (acceptor, connections) = (TlsAcceptor::from(Arc::new(tls)), Arc::default());
        Ok(Some(LinkListener { listener, acceptor, certificates, address, connections }))
    }

    pub fn address(&self) -> &LinkAddress {
        &self.address
    }

    /// Serves agents until `shutdown`.
    pub async fn serve<F: Future<Output = ()>>(
        self,
        (cluster, receiver): (Cluster, Arc<ReportReceiver>),
        limits: ConnectionLimits,
        shutdown: impl Fn() -> F,
    ) {
        let (service, router) = service::router(LinkServiceInner {
            cluster,
            certificates: self.certificates,
            connections: self.connections,
            receiver,
            servers: self.address.servers,
        });
        let connections = Connections::new(limits);
        tokio::join!(
            service.watch_connections(shutdown()),
            tls::serve_agents((self.listener, connections), self.acceptor, router, shutdown()),
        );
    }
}

async fn listen(config: &Config, listen_at: AgentLinkListen) -> Result<Option<TcpListener>, StartError> {
    let in_use = |address| move |source| StartError::ListenForAgents { address, source };
    match listen_at {
        AgentLinkListen::Off => Ok(None),
        AgentLinkListen::At(address) => TcpListener::bind(address).await.map(Some).map_err(in_use(address)),
        AgentLinkListen::Auto => {
            let default = SocketAddr::new(config.listen.ip(), muster_wire::join_url::DEFAULT_PORT);
            match TcpListener::bind(default).await {
                Ok(listener) => return Ok(Some(listener)),
                // Servers for trying out share a machine; join URLs carry the port. Elsewhere joined agents would look for
                // the server in vain.
                Err(error) if default.ip().is_loopback() && error.kind() == std::io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(in_use(default)(error)),
            }
            let any = SocketAddr::new(config.listen.ip(), 0);
            let listener = TcpListener::bind(any).await.map_err(in_use(default))?;
            warn!(%default, address = %listener.local_addr()?, "the default address of the agent link is in use; \
                agents that join later use this one; set `agent_link.listen` to keep it over restarts");
            Ok(Some(listener))
        }
    }
}

/// The address under which other machines reach this one: the one it listens on, or else its host name.
fn default_address(listening: SocketAddr) -> String {
    match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => format!("{}:{}", host_name(), listening.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => format!("{}:{}", host_name(), listening.port()),
        _ => listening.to_string(),
    }
}

fn host_name() -> String {
    muster_agent::inventory::local_node_name()
}
