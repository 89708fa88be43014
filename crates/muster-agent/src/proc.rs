//! What `/proc` says about processes. Reading and parsing are apart, so that parsing is tested from text.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::AgentError;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const FRESH_ID: &str = "/proc/sys/kernel/random/uuid";

/// One process, as its `stat` file tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// In clock ticks since boot. With the pid it names one process for as long as the machine is up.
    pub start_time: u64,
    /// It has ended and waits for its parent to look.
    pub is_dead: bool,
}

/// All processes there are. Those that end while we look are left out.
pub(crate) fn processes() -> Result<Vec<Process>, AgentError> {
    let path = Path::new("/proc");
    let entries =
        fs::read_dir(path).map_err(|source| AgentError::Read { path: path.to_path_buf(), source })?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(process).collect())
}

/// One process, unless it is gone.
pub(crate) fn process(pid: i32) -> Option<Process> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether a process was started with this entry in its environment.
pub(crate) fn has_environment(pid: i32, entry: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|found| found == entry)
}

/// What a process was started with; nothing of one that is gone.
pub(crate) fn arguments(pid: i32) -> Option<Vec<OsString>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    Some(bytes.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_os_string()).collect())
}

/// Whether a process runs as the user that this one runs as. Anyone can start a program with any arguments.
pub(crate) fn is_of_our_user(pid: i32) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    owner.is_ok_and(|uid| uid == rustix::process::geteuid().as_raw())
}

/// Different after each start of the machine: pids of another boot mean nothing.
pub(crate) fn boot_id() -> Result<String, AgentError> {
    id_in(BOOT_ID)
}

/// Different each time: the kernel draws it.
pub(crate) fn fresh_id() -> Result<String, AgentError> {
    id_in(FRESH_ID)
}

fn id_in(path: &str) -> Result<String, AgentError> {
    let text =
        fs::read_to_string(path).map_err(|source| AgentError::Read { path: PathBuf::from(path), source })?;
    Ok(text.trim().to_string())
}

/// Send a signal to exactly this process. The pidfd pins the pid, then the start time is compared, so a pid that
/// was given to someone else in the meantime is never hit. One that is gone needs no signal.
pub(crate) fn signal(process: &Process, signal: Signal) -> io::Result<()> {
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

/// The name of the program stands in brackets and may itself hold spaces and brackets, so we count from the last.
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
        is_dead: matches!(*fields.first()?, "Z" | "X" | "x"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_program_is_called() {
        let text = "42 (a) b (c) S 7 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3";
        let expected =
            Process { pid: 42, parent: 7, group: 40, session: 39, start_time: 987_654, is_dead: false };
        assert_eq!(parse_stat(text), Some(expected));
        assert!(parse_stat(&text.replace(") S", ") Z")).unwrap().is_dead);
        assert_eq!(parse_stat("42 (cut"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn we_find_ourselves() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let found = processes().unwrap().into_iter().find(|process| process.pid == pid).unwrap();
        assert_eq!(found.start_time, process(pid).unwrap().start_time);
        assert_eq!(boot_id().unwrap().len(), 36);
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert_ne!(fresh_id().unwrap(), fresh_id().unwrap());
    }
}
