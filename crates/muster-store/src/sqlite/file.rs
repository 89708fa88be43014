//! The database file: where it lies, how it is opened, and whether it is whole.
//!
//! SQLite survives the loss of power by itself. It does not notice when someone has cut a file off: a short
//! database looks fine until a missing page is read, and a short log shows old pages beside newer ones that had
//! already been copied over. So every writing transaction counts up a number in the first page, and whoever is
//! about to lead compares what the file itself says with what it says through the log.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::fault::{damaged, fault, read_fault};
use super::turns::Turns;
use crate::error::StoreError;
use crate::private;
use crate::term::random_number;

/// Long enough for a savepoint chunk or a checkpoint on a slow disk.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pages in the log before they are copied into the database: 32 MiB. Pages that change often, such as the ends
/// of tables, are then copied once for hundreds of commits; reading the log after a crash stays far below a second.
const CHECKPOINT_PAGES: u32 = 8_192;
/// The projection alone has more than thirty statements.
const STATEMENTS_CACHED: usize = 96;

/// Where a database lies. A throwaway one is removed with its folder.
#[derive(Debug)]
pub struct Place {
    pub path: PathBuf,
    pub(super) throwaway: bool,
    /// The journal and the savepoints write to one file.
    pub turns: Turns,
}

impl Place {
    /// The place for a path; `:memory:` gets a folder of its own. Readers and the writer need one database
    /// between them, which a database in memory cannot be without making them wait for each other.
    pub fn of(path: &Path) -> Result<Place, StoreError> {
        if path.as_os_str() != ":memory:" {
            return Ok(Place { path: path.to_path_buf(), throwaway: false, turns: Turns::default() });
        }
        let name = format!("muster-{:016x}", random_number()?);
        let folder = std::env::temp_dir().join(name);
        private::make_folder(&folder).map_err(|error| {
            StoreError::unavailable(format!("make the folder `{}`", folder.display()), error)
        })?;
        Ok(Place { path: folder.join("muster.db"), throwaway: true, turns: Turns::default() })
    }

    /// A connection that writes.
    pub fn writer(&self) -> Result<Connection, StoreError> {
        let doing = self.opening();
        // SQLite gives its log and its index the mode of the database file.
        private::make_file(&self.path).map_err(|error| StoreError::unavailable(&doing, error))?;
        ["-wal", "-shm"].iter().for_each(|ending| private::close_to_others(&beside(&self.path, ending)));
        let connection = Connection::open(&self.path).map_err(fault(&doing))?;
        let synchronous = if self.throwaway { "OFF" } else { "FULL" };
        let pragmas = format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA foreign_keys = ON; \
             PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA journal_size_limit = 67108864; \
             PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;"
        );
        connection.busy_timeout(BUSY_TIMEOUT).map_err(fault(&doing))?;
        connection.execute_batch(&pragmas).map_err(fault(&doing))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        Ok(connection)
    }

    /// A connection that only reads.
    pub fn reader(&self) -> Result<Connection, StoreError> {
        let doing = format!("open `{}` for reading", self.path.display());
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags).map_err(read_fault(&doing))?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(read_fault(&doing))?;
        Ok(connection)
    }

    /// Open the database for the leader, after looking whether it is whole.
    pub fn writer_of_whole_file(&self) -> Result<Connection, StoreError> {
        let before = Header::read(&self.path)?;
        if before.is_none() && wal_length(&self.path) > 0 {
            return Err(damaged(&self.opening(), "it is empty, but its log is not"));
        }
        let connection = self.writer()?;
        if let Some(header) = before {
            self.check_whole(&connection, &header)?;
        }
        Ok(connection)
    }

    fn check_whole(&self, connection: &Connection, header: &Header) -> Result<(), StoreError> {
        let opening = self.opening();
        if header.is_short() {
            // Fine if a checkpoint was interrupted: then the missing pages are in the log, and all is readable.
            let said: String = connection
                .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
                .map_err(fault(&opening))?;
            if said != "ok" {
                return Err(damaged(&opening, &format!("it is shorter than it was; {said}")));
            }
        }
        let through_log: u32 = count_writes(connection).map_err(fault(&opening))?;
        // Counted modulo 2^31: the difference tells which is older.
        let behind = header.writes.wrapping_sub(through_log) & WRITES_MASK;
        if behind != 0 && behind < WRITES_MASK / 2 {
            let problem = format!("its log was cut off, {behind} transactions are missing");
            return Err(damaged(&opening, &problem));
        }
        Ok(())
    }

    /// A log beside an empty file is damage, not a new database.
    pub(super) fn is_missing_or_empty(&self) -> bool {
        matches!(Header::read(&self.path), Ok(None)) && wal_length(&self.path) == 0
    }

    fn opening(&self) -> String {
        format!("open `{}`", self.path.display())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(folder) = self.path.parent().filter(|_| self.throwaway) {
            // A folder that stays behind in the temporary folder is not worth stopping for.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// `user_version` is a signed 32-bit number.
const WRITES_MASK: u32 = 0x7fff_ffff;

/// How many transactions have written to the database.
fn count_writes(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// To be called in every writing transaction.
pub fn count_this_write(connection: &Connection) -> rusqlite::Result<()> {
    let next = count_writes(connection)?.wrapping_add(1) & WRITES_MASK;
    connection.execute_batch(&format!("PRAGMA user_version = {next}"))
}

/// What the file itself says, without its log. The offsets are those of the SQLite file format.
struct Header {
    page_size: u64,
    pages: u64,
    writes: u32,
    file_length: u64,
}

impl Header {
    /// `None` if there is no file yet, or an empty one.
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
        file.read_exact(&mut bytes).map_err(|_| damaged(&opening, "it is shorter than its header"))?;
        Ok(Some(Header::parse(&bytes, file_length)))
    }

    fn parse(bytes: &[u8; 100], file_length: u64) -> Header {
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        // 1 stands for 65,536, which does not fit into two bytes.
        let page_size = match u16::from_be_bytes([bytes[16], bytes[17]]) {
            1 => 65_536,
            size => u64::from(size),
        };
        Header { page_size, pages: u64::from(number(28)), writes: number(60), file_length }
    }

    fn is_short(&self) -> bool {
        self.file_length < self.pages * self.page_size
    }
}

fn wal_length(path: &Path) -> u64 {
    std::fs::metadata(beside(path, "-wal")).map_or(0, |facts| facts.len())
}

/// A file that SQLite keeps beside its database.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
