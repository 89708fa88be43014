//! What a shim sleeps for: the end of a child, a message of the agent, and its next deadline.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::output_keeper::OutputKeeper;
use crate::clock;
use crate::shim_socket::{ShimMessage, ShimSocket};

#[derive(Debug)]
pub(super) struct Wakeups {
    /// Readable when a child has ended, however it became a child of the subreaper.
    children: SignalFd,
    /// Counts while the machine is suspended, as a time-out of `poll` would not.
    timer: OwnedFd,
    socket: Option<ShimSocket>,
    /// Looked at before each wait.
    pub output: Option<OutputKeeper>,
}

impl Wakeups {
    /// Called after the tasks have started: a child inherits the signal mask, and SIGCHLD is blocked from here on. The
    /// shim has one thread, so no other thread can take the signal.
    pub fn new(socket: Option<ShimSocket>) -> io::Result<Wakeups> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGCHLD);
        signals.thread_block()?;
        let children = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Wakeups { children, timer, socket, output: None })
    }

    /// Stops listening, for the start of further children. The socket stays open.
    pub fn into_socket(self) -> io::Result<Option<ShimSocket>> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGCHLD);
        signals.thread_unblock()?;
        Ok(self.socket)
    }

    pub fn take_messages(&self) -> Vec<ShimMessage> {
        self.socket.as_ref().map(ShimSocket::receive).unwrap_or_default()
    }

    /// Waits for an event, or until this time of the boot clock. An event before the call ends the wait at once.
    pub fn wait_until(&mut self, boot_ms: i64) -> io::Result<()> {
        if let Some(output) = &mut self.output {
            output.look_if_due(clock::boot_now_ms(), clock::unix_now_ms());
        }
        self.set_timer(self.output.as_ref().map_or(boot_ms, |output| boot_ms.min(output.next_due_ms())))?;
        let fds = [self.children.as_fd(), self.timer.as_fd()].into_iter().chain(self.socket.as_ref().map(AsFd::as_fd));
        let fds = fds.chain(self.output.as_ref().and_then(OutputKeeper::events));
        let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            polled => drop(polled?),
        }
        // One signal may stand for many ended children: the caller reaps them all.
        while self.children.read_signal()?.is_some() {}
        Ok(())
    }

    fn set_timer(&self, boot_ms: i64) -> io::Result<()> {
        let boot_ms = boot_ms.max(1); // Zero would disarm the timer.
        let it_value = Timespec { tv_sec: boot_ms / 1_000, tv_nsec: boot_ms % 1_000 * 1_000_000 };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        Ok(())
    }
}
