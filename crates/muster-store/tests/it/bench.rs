//! The databases a contract runs over.

use muster_store::testing::{self, PostgresServer};
use muster_store::{PostgresConfig, Store, StoreConfig, open};

/// A database of its own for one test.
pub trait Bench {
    /// Another handle to the same database, as a second server would open it.
    fn open(&self) -> Store;

    /// Run SQL behind the store's back.
    fn meddle(&self, sql: &str);
}

/// A file in a folder of its own.
pub struct SqliteBench {
    folder: Folder,
}

/// A folder that is removed at the end.
pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new() -> Folder {
        let name = format!("muster-store-test-{:016x}", getrandom::u64().unwrap());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl SqliteBench {
    pub fn new() -> SqliteBench {
        SqliteBench { folder: Folder::new() }
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.folder.0.join("muster.db")
    }
}

impl Bench for SqliteBench {
    fn open(&self) -> Store {
        open(&StoreConfig::Sqlite { path: self.path() }).unwrap()
    }

    fn meddle(&self, sql: &str) {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        connection.execute_batch(sql).unwrap();
    }
}

/// A database on the PostgreSQL server of this test run.
pub struct PostgresBench {
    server: &'static PostgresServer,
    pub config: PostgresConfig,
}

impl PostgresBench {
    /// `None` where PostgreSQL is not installed.
    pub fn new() -> Option<PostgresBench> {
        let server = testing::postgres()?;
        Some(PostgresBench { server, config: server.database().unwrap() })
    }

    pub fn psql(&self, sql: &str) -> String {
        self.server.psql(&self.config.database, sql).unwrap()
    }
}

impl Bench for PostgresBench {
    fn open(&self) -> Store {
        open(&StoreConfig::Postgres(self.config.clone())).unwrap()
    }

    fn meddle(&self, sql: &str) {
        self.psql(sql);
    }
}
