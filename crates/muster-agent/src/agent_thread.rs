//! The thread of an agent: it wakes for messages of the server, for events of the machine and for the next due time,
//! and ends when its handle is dropped.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use muster_protocol::agent::{HeartbeatEcho, Orders};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::clock::unix_now_ms;

/// The longest sleep. If the wall clock is set back, sleeping until the due time alone would oversleep.
const SLEEP_MS_MAX: i64 = 1_000;

/// What the thread wakes for, besides due times.
#[derive(Debug)]
pub(crate) enum AgentInput {
    Orders(Orders),
    HeartbeatEcho(HeartbeatEcho),
}

/// The work of an agent thread.
pub(crate) trait AgentLoop: Send + 'static {
    /// Takes over the input, does what is due at `now_ms` and returns when to be called next.
    fn step(&mut self, now_ms: i64, input: Option<AgentInput>) -> i64;

    /// Readable when there is something to do before that, besides inputs.
    fn events(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The handle of a running agent thread.
#[derive(Debug)]
pub(crate) struct AgentThread {
    inputs: Option<Sender<AgentInput>>,
    waker: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl AgentThread {
    /// Starts the thread. Its first step runs at once.
    pub fn start(name: &str, work: impl AgentLoop) -> io::Result<AgentThread> {
        let (sender, inputs) = mpsc::channel();
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let waked = Arc::clone(&waker);
        let thread =
            std::thread::Builder::new().name(name.to_string()).spawn(move || run_loop(&inputs, &waked, work))?;
        Ok(AgentThread { inputs: Some(sender), waker, thread: Some(thread) })
    }

    /// Hands an input to the thread. The channel is unbounded, so this never blocks.
    pub fn send(&self, input: AgentInput) {
        let is_sent = self.inputs.as_ref().is_some_and(|sender| sender.send(input).is_ok());
        if !is_sent {
            tracing::error!("a message of the server arrived after the agent had stopped; ignored");
        }
        self.wake();
    }

    /// Fails only if the counter is full, and then the thread wakes anyway.
    fn wake(&self) {
        let _ = rustix::io::write(&*self.waker, &1u64.to_ne_bytes());
    }

    /// Lets the thread finish its step and waits for it.
    pub fn stop(&mut self) {
        self.inputs = None;
        self.wake();
        let joined = self.thread.take().map(JoinHandle::join);
        if matches!(joined, Some(Err(_))) {
            tracing::error!("the agent thread panicked");
        }
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run_loop(inputs: &Receiver<AgentInput>, waker: &OwnedFd, mut work: impl AgentLoop) {
    let mut wake_ms = work.step(unix_now_ms(), None);
    loop {
        let sleep_ms = wake_ms.saturating_sub(unix_now_ms()).clamp(0, SLEEP_MS_MAX);
        wait_for_events(waker, work.events(), sleep_ms);
        let mut has_input = false;
        loop {
            match inputs.try_recv() {
                Ok(input) => wake_ms = work.step(unix_now_ms(), Some(input)),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
            has_input = true;
        }
        if !has_input {
            wake_ms = work.step(unix_now_ms(), None);
        }
    }
}

/// Returns early for a signal, too: the caller looks at everything and waits again.
fn wait_for_events(waker: &OwnedFd, events: Option<BorrowedFd<'_>>, sleep_ms: i64) {
    let fds = [waker.as_fd()].into_iter().chain(events);
    let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let time_out = Timespec { tv_sec: sleep_ms / 1_000, tv_nsec: sleep_ms % 1_000 * 1_000_000 };
    if let Err(error) = poll(&mut fds, Some(&time_out))
        && error != rustix::io::Errno::INTR
    {
        tracing::error!("the agent cannot wait for events: {error}");
        std::thread::sleep(std::time::Duration::from_millis(sleep_ms.unsigned_abs()));
    }
    // The counter is cleared before the inputs are taken, so an input that arrives later wakes the thread again.
    let _ = rustix::io::read(waker, &mut [0; 8]);
}
