//! Starting and killing the server of a test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A file beside a program with the limit of its address space in KiB.
pub const ADDRESS_SPACE: &str = "address-space-kib";

/// The program, with the limit of that file if it exists.
fn with_address_space_limit(program: PathBuf) -> Command {
    let limit = program.parent().unwrap().join(ADDRESS_SPACE);
    let Ok(kib) = std::fs::read_to_string(limit) else { return Command::new(program) };
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\"")]).arg(program);
    shell
}

/// A server that is killed on drop. What it has acknowledged is on disk by then.
pub struct Server {
    child: Child,
    pub url: String,
}

impl Server {
    /// Starts a server on a free port, and waits until it prints its address.
    pub fn start(words: &[&str], folder: &Path) -> Server {
        Server::start_at("127.0.0.1:0", words, folder)
    }

    /// The process id. With a limit on the address space the shell has replaced itself by the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert!(self.child.wait().unwrap().success());
    }

    /// Starts a server at this address.
    pub fn start_at(address: &str, words: &[&str], folder: &Path) -> Server {
        let log = std::fs::File::create(folder.join("server.log")).unwrap();
        let name = Path::new(words[0]).file_name().unwrap();
        let mut child = with_address_space_limit(folder.join("bin").join(name))
            .args(&words[1..])
            .args(["--listen", address, "--data-dir"])
            .arg(folder.join("data"))
            .current_dir(folder)
            .env("MUSTER_AGENT__HEARTBEAT_INTERVAL_MS", "200")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| line.unwrap().strip_prefix("muster serves ").map(str::to_string));
        let log = || std::fs::read_to_string(folder.join("server.log")).unwrap_or_default();
        let url = url.unwrap_or_else(|| panic!("`{}` did not start:\n{}", words.join(" "), log()));
        // Keep reading, so that the server does not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
