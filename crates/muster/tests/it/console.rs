//! A shell in which the commands of one session are typed, one after the other.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::server::Server;

/// The names this binary answers to.
const NAMES: [&str; 5] = ["muster", "gpu-cli", "scheduler", "agent", "star"];
/// No command of a session takes longer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Comes after each command, with its exit code.
const MARK: &str = "@@session@@";

/// `until_state JOB WORD` waits until the job has got that far.
const HELPERS: &str = r#"
until_state() {
  for i in $(seq 200); do
    if muster show "$1" -o json | grep -q "\"phase\": \"$2\""; then return 0; fi
    sleep 0.1
  done
  echo "$1 did not become $2"; muster show "$1"; return 1
}
"#;

/// A shell with the binary on its path, in a folder of its own.
pub struct Console {
    shell: Child,
    keyboard: ChildStdin,
    screen: Receiver<Vec<u8>>,
    servers: Vec<Server>,
    folder: PathBuf,
}

impl Console {
    /// A fresh folder and shell; without a server at first.
    pub fn open(name: &str) -> Console {
        let folder = std::env::temp_dir().join(format!("muster-it-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        for name in NAMES {
            symlink(env!("CARGO_BIN_EXE_muster"), folder.join("bin").join(name)).unwrap();
        }
        for name in ["config", "policies"] {
            let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
            symlink(ours, folder.join(name)).unwrap();
        }
        let (screen, shell_out) = std::io::pipe().unwrap();
        let mut shell = bash(&folder, shell_out);
        let keyboard = shell.stdin.take().unwrap();
        let mut console = Console { shell, keyboard, screen: watch(screen), servers: Vec::new(), folder };
        console.type_in(HELPERS);
        console
    }

    /// Start a server, and let what follows talk to it.
    pub fn serve(&mut self, words: &[&str]) {
        let server = Server::start(words, &self.folder);
        let data_dir = self.folder.join("data");
        self.type_in(&format!("export MUSTER_SERVER={} MUSTER_DATA_DIR={}", server.url, data_dir.display()));
        self.servers.push(server);
    }

    /// Kill every server, as a loss of power would.
    pub fn kill_servers(&mut self) {
        self.servers.clear();
    }

    /// Type a command, and see what it prints and returns. A server is started beside the shell.
    pub fn type_in(&mut self, command: &str) -> (String, i32) {
        if let Some(words) = server_words(command) {
            self.serve(&words);
            return (String::new(), 0);
        }
        writeln!(self.keyboard, "{{ {command}\n}} </dev/null\nprintf '\\n{MARK}%d\\n' $?").unwrap();
        self.keyboard.flush().unwrap();
        self.read_answer(command)
    }

    fn read_answer(&mut self, command: &str) -> (String, i32) {
        let mut bytes = Vec::new();
        loop {
            match self.screen.recv_timeout(PATIENCE) {
                Ok(more) => bytes.extend(more),
                Err(why) => panic!("`{command}`: {why} after\n{}", String::from_utf8_lossy(&bytes)),
            }
            if let Some(answer) = ended(&bytes) {
                return answer;
            }
        }
    }
}

/// Read on a thread of its own, so that a command that never ends is noticed.
fn watch(mut screen: PipeReader) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            if sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The output and the code, once the mark is there.
fn ended(bytes: &[u8]) -> Option<(String, i32)> {
    if bytes.last() != Some(&b'\n') {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let (output, code) = text.rsplit_once(&format!("\n{MARK}"))?;
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

/// Standard output and error go to one pipe, as on a screen.
fn bash(folder: &Path, screen: PipeWriter) -> Child {
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile"]).current_dir(folder).env("PATH", path).env("HOME", folder);
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("MUSTER_") || name.starts_with("GPU_SCHED"))
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(screen.try_clone().unwrap()).stderr(screen).spawn().unwrap()
}

/// A command that would run until it is stopped.
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
