//! The data folder of one server: one process uses it at a time, and it remembers which cluster it belongs to.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use muster_store::{Identity, Journal, StoreError, private};
use tracing::{info, warn};

use crate::identity;
use crate::start_error::StartError;

/// The id of the cluster whose database this folder belongs to.
const MARKER: &str = "cluster-id";

/// The exclusive use of a data folder.
pub struct FolderLock {
    /// The kernel frees the lock when the process ends, however it ends.
    _file: File,
    /// This process among all servers of the cluster.
    pub holder: String,
    /// The process that used this folder before. It has ended, else the folder would be locked.
    pub former: Option<String>,
}

impl FolderLock {
    /// Lock the folder, which is made if it is missing.
    pub fn take(folder: &Path) -> Result<FolderLock, StartError> {
        let name = folder.display().to_string();
        let fault = |source| StartError::Folder { folder: name.clone(), source };
        private::make_folder(folder).map_err(fault)?;
        let mut file = private::open_file(&folder.join("server.lock")).map_err(fault)?;
        match file.try_lock() {
            // What an older version left open to others; the database is looked after where it is opened.
            Ok(()) => close_all(folder),
            Err(TryLockError::WouldBlock) => return Err(StartError::FolderInUse { folder: name }),
            Err(TryLockError::Error(source)) => return Err(fault(source)),
        }
        let mut former = String::new();
        // What is not text was not written by a server; then the former lease runs out by itself.
        let former = file.read_to_string(&mut former).ok().map(|_| former.trim().to_string());
        let holder = new_holder(folder)?;
        sign(&mut file, &holder).map_err(fault)?;
        Ok(FolderLock { _file: file, holder, former: former.filter(|former| !former.is_empty()) })
    }
}

/// Close what lies in the folder and in `tls` to other accounts. What is below `attempts` belongs to the jobs.
fn close_all(folder: &Path) {
    for folder in [folder, &folder.join("tls")] {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.for_each(|entry| private::close_to_others(&entry.path()));
    }
}

fn sign(file: &mut File, holder: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{holder}")
}

/// Host and folder tell people which server it is. Two machines may have both in common, so a random number tells
/// processes apart.
fn new_holder(folder: &Path) -> Result<String, StartError> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let host = muster_agent::inventory::local_name();
    Ok(format!("{host}:{}#{}", folder.display(), random_id()?))
}

fn random_id() -> Result<String, StartError> {
    let number =
        getrandom::u64().map_err(|error| StartError::Machine(std::io::Error::other(error.to_string())))?;
    Ok(format!("{number:016x}"))
}

/// Keeps a folder with the database of its cluster.
pub struct Marker {
    folder: PathBuf,
    /// Where the database is, for messages.
    database: String,
    /// Given to a cluster that has no id yet.
    fresh: String,
    /// Whether a person asked to begin a new cluster in a used folder (`--new-cluster`).
    new_cluster: bool,
    checked: bool,
}

impl Marker {
    pub fn new(folder: &Path, database: String, new_cluster: bool) -> Result<Marker, StartError> {
        let folder = folder.to_path_buf();
        Ok(Marker { folder, database, fresh: random_id()?, new_cluster, checked: false })
    }

    /// Refuse a database that is not the one of this folder, before anything is written to it.
    pub fn check(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        if self.checked {
            return Ok(());
        }
        match (journal.identity()?, self.read()?) {
            (Identity::Empty, marker) if !self.new_cluster => self.refuse_empty(marker)?,
            (Identity::Cluster(found), Some(marker)) if found != marker && !self.new_cluster => {
                return Err(self.another(&found, &marker));
            }
            (Identity::Cluster(found), Some(marker)) if found != marker => {
                warn!(%found, %marker, "--new-cluster: this folder now belongs to another cluster");
                self.write(&found)?;
            }
            (Identity::Cluster(found), None) => self.write(&found)?,
            _ => {}
        }
        self.checked = true;
        Ok(())
    }

    /// The leader gives its cluster an id, once.
    pub fn found(&self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let id = match journal.identity()? {
            Identity::Cluster(id) => match self.read()? {
                Some(marker) if marker != id && !self.new_cluster => return Err(self.another(&id, &marker)),
                _ => id,
            },
            Identity::Unknown => return Ok(()),
            // A database of an older release has no id; one that was restored keeps that of its folder.
            Identity::Empty | Identity::Unnamed => {
                let id = self.read()?.filter(|_| !self.new_cluster).unwrap_or_else(|| self.fresh.clone());
                journal.found(&id)?;
                info!(cluster = %id, "the database has its cluster id");
                id
            }
        };
        match self.read()?.as_ref() == Some(&id) {
            true => Ok(()),
            false => self.write(&id),
        }
    }

    fn refuse_empty(&self, marker: Option<String>) -> Result<(), StoreError> {
        let Some(trace) = self.trace(marker) else { return Ok(()) };
        Err(StoreError::Misconfigured(format!(
            "the {} is missing or empty, but the data folder `{}` was used before ({trace}): all jobs, tenants and usage \
             would be gone; restore the database from a backup or correct --database, or begin anew with --new-cluster",
            self.database,
            self.folder.display()
        )))
    }

    fn another(&self, found: &str, marker: &str) -> StoreError {
        StoreError::Misconfigured(format!(
            "the {} holds the cluster `{found}`, but the data folder `{}` belongs to the cluster `{marker}`; correct \
             --database or --data-dir, or move this folder to the other cluster with --new-cluster",
            self.database,
            self.folder.display()
        ))
    }

    /// What says that a cluster lived here.
    fn trace(&self, marker: Option<String>) -> Option<String> {
        let file = |name: &str| {
            let path = self.folder.join(name);
            let used = match std::fs::read_dir(&path) {
                Ok(mut entries) => entries.next().is_some(),
                Err(_) => path.exists(),
            };
            used.then(|| format!("it holds `{name}`"))
        };
        let token = identity::admin_token_path(Path::new("")).display().to_string();
        marker
            .map(|id| format!("by the cluster `{id}`"))
            .or_else(|| ["attempts", "muster.db-wal", &token].into_iter().find_map(file))
    }

    fn path(&self) -> PathBuf {
        self.folder.join(MARKER)
    }

    fn read(&self) -> Result<Option<String>, StoreError> {
        match std::fs::read_to_string(self.path()) {
            Ok(text) => Ok(Some(text.trim().to_string()).filter(|id| !id.is_empty())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable(&self.path(), error)),
        }
    }

    fn write(&self, id: &str) -> Result<(), StoreError> {
        identity::write_private(&self.path(), format!("{id}\n").as_bytes())
            .map_err(|error| unusable(&self.path(), error))
    }
}

fn unusable(path: &Path, error: impl std::fmt::Display) -> StoreError {
    StoreError::Misconfigured(format!(
        "cannot use `{}`, which says whose folder it is: {error}",
        path.display()
    ))
}
