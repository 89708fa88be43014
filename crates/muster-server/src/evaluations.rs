//! Limits on evaluations for readers (`why` and `plan`): in number and in time, per caller and in total.
//!
//! Every evaluation uses one shared copy of the state, so memory does not grow with the number of readers. A few run at
//! a time, a few more wait, and others are refused at once: readers can neither fill the memory nor take the cores of
//! the planner and the engine.

mod shared_copy;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub use shared_copy::SharedCopy;

/// Seconds after which a client may retry if the server runs its maximum of evaluations.
const BUSY_RETRY_SECONDS: u64 = 2;

#[derive(Debug, Clone, Copy)]
pub struct EvaluationLimits {
    /// Evaluations that run at once. Each may hold a scratch copy of the state besides the shared one.
    pub running_max: usize,
    /// Evaluations of all callers that run or wait.
    pub open_max: usize,
    /// Evaluations of one caller that run or wait.
    pub open_per_caller_max: usize,
    /// How long an evaluation waits for a free slot.
    pub queue_timeout: Duration,
    /// Evaluation time that a caller may use in advance. The debt shrinks as fast as the clock runs, so a caller that
    /// sends one request after the other never reaches the limit.
    pub debt_max: Duration,
}

/// Why an evaluation is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationRefusal {
    #[error("{open} evaluations of this caller run or wait already")]
    CallerOpenLimit { open: usize },
    #[error("this caller has used up its {allowed_s} s of evaluation time")]
    CallerTimeLimit { allowed_s: u64, retry_after_s: u64 },
    #[error("the server runs its maximum number of `why` and `plan` evaluations")]
    ServerBusy,
}

impl EvaluationRefusal {
    /// Stable across releases.
    pub fn code(&self) -> &'static str {
        match self {
            EvaluationRefusal::CallerOpenLimit { .. } | EvaluationRefusal::CallerTimeLimit { .. } => {
                "too-many-evaluations"
            }
            EvaluationRefusal::ServerBusy => "evaluations-busy",
        }
    }

    pub fn hint(&self) -> &'static str {
        match self {
            EvaluationRefusal::CallerOpenLimit { .. } => "wait for an answer before asking for the next",
            EvaluationRefusal::CallerTimeLimit { .. } => "send one `why` or `plan` request at a time",
            EvaluationRefusal::ServerBusy => "try again in a few seconds; submissions and lists are served meanwhile",
        }
    }

    pub fn retry_after_s(&self) -> u64 {
        match self {
            EvaluationRefusal::CallerOpenLimit { .. } => 1,
            EvaluationRefusal::CallerTimeLimit { retry_after_s, .. } => *retry_after_s,
            EvaluationRefusal::ServerBusy => BUSY_RETRY_SECONDS,
        }
    }
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

/// Counts since the start, for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EvaluationCounts {
    /// Copies of the state.
    pub copies: u64,
    /// Evaluations that have started.
    pub evaluations: u64,
    /// Evaluations that run now.
    pub running: u64,
    /// Most evaluations that ran at once.
    pub running_max: u64,
    /// Requests refused because a limit was reached.
    pub refused: u64,
}

/// Admits evaluations within the limits, and holds the shared copy of the state.
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

struct CallerUsage {
    /// Evaluations that run or wait.
    open: usize,
    /// Evaluation time used in advance, as of `updated_at`.
    debt: Duration,
    updated_at: Instant,
}

impl CallerUsage {
    fn reduce_debt(&mut self, now: Instant) {
        self.debt = self.debt.saturating_sub(now.saturating_duration_since(self.updated_at));
        self.updated_at = now;
    }
}

/// An evaluation of a caller that runs or waits; it no longer counts once this is dropped.
struct CallerSlot {
    caller: String,
    callers: Arc<Mutex<Callers>>,
    started_at: Option<Instant>,
}

/// Permission to run an evaluation, until it is dropped. Move it into the thread that does the work.
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
    pub fn new(limits: EvaluationLimits) -> EvaluationLimiter {
        EvaluationLimiter {
            limits,
            run_permits: Arc::new(Semaphore::new(limits.running_max)),
            callers: Arc::default(),
            counts: Arc::default(),
            copy: Mutex::default(),
        }
    }

    /// Wait for the permission to run an evaluation for a caller.
    pub async fn acquire(&self, caller: &str) -> Result<EvaluationPermit, EvaluationRefusal> {
        let mut slot = self.reserve_slot(caller).inspect_err(|_| lock(&self.counts).refused += 1)?;
        let Ok(Ok(run_permit)) = timeout(self.limits.queue_timeout, self.run_permits.clone().acquire_owned()).await
        else {
            lock(&self.counts).refused += 1;
            return Err(EvaluationRefusal::ServerBusy);
        };
        slot.started_at = Some(Instant::now());
        let mut counts = lock(&self.counts);
        counts.evaluations += 1;
        counts.running += 1;
        counts.running_max = counts.running_max.max(counts.running);
        Ok(EvaluationPermit { _slot: slot, _run_permit: run_permit, counts: self.counts.clone() })
    }

    pub fn counts(&self) -> EvaluationCounts {
        *lock(&self.counts)
    }

    fn reserve_slot(&self, caller: &str) -> Result<CallerSlot, EvaluationRefusal> {
        let now = Instant::now();
        let mut callers = lock(&self.callers);
        // Forget idle callers without debt, so that the map holds only those of the last seconds.
        callers.usage.retain(|_, usage| {
            usage.reduce_debt(now);
            usage.open > 0 || !usage.debt.is_zero()
        });
        if let Some(usage) = callers.usage.get(caller) {
            self.check_caller_limits(usage)?;
        }
        if callers.open >= self.limits.open_max {
            return Err(EvaluationRefusal::ServerBusy);
        }
        callers.open += 1;
        let unused = CallerUsage { open: 0, debt: Duration::ZERO, updated_at: now };
        callers.usage.entry(caller.to_string()).or_insert(unused).open += 1;
        Ok(CallerSlot { caller: caller.to_string(), callers: self.callers.clone(), started_at: None })
    }

    fn check_caller_limits(&self, usage: &CallerUsage) -> Result<(), EvaluationRefusal> {
        if usage.open >= self.limits.open_per_caller_max {
            return Err(EvaluationRefusal::CallerOpenLimit { open: usage.open });
        }
        let allowed = self.limits.debt_max;
        if usage.debt > allowed {
            let retry_after_s = (usage.debt - allowed).as_secs() + 1;
            return Err(EvaluationRefusal::CallerTimeLimit { allowed_s: allowed.as_secs(), retry_after_s });
        }
        Ok(())
    }
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
