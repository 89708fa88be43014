//! Tells the user that the kernel has killed processes of a task because of its memory limit: in the log of the task, and
//! as the reason of the end if that was the reason.

use std::io::Write;

use muster_protocol::agent::{AttemptOrder, Exit};

use crate::attempt_dir::AttemptDir;
use crate::isolation::{Isolation, MemoryKills};
use crate::logs::{self, Stream};
use crate::records::ExitRecord;

const SIGKILL: i32 = 9;
/// How a shell reports that its child was killed by SIGKILL.
const EXIT_CODE_OF_KILLED_CHILD: i32 = 128 + SIGKILL;

/// The exit record with the reason. Call it when no process of the attempt is left, before its cgroups are removed.
pub(super) fn with_memory_kills(
    record: ExitRecord,
    attempt_dir: &AttemptDir,
    order: &AttemptOrder,
    isolation: &Isolation,
) -> ExitRecord {
    let kills = isolation.memory_kills(order);
    kills.iter().for_each(|kill| append_to_log(attempt_dir, kill));
    ExitRecord { exit: exit_with_reason(record.exit, record.stopped, &kills), ..record }
}

/// A job that goes on after it has lost a process ends for another reason.
fn exit_with_reason(exit: Exit, stopped: bool, kills: &[MemoryKills]) -> Exit {
    let was_killed = matches!(exit, Exit::Signal(SIGKILL) | Exit::Code(EXIT_CODE_OF_KILLED_CHILD));
    match kills.first() {
        Some(kill) if was_killed && !stopped => Exit::OutOfMemory { limit_mib: kill.limit_mib },
        _ => exit,
    }
}

/// Best effort: the exit record says the same.
fn append_to_log(attempt_dir: &AttemptDir, kill: &MemoryKills) {
    let processes = if kill.count == 1 { "a process".to_string() } else { format!("{} processes", kill.count) };
    if let Ok(mut log) = logs::open_to_append(&attempt_dir.file(&logs::log_name(kill.rank, Stream::Stderr))) {
        let _ = writeln!(
            log,
            "muster: the kernel killed {processes} of this task: out of memory (limit {} MiB)",
            kill.limit_mib
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_by_the_kernel_is_the_reason_only_if_the_job_was_killed() {
        let kills = [MemoryKills { rank: 1, count: 2, limit_mib: 512 }];
        let reason = Exit::OutOfMemory { limit_mib: 512 };
        assert_eq!(exit_with_reason(Exit::Signal(9), false, &kills), reason);
        assert_eq!(exit_with_reason(Exit::Code(137), false, &kills), reason);
        for (exit, stopped) in
            [(Exit::Code(0), false), (Exit::Code(1), false), (Exit::Signal(15), false), (Exit::Signal(9), true)]
        {
            assert_eq!(exit_with_reason(exit.clone(), stopped, &kills), exit, "stopped: {stopped}");
        }
        assert_eq!(exit_with_reason(Exit::Signal(9), false, &[]), Exit::Signal(9), "a kill by somebody else");
    }
}
