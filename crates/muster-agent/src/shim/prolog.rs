//! The prolog of an attempt: runs in the shim, before any task, so that it outlives the agent and runs at most once.

use muster_protocol::agent::Exit;

use super::gang_monitor::GangMonitor;
use crate::attempt_dir::AttemptDir;
use crate::clock;
use crate::records::{ExitRecord, LaunchIntent};
use crate::shim_socket::{ShimMessage, ShimSocket};
use crate::site_program::{self, AttemptPrograms};

/// Runs the prolog, if the site has one. The exit of an attempt whose tasks must not start is an error: the prolog failed,
/// the attempt was stopped, or its self-fence deadline passed meanwhile.
pub(super) fn run(
    attempt_dir: &AttemptDir,
    intent: &LaunchIntent,
    programs: &AttemptPrograms,
    socket: Option<&ShimSocket>,
    monitor: &mut GangMonitor,
) -> Result<(), Box<ExitRecord>> {
    let Some(prolog) = &programs.prolog else { return Ok(()) };
    let environment = site_program::attempt_environment(&intent.order, attempt_dir.path());
    let mut interruption = Interruption::None;
    let mut interrupted = || {
        interruption = Interruption::now(attempt_dir, socket, monitor);
        interruption.why()
    };
    let ran = site_program::run(prolog, programs.user.as_ref(), &environment, &mut interrupted);
    let Err(why) = ran else { return Ok(()) };
    let (why, prolog_failed, stopped) = match interruption {
        Interruption::None => (format!("prolog failed: {why}"), true, false),
        Interruption::Stopped => ("the attempt was stopped before it started".to_string(), false, true),
        Interruption::Fenced(why) => (why, false, false),
    };
    eprintln!("{why}");
    let (placed_at_ms, ended_at_ms) = (intent.order.placed_at_ms, Some(clock::unix_now_ms()));
    Err(Box::new(ExitRecord { exit: Exit::NotStarted(why), stopped, placed_at_ms, ended_at_ms, prolog_failed }))
}

/// Why a prolog is ended before it has finished.
enum Interruption {
    None,
    Stopped,
    Fenced(String),
}

impl Interruption {
    /// An unreadable stop record exists because the attempt must end.
    fn now(attempt_dir: &AttemptDir, socket: Option<&ShimSocket>, monitor: &mut GangMonitor) -> Interruption {
        for message in socket.map(ShimSocket::receive).unwrap_or_default() {
            if let ShimMessage::RenewSelfFence(renewal) = message {
                monitor.renew_self_fence(renewal);
            }
        }
        if let Some(fence) = monitor.self_fence().filter(|fence| fence.has_passed(clock::boot_now_ms())) {
            return Interruption::Fenced(fence.why());
        }
        match attempt_dir.stop_record() {
            Ok(None) => Interruption::None,
            Ok(Some(_)) | Err(_) => Interruption::Stopped,
        }
    }

    fn why(&self) -> Option<String> {
        match self {
            Interruption::None => None,
            Interruption::Stopped => Some("stopped".to_string()),
            Interruption::Fenced(why) => Some(why.clone()),
        }
    }
}
