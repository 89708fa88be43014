//! Waiting for a job or a stream until it ends, Ctrl-C or a deadline.

use std::time::Duration;

use muster_core::JobId;
use muster_protocol::job::Job;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::CliError;
use crate::jobs;
use crate::output;
use crate::units;

/// Short at first, for jobs that end at once; longer later, to spare the server.
const POLL_INTERVAL_FIRST: Duration = Duration::from_millis(100);
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// How long a server that has answered before may be unreachable, for example during a restart.
const SERVER_AWAY_MAX: Duration = Duration::from_secs(60);
const SERVER_AWAY_PAUSE: Duration = Duration::from_millis(500);

/// Exit code of an interrupted process: 128 + SIGINT.
pub const EXIT_INTERRUPTED: u8 = 130;

/// What came first.
pub enum WaitOutcome<T> {
    /// The future completed.
    Ready(T),
    /// Ctrl-C.
    Interrupted,
    /// The deadline passed.
    TimedOut,
}

/// Waits for a future, Ctrl-C or a deadline, whichever comes first. While it exists, Ctrl-C does not end the process.
pub struct Waiter<'a> {
    client: &'a Client,
    interrupt: Signal,
    deadline: Option<Instant>,
    server_answered: bool,
}

impl<'a> Waiter<'a> {
    /// The timeout starts now.
    pub fn new(client: &'a Client, timeout: Option<Duration>) -> Result<Waiter<'a>, CliError> {
        let listen = async { signal(SignalKind::interrupt()) };
        let interrupt =
            client.block_on(listen).map_err(|error| CliError::failed(format!("cannot listen for Ctrl-C: {error}")))?;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        Ok(Waiter { client, interrupt, deadline, server_answered: false })
    }

    pub fn wait_for<T>(&mut self, future: impl Future<Output = T>) -> WaitOutcome<T> {
        let deadline = self.deadline;
        let interrupt = &mut self.interrupt;
        self.client.block_on(async {
            tokio::select! {
                biased;
                _ = interrupt.recv() => WaitOutcome::Interrupted,
                done = future => WaitOutcome::Ready(done),
                () = sleep_until_deadline(deadline) => WaitOutcome::TimedOut,
            }
        })
    }

    pub fn sleep(&mut self, span: Duration) -> WaitOutcome<()> {
        // Inside a future, because a timer can only be created on the runtime.
        self.wait_for(async { tokio::time::sleep(span).await })
    }

    /// Fetches a job repeatedly until `done` returns true. `observe` is called with each response.
    pub fn poll_job(
        &mut self,
        job: JobId,
        mut observe: impl FnMut(&Job),
        done: impl Fn(&Job) -> bool,
    ) -> Result<WaitOutcome<Box<Job>>, CliError> {
        let mut pause = POLL_INTERVAL_FIRST;
        loop {
            let seen = match self.fetch_job(job)? {
                WaitOutcome::Ready(seen) => seen,
                other => return Ok(other),
            };
            observe(&seen);
            if done(&seen) {
                return Ok(WaitOutcome::Ready(seen));
            }
            match self.sleep(pause) {
                WaitOutcome::Ready(()) => pause = (pause * 3 / 2).min(POLL_INTERVAL_MAX),
                WaitOutcome::Interrupted => return Ok(WaitOutcome::Interrupted),
                WaitOutcome::TimedOut => return Ok(WaitOutcome::TimedOut),
            }
        }
    }

    /// Fetches a job. Restarts are normal: a server that has answered before gets time to return.
    fn fetch_job(&mut self, job: JobId) -> Result<WaitOutcome<Box<Job>>, CliError> {
        let give_up = Instant::now() + SERVER_AWAY_MAX;
        loop {
            match jobs::fetch_job(self.client, job) {
                Ok(seen) => {
                    self.server_answered = true;
                    return Ok(WaitOutcome::Ready(Box::new(seen)));
                }
                Err(error) if error.is_transient && self.server_answered && Instant::now() < give_up => {}
                Err(error) => return Err(error),
            }
            match self.sleep(SERVER_AWAY_PAUSE) {
                WaitOutcome::Ready(()) => {}
                WaitOutcome::Interrupted => return Ok(WaitOutcome::Interrupted),
                WaitOutcome::TimedOut => return Ok(WaitOutcome::TimedOut),
            }
        }
    }
}

async fn sleep_until_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Prints a line to standard error each time the phase of the job or its first reason changes.
#[derive(Default)]
pub struct StatusReporter {
    last: String,
}

impl StatusReporter {
    pub fn report_change(&mut self, job: &Job) {
        let now = status_line(job);
        if now != self.last {
            output::print_stderr(&format!("{}  {now}", units::local_clock_text(units::now_ms())));
            self.last = now;
        }
    }
}

fn status_line(job: &Job) -> String {
    let summary = &job.summary;
    let phase = &summary.phase;
    let because = job.reasons.first().map(|reason| reason.sentence.as_str()).unwrap_or(&summary.message);
    match (phase.as_str(), because) {
        ("Starting" | "Running" | "Stopping", _) => {
            format!("{} {phase} on {}", summary.id, summary.nodes.join(" "))
        }
        (_, "") => format!("{} {phase}", summary.id),
        (_, because) => format!("{} {phase}: {because}", summary.id),
    }
}
