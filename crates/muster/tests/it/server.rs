//! A fresh server for each session.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A file beside a program, with the KiB of address space that it may have.
pub const ADDRESS_SPACE: &str = "address-space-kib";

/// A program under the bound of address space that a file beside it names, if there is one.
fn limited(program: PathBuf) -> Command {
    let bound = program.parent().unwrap().join(ADDRESS_SPACE);
    let Ok(kib) = std::fs::read_to_string(bound) else { return Command::new(program) };
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\"")]).arg(program);
    shell
}

/// A server that is killed when it is no longer needed. What it was told is on disk by then.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub url: String,
}

impl Server {
    /// Start a command on a free port, and wait until it says where it listens.
    pub fn start(words: &[&str], folder: &Path) -> Server {
        Server::start_at("127.0.0.1:0", words, folder)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The same at a given address.
    pub fn start_at(address: &str, words: &[&str], folder: &Path) -> Server {
        let log = std::fs::File::create(folder.join("server.log")).unwrap();
        let name = Path::new(words[0]).file_name().unwrap();
        let mut child = limited(folder.join("bin").join(name))
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
        // The rest of its welcome must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, url }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
