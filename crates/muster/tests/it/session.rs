//! A server of its own, and the commands that a test runs against it.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::server::{ADDRESS_SPACE, Server};

pub struct Session {
    server: Server,
    /// The command line of the server.
    words: Vec<String>,
    pub folder: std::path::PathBuf,
}

impl Session {
    pub fn new(name: &str, words: &[&str]) -> Session {
        let folder = std::env::temp_dir().join(format!("muster-it-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_muster"), folder.join("bin/muster")).unwrap();
        let words = ["muster", "dev"].iter().chain(words).map(ToString::to_string).collect();
        Session::started(words, folder)
    }

    /// A server with a limit on its address space.
    pub fn with_address_space_limit(name: &str, address_space_kib: u64, words: &[&str]) -> Session {
        let session = Session::new(name, words);
        std::fs::write(session.folder.join("bin").join(ADDRESS_SPACE), address_space_kib.to_string()).unwrap();
        session.restart()
    }

    /// Kills the server and starts it again on the same data.
    pub fn restart(self) -> Session {
        self.restart_with(&[])
    }

    /// Restarts the server with more arguments.
    pub fn restart_with(self, more: &[&str]) -> Session {
        let Session { server, mut words, folder } = self;
        drop(server);
        words.extend(more.iter().map(ToString::to_string));
        Session::started(words, folder)
    }

    /// The log of the server.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap()
    }

    /// The standard output of a command that may fail.
    pub fn run_stdout(&self, words: &str) -> String {
        String::from_utf8_lossy(&self.run(words).stdout).into_owned()
    }

    fn started(words: Vec<String>, folder: std::path::PathBuf) -> Session {
        let server = Server::start(&words.iter().map(String::as_str).collect::<Vec<_>>(), &folder);
        Session { server, words, folder }
    }

    /// The number of policy workers of the server.
    pub fn policy_workers(&self) -> usize {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let is_worker = |process: &std::path::Path| {
            let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            let words = std::fs::read(process.join("cmdline")).unwrap_or_default();
            // After the name in brackets: the state, then the parent process.
            let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
            let is_child = parent == Some(self.server.pid().to_string().as_str());
            is_child && words.split(|byte| *byte == 0).any(|word| word == b"policy-worker")
        };
        entries.filter(|entry| is_worker(&entry.path())).count()
    }

    /// Kills the server, then removes its folder: a running server would write to it.
    pub fn stop_and_remove(self) {
        let Session { server, folder, .. } = self;
        drop(server);
        std::fs::remove_dir_all(folder).unwrap();
    }

    pub fn url(&self) -> &str {
        &self.server.url
    }

    /// Resident memory of the server.
    pub fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.server.pid())).unwrap();
        let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
        pages * 4_096
    }

    /// The standard output of a command that must succeed.
    pub fn run_ok(&self, words: &str) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`muster {words}`: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The standard error of a command that must fail.
    pub fn run_refused(&self, words: &str) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "`muster {words}` was not refused");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn run(&self, words: &str) -> Output {
        let muster = self.folder.join("bin/muster");
        let mut run = Command::new(muster);
        run.args(words.split_whitespace()).current_dir(&self.folder);
        run.env("MUSTER_SERVER", &self.server.url).output().unwrap()
    }

    /// Repeats a command until its output contains the text.
    pub fn wait_for_output(&self, words: &str, text: &str) -> String {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let output = self.run_ok(words);
            if output.contains(text) {
                return output;
            }
            if Instant::now() >= until {
                let (jobs, events) = (self.run_ok("ps --all"), self.run_ok("events"));
                panic!("`muster {words}` never prints `{text}`:\n{output}\n{jobs}\n{events}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the condition holds.
    pub fn wait_until(&self, description: &str, condition: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < until, "never: {description}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The result of `muster sim whatif`.
    pub fn whatif(&self, words: &str) -> Value {
        muster_json::from_str(&self.run_ok(&format!("sim whatif -o json {words}"))).unwrap()
    }
}
