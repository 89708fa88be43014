//! Errors of the machine under an agent: files, processes, threads.

use std::io;
use std::path::PathBuf;

use crate::logs::NotAJobId;

/// A fault of the machine. A fault of a single job is not an error here but an `Exit`.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the secrets cannot be handed to the shim: {0}")]
    Secrets(#[source] io::Error),
    #[error("cannot wait for events: {0}")]
    Events(#[source] io::Error),
    #[error("cannot start the agent thread")]
    ThreadSpawn(#[source] io::Error),
    #[error("cannot read `{path}`: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{path}`: {source}")]
    Write { path: PathBuf, source: io::Error },
    /// A record exists and cannot be parsed.
    #[error("`{path}` is corrupt: {source}")]
    CorruptRecord { path: PathBuf, source: muster_json::JsonError },
    /// A file of `/proc` lacks a line that the agent needs.
    #[error("`{path}` has no {what}")]
    MissingInfo { path: PathBuf, what: &'static str },
    #[error("no shim command is configured")]
    NoShimCommand,
    #[error("the shim `{program}` cannot be started: {source}")]
    ShimSpawn { program: PathBuf, source: io::Error },
    /// No account can run the jobs of this node.
    #[error("no account for jobs: {0}")]
    JobUser(String),
    /// `agent.require` names a protection that this node does not have.
    #[error(
        "this node has no protection `{protection}`, which `agent.require` demands: {why}. Correct that, or take it out of \
         `agent.require`"
    )]
    MissingProtection { protection: &'static str, why: String },
    /// A setting names a program that the agent may not run.
    #[error("`{setting}` names a program that the agent does not run: {why}")]
    SiteProgram { setting: &'static str, why: String },
    /// Another agent holds the lock of the data folder.
    #[error(
        "another agent uses the data folder `{data_dir}`. Stop it, or give this agent a folder of its own with `--data-dir`"
    )]
    FolderInUse { data_dir: PathBuf },
    /// Orders contain a job id that could lead outside the data directory.
    #[error(transparent)]
    InvalidJobId(#[from] NotAJobId),
}
