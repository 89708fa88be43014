//! The thread of an agent: it wakes for orders and for the next due time, and ends when its handle is dropped.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use muster_protocol::agent::Orders;

use crate::clock::unix_now_ms;

/// The longest sleep. If the wall clock is set back, sleeping until the due time alone would oversleep.
const SLEEP_MS_MAX: i64 = 1_000;

/// The work of an agent thread.
pub(crate) trait AgentLoop: Send + 'static {
    /// Takes over new orders, does what is due at `now_ms` and returns when to be called next.
    fn step(&mut self, now_ms: i64, orders: Option<Orders>) -> i64;
}

/// The handle of a running agent thread.
#[derive(Debug)]
pub(crate) struct AgentThread {
    orders_sender: Option<Sender<Orders>>,
    thread: Option<JoinHandle<()>>,
}

impl AgentThread {
    /// Starts the thread. Its first step runs at once.
    pub fn start(name: &str, work: impl AgentLoop) -> io::Result<AgentThread> {
        let (sender, orders) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(move || run_loop(&orders, work))?;
        Ok(AgentThread { orders_sender: Some(sender), thread: Some(thread) })
    }

    /// Hands orders to the thread. The channel is unbounded, so this never blocks.
    pub fn send_orders(&self, orders: Orders) {
        let sent = self.orders_sender.as_ref().map(|sender| sender.send(orders));
        if !matches!(sent, Some(Ok(()))) {
            tracing::error!("orders arrived after the agent had stopped; ignored");
        }
    }

    /// Lets the thread finish its step and waits for it.
    pub fn stop(&mut self) {
        self.orders_sender = None;
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

fn run_loop(orders: &Receiver<Orders>, mut work: impl AgentLoop) {
    let mut wake_ms = work.step(unix_now_ms(), None);
    loop {
        let sleep_ms = wake_ms.saturating_sub(unix_now_ms()).clamp(0, SLEEP_MS_MAX);
        let received = orders.recv_timeout(Duration::from_millis(sleep_ms.unsigned_abs()));
        wake_ms = match received {
            Ok(orders) => work.step(unix_now_ms(), Some(orders)),
            Err(RecvTimeoutError::Timeout) => work.step(unix_now_ms(), None),
            Err(RecvTimeoutError::Disconnected) => return,
        };
    }
}
