//! Site programs of a node: the prolog runs before the tasks of an attempt, the epilog after its last process, the health
//! program from time to time. A site writes them; they end within a time limit, and their output is the reason of a failure.
//!
//! Only the program file decides what runs with the rights of the agent, so it must belong to root or to the agent's
//! account and be writable by nobody else. That is checked at the start of the agent and again before each run.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use muster_protocol::agent::{AttemptOrder, Exit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::attempt_processes::ATTEMPT_DIR_VARIABLE;
use crate::job_user::JobUser;

/// The argument of the shim command for the process that runs the programs after an attempt.
pub(crate) const AFTER_ATTEMPT_FLAG: &str = "--after-attempt";
/// The programs of the system; a site program names others by their path.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The end of the output that is kept.
const OUTPUT_BYTES_MAX: usize = 1_000;
/// How long a killed program is waited for. One that the kernel cannot end is left to the caller.
const KILLED_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a running program is looked at while it writes nothing.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// A program file that is still open for writing, in this or another process, cannot be executed for a moment.
const BUSY_RETRIES: u32 = 50;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const WRITABLE_BY_EVERYBODY: u32 = 0o002;
const STICKY: u32 = 0o1000;
const EXECUTABLE: u32 = 0o111;

/// A site program and its time limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteProgram {
    pub path: PathBuf,
    pub timeout_ms: u64,
}

/// The site programs of one attempt, as its agent was configured at the launch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttemptPrograms {
    #[serde(default)]
    pub prolog: Option<SiteProgram>,
    #[serde(default)]
    pub epilog: Option<SiteProgram>,
    /// The health program, if it runs after each attempt.
    #[serde(default)]
    pub health: Option<SiteProgram>,
    /// The account of prolog and epilog; `None` for that of the agent.
    #[serde(default)]
    pub user: Option<JobUser>,
}

impl AttemptPrograms {
    pub fn is_empty(&self) -> bool {
        self.prolog.is_none() && !self.runs_after_the_attempt()
    }

    pub fn runs_after_the_attempt(&self) -> bool {
        self.epilog.is_some() || self.health.is_some()
    }
}

/// Why a program may not be run as a site program.
pub fn check(path: &Path) -> Result<(), String> {
    let refused = |why: &str| Err(format!("`{}` {why}", path.display()));
    if !path.is_absolute() {
        return refused("is not an absolute path");
    }
    let real = fs::canonicalize(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let file = metadata(&real)?;
    if !file.is_file() || file.mode() & EXECUTABLE == 0 {
        return refused("is not an executable file; `chmod 755` makes it one");
    }
    if !belongs_to_root_or_agent(&file) {
        return refused("belongs to another account; it must belong to root or to the account that runs it");
    }
    if file.mode() & WRITABLE_BY_OTHERS != 0 {
        return refused(
            "is writable by others, who could run programs with the rights of that account; `chmod go-w` it",
        );
    }
    for dir in real.ancestors().skip(1) {
        let found = metadata(dir)?;
        let is_open = found.mode() & WRITABLE_BY_EVERYBODY != 0 && found.mode() & STICKY == 0;
        if is_open || !belongs_to_root_or_agent(&found) {
            return refused(&format!("can be replaced by others: its folder `{}` is theirs to change", dir.display()));
        }
    }
    Ok(())
}

fn metadata(path: &Path) -> Result<Metadata, String> {
    fs::metadata(path).map_err(|error| format!("`{}`: {error}", path.display()))
}

fn belongs_to_root_or_agent(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw()
}

/// What a prolog or epilog learns about its attempt.
pub(crate) fn attempt_environment(order: &AttemptOrder, attempt_dir: &Path) -> Vec<(OsString, OsString)> {
    let gpus: BTreeSet<u8> = order.tasks.iter().flat_map(|task| task.gpus.iter().copied()).collect();
    let gpus: Vec<String> = gpus.iter().map(u8::to_string).collect();
    let variables: [(&str, OsString); 9] = [
        ("MUSTER_JOB_ID", OsString::from(&order.job)),
        ("MUSTER_JOB_NAME", OsString::from(&order.name)),
        ("MUSTER_ATTEMPT", OsString::from(order.attempt.to_string())),
        ("MUSTER_TENANT", OsString::from(&order.tenant)),
        ("MUSTER_USER", OsString::from(&order.user)),
        ("MUSTER_GPUS", OsString::from(gpus.join(","))),
        ("MUSTER_TASKS", OsString::from(order.tasks.len().to_string())),
        ("MUSTER_NODES", OsString::from(order.nodes.join(","))),
        (ATTEMPT_DIR_VARIABLE, attempt_dir.as_os_str().to_os_string()),
    ];
    variables.map(|(name, value)| (OsString::from(name), value)).into()
}

/// What an epilog learns about the end of its attempt. A signal is the exit code that a shell gives it.
pub(crate) fn exit_environment(exit: &Exit) -> Vec<(OsString, OsString)> {
    const SIGNAL_CODE: i32 = 128;
    const SIGKILL: i32 = 9;
    let (kind, code, why) = match exit {
        Exit::Code(code) => ("code", Some(*code), ""),
        Exit::Signal(signal) => ("signal", Some(SIGNAL_CODE + signal), ""),
        Exit::OutOfMemory { .. } => ("out-of-memory", Some(SIGNAL_CODE + SIGKILL), ""),
        Exit::NotStarted(why) => ("not-started", None, why.as_str()),
        Exit::Unknown(why) => ("unknown", None, why.as_str()),
    };
    let code = code.map(|code| code.to_string()).unwrap_or_default();
    let variables =
        [("MUSTER_EXIT", kind.to_string()), ("MUSTER_EXIT_CODE", code), ("MUSTER_EXIT_WHY", why.to_string())];
    variables.map(|(name, value)| (OsString::from(name), OsString::from(value))).into()
}

/// Runs a site program. An error says how it failed and what it wrote last. `interrupted` is asked from time to time; its
/// text ends the program. Processes that the program leaves are the caller's to end.
pub(crate) fn run(
    program: &SiteProgram,
    user: Option<&JobUser>,
    environment: &[(OsString, OsString)],
    interrupted: &mut dyn FnMut() -> Option<String>,
) -> Result<(), String> {
    run_invocation(&Invocation { program, arguments: &[], user, environment }, interrupted).map(drop)
}

/// Runs a site program with arguments, as this process's account. Returns the last output of one that succeeds, in one
/// line.
pub fn run_with_arguments(
    program: &SiteProgram,
    arguments: &[&str],
    environment: &[(OsString, OsString)],
    interrupted: &mut dyn FnMut() -> Option<String>,
) -> Result<String, String> {
    run_invocation(&Invocation { program, arguments, user: None, environment }, interrupted)
}

/// One run of a site program.
struct Invocation<'a> {
    program: &'a SiteProgram,
    arguments: &'a [&'a str],
    user: Option<&'a JobUser>,
    environment: &'a [(OsString, OsString)],
}

fn run_invocation(run: &Invocation, interrupted: &mut dyn FnMut() -> Option<String>) -> Result<String, String> {
    let program = run.program;
    check(&program.path)?;
    let cannot_start = |error: io::Error| format!("`{}` cannot be started: {error}", program.path.display());
    let (mut child, output) = spawn(run).map_err(cannot_start)?;
    let mut output = LastOutput { pipe: Some(output), bytes: Vec::new() };
    let since = Instant::now();
    loop {
        output.wait_and_read();
        if let Some(status) = child.try_wait().map_err(cannot_start)? {
            output.read();
            return outcome(status, &output);
        }
        let is_late = since.elapsed() >= Duration::from_millis(program.timeout_ms);
        let late = || is_late.then(|| format!("it ran longer than {} s", program.timeout_ms as f64 / 1_000.0));
        if let Some(why) = interrupted().or_else(late) {
            kill(&mut child);
            output.read();
            return Err(output.appended_to(&why));
        }
    }
}

fn spawn(run: &Invocation) -> io::Result<(Child, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    let mut command = Command::new(&run.program.path);
    command.args(run.arguments);
    command.env_clear().env("PATH", PATH).envs(run.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    if let Some(user) = run.user {
        command.uid(user.uid).gid(user.gid); // Root's supplementary groups are dropped with it.
    }
    let mut retries = 0..BUSY_RETRIES;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && retries.next().is_some() => {
                std::thread::sleep(LOOK_INTERVAL);
            }
            spawned => return Ok((spawned?, reader)),
        }
    }
}

fn outcome(status: ExitStatus, output: &LastOutput) -> Result<String, String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(output.line()),
        (Some(code), _) => Err(output.appended_to(&format!("exit code {code}"))),
        (None, signal) => Err(output.appended_to(&format!("killed by signal {}", signal.unwrap_or_default()))),
    }
}

/// Kills a program and its process group, and reaps it if it ends in time.
fn kill(child: &mut Child) {
    if let Err(error) = kill_process_group(Pid::from_child(child), Signal::KILL) {
        eprintln!("cannot kill a site program: {error}");
    }
    let since = Instant::now();
    while since.elapsed() < KILLED_TIMEOUT && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The last bytes that a program wrote.
struct LastOutput {
    /// `None` once nobody can write to it any more.
    pipe: Option<PipeReader>,
    bytes: Vec<u8>,
}

impl LastOutput {
    fn wait_and_read(&mut self) {
        match &self.pipe {
            None => std::thread::sleep(LOOK_INTERVAL),
            Some(pipe) => {
                let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_INTERVAL.subsec_nanos()) };
                // An error is an interruption by a signal: the caller looks again.
                let _ = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout));
            }
        }
        self.read();
    }

    /// Reads what is there, and not more than a program writes meanwhile without end.
    fn read(&mut self) {
        const READS_MAX: usize = 64;
        let mut buffer = [0; 4_096];
        for _ in 0..READS_MAX {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    self.bytes.extend_from_slice(&buffer[..count]);
                    self.bytes.drain(..self.bytes.len().saturating_sub(OUTPUT_BYTES_MAX));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return, // Nothing more is there.
            }
        }
    }

    /// The reason with the output in one line.
    fn appended_to(&self, why: &str) -> String {
        let line = self.line();
        if line.is_empty() { why.to_string() } else { format!("{why}: {line}") }
    }

    /// The output in one line.
    fn line(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.join("; ").chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::test_fixtures::TempDir;

    fn program(dir: &Path, text: &str, timeout_ms: u64) -> SiteProgram {
        let path = dir.join("program");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        SiteProgram { path, timeout_ms }
    }

    fn run_script(text: &str, timeout_ms: u64) -> Result<(), String> {
        let dir = TempDir::new();
        run(&program(&dir, text, timeout_ms), None, &[("NAME".into(), "value".into())], &mut || None)
    }

    #[test]
    fn the_reason_of_a_failure_is_the_exit_and_the_last_output() {
        assert_eq!(run_script("exit 0", 60_000), Ok(()));
        assert_eq!(
            run_script("echo fan is dead; echo $NAME >&2; exit 3", 60_000).unwrap_err(),
            "exit code 3: fan is dead; value"
        );
        assert_eq!(run_script("kill -9 $$", 60_000).unwrap_err(), "killed by signal 9");
        let flood =
            run_script("i=0; while [ $i -lt 9000 ]; do echo line $i; i=$((i+1)); done; exit 1", 60_000).unwrap_err();
        assert!(flood.len() < 1_200 && flood.ends_with("line 8999"), "{flood}");
    }

    #[test]
    fn a_program_past_its_time_limit_is_killed_with_its_group() {
        let why = run_script("echo waits; sleep 300 & sleep 300", 300).unwrap_err();
        assert_eq!(why, "it ran longer than 0.3 s: waits");
    }

    /// Its output stays open in the background process, and the program has ended all the same.
    #[test]
    fn a_background_process_does_not_delay_the_end() {
        let since = Instant::now();
        assert_eq!(run_script("sleep 100 & exit 0", 90_000), Ok(()));
        assert!(since.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn an_interruption_ends_the_program() {
        let dir = TempDir::new();
        let program = program(&dir, "sleep 300", 300_000);
        let mut asked = 0;
        let mut interrupted = || {
            asked += 1;
            (asked == 3).then(|| "stopped".to_string())
        };
        assert_eq!(run(&program, None, &[], &mut interrupted), Err("stopped".to_string()));
    }

    #[test]
    fn programs_that_others_can_change_are_refused() {
        let dir = TempDir::new();
        let path = program(&dir, "true", 1_000).path;
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(check(&path), Ok(()));
        for (mode, word) in [(0o775, "writable by others"), (0o757, "writable by others"), (0o644, "not an executable")]
        {
            set(&path, mode);
            let why = check(&path).unwrap_err();
            assert!(why.contains(word), "{mode:o}: {why}");
        }
        set(&path, 0o755);
        set(&dir, 0o777);
        assert!(check(&path).unwrap_err().contains("can be replaced by others"));
        set(&dir, 0o1777);
        assert_eq!(check(&path), Ok(()), "in a folder like /tmp only the owner can replace a file");
        assert!(check(Path::new("relative")).unwrap_err().contains("absolute"));
        assert!(check(&dir.join("missing")).unwrap_err().contains("No such file"));
        if rustix::process::geteuid().is_root() {
            rustix::fs::chown(&path, Some(rustix::fs::Uid::from_raw(65_534)), None).unwrap();
            assert!(check(&path).unwrap_err().contains("belongs to another account"));
        }
    }

    #[test]
    fn an_epilog_learns_how_the_attempt_ended() {
        let value = |exit: Exit, name: &str| {
            let found = exit_environment(&exit).into_iter().find(|(known, _)| known == name);
            found.unwrap().1.into_string().unwrap()
        };
        assert_eq!(value(Exit::Code(3), "MUSTER_EXIT_CODE"), "3");
        assert_eq!(value(Exit::Signal(15), "MUSTER_EXIT_CODE"), "143");
        assert_eq!(value(Exit::Unknown("shim lost".to_string()), "MUSTER_EXIT"), "unknown");
        assert_eq!(value(Exit::Unknown("shim lost".to_string()), "MUSTER_EXIT_WHY"), "shim lost");
    }
}
