//! The files of an installed agent: unit of systemd, configuration, account of jobs. Written only if nobody has changed them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// How the last line of a file begins: the checksum of what precedes it tells whether the file was changed by hand.
const MARK: &str = "# muster agent install: sha256 ";

/// A file to install.
#[derive(Debug, Clone)]
pub struct InstalledFile {
    pub path: PathBuf,
    pub mode: u32,
    /// Without the line of the checksum.
    pub text: String,
}

/// What an installation finds at the path of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Missing,
    /// As it would be written.
    Same,
    /// Written by an earlier release or with other flags, and not changed since.
    Outdated,
    /// Changed by hand, or not written by an installation.
    Changed,
}

impl InstalledFile {
    pub fn find(&self) -> io::Result<Found> {
        let found = match fs::read_to_string(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            Err(error) => return Err(error),
        };
        Ok(match found == self.marked_text() {
            true => Found::Same,
            false if is_unchanged(&found) => Found::Outdated,
            false => Found::Changed,
        })
    }

    /// Replaces the file in one step.
    pub fn write(&self) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        write_in_one_step(&self.path, self.mode, &self.marked_text())
    }

    /// What an installation would change, line by line.
    pub fn difference(&self) -> io::Result<String> {
        let known = fs::read_to_string(&self.path)?;
        Ok(difference(&known, &self.marked_text()))
    }

    /// The text with the line of the checksum.
    pub fn marked_text(&self) -> String {
        format!("{}{MARK}{}\n", self.text, checksum(&self.text))
    }
}

/// Writes a file that appears whole, with its permissions.
pub fn write_in_one_step(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    if let Err(error) = fs::remove_file(&new)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn is_unchanged(text: &str) -> bool {
    let marked = text.trim_end().rsplit_once(MARK);
    marked.is_some_and(|(before, sum)| checksum(before) == sum)
}

fn checksum(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lines that only one text has, between their common beginning and end.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - same;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    let removed = old[same..old.len() - tail].iter().map(|line| format!("-{line}\n"));
    let added = new[same..new.len() - tail].iter().map(|line| format!("+{line}\n"));
    format!("@@ line {} @@\n", same + 1) + &removed.chain(added).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, text: &str) -> InstalledFile {
        InstalledFile { path: folder.join("etc/agent.yaml"), mode: 0o644, text: text.to_string() }
    }

    #[test]
    fn only_a_change_by_hand_counts_as_a_change() {
        let folder = std::env::temp_dir().join(format!("muster-unit-files-{}", std::process::id()));
        let (first, second) = (file(&folder, "a\nb\nc\n"), file(&folder, "a\nx\nc\n"));
        assert_eq!(first.find().unwrap(), Found::Missing);
        first.write().unwrap();
        assert_eq!((first.find().unwrap(), second.find().unwrap()), (Found::Same, Found::Outdated));
        second.write().unwrap();
        let by_hand = fs::read_to_string(&second.path).unwrap().replace('x', "y");
        fs::write(&second.path, by_hand).unwrap();
        assert_eq!((first.find().unwrap(), second.find().unwrap()), (Found::Changed, Found::Changed));
        assert!(second.difference().unwrap().starts_with("@@ line 2 @@\n-y\n+x\n"));
        fs::write(&second.path, "a\n").unwrap();
        assert_eq!(second.find().unwrap(), Found::Changed, "not written by an installation");
        fs::remove_dir_all(folder).unwrap();
    }
}
