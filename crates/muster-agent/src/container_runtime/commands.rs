//! Executes the short commands of a runtime: is the image here, how did the container end, remove it.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::ContainerRuntime;

/// A runtime that answers later is taken for one that does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const REMOVALS_MAX: u32 = 5;
const REMOVAL_RETRY_DELAY: Duration = Duration::from_millis(200);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// An answer is a few words; the list of containers a few kilobytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// What a client reads from the environment of the agent: where its programs, its daemon, its settings and its registry are.
/// The variables of the job are not among them, because the client has the rights of the agent.
const CLIENT_ENVIRONMENT: [&str; 15] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "CONTAINERD_ADDRESS",
    "CONTAINERD_NAMESPACE",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINERS_REGISTRIES_CONF",
    "REGISTRY_AUTH_FILE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
];
/// The states of a container that was made and whose program has not run.
const STATES_BEFORE_THE_START: [&str; 3] = ["created", "configured", "initialized"];

/// What the runtime says about a container whose client has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerEnd {
    /// Its program has never run.
    NotStarted,
    Ended {
        out_of_memory: bool,
    },
}

/// An image on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageFacts {
    pub id: String,
    /// With the layers that it shares with other images.
    pub bytes: u64,
}

/// The environment of a client of the runtime.
pub(crate) fn client_environment() -> Vec<(OsString, OsString)> {
    let inherited = |name: &&str| Some((OsString::from(name), std::env::var_os(name)?));
    CLIENT_ENVIRONMENT.iter().filter_map(inherited).collect()
}

/// The last line with text of what a program has printed: where clients put their errors.
pub(crate) fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason was given");
    line.strip_prefix("Error: ").unwrap_or(line).to_string()
}

impl ContainerRuntime {
    /// A client, without input and output.
    pub fn client(&self, arguments: Vec<OsString>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir("/").env_clear().envs(client_environment());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Whether the image is on this node; true for a runtime that pulls images when it runs them.
    pub fn has_image(&self, image: &str) -> io::Result<bool> {
        let Some(arguments) = self.kind.adapter().find_image(self, image) else { return Ok(true) };
        answer(self.client(arguments), ANSWER_TIMEOUT).map(|answer| answer.is_success)
    }

    /// `None` if the image is not on this node, or if the runtime does not say so.
    pub fn image_facts(&self, image: &str) -> io::Result<Option<ImageFacts>> {
        let Some(arguments) = self.kind.adapter().image_facts(self, image) else { return Ok(None) };
        answer(self.client(arguments), ANSWER_TIMEOUT).map(|answer| parse_image_facts(&answer))
    }

    /// Removes an image; an error if a container uses it.
    pub fn remove_image(&self, image: &str) -> io::Result<()> {
        let Some(arguments) = self.kind.adapter().remove_image(self, image) else { return Ok(()) };
        let answer = answer(self.client(arguments), ANSWER_TIMEOUT)?;
        if answer.is_success { Ok(()) } else { Err(io::Error::other(last_line(answer.errors.as_bytes()))) }
    }

    /// How a container ended; one that the runtime does not know has never started.
    pub fn end_of(&self, name: &str) -> io::Result<ContainerEnd> {
        let Some(arguments) = self.kind.adapter().status(self, name) else {
            return Ok(ContainerEnd::Ended { out_of_memory: false });
        };
        answer(self.client(arguments), ANSWER_TIMEOUT).map(|answer| parse_status(&answer))
    }

    /// The first process of a running container; `None` if there is none, or if the runtime does not know it.
    pub fn first_process_of(&self, name: &str) -> io::Result<Option<i32>> {
        let Some(arguments) = self.kind.adapter().status(self, name) else { return Ok(None) };
        answer(self.client(arguments), ANSWER_TIMEOUT).map(|answer| parse_first_process(&answer))
    }

    /// Kills and removes containers. Afterwards nothing of them is left. A runtime whose processes were killed in the middle
    /// of their work may need several tries.
    pub fn remove(&self, names: &[String]) -> io::Result<()> {
        for _ in 1..REMOVALS_MAX {
            if self.try_remove(names).is_ok() {
                return Ok(());
            }
            std::thread::sleep(REMOVAL_RETRY_DELAY);
        }
        self.try_remove(names)
    }

    fn try_remove(&self, names: &[String]) -> io::Result<()> {
        let Some(arguments) = self.kind.adapter().remove(self, names) else { return Ok(()) };
        let answer = answer(self.client(arguments), ANSWER_TIMEOUT)?;
        // Runtimes without a flag for it call a container that does not exist an error.
        let is_gone = answer.is_success || answer.errors.to_lowercase().contains("no such container");
        if is_gone { Ok(()) } else { Err(io::Error::other(last_line(answer.errors.as_bytes()))) }
    }

    /// The containers of an agent.
    pub fn containers_of(&self, agent: &str) -> io::Result<Vec<String>> {
        let Some(arguments) = self.kind.adapter().list(self, agent) else { return Ok(Vec::new()) };
        let answer = answer(self.client(arguments), ANSWER_TIMEOUT)?;
        if !answer.is_success {
            return Err(io::Error::other(last_line(answer.errors.as_bytes())));
        }
        Ok(answer.output.lines().map(|line| line.trim().to_string()).filter(|name| !name.is_empty()).collect())
    }

    /// The output of a command that only asks, for example for a setting of the runtime.
    pub(super) fn ask(program: &Path, arguments: &[&str], timeout: Duration) -> Result<String, String> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").env_clear().envs(client_environment()).stdin(Stdio::null());
        match answer(command, timeout) {
            Ok(answer) if answer.is_success => Ok(answer.output.trim().to_string()),
            Ok(answer) => Err(last_line(answer.errors.as_bytes())),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn parse_status(answer: &Answer) -> ContainerEnd {
    let mut words = answer.output.split_whitespace();
    match words.next() {
        Some(state) if answer.is_success && !STATES_BEFORE_THE_START.contains(&state) => {
            ContainerEnd::Ended { out_of_memory: words.next() == Some("true") }
        }
        _ => ContainerEnd::NotStarted,
    }
}

fn parse_image_facts(answer: &Answer) -> Option<ImageFacts> {
    let (id, bytes) = answer.output.trim().split_once(' ').filter(|_| answer.is_success)?;
    Some(ImageFacts { id: id.to_string(), bytes: bytes.parse().ok()? })
}

fn parse_first_process(answer: &Answer) -> Option<i32> {
    let pid = answer.output.split_whitespace().nth(2)?.parse().ok()?;
    (answer.is_success && pid > 0).then_some(pid)
}

#[derive(Debug)]
struct Answer {
    is_success: bool,
    output: String,
    errors: String,
}

/// Runs a command to its end and kills it if it does not end in time.
fn answer(mut command: Command, timeout: Duration) -> io::Result<Answer> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let since = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if since.elapsed() < timeout => std::thread::sleep(LOOK_INTERVAL),
            None => return Err(kill_late(child, timeout)),
        }
    };
    let read = |stream: Option<&mut dyn Read>| {
        let mut bytes = Vec::new();
        stream.map_or(Ok(0), |stream| stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes))?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let output = read(child.stdout.as_mut().map(|stream| stream as &mut dyn Read))?;
    let errors = read(child.stderr.as_mut().map(|stream| stream as &mut dyn Read))?;
    Ok(Answer { is_success: status.success(), output, errors })
}

fn kill_late(mut child: Child, timeout: Duration) -> io::Error {
    let _ = child.kill().and_then(|()| child.wait());
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", timeout.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(is_success: bool, output: &str) -> ContainerEnd {
        parse_status(&Answer { is_success, output: output.to_string(), errors: String::new() })
    }

    #[test]
    fn the_status_of_a_container_says_whether_its_program_ran() {
        assert_eq!(status(true, "exited false\n"), ContainerEnd::Ended { out_of_memory: false });
        assert_eq!(status(true, "exited true\n"), ContainerEnd::Ended { out_of_memory: true });
        assert_eq!(status(true, "created false\n"), ContainerEnd::NotStarted);
        assert_eq!(status(false, ""), ContainerEnd::NotStarted, "the runtime does not know it");
    }

    #[test]
    fn the_first_process_of_a_running_container_is_in_its_status() {
        let first = |is_success, output: &str| {
            parse_first_process(&Answer { is_success, output: output.to_string(), errors: String::new() })
        };
        assert_eq!(first(true, "running false 4711\n"), Some(4_711));
        assert_eq!(first(true, "exited false 0\n"), None);
        assert_eq!(first(false, ""), None);
    }

    #[test]
    fn the_reason_is_the_last_line() {
        assert_eq!(last_line(b"Trying to pull\nError: no such image\n\n"), "no such image");
        assert_eq!(last_line(b""), "no reason was given");
    }

    #[test]
    fn a_program_that_does_not_answer_is_killed() {
        let mut command = Command::new("sleep");
        let error = answer(
            {
                command.arg("300");
                command
            },
            Duration::from_millis(50),
        )
        .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
