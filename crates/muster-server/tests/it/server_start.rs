//! Starting a server on a used data folder: a database that is damaged, missing or of another cluster is reported at
//! once, and nothing is overwritten.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster_server::config::{Config, RawConfig};
use muster_server::server::{self, InProcessNodes, RunningServer, StartError};

/// Far below the 30 seconds for which a start once waited in vain.
const START_ERROR_TIME_MAX: Duration = Duration::from_secs(15);
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A data folder that is removed at the end.
struct TempDataDir(PathBuf);

impl TempDataDir {
    fn new(name: &str) -> TempDataDir {
        let path = std::env::temp_dir().join(format!("muster-start-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempDataDir(path)
    }

    fn database(&self) -> PathBuf {
        self.0.join("muster.db")
    }

    fn config(&self, settings: &[(&'static str, &str)]) -> Config {
        let mut flags = RawConfig::default();
        flags.flag("listen", "--listen", "127.0.0.1:0");
        flags.flag("data_dir", "--data-dir", self.0.display());
        for (key, value) in settings {
            flags.flag(key, "test", value);
        }
        Config::load(flags, [], None).unwrap_or_else(|error| panic!("{error}"))
    }

    fn start(&self) -> Result<RunningServer, StartError> {
        start(&self.config(&[]))
    }

    /// Start, stop, and return the id of the cluster.
    fn start_and_stop(&self) -> String {
        self.start().unwrap().stop().unwrap();
        read_cluster_id(&self.0)
    }

    /// The error of a start that must fail at once.
    fn start_error(&self) -> String {
        let begin = Instant::now();
        let error = self.start().err().expect("the start must fail").to_string();
        assert!(begin.elapsed() < START_ERROR_TIME_MAX, "failed after {:?}: {error}", begin.elapsed());
        error
    }
}

impl Drop for TempDataDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(config: &Config) -> Result<RunningServer, StartError> {
    let mut running = server::start(config, InProcessNodes::None, Default::default())?;
    assert!(running.wait_until_ready(Some(READY_TIMEOUT))?, "{}", running.why_not_ready());
    Ok(running)
}

fn new_cluster_config(folder: &TempDataDir) -> Config {
    let mut config = folder.config(&[]);
    config.new_cluster = true;
    config
}

fn read_cluster_id(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("cluster-id")).unwrap()
}

#[test]
fn a_damaged_database_is_reported_at_once() {
    let folder = TempDataDir::new("damaged");
    folder.start_and_stop();
    let file = std::fs::File::options().write(true).open(folder.database()).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length / 2).unwrap();
    let error = folder.start_error();
    assert!(error.contains("damaged") && error.contains("restore it from a backup"), "{error}");
}

#[test]
fn a_start_waits_for_an_unreachable_database() {
    let folder = TempDataDir::new("away");
    // No server listens on port 1 (tcpmux).
    let config = folder.config(&[("database.url", "postgres://ada@127.0.0.1:1/muster")]);
    let mut running = server::start(&config, InProcessNodes::None, Default::default()).unwrap();
    assert!(!running.wait_until_ready(Some(Duration::from_millis(1_500))).unwrap());
    let why = running.why_not_ready();
    assert!(why.contains("connect to the PostgreSQL database `muster`"), "{why}");
    running.stop().unwrap();
    assert_eq!(config.start_timeout_ms, None, "a start waits forever by default");
    let limited = folder.config(&[("database.start_timeout_secs", "7")]);
    assert_eq!(limited.start_timeout_ms, Some(7_000));
}

#[test]
fn a_used_data_folder_without_its_database_is_refused() {
    let folder = TempDataDir::new("missing");
    let first = folder.start_and_stop();
    assert_eq!(folder.start_and_stop(), first);
    for damage in [|file: &Path| std::fs::remove_file(file), |file: &Path| std::fs::write(file, "")] {
        damage(&folder.database()).unwrap();
        let error = folder.start_error();
        for part in ["muster.db", "missing or empty", first.trim(), "backup", "--new-cluster"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert_eq!(std::fs::metadata(folder.database()).map_or(0, |metadata| metadata.len()), 0);
    }
    start(&new_cluster_config(&folder)).unwrap().stop().unwrap();
    assert_ne!(read_cluster_id(&folder.0), first);
    folder.start_and_stop();
}

/// Data folders of older releases have no `cluster-id`, but a token file shows that they were used.
#[test]
fn a_token_file_of_an_older_release_marks_the_data_folder_as_used() {
    let folder = TempDataDir::new("traces");
    std::fs::write(folder.0.join("admin.token"), "mst_x").unwrap();
    let error = folder.start_error();
    assert!(error.contains("it holds `admin.token`") && error.contains("--new-cluster"), "{error}");
}

#[test]
fn the_database_of_another_cluster_is_refused() {
    let (one, other) = (TempDataDir::new("one"), TempDataDir::new("other"));
    let (first, second) = (one.start_and_stop(), other.start_and_stop());
    assert_ne!(first, second);
    std::fs::copy(other.database(), one.database()).unwrap();
    let error = one.start_error();
    assert!(error.contains(first.trim()) && error.contains(second.trim()), "{error}");
    start(&new_cluster_config(&one)).unwrap().stop().unwrap();
    assert_eq!(read_cluster_id(&one.0), second);
}

/// Two machines with the same host name and folder path must not count as one server.
#[test]
fn each_server_process_is_a_distinct_lock_holder() {
    let folder = TempDataDir::new("holder");
    let holder = || {
        folder.start_and_stop();
        std::fs::read_to_string(folder.0.join("server.lock")).unwrap()
    };
    let (first, second) = (holder(), holder());
    assert!(first.contains(&folder.0.display().to_string()), "{first}");
    assert_ne!(first, second);
}
