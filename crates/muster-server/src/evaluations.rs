//! Planning for readers: what `why` and `plan` evaluate, bounded in number and in time, for each caller and in all.
//!
//! Every evaluation works on one shared copy of the state, so memory does not grow with the number of readers. A few
//! run at a time, a few more wait, and the rest are refused at once: a reader can neither fill the memory nor
//! keep the planner and the engine from their cores.

mod shared;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::http::Fault;

pub use shared::SharedCopy;

/// How much readers may have evaluated.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Evaluations that run at once. Each may hold a scratch copy of the state beside the shared one.
    pub running: usize,
    /// Evaluations that run or wait, of all callers.
    pub open: usize,
    /// Evaluations that run or wait, of one caller.
    pub open_per_caller: usize,
    /// How long an evaluation waits for its turn.
    pub wait: Duration,
    /// Evaluation time a caller may use ahead. It refills as fast as the clock runs, so a caller that sends one
    /// request after the other never exceeds it.
    pub ahead: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            running: 2,
            open: 64,
            open_per_caller: 8,
            wait: Duration::from_secs(20),
            ahead: Duration::from_secs(20),
        }
    }
}

/// What was evaluated since the start, for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Copies of the state that were made.
    pub copies: u64,
    /// Evaluations that ran or run.
    pub evaluations: u64,
    /// Evaluations that run now.
    pub running: u64,
    /// The most that ever ran at once.
    pub running_max: u64,
    /// Requests refused because a bound was reached.
    pub refused: u64,
}

/// Evaluations for readers.
pub struct Evaluations {
    bounds: Bounds,
    running: Arc<Semaphore>,
    callers: Arc<Mutex<Callers>>,
    counts: Arc<Mutex<Counts>>,
    copy: Mutex<Option<Arc<SharedCopy>>>,
}

#[derive(Default)]
struct Callers {
    open: usize,
    known: HashMap<String, Usage>,
}

/// What one caller uses.
struct Usage {
    open: usize,
    /// Evaluation time not yet paid off, at `at`.
    debt: Duration,
    at: Instant,
}

impl Usage {
    fn pay_off(&mut self, now: Instant) {
        self.debt = self.debt.saturating_sub(now.saturating_duration_since(self.at));
        self.at = now;
    }
}

/// A caller's place among those that run or wait; given back when it is dropped.
struct Place {
    caller: String,
    callers: Arc<Mutex<Callers>>,
    began: Option<Instant>,
}

/// Leave to evaluate, until it is dropped. Belongs into the thread that does the work.
pub struct Evaluation {
    _place: Place,
    _running: OwnedSemaphorePermit,
    counts: Arc<Mutex<Counts>>,
}

impl Default for Evaluations {
    fn default() -> Evaluations {
        Evaluations::new(Bounds::default())
    }
}

impl Evaluations {
    /// None so far.
    pub fn new(bounds: Bounds) -> Evaluations {
        Evaluations {
            bounds,
            running: Arc::new(Semaphore::new(bounds.running)),
            callers: Arc::default(),
            counts: Arc::default(),
            copy: Mutex::default(),
        }
    }

    /// Wait for leave to evaluate something for a caller.
    pub async fn begin(&self, caller: &str) -> Result<Evaluation, Fault> {
        let mut place = self.place(caller).inspect_err(|_| lock(&self.counts).refused += 1)?;
        let Ok(Ok(running)) = timeout(self.bounds.wait, self.running.clone().acquire_owned()).await else {
            lock(&self.counts).refused += 1;
            return Err(busy());
        };
        place.began = Some(Instant::now());
        let mut counts = lock(&self.counts);
        counts.evaluations += 1;
        counts.running += 1;
        counts.running_max = counts.running_max.max(counts.running);
        Ok(Evaluation { _place: place, _running: running, counts: self.counts.clone() })
    }

    /// What was evaluated since the start.
    pub fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    fn place(&self, caller: &str) -> Result<Place, Fault> {
        let now = Instant::now();
        let mut callers = lock(&self.callers);
        // Forget callers that use nothing, so that the map holds only those of the last seconds.
        callers.known.retain(|_, usage| {
            usage.pay_off(now);
            usage.open > 0 || !usage.debt.is_zero()
        });
        if let Some(usage) = callers.known.get(caller) {
            self.check(usage)?;
        }
        if callers.open >= self.bounds.open {
            return Err(busy());
        }
        callers.open += 1;
        let unused = Usage { open: 0, debt: Duration::ZERO, at: now };
        callers.known.entry(caller.to_string()).or_insert(unused).open += 1;
        Ok(Place { caller: caller.to_string(), callers: self.callers.clone(), began: None })
    }

    fn check(&self, usage: &Usage) -> Result<(), Fault> {
        if usage.open >= self.bounds.open_per_caller {
            let detail = format!("{} evaluations of this caller run or wait already", usage.open);
            return Err(above_bound(detail, 1).hint("wait for an answer before asking for the next"));
        }
        let ahead = self.bounds.ahead;
        if usage.debt > ahead {
            let wait_s = (usage.debt - ahead).as_secs() + 1;
            let detail = format!("this caller has used {} s of evaluation time ahead", ahead.as_secs());
            return Err(above_bound(detail, wait_s).hint("ask one question at a time"));
        }
        Ok(())
    }
}

fn above_bound(detail: String, retry_after_s: u64) -> Fault {
    Fault::new(StatusCode::TOO_MANY_REQUESTS, "too-many-evaluations", detail).retry_after(retry_after_s)
}

fn busy() -> Fault {
    let detail = "the server evaluates as many `why` and `plan` requests as it may";
    Fault::new(StatusCode::SERVICE_UNAVAILABLE, "evaluations-busy", detail)
        .hint("try again in a few seconds; submissions and lists are served meanwhile")
        .retry_after(2)
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut callers = lock(&self.callers);
        callers.open -= 1;
        if let Some(usage) = callers.known.get_mut(&self.caller) {
            usage.open -= 1;
            usage.pay_off(now);
            usage.debt += self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        }
    }
}

impl Drop for Evaluation {
    fn drop(&mut self) {
        lock(&self.counts).running -= 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
