//! Processes from `/proc`. Reading and parsing are separate functions, so that parsing is tested from text.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::AgentError;

const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";
const RANDOM_UUID_PATH: &str = "/proc/sys/kernel/random/uuid";

/// One process, from its `stat` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// In clock ticks since boot. Pid and start time together identify one process within a boot.
    pub start_time: u64,
    /// The process has ended and its parent has not reaped it.
    pub is_zombie: bool,
}

/// All processes, without those that end during the call.
pub(crate) fn processes() -> Result<Vec<Process>, AgentError> {
    let path = Path::new("/proc");
    let entries = fs::read_dir(path).map_err(|source| AgentError::Read { path: path.to_path_buf(), source })?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(process).collect())
}

/// `None` if the process is gone.
pub(crate) fn process(pid: i32) -> Option<Process> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// True if the process was started with this entry (`NAME=value`) in its environment.
pub(crate) fn has_environment_entry(pid: i32, entry: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|found| found == entry)
}

/// The command line of a process; `None` if the process is gone.
pub(crate) fn arguments(pid: i32) -> Option<Vec<OsString>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    Some(bytes.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_os_string()).collect())
}

/// True if the process runs as the user of this process. Any user can start a program with the arguments of a shim.
pub(crate) fn is_owned_by_current_user(pid: i32) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    owner.is_ok_and(|uid| uid == rustix::process::geteuid().as_raw())
}

/// The id of the current boot. Pids of another boot mean nothing.
pub(crate) fn boot_id() -> Result<String, AgentError> {
    read_id(BOOT_ID_PATH)
}

/// A new random UUID from the kernel.
pub(crate) fn random_uuid() -> Result<String, AgentError> {
    read_id(RANDOM_UUID_PATH)
}

/// Processes for people: pid, command and state of the first few.
pub(crate) fn describe(processes: &[Process]) -> String {
    const SHOWN_MAX: usize = 5;
    let one = |process: &Process| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
        match parse_name_and_state(&stat) {
            Some((name, state)) => format!("pid {} ({name}) in state {state}", process.pid),
            None => format!("pid {}", process.pid),
        }
    };
    let shown: Vec<String> = processes.iter().take(SHOWN_MAX).map(one).collect();
    match processes.len().saturating_sub(SHOWN_MAX) {
        0 => shown.join(", "),
        more => format!("{}, and {more} more", shown.join(", ")),
    }
}

fn parse_name_and_state(stat: &str) -> Option<(&str, &str)> {
    let (head, tail) = stat.rsplit_once(')')?;
    Some((head.split_once('(')?.1, tail.split_ascii_whitespace().next()?))
}

fn read_id(path: &str) -> Result<String, AgentError> {
    let text = fs::read_to_string(path).map_err(|source| AgentError::Read { path: PathBuf::from(path), source })?;
    Ok(text.trim().to_string())
}

/// Sends a signal to exactly this process. The pidfd pins the pid before the start time is compared, so a process
/// that reuses the pid is never hit. A process that is gone is not an error.
pub(crate) fn send_signal(process: &Process, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(process.pid) else { return Ok(()) };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        opened => opened?,
    };
    if self::process(process.pid).is_none_or(|now| now.start_time != process.start_time) {
        return Ok(());
    }
    match rustix::process::pidfd_send_signal(&pidfd, signal) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}

/// The program name is in brackets and may itself contain spaces and brackets, so fields are counted from the last
/// one.
fn parse_stat(text: &str) -> Option<Process> {
    let (head, tail) = text.rsplit_once(')')?;
    let pid = head.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
        is_zombie: matches!(*fields.first()?, "Z" | "X" | "x"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_for_any_program_name() {
        let text = "42 (a) b (c) S 7 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3";
        let expected = Process { pid: 42, parent: 7, group: 40, session: 39, start_time: 987_654, is_zombie: false };
        assert_eq!(parse_stat(text), Some(expected));
        assert!(parse_stat(&text.replace(") S", ") Z")).unwrap().is_zombie);
        assert_eq!(parse_stat("42 (cut"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn processes_are_described_by_name_and_state() {
        let text = "42 (a) b (c) D 7 40 39 0";
        assert_eq!(parse_name_and_state(text), Some(("a) b (c", "D")));
        let own = process(i32::try_from(std::process::id()).unwrap()).unwrap();
        let text = describe(&vec![own; 7]);
        assert!(text.starts_with("pid ") && text.contains(" in state ") && text.ends_with(", and 2 more"), "{text}");
    }

    #[test]
    fn the_own_process_is_found() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let found = processes().unwrap().into_iter().find(|process| process.pid == pid).unwrap();
        assert_eq!(found.start_time, process(pid).unwrap().start_time);
        assert_eq!(boot_id().unwrap().len(), 36);
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert_ne!(random_uuid().unwrap(), random_uuid().unwrap());
    }
}
