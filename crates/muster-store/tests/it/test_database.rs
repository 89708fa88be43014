//! Databases for contract tests.

use std::path::{Path, PathBuf};

use muster_store::testing::{self, PostgresServer};
use muster_store::{PostgresConfig, Store, StoreConfig, open};
use rusqlite::types::ValueRef;

/// The database of one test.
pub trait TestDatabase {
    /// Open another handle to the same database, as a second server would.
    fn open(&self) -> Store;

    fn config(&self) -> StoreConfig;

    /// Run SQL without the store; returns the first cell of the result, or an empty string.
    fn sql(&self, sql: &str) -> String;

    fn migrations(&self) -> refinery::Runner;

    /// `sqlite` or `postgres`.
    fn kind(&self) -> &'static str;

    /// Another, empty database of the same kind.
    fn another(&self) -> Box<dyn TestDatabase>;

    /// The database as SQL.
    fn dump(&self) -> String;

    /// Run a file of SQL in this database.
    fn restore(&self, file: &Path);

    /// Create the tables with the schema of an older release.
    fn migrate_to_version(&self, version: i32) {
        self.sql(
            "CREATE TABLE refinery_schema_history (version INTEGER PRIMARY KEY, name VARCHAR(255), \
             applied_on VARCHAR(255), checksum VARCHAR(255)); SELECT 1",
        );
        let runner = self.migrations();
        let mut migrations: Vec<_> = runner.get_migrations().iter().collect();
        migrations.sort_by_key(|migration| migration.version());
        for migration in migrations.into_iter().filter(|migration| migration.version() <= version) {
            self.sql(&format!("{}; SELECT 1", migration.sql().unwrap()));
            self.sql(&format!(
                "INSERT INTO refinery_schema_history VALUES ({}, '{}', '2026-01-01T00:00:00Z', '{}')",
                migration.version(),
                migration.name(),
                migration.checksum()
            ));
        }
    }
}

mod sqlite_tables {
    refinery::embed_migrations!("migrations/sqlite");
}

mod postgres_tables {
    refinery::embed_migrations!("migrations/postgres");
}

/// A SQLite file in a temporary folder.
pub struct SqliteTestDatabase {
    folder: TempFolder,
}

/// A temporary folder, deleted on drop.
pub struct TempFolder(pub PathBuf);

impl TempFolder {
    pub fn new() -> TempFolder {
        let name = format!("muster-store-test-{:016x}", getrandom::u64().unwrap());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        TempFolder(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl SqliteTestDatabase {
    pub fn new() -> SqliteTestDatabase {
        SqliteTestDatabase { folder: TempFolder::new() }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.0.join("muster.db")
    }
}

impl TestDatabase for SqliteTestDatabase {
    fn open(&self) -> Store {
        open(&self.config()).unwrap()
    }

    fn config(&self) -> StoreConfig {
        StoreConfig::Sqlite { path: self.path() }
    }

    fn sql(&self, sql: &str) -> String {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        let (before, last) = sql.rsplit_once(';').unwrap_or(("", sql));
        connection.execute_batch(before).unwrap();
        let mut statement = connection.prepare(last).unwrap();
        let mut rows = statement.query([]).unwrap();
        match rows.next().unwrap().map(|row| row.get_ref(0).unwrap()) {
            Some(ValueRef::Integer(number)) => number.to_string(),
            Some(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        }
    }

    fn migrations(&self) -> refinery::Runner {
        sqlite_tables::migrations::runner()
    }

    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn another(&self) -> Box<dyn TestDatabase> {
        Box::new(SqliteTestDatabase::new())
    }

    fn dump(&self) -> String {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        let column = |sql: &str| -> Vec<String> {
            let mut statement = connection.prepare(sql).unwrap();
            let cells = statement.query_map([], |row| row.get(0)).unwrap();
            cells.map(Result::unwrap).collect()
        };
        let own = "FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'";
        let mut statements = column(&format!("SELECT sql {own} AND type = 'table' ORDER BY rowid"));
        for table in column(&format!("SELECT name {own} AND type = 'table' ORDER BY rowid")) {
            let cells = column(&format!("SELECT 'quote(\"' || name || '\")' FROM pragma_table_info('{table}')"));
            let cells = cells.join(" || ', ' || ");
            statements.extend(column(&format!("SELECT 'INSERT INTO {table} VALUES (' || {cells} || ')' FROM {table}")));
        }
        // Triggers after the rows: they must not act on them again.
        statements.extend(column(&format!("SELECT sql {own} AND type <> 'table' ORDER BY rowid")));
        statements.into_iter().map(|statement| statement + ";\n").collect()
    }

    fn restore(&self, file: &Path) {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.execute_batch(&std::fs::read_to_string(file).unwrap()).unwrap();
    }
}

/// A database on the PostgreSQL server of this test run.
pub struct PostgresTestDatabase {
    server: &'static PostgresServer,
    pub config: PostgresConfig,
}

impl PostgresTestDatabase {
    /// `None` if PostgreSQL is not installed.
    pub fn new() -> Option<PostgresTestDatabase> {
        let server = testing::shared_postgres()?;
        Some(PostgresTestDatabase { server, config: server.create_database().unwrap() })
    }
}

impl TestDatabase for PostgresTestDatabase {
    fn open(&self) -> Store {
        open(&TestDatabase::config(self)).unwrap()
    }

    fn config(&self) -> StoreConfig {
        StoreConfig::Postgres(self.config.clone())
    }

    fn sql(&self, sql: &str) -> String {
        self.server.psql(&self.config.database, sql).unwrap().trim().to_string()
    }

    fn migrations(&self) -> refinery::Runner {
        postgres_tables::migrations::runner()
    }

    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn another(&self) -> Box<dyn TestDatabase> {
        Box::new(PostgresTestDatabase { server: self.server, config: self.server.create_database().unwrap() })
    }

    fn dump(&self) -> String {
        self.server.dump(&self.config.database).unwrap()
    }

    fn restore(&self, file: &Path) {
        self.server.restore(&self.config.database, file).unwrap();
    }
}
