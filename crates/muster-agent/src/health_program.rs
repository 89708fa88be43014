//! The health program of the node: runs it from time to time, and reports whether the node is healthy.
//!
//! Each run is a process of its own (`shim/health.rs`), so that a program that hangs stops nothing but itself. The first
//! run follows the start of the agent: a new agent does not know what its predecessor reported.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use muster_protocol::agent::Report;

use crate::agent::ReportSink;
use crate::error::AgentError;
use crate::shim::{HealthOutcome, health_arguments};
use crate::site_program::SiteProgram;

const LOCK_FILE: &str = "health.lock";

/// What the thread needs.
pub(crate) struct HealthProgramConfig {
    pub node: String,
    pub incarnation: String,
    pub program: SiteProgram,
    pub interval: Duration,
    pub shim_command: Vec<OsString>,
    pub data_dir: PathBuf,
}

/// Dropping it ends the thread after the current run, and does not wait for it.
#[derive(Debug)]
pub(crate) struct HealthProgram {
    _running: Sender<()>,
}

impl HealthProgram {
    pub fn start(config: HealthProgramConfig, report_sink: ReportSink) -> Result<HealthProgram, AgentError> {
        let (running, stopped) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("health-program".to_string());
        let repeat = move || {
            loop {
                match run(&config) {
                    Ok(Some(outcome)) => report_sink(report(&config, outcome)),
                    Ok(None) => {} // A former run goes on.
                    Err(error) => tracing::warn!("the health program was not run: {error}"),
                }
                if stopped.recv_timeout(config.interval) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        thread.spawn(repeat).map_err(AgentError::ThreadSpawn)?;
        Ok(HealthProgram { _running: running })
    }
}

fn report(config: &HealthProgramConfig, outcome: HealthOutcome) -> Report {
    Report::NodeHealth { node: config.node.clone(), failure: outcome.failure, incarnation: config.incarnation.clone() }
}

/// One run; `None` if it did not take place.
fn run(config: &HealthProgramConfig) -> io::Result<Option<HealthOutcome>> {
    let Some((program, args)) = config.shim_command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(args).args(health_arguments(&config.program, config.data_dir.join(LOCK_FILE)));
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut text = String::new();
    // The process ends within the time limit of the program, and only it can write to this pipe.
    let read = child.stdout.take().map_or(Ok(0), |mut output| output.read_to_string(&mut text));
    child.wait()?;
    read?;
    Ok(muster_json::from_slice(text.as_bytes()).ok())
}
