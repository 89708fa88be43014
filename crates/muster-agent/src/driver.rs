//! One thread around one piece of work: wake for orders, wake when something is due, end when let go.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_protocol::agent::Orders;

/// Longest sleep. The wall clock may be set back, and then a due time alone would make us oversleep.
const SLEEP_MS_MAX: i64 = 1_000;

/// What the thread does at each turn: it gets the time and maybe orders, and says when to wake it next.
pub(crate) trait Turn: Send + 'static {
    /// Do what is due at `now_ms` and return when the next thing is.
    fn turn(&mut self, now_ms: i64, orders: Option<Orders>) -> i64;
}

/// A running thread and the way to reach it.
#[derive(Debug)]
pub(crate) struct Driver {
    inbox: Option<Sender<Orders>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Start the thread; its first turn comes at once.
    pub fn start(name: &str, work: impl Turn) -> io::Result<Driver> {
        let (inbox, orders) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(move || run(&orders, work))?;
        Ok(Driver { inbox: Some(inbox), thread: Some(thread) })
    }

    /// Hand orders to the thread. The channel has no limit, so this never waits.
    pub fn send(&self, orders: Orders) {
        let sent = self.inbox.as_ref().map(|inbox| inbox.send(orders));
        if !matches!(sent, Some(Ok(()))) {
            tracing::error!("orders came after the agent had stopped");
        }
    }

    /// Let the thread finish its turn and wait for it.
    pub fn stop(&mut self) {
        self.inbox = None;
        let joined = self.thread.take().map(JoinHandle::join);
        if matches!(joined, Some(Err(_))) {
            tracing::error!("the thread of the agent had panicked");
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The wall clock, in Unix milliseconds.
pub(crate) fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

fn run(orders: &Receiver<Orders>, mut work: impl Turn) {
    let mut wake_ms = work.turn(now_ms(), None);
    loop {
        let sleep_ms = wake_ms.saturating_sub(now_ms()).clamp(0, SLEEP_MS_MAX);
        let received = orders.recv_timeout(Duration::from_millis(sleep_ms.unsigned_abs()));
        wake_ms = match received {
            Ok(orders) => work.turn(now_ms(), Some(orders)),
            Err(RecvTimeoutError::Timeout) => work.turn(now_ms(), None),
            Err(RecvTimeoutError::Disconnected) => return,
        };
    }
}
