//! The data folder of one server: one process uses it at a time, and it remembers which cluster it belongs to.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use muster_store::{ClusterIdentity, Journal, StoreError, private_files};
use tracing::{info, warn};

use crate::identity;
use crate::start_error::StartError;

/// The id of the cluster whose database this folder belongs to.
const CLUSTER_ID_FILE: &str = "cluster-id";

/// The exclusive use of a data folder.
pub struct FolderLock {
    /// The kernel frees the lock when the process ends, however it ends.
    _file: File,
    /// This process among all servers of the cluster.
    pub holder: String,
    /// The process that used this folder before. It has ended, else the folder would be locked.
    pub former_holder: Option<String>,
}

impl FolderLock {
    /// Lock the folder, which is made if it is missing.
    pub fn acquire(folder: &Path) -> Result<FolderLock, StartError> {
        let name = folder.display().to_string();
        let fault = |source| StartError::Folder { folder: name.clone(), source };
        private_files::create_folder_if_missing(folder).map_err(fault)?;
        let mut file = private_files::open_or_create_file(&folder.join("server.lock")).map_err(fault)?;
        match file.try_lock() {
            // What an older version left open to others; the database is looked after where it is opened.
            Ok(()) => restrict_permissions(folder),
            Err(TryLockError::WouldBlock) => return Err(StartError::FolderInUse { folder: name }),
            Err(TryLockError::Error(source)) => return Err(fault(source)),
        }
        let mut former = String::new();
        // What is not text was not written by a server; then the former lease runs out by itself.
        let former = file.read_to_string(&mut former).ok().map(|_| former.trim().to_string());
        let holder = new_holder(folder)?;
        write_holder(&mut file, &holder).map_err(fault)?;
        Ok(FolderLock { _file: file, holder, former_holder: former.filter(|former| !former.is_empty()) })
    }
}

/// Close what lies in the folder and in `tls` to other accounts. What is below `attempts` belongs to the jobs.
fn restrict_permissions(folder: &Path) {
    for folder in [folder, &folder.join("tls")] {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.for_each(|entry| private_files::remove_access_of_others(&entry.path()));
    }
}

fn write_holder(file: &mut File, holder: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{holder}")
}

/// Host and folder tell people which server it is. Two machines may have both in common, so a random number tells
/// processes apart.
fn new_holder(folder: &Path) -> Result<String, StartError> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let host = muster_agent::inventory::local_node_name();
    Ok(format!("{host}:{}#{}", folder.display(), random_id()?))
}

fn random_id() -> Result<String, StartError> {
    let number =
        getrandom::u64().map_err(|error| StartError::System(std::io::Error::other(error.to_string())))?;
    Ok(format!("{number:016x}"))
}

/// Keeps a folder with the database of its cluster.
pub struct ClusterMarker {
    folder: PathBuf,
    /// Where the database is, for messages.
    database_location: String,
    /// Given to a cluster that has no id yet.
    new_cluster_id: String,
    /// Whether a person asked to begin a new cluster in a used folder (`--new-cluster`).
    new_cluster: bool,
    checked: bool,
}

impl ClusterMarker {
    pub fn new(folder: &Path, database: String, new_cluster: bool) -> Result<ClusterMarker, StartError> {
        let folder = folder.to_path_buf();
        Ok(ClusterMarker { folder, database_location: database, new_cluster_id: random_id()?, new_cluster, checked: false })
    }

    /// Refuse a database that is not the one of this folder, before anything is written to it.
    pub fn check_database(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        if self.checked {
            return Ok(());
        }
        match (journal.cluster_identity()?, self.read()?) {
            (ClusterIdentity::Empty, marker) if !self.new_cluster => self.refuse_empty_database(marker)?,
            (ClusterIdentity::Cluster(found), Some(marker)) if found != marker && !self.new_cluster => {
                return Err(self.wrong_cluster_error(&found, &marker));
            }
            (ClusterIdentity::Cluster(found), Some(marker)) if found != marker => {
                warn!(%found, %marker, "--new-cluster: this folder now belongs to another cluster");
                self.write(&found)?;
            }
            (ClusterIdentity::Cluster(found), None) => self.write(&found)?,
            _ => {}
        }
        self.checked = true;
        Ok(())
    }

    /// The leader gives its cluster an id, once.
    pub fn assign_cluster_id(&self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let id = match journal.cluster_identity()? {
            ClusterIdentity::Cluster(id) => match self.read()? {
                Some(marker) if marker != id && !self.new_cluster => return Err(self.wrong_cluster_error(&id, &marker)),
                _ => id,
            },
            ClusterIdentity::Unknown => return Ok(()),
            // A database of an older release has no id; one that was restored keeps that of its folder.
            ClusterIdentity::Empty | ClusterIdentity::Unnamed => {
                let id = self.read()?.filter(|_| !self.new_cluster).unwrap_or_else(|| self.new_cluster_id.clone());
                journal.set_cluster_id(&id)?;
                info!(cluster = %id, "the database has its cluster id");
                id
            }
        };
        match self.read()?.as_ref() == Some(&id) {
            true => Ok(()),
            false => self.write(&id),
        }
    }

    fn refuse_empty_database(&self, marker: Option<String>) -> Result<(), StoreError> {
        let Some(trace) = self.evidence_of_use(marker) else { return Ok(()) };
        Err(StoreError::Misconfigured(format!(
            "the {} is missing or empty, but the data folder `{}` was used before ({trace}): all jobs, tenants and usage \
             would be gone; restore the database from a backup or correct --database, or begin anew with --new-cluster",
            self.database_location,
            self.folder.display()
        )))
    }

    fn wrong_cluster_error(&self, found: &str, marker: &str) -> StoreError {
        StoreError::Misconfigured(format!(
            "the {} holds the cluster `{found}`, but the data folder `{}` belongs to the cluster `{marker}`; correct \
             --database or --data-dir, or move this folder to the other cluster with --new-cluster",
            self.database_location,
            self.folder.display()
        ))
    }

    /// What says that a cluster lived here.
    fn evidence_of_use(&self, marker: Option<String>) -> Option<String> {
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
        self.folder.join(CLUSTER_ID_FILE)
    }

    fn read(&self) -> Result<Option<String>, StoreError> {
        match std::fs::read_to_string(self.path()) {
            Ok(text) => Ok(Some(text.trim().to_string()).filter(|id| !id.is_empty())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(marker_file_error(&self.path(), error)),
        }
    }

    fn write(&self, id: &str) -> Result<(), StoreError> {
        identity::write_private(&self.path(), format!("{id}\n").as_bytes())
            .map_err(|error| marker_file_error(&self.path(), error))
    }
}

fn marker_file_error(path: &Path, error: impl std::fmt::Display) -> StoreError {
    StoreError::Misconfigured(format!(
        "cannot use `{}`, which says whose folder it is: {error}",
        path.display()
    ))
}
