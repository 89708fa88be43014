//! Copying files out of a job and into it: a stream of files as both sides of `muster cp` write and read it.
//!
//! The stream starts with the name of what is copied. Then each file, directory or symbolic link has a header in JSON with
//! its length before it, and a file its content. The reader never leaves its target: names are single components, and no
//! symbolic link below the target is followed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use muster_protocol::exec::{CopyDirection, ExecCopy};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use serde::{Deserialize, Serialize};

use crate::task_launch;

const EXIT_CODE_FAILED: i32 = 1;
/// Deeper trees are refused rather than run out of descriptors.
const DEPTH_MAX: usize = 256;
const PERMISSIONS: u32 = 0o777;
/// The reader writes into the directories that it makes.
const OWNER_ONLY: u32 = 0o700;

/// The first message.
#[derive(Debug, Serialize, Deserialize)]
struct Begin {
    /// `None` for a path without a name, such as `/`.
    name: Option<OsString>,
}

/// One file, directory or symbolic link; the end of the stream is an empty one.
#[derive(Debug, Serialize, Deserialize)]
struct FileEntry {
    /// Below what is copied, which has no components itself.
    path: Vec<OsString>,
    kind: EntryKind,
    mode: u32,
    modified_s: i64,
}

#[derive(Debug, Serialize, Deserialize)]
enum EntryKind {
    File {
        size: u64,
    },
    Directory,
    Symlink {
        target: OsString,
    },
    /// The last one.
    End,
}

/// The program of a copy inside a job; returns its exit code.
pub(crate) fn copy_main(copy: &ExecCopy) -> i32 {
    let path = Path::new(&copy.path);
    let copied = match copy.direction {
        CopyDirection::Out => send(path, &mut io::BufWriter::new(io::stdout().lock())),
        CopyDirection::In => receive(path, None, &mut io::BufReader::new(io::stdin().lock())),
    };
    match copied {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("muster cp: {error}");
            EXIT_CODE_FAILED
        }
    }
}

fn at_path(path: &Path) -> impl Fn(io::Error) -> io::Error {
    let path = path.to_path_buf();
    move |error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// Writes a file, or a directory with all that is in it. Files that are neither are left out, with a note on standard error.
pub fn send(path: &Path, out: &mut impl Write) -> io::Result<()> {
    let metadata = fs::metadata(path).map_err(at_path(path))?;
    let name = path.file_name().map(OsStr::to_os_string);
    let send = |entry: &FileEntry, out: &mut dyn Write| task_launch::send(&mut &mut *out, entry);
    task_launch::send(out, &Begin { name })?;
    let mut waiting = vec![(path.to_path_buf(), Vec::new(), metadata)];
    while let Some((path, components, metadata)) = waiting.pop() {
        if components.len() > DEPTH_MAX {
            return Err(at_path(&path)(io::Error::other(format!("more than {DEPTH_MAX} directories deep"))));
        }
        let entry = |kind| FileEntry {
            path: components.clone(),
            kind,
            mode: metadata.permissions().mode() & PERMISSIONS,
            modified_s: metadata.mtime(),
        };
        if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(at_path(&path))?.into_os_string();
            send(&entry(EntryKind::Symlink { target }), out)?;
        } else if metadata.is_dir() {
            send(&entry(EntryKind::Directory), out)?;
            for found in fs::read_dir(&path).map_err(at_path(&path))? {
                let found = found.map_err(at_path(&path))?;
                let metadata = found.metadata().map_err(at_path(&found.path()))?;
                waiting.push((found.path(), [components.as_slice(), &[found.file_name()]].concat(), metadata));
            }
        } else if metadata.is_file() {
            let file = File::open(&path).map_err(at_path(&path))?;
            let size = file.metadata()?.len();
            send(&entry(EntryKind::File { size }), out)?;
            let copied = io::copy(&mut file.take(size), out)?;
            // It shrank meanwhile: its size is promised.
            io::copy(&mut io::repeat(0).take(size - copied), out)?;
        } else {
            eprintln!("muster cp: `{}` is left out: it is neither a file nor a directory", path.display());
        }
    }
    let end = FileEntry { path: Vec::new(), kind: EntryKind::End, mode: 0, modified_s: 0 };
    send(&end, out)?;
    out.flush()
}

/// Reads what [`send`] has written. A target that is a directory gets it under its name, which `name` replaces if the sender is
/// not to be trusted; another target becomes it.
pub fn receive(target: &Path, name: Option<&OsStr>, input: &mut impl Read) -> io::Result<()> {
    let begin: Begin = task_launch::receive(input)?.ok_or_else(cut_off)?;
    let target = match target.is_dir() {
        false => target.to_path_buf(),
        true => {
            let name = name.map(OsStr::to_os_string).or(begin.name).filter(|name| is_single_component(name));
            let nameless = || io::Error::other("what is copied has no name; name the target file or directory");
            target.join(name.ok_or_else(nameless)?)
        }
    };
    let mut is_first = true;
    loop {
        let entry: FileEntry = task_launch::receive(input)?.ok_or_else(cut_off)?;
        if matches!(entry.kind, EntryKind::End) {
            return Ok(());
        }
        check_order(&entry, std::mem::take(&mut is_first))?;
        let shown = entry.path.iter().fold(target.clone(), |path, component| path.join(component));
        receive_entry(&target, entry, input).map_err(at_path(&shown))?;
    }
}

/// The target itself comes first, once, and is a file or directory: as a link that the sender makes, it would lead all
/// that follows out of it.
fn check_order(entry: &FileEntry, is_first: bool) -> io::Result<()> {
    match (&entry.kind, entry.path.is_empty()) {
        (EntryKind::Symlink { .. }, true) => Err(io::Error::other("the sender replaces the target by a link")),
        (_, is_target) if is_target != is_first => Err(io::Error::other("the sender does not start with the target")),
        _ => Ok(()),
    }
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the copy was cut off")
}

fn is_single_component(name: &OsStr) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(only)), None) if only == name)
}

fn receive_entry(target: &Path, entry: FileEntry, input: &mut impl Read) -> io::Result<()> {
    if entry.path.len() > DEPTH_MAX || !entry.path.iter().all(|component| is_single_component(component)) {
        return Err(io::Error::other("the sender names a file outside of what is copied"));
    }
    // What the person has named may be a link; nothing below it is followed.
    let (directory, name, follow) = match entry.path.split_last() {
        None => (open_directory_at(rustix::fs::CWD, &parent_of(target), OFlags::empty())?, target.file_name(), true),
        Some((name, parents)) => {
            let mut directory = open_directory_at(rustix::fs::CWD, target, OFlags::empty())?;
            for component in parents {
                directory = open_directory_at(&directory, Path::new(component), OFlags::NOFOLLOW)?;
            }
            (directory, Some(name.as_os_str()), false)
        }
    };
    let name = name.ok_or_else(|| io::Error::other("the target has no name"))?;
    let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let mode = Mode::from_raw_mode(entry.mode & PERMISSIONS);
    match entry.kind {
        EntryKind::File { size } => {
            // Without O_NONBLOCK a pipe of this name would never open.
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC | no_follow;
            let file = File::from(rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o600))?);
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("it exists, and is no regular file"));
            }
            file.set_len(0)?;
            if io::copy(&mut input.take(size), &mut &file)? < size {
                return Err(cut_off());
            }
            rustix::fs::fchmod(&file, mode)?;
            set_modified(&file, entry.modified_s)
        }
        EntryKind::Directory => {
            match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(entry.mode & PERMISSIONS | OWNER_ONLY)) {
                Err(rustix::io::Errno::EXIST) => drop(open_directory_at(&directory, Path::new(name), no_follow)?),
                made => made?,
            }
            Ok(())
        }
        EntryKind::Symlink { target } => {
            match rustix::fs::symlinkat(&target, &directory, name) {
                Err(rustix::io::Errno::EXIST) => {
                    rustix::fs::unlinkat(&directory, name, AtFlags::empty())?;
                    rustix::fs::symlinkat(&target, &directory, name)?;
                }
                made => made?,
            }
            Ok(())
        }
        EntryKind::End => Ok(()),
    }
}

fn parent_of(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

fn open_directory_at(directory: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | flags;
    Ok(rustix::fs::openat(directory, path, flags, Mode::empty())?)
}

fn set_modified(file: &File, modified_s: i64) -> io::Result<()> {
    let time = Timespec { tv_sec: modified_s, tv_nsec: 0 };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;

    fn copy(from: &Path, to: &Path) -> io::Result<()> {
        let mut bytes = Vec::new();
        send(from, &mut bytes)?;
        receive(to, None, &mut bytes.as_slice())
    }

    fn stream(entries: Vec<FileEntry>) -> Vec<u8> {
        let mut bytes = Vec::new();
        task_launch::send(&mut bytes, &Begin { name: Some("x".into()) }).unwrap();
        for entry in entries {
            let size = if let EntryKind::File { size } = entry.kind { size } else { 0 };
            task_launch::send(&mut bytes, &entry).unwrap();
            bytes.extend(std::iter::repeat_n(b'!', size as usize));
        }
        bytes
    }

    fn entry(path: &[&str], kind: EntryKind) -> FileEntry {
        FileEntry { path: path.iter().map(OsString::from).collect(), kind, mode: 0o644, modified_s: 1 }
    }

    #[test]
    fn a_tree_is_copied_with_its_bytes_modes_links_and_times() {
        let dir = TempDir::new();
        let from = dir.join("from");
        fs::create_dir_all(from.join("deep/er")).unwrap();
        fs::write(from.join("deep/er/bytes"), [0, 255, b'\n']).unwrap();
        fs::set_permissions(from.join("deep/er/bytes"), fs::Permissions::from_mode(0o750)).unwrap();
        std::os::unix::fs::symlink("deep/er/bytes", from.join("link")).unwrap();
        fs::create_dir(dir.join("into")).unwrap();
        copy(&from, &dir.join("into")).unwrap();
        copy(&from, &dir.join("new")).unwrap();
        for to in ["into/from", "new"] {
            let copied = dir.join(to).join("deep/er/bytes");
            assert_eq!(fs::read(&copied).unwrap(), [0, 255, b'\n'], "{to}");
            let (before, after) = (from.join("deep/er/bytes").metadata().unwrap(), copied.metadata().unwrap());
            assert_eq!((after.mode() & PERMISSIONS, after.mtime()), (0o750, before.mtime()));
            assert_eq!(fs::read_link(dir.join(to).join("link")).unwrap(), Path::new("deep/er/bytes"));
        }
        fs::write(dir.join("new/deep/er/bytes"), "longer than before").unwrap();
        copy(&from, &dir.join("new")).unwrap();
        assert!(dir.join("new/from").exists(), "a directory gets the copy under its name");
        copy(&from.join("deep/er/bytes"), &dir.join("new/deep/er/bytes")).unwrap();
        assert_eq!(fs::read(dir.join("new/deep/er/bytes")).unwrap(), [0, 255, b'\n'], "a file is replaced");
    }

    #[test]
    fn a_hostile_sender_does_not_leave_the_target() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("outside")).unwrap();
        let file = || EntryKind::File { size: 3 };
        let directory = || entry(&[], EntryKind::Directory);
        let link = |to: &Path| entry(&["link"], EntryKind::Symlink { target: to.into() });
        let hostile = [
            vec![directory(), entry(&["..", "evil"], file())],
            vec![directory(), entry(&["/evil"], file())],
            vec![directory(), entry(&["a/../../evil"], file())],
            vec![directory(), entry(&[""], file())],
            vec![directory(), link(&dir.join("outside")), entry(&["link", "evil"], file())],
            vec![directory(), link(&dir.join("outside/evil")), entry(&["link"], file())],
            vec![entry(&[], EntryKind::Symlink { target: dir.join("outside").into() }), entry(&["evil"], file())],
            vec![directory(), entry(&[], EntryKind::Symlink { target: dir.join("outside").into() })],
            vec![entry(&["x"], EntryKind::Symlink { target: dir.join("outside").into() }), entry(&[], file())],
            vec![entry(&[], file()), entry(&[], file())],
        ];
        for (number, entries) in hostile.into_iter().enumerate() {
            let target = dir.join(format!("target-{number}"));
            let received = receive(&target, None, &mut stream(entries).as_slice());
            assert!(received.is_err(), "stream {number}");
            assert!(!dir.join("evil").exists() && !dir.join("outside/evil").exists(), "stream {number}");
        }
        let mut named = Vec::new();
        task_launch::send(&mut named, &Begin { name: Some("../evil".into()) }).unwrap();
        assert!(receive(&dir.join("outside"), None, &mut named.as_slice()).is_err());
    }

    #[test]
    fn a_stream_that_is_cut_off_is_an_error() {
        let dir = TempDir::new();
        fs::write(dir.join("file"), "content").unwrap();
        let mut bytes = Vec::new();
        send(&dir.join("file"), &mut bytes).unwrap();
        for cut in [0, 3, bytes.len() - 40, bytes.len() - 1] {
            assert!(receive(&dir.join("copy"), None, &mut &bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
