//! Which cluster a file holds, read without changing it.

use rusqlite::{Connection, OptionalExtension};

use super::file::Place;
use crate::journal::Identity;

impl Place {
    /// What cannot be read is left to the leader, which says what is wrong with the file.
    pub fn identity(&self) -> Identity {
        if self.throwaway {
            return Identity::Unknown;
        }
        if self.is_missing_or_empty() {
            return Identity::Empty;
        }
        let read = self.reader().ok().and_then(|connection| identity(&connection).ok());
        read.unwrap_or(Identity::Unknown)
    }
}

fn identity(connection: &Connection) -> rusqlite::Result<Identity> {
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).optional();
    let table =
        |name: &str| one(&format!("SELECT name FROM sqlite_master WHERE type = 'table' AND name = '{name}'"));
    if table("cluster")?.is_some()
        && let Some(cluster) = one("SELECT cluster_id FROM cluster WHERE id = 1")?
    {
        return Ok(Identity::Cluster(cluster));
    }
    if table("journal")?.is_none() {
        return Ok(Identity::Empty);
    }
    let first = one("SELECT kind FROM journal LIMIT 1")?;
    Ok(if first.is_some() { Identity::Unnamed } else { Identity::Empty })
}
