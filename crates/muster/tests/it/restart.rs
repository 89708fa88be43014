//! Restarts are normal: `muster run` and `muster logs` follow a job across a kill and restart of the server.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::server::Server;

/// Prints 6 lines in 3 seconds, the last one without newline and not in UTF-8, and exits with 4.
const SLOW_LINES: &str = r"for i in 1 2 3 4 5; do echo line $i; sleep 0.5; done; printf 'end \377'; exit 4";
const OUTPUT: &[u8] = b"line 1\nline 2\nline 3\nline 4\nline 5\nend \xff";

#[test]
fn muster_run_survives_a_server_restart() {
    let seen = output_across_a_restart("run", &["run", "--quiet", "--", "sh", "-c", SLOW_LINES]);
    assert_eq!((seen.stdout.as_slice(), String::from_utf8_lossy(&seen.stderr).as_ref()), (OUTPUT, ""));
    assert_eq!(seen.status.code(), Some(4));
}

#[test]
fn muster_logs_resumes_after_a_server_restart_and_says_so_once() {
    let script = "muster submit -- sh -c \"$SLOW_LINES\" >/dev/null 2>&1; exec muster logs -f job-1";
    let seen = output_across_a_restart("logs", &["sh", "-c", script]);
    assert_eq!(seen.stdout, OUTPUT);
    let notes = String::from_utf8_lossy(&seen.stderr).into_owned();
    assert_eq!(notes.matches("the output continues when it answers again").count(), 1, "{notes}");
    assert_eq!((notes.lines().count(), seen.status.code()), (1, Some(0)), "{notes}");
}

/// The output of a follower while its server is killed and started again. The first word `run` is `muster run`.
fn output_across_a_restart(name: &str, words: &[&str]) -> Output {
    let folder = std::env::temp_dir().join(format!("muster-it-{}-restart-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_muster"), folder.join("bin/muster")).unwrap();
    let address = free_address();
    let server = start(&address, &folder);
    let (program, arguments) = match words {
        ["run", ..] => (folder.join("bin/muster"), words),
        _ => (words[0].into(), &words[1..]),
    };
    let search_path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let follower = Command::new(program)
        .args(arguments)
        .current_dir(&folder)
        .env("PATH", search_path)
        .env("SLOW_LINES", SLOW_LINES)
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
    std::fs::remove_dir_all(&folder).unwrap();
    seen
}

fn start(address: &str, folder: &Path) -> Server {
    Server::start_at(address, &["muster", "dev", "--real"], folder)
}

/// A fixed address, because both servers need the same one.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
