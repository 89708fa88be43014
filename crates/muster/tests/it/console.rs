//! A shell that runs the commands of one session, one after the other.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::server::Server;

/// The program names of the binary.
const NAMES: [&str; 5] = ["muster", "gpu-cli", "scheduler", "agent", "star"];
/// Timeout of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
/// Printed after each command, followed by its exit code.
const END_MARKER: &str = "@@session@@";

/// `until_state JOB PHASE` waits until the job is in that phase, `until_planned JOB` until a planning round has considered it.
const HELPERS: &str = r#"
until_state() {
  for i in $(seq 200); do
    if muster show "$1" -o json | grep -q "\"phase\": \"$2\""; then return 0; fi
    sleep 0.1
  done
  echo "$1 did not become $2"; muster show "$1"; return 1
}
until_planned() {
  for i in $(seq 200); do
    if ! muster why "$1" -o json | grep -q '"reason": "Considering"'; then return 0; fi
    sleep 0.1
  done
  echo "no planning round considered $1"; muster why "$1"; return 1
}
"#;

/// A shell with the binary on its path, in a folder of its own.
pub struct Console {
    shell: Child,
    shell_input: ChildStdin,
    shell_output: Receiver<Vec<u8>>,
    servers: Vec<Server>,
    folder: PathBuf,
}

impl Console {
    /// A new folder and shell, without a server.
    pub fn open(name: &str) -> Console {
        let folder = std::env::temp_dir().join(format!("muster-it-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        for name in NAMES {
            symlink(env!("CARGO_BIN_EXE_muster"), folder.join("bin").join(name)).unwrap();
        }
        for name in ["config", "policies"] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
            symlink(source, folder.join(name)).unwrap();
        }
        let (reader, writer) = std::io::pipe().unwrap();
        let mut shell = bash(&folder, writer);
        let shell_input = shell.stdin.take().unwrap();
        let mut console =
            Console { shell, shell_input, shell_output: read_in_background(reader), servers: Vec::new(), folder };
        console.run_command(HELPERS);
        console
    }

    /// Starts a server, to which the following commands connect.
    pub fn serve(&mut self, words: &[&str]) {
        let server = Server::start(words, &self.folder);
        let data_dir = self.folder.join("data");
        self.run_command(&format!("export MUSTER_SERVER={} MUSTER_DATA_DIR={}", server.url, data_dir.display()));
        self.servers.push(server);
    }

    /// Kills every server with SIGKILL.
    pub fn kill_servers(&mut self) {
        self.servers.clear();
    }

    /// Runs a command; returns its output and exit code. A command that starts a server is run beside the shell.
    pub fn run_command(&mut self, command: &str) -> (String, i32) {
        if let Some(words) = server_words(command) {
            self.serve(&words);
            return (String::new(), 0);
        }
        writeln!(self.shell_input, "{{ {command}\n}} </dev/null\nprintf '\\n{END_MARKER}%d\\n' $?").unwrap();
        self.shell_input.flush().unwrap();
        self.read_output(command)
    }

    fn read_output(&mut self, command: &str) -> (String, i32) {
        let mut bytes = Vec::new();
        loop {
            match self.shell_output.recv_timeout(COMMAND_TIMEOUT) {
                Ok(more) => bytes.extend(more),
                Err(error) => panic!("`{command}`: {error} after\n{}", String::from_utf8_lossy(&bytes)),
            }
            if let Some(result) = completed_output(&bytes) {
                return result;
            }
        }
    }
}

/// Reads on a separate thread, so that a command that never ends runs into its timeout.
fn read_in_background(mut reader: PipeReader) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            if sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The output and the exit code, once the end marker has arrived.
fn completed_output(bytes: &[u8]) -> Option<(String, i32)> {
    if bytes.last() != Some(&b'\n') {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let (output, code) = text.rsplit_once(&format!("\n{END_MARKER}"))?;
    Some((output.to_string(), code.trim().parse().ok()?))
}

impl Drop for Console {
    fn drop(&mut self) {
        self.servers.clear();
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Standard output and standard error go to one pipe, as on a terminal.
fn bash(folder: &Path, output: PipeWriter) -> Child {
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile"]).current_dir(folder).env("PATH", path).env("HOME", folder);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MUSTER_") || name.starts_with("GPU_SCHED")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap()
}

/// The words of a command that starts a server.
fn server_words(command: &str) -> Option<Vec<&str>> {
    let line = command.split('#').next().unwrap_or_default().trim().trim_end_matches('&');
    let words: Vec<&str> = line.split_whitespace().collect();
    let starts = match words.as_slice() {
        ["muster" | "./bin/muster", verb, ..] => matches!(*verb, "dev" | "serve"),
        ["scheduler" | "./bin/scheduler", ..] => true,
        _ => false,
    };
    (starts && !words.contains(&"--help")).then_some(words)
}
