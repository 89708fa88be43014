//! The SQLite file: its path, connections to it, and detection of truncation.
//!
//! SQLite survives a loss of power by itself. It does not detect a truncated file: a truncated database looks fine
//! until a missing page is read, and a truncated log shows old pages beside newer ones that a checkpoint had already
//! copied. So every write transaction increments a counter in the first page, and a new leader compares the counter in
//! the file with the counter as read through the log.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::error_mapping::{corrupt_file, map_read_error, map_write_error};
use super::write_queue::WriteQueue;
use crate::error::StoreError;
use crate::leader_epoch::random_number;
use crate::private_files;

/// Enough for a savepoint chunk or a checkpoint on a slow disk.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pages in the log at which a checkpoint copies them into the database: 32 MiB. Pages that change often, such as the
/// ends of tables, are then copied once per hundreds of commits; reading the log after a crash takes far less than a
/// second.
const CHECKPOINT_PAGES: u32 = 8_192;
/// The projection alone has more than thirty prepared statements.
const STATEMENTS_CACHED: usize = 96;

/// Path of a database. A temporary database is deleted with its folder.
#[derive(Debug)]
pub struct DatabaseFile {
    pub path: PathBuf,
    pub(super) is_temporary: bool,
    /// Serialises the writes of the journal and the savepoints.
    pub write_queue: WriteQueue,
}

impl DatabaseFile {
    /// `:memory:` gets a temporary folder: readers and the writer share one database, and they would block each other
    /// in an in-memory database of SQLite.
    pub fn at_path(path: &Path) -> Result<DatabaseFile, StoreError> {
        if path.as_os_str() != ":memory:" {
            return Ok(DatabaseFile {
                path: path.to_path_buf(),
                is_temporary: false,
                write_queue: WriteQueue::default(),
            });
        }
        let name = format!("muster-{:016x}", random_number()?);
        let folder = std::env::temp_dir().join(name);
        private_files::create_folder_if_missing(&folder)
            .map_err(|error| StoreError::unavailable(format!("create the folder `{}`", folder.display()), error))?;
        Ok(DatabaseFile { path: folder.join("muster.db"), is_temporary: true, write_queue: WriteQueue::default() })
    }

    pub fn open_writer(&self) -> Result<Connection, StoreError> {
        let operation = self.open_operation();
        // SQLite creates its log and its shared-memory index with the mode of the database file.
        private_files::create_file_if_missing(&self.path)
            .map_err(|error| StoreError::unavailable(&operation, error))?;
        ["-wal", "-shm"]
            .iter()
            .for_each(|ending| private_files::remove_access_of_others(&path_with_suffix(&self.path, ending)));
        let connection = Connection::open(&self.path).map_err(map_write_error(&operation))?;
        let synchronous = if self.is_temporary { "OFF" } else { "FULL" };
        let pragmas = format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA foreign_keys = ON; \
             PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA journal_size_limit = 67108864; \
             PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;"
        );
        connection.busy_timeout(BUSY_TIMEOUT).map_err(map_write_error(&operation))?;
        connection.execute_batch(&pragmas).map_err(map_write_error(&operation))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        Ok(connection)
    }

    pub fn open_reader(&self) -> Result<Connection, StoreError> {
        let operation = format!("open `{}` for reading", self.path.display());
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags).map_err(map_read_error(&operation))?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(map_read_error(&operation))?;
        Ok(connection)
    }

    /// Open the database for the leader, and check that it is not truncated.
    pub fn open_verified_writer(&self) -> Result<Connection, StoreError> {
        let before = Header::read(&self.path)?;
        if before.is_none() && wal_length(&self.path) > 0 {
            return Err(corrupt_file(
                &self.open_operation(),
                "the database file is empty but its write-ahead log is not",
            ));
        }
        let connection = self.open_writer()?;
        if let Some(header) = before {
            self.check_not_truncated(&connection, &header)?;
        }
        Ok(connection)
    }

    fn check_not_truncated(&self, connection: &Connection, header: &Header) -> Result<(), StoreError> {
        let opening = self.open_operation();
        if header.is_truncated() {
            // An interrupted checkpoint is harmless: the missing pages are in the log.
            let result: String = connection
                .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
                .map_err(map_write_error(&opening))?;
            if result != "ok" {
                return Err(corrupt_file(&opening, &format!("the file is truncated; {result}")));
            }
        }
        let through_log: u32 = write_count(connection).map_err(map_write_error(&opening))?;
        // The counter wraps at 2^31, so the sign of the difference tells which count is older.
        let behind = header.write_count.wrapping_sub(through_log) & WRITE_COUNT_MASK;
        if behind != 0 && behind < WRITE_COUNT_MASK / 2 {
            let problem = format!("the write-ahead log is truncated: {behind} transactions are missing");
            return Err(corrupt_file(&opening, &problem));
        }
        Ok(())
    }

    /// An empty file with a log is corrupt, not a new database.
    pub(super) fn is_missing_or_empty(&self) -> bool {
        matches!(Header::read(&self.path), Ok(None)) && wal_length(&self.path) == 0
    }

    fn open_operation(&self) -> String {
        format!("open `{}`", self.path.display())
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        if let Some(folder) = self.path.parent().filter(|_| self.is_temporary) {
            // A temporary folder that cannot be deleted is no reason to fail.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// `user_version` is a signed 32-bit number.
const WRITE_COUNT_MASK: u32 = 0x7fff_ffff;

/// Number of write transactions, modulo 2^31.
fn write_count(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Must be called in every write transaction.
pub fn increment_write_count(connection: &Connection) -> rusqlite::Result<()> {
    let next = write_count(connection)?.wrapping_add(1) & WRITE_COUNT_MASK;
    connection.execute_batch(&format!("PRAGMA user_version = {next}"))
}

/// Header of the database file, without its log. The offsets are those of the SQLite file format.
struct Header {
    page_size: u64,
    pages: u64,
    write_count: u32,
    file_length: u64,
}

impl Header {
    /// `None` if the file does not exist or is empty.
    fn read(path: &Path) -> Result<Option<Header>, StoreError> {
        let opening = format!("open `{}`", path.display());
        let mut bytes = [0_u8; 100];
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::unavailable(opening, error)),
        };
        let file_length = file.metadata().map_err(|error| StoreError::unavailable(&opening, error))?.len();
        if file_length == 0 {
            return Ok(None);
        }
        file.read_exact(&mut bytes).map_err(|_| corrupt_file(&opening, "the file is shorter than its header"))?;
        Ok(Some(Header::parse(&bytes, file_length)))
    }

    fn parse(bytes: &[u8; 100], file_length: u64) -> Header {
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        // 1 stands for 65,536, which does not fit into two bytes.
        let page_size = match u16::from_be_bytes([bytes[16], bytes[17]]) {
            1 => 65_536,
            size => u64::from(size),
        };
        Header { page_size, pages: u64::from(number(28)), write_count: number(60), file_length }
    }

    fn is_truncated(&self) -> bool {
        self.file_length < self.pages * self.page_size
    }
}

fn wal_length(path: &Path) -> u64 {
    std::fs::metadata(path_with_suffix(path, "-wal")).map_or(0, |facts| facts.len())
}

/// Path of a file that SQLite keeps beside its database.
fn path_with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
