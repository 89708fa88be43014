//! The reasons for which a server does not start, or has to stop.

use std::net::SocketAddr;

use muster_agent::AgentError;
use muster_store::StoreError;

use crate::{identity, tls};

/// Why a server did not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder cannot be used.
    #[error("cannot use the data folder `{folder}`: {source}")]
    Folder {
        /// Which.
        folder: String,
        /// Why.
        source: std::io::Error,
    },
    /// Another server lives in the data folder.
    #[error(
        "another server uses the data folder `{folder}`; stop it, or choose another folder with --data-dir"
    )]
    FolderInUse {
        /// Which.
        folder: String,
    },
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; another server may be running, choose another with --listen"
    )]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An agent inside this process cannot start.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The first token could not be made or kept.
    #[error(transparent)]
    FirstToken(#[from] identity::BootstrapError),
    /// The machine gives no thread or timer.
    #[error("cannot start: {0}")]
    Machine(#[from] std::io::Error),
    /// Going on would have been wrong.
    #[error("the server stops because going on would be wrong: {0}")]
    Broken(StoreError),
    /// A bug: a part of the server has panicked.
    #[error("the {0} has panicked; this is a bug, the log says where")]
    Panicked(&'static str),
}
