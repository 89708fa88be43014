//! The data folder of one server: a lock lets one process use it at a time, and a marker file binds it to one cluster.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use muster_store::{ClusterIdentity, Journal, StoreError, private_files};
use tracing::{info, warn};

use crate::identity;
use crate::start_error::StartError;

/// File with the id of the cluster to which the folder belongs.
const CLUSTER_ID_FILE: &str = "cluster-id";

/// The lock on a data folder.
pub struct FolderLock {
    /// The kernel releases the lock when the process ends, however it ends.
    _file: File,
    /// Identifies this process among all servers of the cluster.
    pub holder: String,
    /// The process that held the folder before. It has ended, else the folder would still be locked.
    pub former_holder: Option<String>,
}

impl FolderLock {
    /// Lock the folder. A missing folder is created.
    pub fn acquire(folder: &Path) -> Result<FolderLock, StartError> {
        let name = folder.display().to_string();
        let fault = |source| StartError::Folder { folder: name.clone(), source };
        private_files::create_folder_if_missing(folder).map_err(fault)?;
        let mut file = private_files::open_or_create_file(&folder.join("server.lock")).map_err(fault)?;
        match file.try_lock() {
            // Older versions left files readable to others. The store does the same for the database file.
            Ok(()) => restrict_permissions(folder),
            Err(TryLockError::WouldBlock) => return Err(StartError::FolderInUse { folder: name }),
            Err(TryLockError::Error(source)) => return Err(fault(source)),
        }
        let mut former = String::new();
        // If the file is not text, no server wrote it; the lease of a former leader then expires by itself.
        let former = file.read_to_string(&mut former).ok().map(|_| former.trim().to_string());
        let holder = new_holder(folder)?;
        write_holder(&mut file, &holder).map_err(fault)?;
        Ok(FolderLock { _file: file, holder, former_holder: former.filter(|former| !former.is_empty()) })
    }
}

/// Remove the access of other accounts to the files of the folder and of `tls`. Files below `attempts` belong to the jobs.
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

/// Host and folder identify the server to people. Two machines may share both, so a random number makes the holder unique.
fn new_holder(folder: &Path) -> Result<String, StartError> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let host = muster_agent::inventory::local_node_name();
    Ok(format!("{host}:{}#{}", folder.display(), random_id()?))
}

fn random_id() -> Result<String, StartError> {
    let number = getrandom::u64().map_err(|error| StartError::System(std::io::Error::other(error.to_string())))?;
    Ok(format!("{number:016x}"))
}

/// Checks that a data folder and its database belong to the same cluster.
pub struct ClusterMarker {
    folder: PathBuf,
    /// For messages.
    database_location: String,
    /// Assigned to a cluster that has no id yet.
    new_cluster_id: String,
    /// Whether a new cluster may begin in a used folder (`--new-cluster`).
    new_cluster: bool,
    checked: bool,
}

impl ClusterMarker {
    pub fn new(folder: &Path, database_location: String, new_cluster: bool) -> Result<ClusterMarker, StartError> {
        let folder = folder.to_path_buf();
        Ok(ClusterMarker { folder, database_location, new_cluster_id: random_id()?, new_cluster, checked: false })
    }

    /// Refuse a database of another cluster before anything is written to it.
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

    /// Give the cluster an id if it has none. Only the leader does this.
    pub fn assign_cluster_id(&self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let id = match journal.cluster_identity()? {
            ClusterIdentity::Cluster(id) => match self.read()? {
                Some(marker) if marker != id && !self.new_cluster => {
                    return Err(self.wrong_cluster_error(&id, &marker));
                }
                _ => id,
            },
            ClusterIdentity::Unknown => return Ok(()),
            // A database of an older release has no id. A restored database keeps the id of its folder.
            ClusterIdentity::Empty | ClusterIdentity::Unnamed => {
                let id = self.read()?.filter(|_| !self.new_cluster).unwrap_or_else(|| self.new_cluster_id.clone());
                journal.set_cluster_id(&id)?;
                info!(cluster = %id, "assigned a cluster id to the database");
                id
            }
        };
        match self.read()?.as_ref() == Some(&id) {
            true => Ok(()),
            false => self.write(&id),
        }
    }

    fn refuse_empty_database(&self, marker: Option<String>) -> Result<(), StoreError> {
        let Some(evidence) = self.evidence_of_use(marker) else { return Ok(()) };
        Err(StoreError::Misconfigured(format!(
            "the {} is missing or empty, but the data folder `{}` was used before ({evidence}): all jobs, tenants and \
             usage would be lost; restore the database from a backup or correct --database, or start a new cluster with \
             --new-cluster",
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

    /// A sign that a cluster used this folder.
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
        "cannot use `{}`, which holds the cluster id of this data folder: {error}",
        path.display()
    ))
}
