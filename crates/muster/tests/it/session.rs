//! A server of its own, and what people type.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::server::{ADDRESS_SPACE, Server};

/// A server, and what people type.
pub struct Session {
    server: Server,
    words: Vec<String>,
    /// Where it lives.
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

    /// A server that may have so much address space and no more.
    pub fn limited(name: &str, address_space_kib: u64, words: &[&str]) -> Session {
        let session = Session::new(name, words);
        std::fs::write(session.folder.join("bin").join(ADDRESS_SPACE), address_space_kib.to_string())
            .unwrap();
        session.restart()
    }

    /// The same server again, with what it has on disk.
    pub fn restart(self) -> Session {
        self.restart_with(&[])
    }

    /// The same with more words.
    pub fn restart_with(self, more: &[&str]) -> Session {
        let Session { server, mut words, folder } = self;
        drop(server);
        words.extend(more.iter().map(ToString::to_string));
        Session::started(words, folder)
    }

    /// What its server has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("server.log")).unwrap()
    }

    /// What a command prints that may end with an error.
    pub fn prints(&self, words: &str) -> String {
        String::from_utf8_lossy(&self.run(words).stdout).into_owned()
    }

    fn started(words: Vec<String>, folder: std::path::PathBuf) -> Session {
        let server = Server::start(&words.iter().map(String::as_str).collect::<Vec<_>>(), &folder);
        Session { server, words, folder }
    }

    /// The processes that policies run in.
    pub fn policy_workers(&self) -> usize {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let is_worker = |process: &std::path::Path| {
            let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            let words = std::fs::read(process.join("cmdline")).unwrap_or_default();
            // After its name in brackets: the state, then the parent.
            let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
            let ours = parent == Some(self.server.id().to_string().as_str());
            ours && words.split(|byte| *byte == 0).any(|word| word == b"policy-worker")
        };
        entries.filter(|entry| is_worker(&entry.path())).count()
    }

    /// Stop the server, and then clean up after it: while it runs it writes.
    pub fn end(self) {
        let Session { server, folder, .. } = self;
        drop(server);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Where its server listens.
    pub fn url(&self) -> &str {
        &self.server.url
    }

    /// Memory that its server holds.
    pub fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.server.pid())).unwrap();
        let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
        pages * 4_096
    }

    /// What is said to a command that goes well.
    pub fn says(&self, words: &str) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`muster {words}`: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What is said to one that is refused.
    pub fn refuses(&self, words: &str) -> String {
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

    /// Until what is said has a text in it.
    pub fn waits_for(&self, words: &str, text: &str) -> String {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let said = self.says(words);
            if said.contains(text) {
                return said;
            }
            if Instant::now() >= until {
                let (jobs, events) = (self.says("ps --all"), self.says("events"));
                panic!("`muster {words}` never says `{text}`:\n{said}\n{jobs}\n{events}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Until something is so.
    pub fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < until, "never: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What would have been.
    pub fn whatif(&self, words: &str) -> Value {
        muster_json::from_str(&self.says(&format!("sim whatif -o json {words}"))).unwrap()
    }
}
