//! Reads the id of the cluster in a SQLite file without changing the file.

use rusqlite::{Connection, OptionalExtension};

use super::file::DatabaseFile;
use crate::journal::ClusterIdentity;

impl DatabaseFile {
    /// `Unknown` if the file cannot be read; `acquire_leadership` reports why.
    pub fn cluster_identity(&self) -> ClusterIdentity {
        if self.is_temporary {
            return ClusterIdentity::Unknown;
        }
        if self.is_missing_or_empty() {
            return ClusterIdentity::Empty;
        }
        let read = self.open_reader().ok().and_then(|connection| read_cluster_identity(&connection).ok());
        read.unwrap_or(ClusterIdentity::Unknown)
    }
}

fn read_cluster_identity(connection: &Connection) -> rusqlite::Result<ClusterIdentity> {
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).optional();
    let table = |name: &str| one(&format!("SELECT name FROM sqlite_master WHERE type = 'table' AND name = '{name}'"));
    if table("cluster")?.is_some()
        && let Some(cluster) = one("SELECT cluster_id FROM cluster WHERE id = 1")?
    {
        return Ok(ClusterIdentity::Cluster(cluster));
    }
    if table("journal")?.is_none() {
        return Ok(ClusterIdentity::Empty);
    }
    let first = one("SELECT kind FROM journal LIMIT 1")?;
    Ok(if first.is_some() { ClusterIdentity::Unnamed } else { ClusterIdentity::Empty })
}
