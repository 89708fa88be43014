//! The secrets of an attempt as the shim gets them: on its standard input, in memory. The launch intent on disk has their
//! names only, so a shim that is started without them cannot start the job.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use muster_protocol::agent::{AttemptOrder, SecretFile};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::secret_files;

/// The secrets of the job; empty if it has none. Afterwards no descriptor leads to them, and a core file would not hold them.
pub(super) fn take(order: &AttemptOrder) -> io::Result<Vec<SecretFile>> {
    let wanted = &order.run.secrets;
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let files = secret_files::from_memory(&mut File::from(io::stdin().as_fd().try_clone_to_owned()?));
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let files = files?;
    match files.len() == wanted.len() && wanted.iter().all(|name| files.iter().any(|file| file.name == *name)) {
        true => Ok(files),
        false => Err(io::Error::other("they are not those of the job")),
    }
}
