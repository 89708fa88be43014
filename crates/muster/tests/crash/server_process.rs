//! A server process, from its start to the kill.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct ServerProcess {
    child: RefCell<Child>,
    address: SocketAddr,
}

impl ServerProcess {
    /// Starts the server on this folder and waits until it is leader.
    pub fn start(folder: &Path, database: Option<&str>) -> ServerProcess {
        let server = ServerProcess::launch(folder, database);
        server.wait_until_ready(folder);
        server
    }

    /// Starts a standby.
    pub fn start_beside(folder: &Path, database: &str) -> ServerProcess {
        ServerProcess::launch(folder, Some(database))
    }

    fn launch(folder: &Path, database: Option<&str>) -> ServerProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.join("data"));
        if let Some(url) = database {
            command.args(["--database", url]);
        }
        let log = std::fs::File::options().create(true).append(true).open(folder.join("server.log"));
        command.stdout(Stdio::piped()).stderr(log.expect("a log file"));
        let mut child = command.spawn().expect("the server starts");
        let address = address(&mut child, folder);
        ServerProcess { child: RefCell::new(child), address }
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.borrow().id().to_string();
        let sent = Command::new("kill").arg(format!("-{name}")).arg(id).status();
        assert!(sent.expect("kill runs").success());
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// SIGKILL.
    pub fn kill(&self) {
        let mut child = self.child.borrow_mut();
        child.kill().expect("the server can be killed");
        child.wait().expect("the server is gone");
    }

    /// Sends SIGTERM and waits for the process.
    pub fn stop(&self) {
        let mut child = self.child.borrow_mut();
        let sent = Command::new("kill").arg(child.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
        assert!(child.wait().expect("the server ends").success(), "the server did not stop cleanly");
    }

    /// Waits until it is leader.
    pub fn wait_until_ready(&self, folder: &Path) {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            if is_ready(self.address) {
                return;
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        panic!("not ready after a minute:\n{}", log_tail(folder));
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.borrow_mut().kill();
        let _ = self.child.borrow_mut().wait();
    }
}

fn address(child: &mut Child, folder: &Path) -> SocketAddr {
    let mut output = BufReader::new(child.stdout.take().expect("the server has an output"));
    let mut line = String::new();
    while output.read_line(&mut line).expect("its output can be read") > 0 {
        if let Some((_, rest)) = line.split_once("http://") {
            let text = rest.split([' ', '/', '\n']).next().expect("an address");
            std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
            return text.parse().expect("an address");
        }
        line.clear();
    }
    panic!("the server ended before it listened:\n{}", log_tail(folder));
}

fn log_tail(folder: &Path) -> String {
    let log = std::fs::read_to_string(folder.join("server.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

fn is_ready(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

/// A temporary folder, removed at the end unless the test failed.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("muster-crash-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A seeded xorshift generator.
pub struct SeededRandom(u64);

impl SeededRandom {
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn random_pause(&mut self, limit: u64) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % (limit * 1_000))
    }
}
