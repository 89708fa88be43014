//! The reboot of this machine, when an operator has ordered it and no attempt is left.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_protocol::agent::Report;

use crate::agent::ReportSink;
use crate::site_program::{self, SiteProgram};

/// systemd's program, where the site sets no other.
const SYSTEMCTL_PATHS: [&str; 2] = ["/usr/bin/systemctl", "/bin/systemctl"];
const TIMEOUT_MS: u64 = 60_000;
/// A machine that has not gone down after this time is asked again.
const REPEAT_MS: i64 = 120_000;

/// Reboots this machine.
pub(crate) struct Rebooter {
    node: String,
    incarnation: String,
    program: SiteProgram,
    /// `reboot` for systemctl.
    arguments: Vec<String>,
    report_sink: ReportSink,
    asked_at_ms: Option<i64>,
    is_running: Arc<AtomicBool>,
}

impl Rebooter {
    pub fn new(node: &str, incarnation: &str, program: Option<PathBuf>, report_sink: ReportSink) -> Rebooter {
        let arguments = if program.is_some() { Vec::new() } else { vec!["reboot".to_string()] };
        let path = program.unwrap_or_else(|| {
            let found = SYSTEMCTL_PATHS.iter().map(PathBuf::from).find(|path| path.exists());
            found.unwrap_or_else(|| PathBuf::from(SYSTEMCTL_PATHS[0]))
        });
        Rebooter {
            node: node.to_string(),
            incarnation: incarnation.to_string(),
            program: SiteProgram { path, timeout_ms: TIMEOUT_MS },
            arguments,
            report_sink,
            asked_at_ms: None,
            is_running: Arc::default(),
        }
    }

    /// Starts the program, unless it was started a short time ago or still runs. It runs on a thread of its own: heartbeats
    /// go on until the machine goes down.
    pub fn reboot(&mut self, now_ms: i64) {
        let is_recent = self.asked_at_ms.is_some_and(|asked_at_ms| now_ms < asked_at_ms.saturating_add(REPEAT_MS));
        if is_recent || self.is_running.swap(true, Ordering::Relaxed) {
            return;
        }
        self.asked_at_ms = Some(now_ms);
        tracing::warn!(program = %self.program.path.display(), "rebooting this machine: an operator ordered it, and no job is left");
        let (program, arguments, is_running) = (self.program.clone(), self.arguments.clone(), self.is_running.clone());
        let (node, incarnation, report_sink) = (self.node.clone(), self.incarnation.clone(), self.report_sink.clone());
        let reboot = move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            if let Err(why) = site_program::run_with_arguments(&program, &arguments, &[], &mut || None) {
                let why = format!("`{}` failed: {why}", program.path.display());
                tracing::error!("cannot reboot this machine: {why}");
                report_sink(Report::RebootFailed { node, why, incarnation });
            }
            is_running.store(false, Ordering::Relaxed);
        };
        if let Err(error) = std::thread::Builder::new().name("reboot".to_string()).spawn(reboot) {
            self.is_running.store(false, Ordering::Relaxed);
            tracing::error!("cannot reboot this machine: {error}");
        }
    }
}
