//! The logs of tasks: their paths, and reading them by byte range.
//!
//! Simulated and real attempts share the layout: `<data>/attempts/job-42/1/rank-0.out` and `rank-0.err`.
//! To follow a log, a caller reads again from the offset that the last read returned.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags};

/// The most bytes that one read returns, whatever the caller requests: a log can be larger than memory.
pub const READ_BYTES_MAX: usize = 4 << 20;

/// One of the two output streams of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output, `rank-0.out`.
    Stdout,
    /// Standard error, `rank-0.err`.
    Stderr,
}

impl Stream {
    fn suffix(self) -> &'static str {
        match self {
            Stream::Stdout => "out",
            Stream::Stderr => "err",
        }
    }
}

/// The error for a text that is not a job id and must not become part of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a job id; it looks like `job-42` or `job-42.3`")]
pub struct NotAJobId(pub String);

/// The directory of one attempt. Only well-formed job ids are accepted, so no id can lead outside `data_dir`.
pub fn attempt_dir(data_dir: &Path, job: &str, attempt: u32) -> Result<PathBuf, NotAJobId> {
    check_job_id(job)?;
    Ok(data_dir.join("attempts").join(job).join(attempt.to_string()))
}

/// The log file of one task of one attempt.
pub fn log_path(data_dir: &Path, job: &str, attempt: u32, rank: u32, stream: Stream) -> Result<PathBuf, NotAJobId> {
    Ok(attempt_dir(data_dir, job, attempt)?.join(log_name(rank, stream)))
}

/// A part of a log, and the size of the log at that moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogPart {
    pub bytes: Vec<u8>,
    /// Where `bytes` starts. Above the requested offset if the log no longer holds the bytes before it.
    pub offset: u64,
    pub size: u64,
}

/// Reads up to `max` bytes from `offset` and returns them with the next offset. A log that does not exist is empty.
pub fn read_from(path: &Path, offset: u64, max: usize) -> io::Result<(Vec<u8>, u64)> {
    let part = read_part(path, offset, max)?;
    let next_offset = part.offset + part.bytes.len() as u64;
    Ok((part.bytes, next_offset))
}

/// Reads up to `max` bytes from `offset`. A log that does not exist is empty. A hole at `offset` is skipped: the head
/// of a log that grew beyond its limit is punched out, so that offsets stay and disk use does not grow.
pub fn read_part(path: &Path, offset: u64, max: usize) -> io::Result<LogPart> {
    let mut file = match open_to_read(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LogPart { offset, ..LogPart::default() }),
        Err(error) => return Err(error),
    };
    let size = file.metadata()?.len();
    let mut offset = offset;
    loop {
        let bytes = read_at(&mut file, offset, max)?;
        // Asked after reading: a hole that is made meanwhile would read as zeros that nobody has written.
        let data = if bytes.is_empty() { offset } else { end_of_hole(&file, offset, size) };
        if data <= offset {
            return Ok(LogPart { size: size.max(offset + bytes.len() as u64), offset, bytes });
        }
        offset = data;
    }
}

fn read_at(file: &mut File, offset: u64, max: usize) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(max.min(READ_BYTES_MAX) as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The first offset from `offset` on that holds data; `offset` itself where the file system does not know its holes.
fn end_of_hole(file: &File, offset: u64, size: u64) -> u64 {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(data) => data,
        Err(rustix::io::Errno::NXIO) => size, // A hole up to the end.
        Err(_) => offset,
    }
}

pub(crate) fn check_job_id(job: &str) -> Result<(), NotAJobId> {
    if is_job_id(job) { Ok(()) } else { Err(NotAJobId(job.to_string())) }
}

pub(crate) fn log_name(rank: u32, stream: Stream) -> String {
    format!("rank-{rank}.{}", stream.suffix())
}

/// Opens a log for appending, readable by its owner only.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Frees a part of a file; its size and its offsets stay.
pub(crate) fn punch_hole(file: &File, offset: u64, length: u64) -> rustix::io::Result<()> {
    rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)
}

/// Tries whether the file system of a directory can free a part of a file.
pub fn probe_hole_punching(dir: &Path) -> io::Result<()> {
    let path = dir.join(format!(".hole-probe-{}", std::process::id()));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    // Errors of writing are those of a full disk, and say nothing about holes.
    let _ = file.write_all(&[1; 4_096]);
    Ok(punch_hole(&file, 0, 4_096)?)
}

/// Appends a text unless the log already contains it: a restarted agent writes the same text again.
pub(crate) fn append_once(path: &Path, text: &str) -> io::Result<()> {
    let (written, _) = read_from(path, 0, READ_BYTES_MAX)?;
    if String::from_utf8_lossy(&written).contains(text) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        make_private_dir(dir)?;
    }
    open_to_append(path)?.write_all(text.as_bytes())
}

/// Creates a directory that only its owner may enter, with its parents.
pub(crate) fn make_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Refuses symlinks and pipes. A job can write into its own directory, so a log could be a symlink to a file of
/// another user, or a pipe on which the reader would hang.
fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

fn is_job_id(text: &str) -> bool {
    let is_number = |part: &str| (1..=20).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.strip_prefix("job-").map(|rest| rest.split_once('.').unwrap_or((rest, "0"))) {
        Some((number, index)) => is_number(number) && is_number(index),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;

    #[test]
    fn log_paths_contain_job_attempt_and_rank() {
        let path = log_path(Path::new("/data"), "job-42.3", 2, 1, Stream::Stderr).unwrap();
        assert_eq!(path, Path::new("/data/attempts/job-42.3/2/rank-1.err"));
    }

    #[test]
    fn job_ids_that_escape_the_data_dir_are_refused() {
        for job in ["", "42", "job-", "job-..", "../job-1", "job-1/..", "job-1.", "job-1.2.3", "job-1\0", "job-１"] {
            let answer = log_path(Path::new("/data"), job, 1, 0, Stream::Stdout);
            assert_eq!(answer, Err(NotAJobId(job.to_string())), "{job}");
        }
    }

    #[test]
    fn a_log_is_read_by_offset_and_followed() {
        let dir = TempDir::new();
        let path = dir.join("rank-0.out");
        assert_eq!(read_from(&path, 0, 10).unwrap(), (Vec::new(), 0), "not there yet");
        std::fs::write(&path, "hello world").unwrap();
        assert_eq!(read_from(&path, 0, 5).unwrap(), (b"hello".to_vec(), 5));
        assert_eq!(read_from(&path, 5, 100).unwrap(), (b" world".to_vec(), 11));
        assert_eq!(read_from(&path, 11, 100).unwrap(), (Vec::new(), 11));
        open_to_append(&path).unwrap().write_all(b"!").unwrap();
        assert_eq!(read_from(&path, 11, 100).unwrap(), (b"!".to_vec(), 12));
        assert_eq!(read_from(&path, 900, 100).unwrap(), (Vec::new(), 900), "past the end is empty");
    }

    #[test]
    fn a_punched_hole_is_skipped_and_zeros_are_not() {
        let dir = TempDir::new();
        let path = dir.join("rank-0.out");
        let size = 1 << 20;
        std::fs::write(&path, vec![0; size as usize]).unwrap();
        let zeros = read_part(&path, 4_096, 8).unwrap();
        assert_eq!((zeros.bytes, zeros.offset, zeros.size), (vec![0; 8], 4_096, size), "zeros that a job has written");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        probe_hole_punching(&dir).unwrap();
        punch_hole(&file, 0, size - 65_536).unwrap();
        let part = read_part(&path, 10, 8).unwrap();
        assert_eq!((part.bytes, part.offset, part.size), (vec![0; 8], size - 65_536, size));
        punch_hole(&file, 0, size).unwrap();
        let part = read_part(&path, 10, 8).unwrap();
        assert_eq!((part.bytes, part.offset, part.size), (Vec::new(), size, size), "nothing is left");
    }

    #[test]
    fn reading_a_symlink_is_refused() {
        let dir = TempDir::new();
        std::fs::write(dir.join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(dir.join("secret"), dir.join("rank-0.out")).unwrap();
        assert!(read_from(&dir.join("rank-0.out"), 0, 100).is_err());
    }

    #[test]
    fn append_once_skips_text_that_is_already_there() {
        let dir = TempDir::new();
        let path = dir.join("deep/rank-0.out");
        append_once(&path, "one\n").unwrap();
        append_once(&path, "one\n").unwrap();
        append_once(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }
}
