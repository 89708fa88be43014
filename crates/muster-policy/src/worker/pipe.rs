//! Reads and writes of a worker's pipe with a deadline, without an extra thread.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Make reads and writes of this end non-blocking. The worker's end still blocks.
pub fn set_nonblocking(pipe: &impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?)
}

/// A pipe for which [`set_nonblocking`] was called. After the deadline it returns [`ErrorKind::TimedOut`].
pub struct TimedPipe<'a, P> {
    pipe: &'a mut P,
    deadline: Option<Instant>,
}

impl<'a, P: AsFd> TimedPipe<'a, P> {
    /// Without a deadline, reads and writes wait until the other end is closed.
    pub fn new(pipe: &'a mut P, deadline: Option<Instant>) -> TimedPipe<'a, P> {
        TimedPipe { pipe, deadline }
    }

    fn wait_until_ready(&self, direction: PollFlags) -> io::Result<()> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&*self.pipe, direction)], left.as_ref()) {
            Ok(0) => Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<P: AsFd + Read> Read for TimedPipe<'_, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.pipe.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_until_ready(PollFlags::IN)?,
                other => return other,
            }
        }
    }
}

impl<P: AsFd + Write> Write for TimedPipe<'_, P> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            match self.pipe.write(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_until_ready(PollFlags::OUT)?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}
