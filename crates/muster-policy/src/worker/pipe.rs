//! A pipe to or from a worker that is waited for until a deadline, without a thread of its own.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Have reads and writes return instead of waiting. The other end, in the worker, waits as before.
pub fn never_block(pipe: &impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?)
}

/// A pipe for which [`never_block`] was called. Beyond the deadline it answers [`ErrorKind::TimedOut`].
pub struct TimedPipe<'a, P> {
    pipe: &'a mut P,
    until: Option<Instant>,
}

impl<'a, P: AsFd> TimedPipe<'a, P> {
    /// Without a deadline it is waited for until the other end is closed.
    pub fn new(pipe: &'a mut P, until: Option<Instant>) -> TimedPipe<'a, P> {
        TimedPipe { pipe, until }
    }

    fn wait(&self, for_what: PollFlags) -> io::Result<()> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&*self.pipe, for_what)], left.as_ref()) {
            Ok(0) => Err(ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<P: AsFd + Read> Read for TimedPipe<'_, P> {
    fn read(&mut self, some: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.pipe.read(some) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::IN)?,
                other => return other,
            }
        }
    }
}

impl<P: AsFd + Write> Write for TimedPipe<'_, P> {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        loop {
            match self.pipe.write(some) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}
