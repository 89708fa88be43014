//! Printing the output of tasks: unchanged bytes, or whole lines with a rank prefix or a filter.

use std::collections::BTreeMap;
use std::io::Write;

use regex::bytes::Regex;

use crate::error::CliError;

/// One of the two output streams of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl OutputStream {
    pub const BOTH: [OutputStream; 2] = [OutputStream::Stdout, OutputStream::Stderr];

    /// The stream that the API names so.
    pub fn parse(name: &str) -> OutputStream {
        if name == OutputStream::Stderr.as_str() { OutputStream::Stderr } else { OutputStream::Stdout }
    }

    /// As the API names it.
    pub fn as_str(self) -> &'static str {
        match self {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        }
    }
}

/// A line that is longer is printed in pieces, so that output without newlines needs no memory.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Prints the output of one or several tasks, each stream where it belongs.
#[derive(Debug, Default)]
pub struct LinePrinter {
    /// Each line starts with its rank.
    pub with_rank: bool,
    /// Only lines that match are printed.
    filter: Option<Regex>,
    /// Bytes after the last newline, by rank and stream; kept only if whole lines are printed.
    partial_lines: BTreeMap<(u32, OutputStream), Vec<u8>>,
}

impl LinePrinter {
    pub fn new(filter: Option<Regex>) -> LinePrinter {
        LinePrinter { filter, ..LinePrinter::default() }
    }

    pub fn print(&mut self, rank: u32, stream: OutputStream, bytes: &[u8]) -> Result<(), CliError> {
        if !self.with_rank && self.filter.is_none() {
            return write_stream(stream, bytes);
        }
        let pending = self.partial_lines.entry((rank, stream)).or_default();
        pending.extend_from_slice(bytes);
        let complete = match pending.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if pending.len() >= LINE_BYTES_MAX => pending.len(),
            None => return Ok(()),
        };
        let lines: Vec<u8> = pending.drain(..complete).collect();
        write_stream(stream, &self.render(rank, &lines))
    }

    /// Prints last lines that have no newline.
    pub fn finish(&mut self) -> Result<(), CliError> {
        for ((rank, stream), bytes) in std::mem::take(&mut self.partial_lines) {
            write_stream(stream, &self.render(rank, &bytes))?;
        }
        Ok(())
    }

    fn render(&self, rank: u32, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes.len());
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            if self.filter.as_ref().is_some_and(|filter| !filter.is_match(line)) {
                continue;
            }
            if self.with_rank {
                text.extend_from_slice(format!("[{rank}] ").as_bytes());
            }
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        text
    }
}

fn write_stream(stream: OutputStream, bytes: &[u8]) -> Result<(), CliError> {
    if bytes.is_empty() {
        return Ok(());
    }
    if stream == OutputStream::Stderr {
        let _ = std::io::stderr().write_all(bytes);
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_get_their_rank_and_are_filtered_without_it() {
        let printer = LinePrinter { with_rank: true, ..LinePrinter::new(Some(Regex::new("^loss").unwrap())) };
        assert_eq!(printer.render(3, b"loss 1\nnoise\n\xff\nloss \xff"), b"[3] loss 1\n[3] loss \xff\n");
    }

    #[test]
    fn lines_without_a_filter_are_all_printed() {
        let printer = LinePrinter { with_rank: true, ..LinePrinter::default() };
        assert_eq!(printer.render(0, b"a\n\nb"), b"[0] a\n[0] \n[0] b\n");
    }

    #[test]
    fn a_line_is_kept_until_it_is_complete_and_never_longer_than_the_limit() {
        let mut printer = LinePrinter::new(Some(Regex::new("no such text").unwrap()));
        let kept = |printer: &LinePrinter| printer.partial_lines[&(0, OutputStream::Stdout)].len();
        printer.print(0, OutputStream::Stdout, b"one\ntw").unwrap();
        assert_eq!(kept(&printer), 2);
        printer.print(0, OutputStream::Stdout, &vec![b'x'; LINE_BYTES_MAX]).unwrap();
        assert_eq!(kept(&printer), 0);
    }
}
