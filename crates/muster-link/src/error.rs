//! What can go wrong on the link, told to the person who operates the node.

use std::io;
use std::path::PathBuf;

/// Why an agent cannot join or cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot read `{path}`: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{path}`: {source}")]
    Write { path: PathBuf, source: io::Error },
    /// The files of the identity do not fit together, or were damaged.
    #[error(
        "the identity of this node in `{folder}` is damaged: {why}; remove the folder and join again with a new join token"
    )]
    DamagedIdentity { folder: PathBuf, why: String },
    /// The agent has never joined.
    #[error(
        "this node has not joined a cluster: start the agent with `--join URL`; `muster node token` prints the URL"
    )]
    NotJoined,
    /// The agent has joined another cluster than the join URL names.
    #[error("this node has joined another cluster already; to move it, stop the agent and remove `{folder}`")]
    OtherCluster { folder: PathBuf },
    #[error("cannot generate a key: {0}")]
    Key(#[from] rcgen::Error),
    #[error("cannot use the certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// No server answered; with the reason of each.
    #[error("no server of the cluster can be reached: {0}")]
    Unreachable(String),
    /// A server answered and refused.
    #[error("{0}")]
    Refused(String),
    #[error("cannot start the thread of the link: {0}")]
    Thread(#[source] io::Error),
}
