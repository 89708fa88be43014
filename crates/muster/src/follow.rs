//! Following something until it ends or the person has seen enough.

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

/// Short at first, for jobs that end at once; then easy on the server.
const POLL_FIRST: Duration = Duration::from_millis(100);
const POLL_LONGEST: Duration = Duration::from_secs(2);

/// How long a server that has answered before may be away, for example to be restarted.
const AWAY_MAX: Duration = Duration::from_secs(60);
const AWAY_PAUSE: Duration = Duration::from_millis(500);

/// What a process returns that was interrupted: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// What came first.
pub enum Came<T> {
    /// What was waited for.
    This(T),
    /// Ctrl-C.
    Interrupt,
    /// The end of `--timeout`.
    Deadline,
}

/// Waits for things, for Ctrl-C and for a deadline at once. While it lives, Ctrl-C does not end the process.
pub struct Patience<'a> {
    client: &'a Client,
    interrupt: Signal,
    deadline: Option<Instant>,
    answered: bool,
}

impl<'a> Patience<'a> {
    /// From now on, and for so long at most.
    pub fn new(client: &'a Client, timeout: Option<Duration>) -> Result<Patience<'a>, CliError> {
        let listen = async { signal(SignalKind::interrupt()) };
        let interrupt = client
            .block_on(listen)
            .map_err(|error| CliError::failed(format!("cannot listen for Ctrl-C: {error}")))?;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        Ok(Patience { client, interrupt, deadline, answered: false })
    }

    /// Wait for one thing.
    pub fn wait_for<T>(&mut self, future: impl Future<Output = T>) -> Came<T> {
        let deadline = self.deadline;
        let interrupt = &mut self.interrupt;
        self.client.block_on(async {
            tokio::select! {
                biased;
                _ = interrupt.recv() => Came::Interrupt,
                done = future => Came::This(done),
                () = until(deadline) => Came::Deadline,
            }
        })
    }

    /// Wait for a moment.
    pub fn pause(&mut self, span: Duration) -> Came<()> {
        // Inside a future, because a timer can only be made on the runtime.
        self.wait_for(async { tokio::time::sleep(span).await })
    }

    /// Ask about a job until `enough` says so. `look` sees every answer.
    pub fn job(
        &mut self,
        job: JobId,
        mut look: impl FnMut(&Job),
        enough: impl Fn(&Job) -> bool,
    ) -> Result<Came<Box<Job>>, CliError> {
        let mut pause = POLL_FIRST;
        loop {
            let seen = match self.fetch(job)? {
                Came::This(seen) => seen,
                other => return Ok(other),
            };
            look(&seen);
            if enough(&seen) {
                return Ok(Came::This(seen));
            }
            match self.pause(pause) {
                Came::This(()) => pause = (pause * 3 / 2).min(POLL_LONGEST),
                Came::Interrupt => return Ok(Came::Interrupt),
                Came::Deadline => return Ok(Came::Deadline),
            }
        }
    }

    /// Ask about a job. Restarts are normal: a server that has answered before is given time to come back.
    fn fetch(&mut self, job: JobId) -> Result<Came<Box<Job>>, CliError> {
        let give_up = Instant::now() + AWAY_MAX;
        loop {
            match jobs::fetch(self.client, job) {
                Ok(seen) => {
                    self.answered = true;
                    return Ok(Came::This(Box::new(seen)));
                }
                Err(error) if error.may_pass && self.answered && Instant::now() < give_up => {}
                Err(error) => return Err(error),
            }
            match self.pause(AWAY_PAUSE) {
                Came::This(()) => {}
                Came::Interrupt => return Ok(Came::Interrupt),
                Came::Deadline => return Ok(Came::Deadline),
            }
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Tells the person, on standard error, each time the job's phase or its top blocker changes.
#[derive(Default)]
pub struct Narrator {
    last: String,
}

impl Narrator {
    /// Say what is new.
    pub fn look(&mut self, job: &Job) {
        let now = line(job);
        if now != self.last {
            output::talk(&format!("{}  {now}", units::clock(units::now_ms())));
            self.last = now;
        }
    }
}

fn line(job: &Job) -> String {
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
