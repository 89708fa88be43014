//! A PostgreSQL server for tests and benchmarks, on a Unix socket in a temporary folder.
//!
//! One server per test process, one database per test. The server exits with the process, also if that is killed: a
//! shell waits for the end of a pipe that only the process holds open.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::leader_epoch::random_number;
use crate::postgres::config::PostgresConfig;

/// `nobody` on all common Linux distributions. PostgreSQL refuses to run as root.
const NOBODY_UID: u32 = 65_534;
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// `fsync` of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// As in production; for benchmarks.
    EveryCommit,
    /// For tests, which do not simulate a loss of power.
    Never,
}

/// A running server.
pub struct PostgresServer {
    bin_folder: PathBuf,
    folder: PathBuf,
    port: u16,
    databases_created: AtomicU32,
    /// The server runs until the standard input of this process is closed.
    _watcher: Child,
}

/// The server of this process. `None` if PostgreSQL is not installed; panics in that case if `CI` is `true`.
pub fn shared_postgres() -> Option<&'static PostgresServer> {
    static SERVER: OnceLock<Option<PostgresServer>> = OnceLock::new();
    let server = SERVER.get_or_init(|| match PostgresServer::start(Flush::Never) {
        Ok(server) => Some(server),
        Err(error) if std::env::var("CI").is_ok_and(|ci| ci == "true") => {
            panic!("no PostgreSQL for tests: {error}")
        }
        Err(error) => {
            eprintln!("skipped: no PostgreSQL for tests: {error}");
            None
        }
    });
    server.as_ref()
}

impl PostgresServer {
    /// Start another server.
    pub fn start(flush: Flush) -> io::Result<PostgresServer> {
        PostgresServer::launch(flush, 5432, "-c listen_addresses=", |_| Ok(()))
    }

    /// Start a server that also listens on the loopback address, for encrypted connections only.
    pub fn start_with_tls(certificate: &str, key: &str) -> io::Result<PostgresServer> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let options = "-c listen_addresses=127.0.0.1 -c ssl=on -c ssl_cert_file=server.crt -c ssl_key_file=server.key";
        PostgresServer::launch(Flush::Never, port, options, |data| {
            let rules = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";
            for (name, text) in [("server.crt", certificate), ("server.key", key), ("pg_hba.conf", rules)] {
                write_for_server(&data.join(name), text)?;
            }
            Ok(())
        })
    }

    fn launch(
        flush: Flush,
        port: u16,
        options: &str,
        prepare: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<PostgresServer> {
        let bin_folder = find_bin_folder()?;
        let folder = make_folder()?;
        run(unprivileged_command(&bin_folder.join("initdb"))
            .args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8"])
            .args(["--locale=C", "-D"])
            .arg(folder.join("data")))?;
        prepare(&folder.join("data"))?;
        let fsync = if flush == Flush::Never { "off" } else { "on" };
        // Waits for the end of its input, then stops the server and deletes the folder. The shell starts background
        // processes with INT ignored, until the server has set its handler, so TERM goes first.
        let script = format!(
            "exec 3<&0; \"$0/postgres\" -D \"$1/data\" -k \"$1\" -p {port} {options} -c max_connections=200 \
             -c fsync={fsync} >\"$1/log\" 2>&1 </dev/null 3<&- & server=$!; cat <&3 >/dev/null; \
             kill -TERM $server; kill -INT $server; wait $server; rm -rf \"$1\""
        );
        let watcher = unprivileged_command(Path::new("/bin/sh"))
            .args(["-c", &script])
            .args([&bin_folder, &folder])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server =
            PostgresServer { bin_folder, folder, port, databases_created: AtomicU32::new(0), _watcher: watcher };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// A new, empty database.
    pub fn create_database(&self) -> io::Result<PostgresConfig> {
        let name = format!("test_{}", self.databases_created.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(PostgresConfig {
            host: self.folder.display().to_string(),
            port: self.port,
            user: "postgres".to_string(),
            password: String::new(),
            database: name,
            ..PostgresConfig::default()
        })
    }

    /// Run SQL with `psql` and return its output: rows without headings.
    pub fn psql(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut psql = Command::new(self.bin_folder.join("psql"));
        run(psql
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-h"])
            .arg(&self.folder)
            .args(["-p", &self.port.to_string(), "-c", sql]))
    }

    /// A database as SQL that [`PostgresServer::restore`] of any later PostgreSQL version can run.
    pub fn dump(&self, database: &str) -> io::Result<String> {
        let mut pg_dump = Command::new(self.bin_folder.join("pg_dump"));
        let dump = run(pg_dump
            .args(["--inserts", "--no-owner", "-U", "postgres", "-d", database, "-h"])
            .arg(&self.folder)
            .args(["-p", &self.port.to_string()]))?;
        // Commands of psql: an older psql refuses those of a newer pg_dump.
        let is_sql = |line: &&str| !line.starts_with('\\');
        Ok(dump.lines().filter(is_sql).fold(String::new(), |text, line| text + line + "\n"))
    }

    /// Run a file of SQL in a database.
    pub fn restore(&self, database: &str, file: &Path) -> io::Result<()> {
        let mut psql = Command::new(self.bin_folder.join("psql"));
        run(psql
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-h"])
            .arg(&self.folder)
            .args(["-p", &self.port.to_string(), "-f"])
            .arg(file))?;
        Ok(())
    }

    fn wait_until_ready(&self) -> io::Result<()> {
        let begin = Instant::now();
        let mut ready = Command::new(self.bin_folder.join("pg_isready"));
        ready
            .arg("-q")
            .arg("-h")
            .arg(&self.folder)
            .arg("-p")
            .arg(self.port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        while !ready.status()?.success() {
            if begin.elapsed() > START_TIMEOUT {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("PostgreSQL did not start: {log}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// Folder of `initdb` and the other programs: from `PATH`, or the newest version in Debian's folder.
fn find_bin_folder() -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    folders.extend(versions.into_iter().rev().map(|(_, folder)| folder));
    // An entry of PATH may hold a symbolic link to one of the programs only.
    let real = |folder: PathBuf| Some(folder.join("initdb").canonicalize().ok()?.parent()?.to_path_buf());
    let complete = |folder: &PathBuf| ["postgres", "psql", "pg_isready"].iter().all(|name| folder.join(name).exists());
    folders.into_iter().filter_map(real).find(complete).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "`initdb` is neither in PATH nor in /usr/lib/postgresql")
    })
}

fn make_folder() -> io::Result<PathBuf> {
    let number = random_number().map_err(|error| io::Error::other(error.to_string()))?;
    // Short: the path of a Unix socket has at most 107 characters.
    let folder = std::env::temp_dir().join(format!("muster-pg-{number:x}"));
    std::fs::create_dir(&folder)?;
    if is_root()? {
        std::os::unix::fs::chown(&folder, Some(NOBODY_UID), Some(NOBODY_UID))?;
    }
    Ok(folder)
}

/// Write a file that only the server may read.
fn write_for_server(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    if is_root()? {
        std::os::unix::fs::chown(path, Some(NOBODY_UID), Some(NOBODY_UID))?;
    }
    Ok(())
}

fn is_root() -> io::Result<bool> {
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

/// A command that runs as `nobody` if this process is root.
fn unprivileged_command(program: &Path) -> Command {
    if !is_root().unwrap_or(false) {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={NOBODY_UID}"))
        .arg(format!("--regid={NOBODY_UID}"))
        .arg("--clear-groups")
        .arg(program);
    command
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.current_dir("/").output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("{:?} failed: {stderr}", command.get_program())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
