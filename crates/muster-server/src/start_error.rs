//! The error type of a server that cannot start or has to stop.

use std::net::SocketAddr;

use muster_agent::AgentError;
use muster_store::StoreError;

use crate::{identity, tls};

/// Why a server did not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder cannot be used.
    #[error("cannot use the data folder `{folder}`: {source}")]
    Folder { folder: String, source: std::io::Error },
    /// Another server uses the data folder.
    #[error("another server uses the data folder `{folder}`; stop it, or choose another folder with --data-dir")]
    FolderInUse { folder: String },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; another server may be running, choose another with --listen")]
    Listen { address: SocketAddr, source: std::io::Error },
    /// The address of the agent link cannot be listened on.
    #[error("cannot listen for agents on {address}: {source}; set `agent_link.listen` to another address, or to `off`")]
    ListenForAgents { address: SocketAddr, source: std::io::Error },
    /// The port of gRPC cannot be listened on.
    #[error(
        "cannot listen for gRPC on {address}: {source}; set `api.grpc_port` to another port, to `0` for a free one, or \
         to `off`"
    )]
    ListenForGrpc { address: SocketAddr, source: std::io::Error },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An agent inside this process cannot start.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The first administrator token could not be created or written.
    #[error(transparent)]
    FirstToken(#[from] identity::BootstrapError),
    /// The power program may not be run.
    #[error("`nodes.power_program` names a program that the server does not run: {0}")]
    PowerProgram(String),
    /// The operating system refuses a thread, a timer or random numbers.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
    #[error("the server stops on an unrecoverable fault of the store: {0}")]
    Broken(StoreError),
    /// A bug: a thread of the server has panicked.
    #[error("the {0} has panicked; this is a bug, the log says where")]
    Panicked(&'static str),
}
