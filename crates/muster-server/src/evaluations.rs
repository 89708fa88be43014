//! Planning for readers: what `why` and `plan` evaluate, bounded in number and in time, for each caller and in all.
//!
//! Every evaluation works on one shared copy of the state, so memory does not grow with the number of readers. A few
//! run at a time, a few more wait, and the rest are refused at once: a reader can neither fill the memory nor
//! keep the planner and the engine from their cores.

mod shared_copy;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::http::ApiError;

pub use shared_copy::SharedCopy;

/// How much readers may have evaluated.
#[derive(Debug, Clone, Copy)]
pub struct EvaluationLimits {
    /// Evaluations that run at once. Each may hold a scratch copy of the state beside the shared one.
    pub running_max: usize,
    /// Evaluations that run or wait, of all callers.
    pub open_max: usize,
    /// Evaluations that run or wait, of one caller.
    pub open_per_caller_max: usize,
    /// How long an evaluation waits for its turn.
    pub queue_timeout: Duration,
    /// Evaluation time a caller may use ahead. It refills as fast as the clock runs, so a caller that sends one
    /// request after the other never exceeds it.
    pub debt_max: Duration,
}

impl Default for EvaluationLimits {
    fn default() -> EvaluationLimits {
        EvaluationLimits {
            running_max: 2,
            open_max: 64,
            open_per_caller_max: 8,
            queue_timeout: Duration::from_secs(20),
            debt_max: Duration::from_secs(20),
        }
    }
}

/// What was evaluated since the start, for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvaluationCounts {
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
pub struct EvaluationLimiter {
    limits: EvaluationLimits,
    run_permits: Arc<Semaphore>,
    callers: Arc<Mutex<Callers>>,
    counts: Arc<Mutex<EvaluationCounts>>,
    copy: Mutex<Option<Arc<SharedCopy>>>,
}

#[derive(Default)]
struct Callers {
    open: usize,
    usage: HashMap<String, CallerUsage>,
}

/// What one caller uses.
struct CallerUsage {
    open: usize,
    /// Evaluation time not yet paid off, at `at`.
    debt: Duration,
    updated_at: Instant,
}

impl CallerUsage {
    fn reduce_debt(&mut self, now: Instant) {
        self.debt = self.debt.saturating_sub(now.saturating_duration_since(self.updated_at));
        self.updated_at = now;
    }
}

/// A caller's place among those that run or wait; given back when it is dropped.
struct CallerSlot {
    caller: String,
    callers: Arc<Mutex<Callers>>,
    started_at: Option<Instant>,
}

/// Leave to evaluate, until it is dropped. Belongs into the thread that does the work.
pub struct EvaluationPermit {
    _slot: CallerSlot,
    _run_permit: OwnedSemaphorePermit,
    counts: Arc<Mutex<EvaluationCounts>>,
}

impl Default for EvaluationLimiter {
    fn default() -> EvaluationLimiter {
        EvaluationLimiter::new(EvaluationLimits::default())
    }
}

impl EvaluationLimiter {
    /// None so far.
    pub fn new(bounds: EvaluationLimits) -> EvaluationLimiter {
        EvaluationLimiter {
            limits: bounds,
            run_permits: Arc::new(Semaphore::new(bounds.running_max)),
            callers: Arc::default(),
            counts: Arc::default(),
            copy: Mutex::default(),
        }
    }

    /// Wait for leave to evaluate something for a caller.
    pub async fn acquire(&self, caller: &str) -> Result<EvaluationPermit, ApiError> {
        let mut place = self.reserve_slot(caller).inspect_err(|_| lock(&self.counts).refused += 1)?;
        let Ok(Ok(running)) = timeout(self.limits.queue_timeout, self.run_permits.clone().acquire_owned()).await else {
            lock(&self.counts).refused += 1;
            return Err(server_busy());
        };
        place.started_at = Some(Instant::now());
        let mut counts = lock(&self.counts);
        counts.evaluations += 1;
        counts.running += 1;
        counts.running_max = counts.running_max.max(counts.running);
        Ok(EvaluationPermit { _slot: place, _run_permit: running, counts: self.counts.clone() })
    }

    /// What was evaluated since the start.
    pub fn counts(&self) -> EvaluationCounts {
        *lock(&self.counts)
    }

    fn reserve_slot(&self, caller: &str) -> Result<CallerSlot, ApiError> {
        let now = Instant::now();
        let mut callers = lock(&self.callers);
        // Forget callers that use nothing, so that the map holds only those of the last seconds.
        callers.usage.retain(|_, usage| {
            usage.reduce_debt(now);
            usage.open > 0 || !usage.debt.is_zero()
        });
        if let Some(usage) = callers.usage.get(caller) {
            self.check_caller_limits(usage)?;
        }
        if callers.open >= self.limits.open_max {
            return Err(server_busy());
        }
        callers.open += 1;
        let unused = CallerUsage { open: 0, debt: Duration::ZERO, updated_at: now };
        callers.usage.entry(caller.to_string()).or_insert(unused).open += 1;
        Ok(CallerSlot { caller: caller.to_string(), callers: self.callers.clone(), started_at: None })
    }

    fn check_caller_limits(&self, usage: &CallerUsage) -> Result<(), ApiError> {
        if usage.open >= self.limits.open_per_caller_max {
            let detail = format!("{} evaluations of this caller run or wait already", usage.open);
            return Err(caller_limit_reached(detail, 1).hint("wait for an answer before asking for the next"));
        }
        let ahead = self.limits.debt_max;
        if usage.debt > ahead {
            let wait_s = (usage.debt - ahead).as_secs() + 1;
            let detail = format!("this caller has used {} s of evaluation time ahead", ahead.as_secs());
            return Err(caller_limit_reached(detail, wait_s).hint("ask one question at a time"));
        }
        Ok(())
    }
}

fn caller_limit_reached(detail: String, retry_after_s: u64) -> ApiError {
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many-evaluations", detail).retry_after(retry_after_s)
}

fn server_busy() -> ApiError {
    let detail = "the server evaluates as many `why` and `plan` requests as it may";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "evaluations-busy", detail)
        .hint("try again in a few seconds; submissions and lists are served meanwhile")
        .retry_after(2)
}

impl Drop for CallerSlot {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut callers = lock(&self.callers);
        callers.open -= 1;
        if let Some(usage) = callers.usage.get_mut(&self.caller) {
            usage.open -= 1;
            usage.reduce_debt(now);
            usage.debt += self.started_at.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        }
    }
}

impl Drop for EvaluationPermit {
    fn drop(&mut self) {
        lock(&self.counts).running -= 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
