//! How a server starts on a data folder that was used before: what is damaged, missing or another cluster's is said at
//! once, and nothing is written over.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster_server::config::{Config, RawConfig};
use muster_server::server::{self, Nodes, Running, StartError};

/// Far below the half minute that a start once waited for nothing.
const AT_ONCE: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(60);

/// A data folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("muster-start-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
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

    fn start(&self) -> Result<Running, StartError> {
        start(&self.config(&[]))
    }

    /// Start, stop, and return the id of the cluster.
    fn use_once(&self) -> String {
        self.start().unwrap().stop().unwrap();
        id(&self.0)
    }

    /// What a start says that must not succeed, at once.
    fn refusal(&self) -> String {
        let begin = Instant::now();
        let said = self.start().err().expect("the start was to be refused").to_string();
        assert!(begin.elapsed() < AT_ONCE, "said after {:?}: {said}", begin.elapsed());
        said
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(config: &Config) -> Result<Running, StartError> {
    let mut running = server::start(config, Nodes::None, Default::default())?;
    assert!(running.wait_until_ready(Some(PATIENCE))?, "{}", running.why_not_ready());
    Ok(running)
}

fn anew(folder: &Folder) -> Config {
    let mut config = folder.config(&[]);
    config.new_cluster = true;
    config
}

fn id(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("cluster-id")).unwrap()
}

#[test]
fn a_damaged_database_is_reported_at_once() {
    let folder = Folder::new("damaged");
    folder.use_once();
    let file = std::fs::File::options().write(true).open(folder.database()).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length / 2).unwrap();
    let said = folder.refusal();
    assert!(said.contains("damaged") && said.contains("restore it from a backup"), "{said}");
}

#[test]
fn a_database_that_is_away_is_waited_for() {
    let folder = Folder::new("away");
    // Nobody listens on the port of the TCP multiplexer.
    let config = folder.config(&[("database.url", "postgres://ada@127.0.0.1:1/muster")]);
    let mut running = server::start(&config, Nodes::None, Default::default()).unwrap();
    assert!(!running.wait_until_ready(Some(Duration::from_millis(1_500))).unwrap());
    let why = running.why_not_ready();
    assert!(why.contains("connect to the PostgreSQL database `muster`"), "{why}");
    running.stop().unwrap();
    assert_eq!(config.start_timeout_ms, None, "a start waits for ever unless told otherwise");
    let limited = folder.config(&[("database.start_timeout_secs", "7")]);
    assert_eq!(limited.start_timeout_ms, Some(7_000));
}

#[test]
fn a_used_folder_without_its_database_is_refused() {
    let folder = Folder::new("missing");
    let first = folder.use_once();
    assert_eq!(folder.use_once(), first);
    for spoil in [|file: &Path| std::fs::remove_file(file), |file: &Path| std::fs::write(file, "")] {
        spoil(&folder.database()).unwrap();
        let said = folder.refusal();
        for word in ["muster.db", "missing or empty", first.trim(), "backup", "--new-cluster"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert_eq!(std::fs::metadata(folder.database()).map_or(0, |facts| facts.len()), 0);
    }
    start(&anew(&folder)).unwrap().stop().unwrap();
    assert_ne!(id(&folder.0), first);
    folder.use_once();
}

/// Folders of older releases have no marker, but a token file says that they were used.
#[test]
fn traces_of_an_older_release_count_as_well() {
    let folder = Folder::new("traces");
    std::fs::write(folder.0.join("admin.token"), "mst_x").unwrap();
    let said = folder.refusal();
    assert!(said.contains("it holds `admin.token`") && said.contains("--new-cluster"), "{said}");
}

#[test]
fn the_database_of_another_cluster_is_refused() {
    let (one, other) = (Folder::new("one"), Folder::new("other"));
    let (first, second) = (one.use_once(), other.use_once());
    assert_ne!(first, second);
    std::fs::copy(other.database(), one.database()).unwrap();
    let said = one.refusal();
    assert!(said.contains(first.trim()) && said.contains(second.trim()), "{said}");
    start(&anew(&one)).unwrap().stop().unwrap();
    assert_eq!(id(&one.0), second);
}

/// The same host name and folder path on two machines must not be one server.
#[test]
fn each_process_is_another_holder() {
    let folder = Folder::new("holder");
    let holder = || {
        folder.use_once();
        std::fs::read_to_string(folder.0.join("server.lock")).unwrap()
    };
    let (first, second) = (holder(), holder());
    assert!(first.contains(&folder.0.display().to_string()), "{first}");
    assert_ne!(first, second);
}
