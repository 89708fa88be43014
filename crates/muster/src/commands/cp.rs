//! `muster cp`: copies files out of a running job, or into it.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};

use muster_agent::file_transfer;
use muster_protocol::exec::{CopyDirection, DATA_BYTES_MAX, ExecCopy, ExecRequest, ExecStream};
use tokio::sync::mpsc;

use super::{CommandResult, ExitStatus, exec};
use crate::client::Client;
use crate::error::CliError;
use crate::exec_connection::{no_input, print_output, status_of};
use crate::jobs::JobRef;
use crate::options::Options;

/// Parts of a file on their way between the connection and the disk.
const PARTS_MAX: usize = 8;

/// `muster cp`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  muster cp job-42:checkpoints/last.pt .
  muster cp config.yaml job-42:/tmp/
Directories are copied with all that is in them. A path in the job is relative to
its working directory, and is read or written as the user of the job.")]
pub struct Args {
    /// What to copy: PATH, or JOB:PATH
    #[arg(value_name = "FROM")]
    from: String,
    /// Where to: JOB:PATH, or PATH. A directory gets the copy under its name
    #[arg(value_name = "TO")]
    to: String,
    /// Inside the task of this rank [default: the lowest]
    #[arg(long, value_name = "RANK")]
    rank: Option<u32>,
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Job(String, String),
    Here(PathBuf),
}

impl Place {
    /// `job-42:data`, `42:data` and `-:data` are in a job; a path with a slash before its first colon is not.
    fn parse(text: &str) -> Place {
        match text.split_once(':') {
            Some((job, path)) if !job.is_empty() && !job.contains('/') => {
                let path = if path.is_empty() { "." } else { path };
                Place::Job(job.to_string(), path.to_string())
            }
            _ => Place::Here(PathBuf::from(text)),
        }
    }
}

pub fn run(args: Args, options: &Options) -> CommandResult {
    let (direction, job, path, here) = match (Place::parse(&args.from), Place::parse(&args.to)) {
        (Place::Job(job, path), Place::Here(here)) => (CopyDirection::Out, job, path, here),
        (Place::Here(here), Place::Job(job, path)) => (CopyDirection::In, job, path, here),
        (Place::Job(..), Place::Job(..)) => {
            return Err(CliError::usage("both sides are in a job").hint("copy to this machine first"));
        }
        (Place::Here(_), Place::Here(_)) => {
            return Err(CliError::usage("no side is in a job").hint("write JOB:PATH, for example `job-42:data`"));
        }
    };
    let client = options.client()?;
    let job = job.parse::<JobRef>().map_err(|error| CliError::usage(error.to_string()))?.resolve(&client)?;
    if direction == CopyDirection::In && std::fs::metadata(&here).is_err() {
        return Err(CliError::usage(format!("`{}` cannot be read", here.display())));
    }
    let name = Path::new(&path).file_name().map(OsStr::to_os_string);
    let copy = Some(ExecCopy { direction, path });
    let request = ExecRequest { copy, rank: args.rank, ..ExecRequest::default() };
    let connection = exec::open(&client, job, &request)?;
    match direction {
        CopyDirection::In => copy_in(&client, connection, here),
        CopyDirection::Out => copy_out(&client, connection, here, name),
    }
}

fn copy_in(client: &Client, connection: crate::exec_connection::ExecConnection, here: PathBuf) -> CommandResult {
    let (sender, input) = mpsc::channel(PARTS_MAX);
    let sending = std::thread::spawn(move || {
        let mut out = io::BufWriter::with_capacity(DATA_BYTES_MAX, PartWriter(sender));
        file_transfer::send(&here, &mut out)
    });
    let end = client.block_on(connection.converse(input, false, &mut print_output))?;
    let status = status_of(end)?;
    match sending.join() {
        // The other side says why it has ended early.
        Ok(Err(error)) if status == ExitStatus::SUCCESS => Err(CliError::failed(error.to_string())),
        _ => Ok(status),
    }
}

fn copy_out(
    client: &Client,
    connection: crate::exec_connection::ExecConnection,
    here: PathBuf,
    name: Option<std::ffi::OsString>,
) -> CommandResult {
    let (sender, parts) = sync_channel::<Vec<u8>>(PARTS_MAX);
    let receiving = std::thread::spawn(move || {
        let name = name.unwrap_or_default();
        file_transfer::receive(&here, Some(&name), &mut PartReader { parts, rest: Vec::new() })
    });
    let mut take = |stream: ExecStream, bytes: &[u8]| match stream {
        ExecStream::Output => sender.send(bytes.to_vec()).map_err(|_| CliError::failed("the copy cannot be written")),
        other => print_output(other, bytes),
    };
    let end = client.block_on(connection.converse(no_input(), false, &mut take));
    drop(sender);
    let received = receiving.join();
    // An error on this side explains why the conversation was broken off.
    let failed = |error: io::Error| CliError::failed(error.to_string());
    match (end, received) {
        (Ok(end), received) => match status_of(end)? {
            ExitStatus::SUCCESS => match received {
                Ok(received) => received.map(|()| ExitStatus::SUCCESS).map_err(failed),
                Err(_) => Err(CliError::failed("the copy was broken off")),
            },
            status => Ok(status),
        },
        (Err(_), Ok(Err(error))) => Err(failed(error)),
        (Err(error), _) => Err(error),
    }
}

/// Parts of the input of the program.
struct PartWriter(mpsc::Sender<Vec<u8>>);

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.blocking_send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Parts of the output of the program.
struct PartReader {
    parts: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for PartReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.parts.recv() {
                Ok(part) => self.rest = part,
                Err(_) => return Ok(0),
            }
        }
        let length = self.rest.len().min(into.len());
        into[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_jobs_have_a_colon() {
        let job = |job: &str, path: &str| Place::Job(job.to_string(), path.to_string());
        assert_eq!(Place::parse("job-42:data/x:y"), job("job-42", "data/x:y"));
        assert_eq!(Place::parse("-:"), job("-", "."));
        for here in ["data", "./a:b", "/tmp/x:y", ":x"] {
            assert_eq!(Place::parse(here), Place::Here(PathBuf::from(here)));
        }
    }
}
