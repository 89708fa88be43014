//! What can go wrong between the agent and its machine.

use std::io;
use std::path::PathBuf;

use crate::logs::NotAJobId;

/// A fault of the machine. What is wrong with a single job is not here: that is an `Exit`.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The system gave no thread.
    #[error("cannot start the thread of the agent")]
    Thread(#[source] io::Error),
    /// A file or folder could not be read.
    #[error("cannot read `{path}`: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or folder could not be written.
    #[error("cannot write `{path}`: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record is there and cannot be understood.
    #[error("`{path}` is damaged: {source}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        source: muster_json::JsonError,
    },
    /// `/proc` does not say what we need to know.
    #[error("`{path}` does not tell {what}")]
    Silent {
        /// Which file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// The runner was given no program to run as shim.
    #[error("no shim command is configured")]
    NoShim,
    /// The shim could not be started.
    #[error("the shim `{program}` cannot be started: {source}")]
    Shim {
        /// What was called.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Orders named a job in a way that could lead outside the data folder.
    #[error(transparent)]
    BadJob(#[from] NotAJobId),
}
