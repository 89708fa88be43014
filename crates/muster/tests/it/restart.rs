//! Restarts are normal: `muster run` follows a job across a kill and restart of the server.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::server::Server;

#[test]
fn muster_run_survives_a_server_restart() {
    let folder = std::env::temp_dir().join(format!("muster-it-{}-restart", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_muster"), folder.join("bin/muster")).unwrap();
    let address = free_address();
    let server = start(&address, &folder);
    let follower = Command::new(folder.join("bin/muster"))
        .args(["run", "--quiet", "--", "sh", "-c", "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.5; done; exit 4"])
        .current_dir(&folder)
        .env("MUSTER_SERVER", &server.url)
        .env("MUSTER_DATA_DIR", folder.join("data"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1_200));
    drop(server); // Killed, not stopped.
    std::thread::sleep(Duration::from_millis(700));
    let _server = start(&address, &folder);
    let seen = follower.wait_with_output().unwrap();
    let lines: String = (1..=6).map(|i| format!("line {i}\n")).collect();
    let errors = String::from_utf8_lossy(&seen.stderr).into_owned();
    assert_eq!((String::from_utf8_lossy(&seen.stdout).as_ref(), errors.as_str()), (lines.as_str(), ""));
    assert_eq!(seen.status.code(), Some(4));
    std::fs::remove_dir_all(&folder).unwrap();
}

fn start(address: &str, folder: &Path) -> Server {
    Server::start_at(address, &["muster", "dev", "--real"], folder)
}

/// A fixed address, because both servers need the same one.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
