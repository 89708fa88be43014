//! Workers for policies: one process for each tenant or bundle, and not too many of them.
//!
//! Who asks is never held up for long, whatever a policy does. A question has a clock, [`Confinement::call_time`]: one for
//! all files and calls of a tenant, one for each letter of a batch of the cluster's own. A process that is not there yet
//! is started beside, and waited for no longer than [`Patience::start`]; a bundle whose process was ended rests for a while,
//! each time longer, and is suspended where that happens again and again; and all tenants together have a share of the
//! time. Who is not asked for one of these reasons gets an error that says so, and the same one as long as nothing changes.

mod time_account;
mod tenant_worker;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::objects::policy::PolicyBundle;

use crate::bundle::bundle_hash;
use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::hooks::HookExecutor;
use crate::policy_value::PolicyValue;
use crate::testing::is_test_file;
use crate::worker::{Confinement, WorkerCommand, LoadedBundle, Worker};
use tenant_worker::TenantWorker;

/// A tenant that nobody asked for so long has no part of the time any more, and no process.
const IDLE_TENANT_TIMEOUT: Duration = Duration::from_secs(600);

/// How long those who ask put up with the policies of tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerPoolSettings {
    /// Processes at a time. Who was asked longest ago makes room.
    pub processes_max: usize,
    /// Of each span, so much for all tenants together. Each has an equal part of it.
    pub time_share: Duration,
    /// How long a span is.
    pub share_period: Duration,
    /// How long a tenant rests whose process was ended. Twice as long each time, up to 64 times.
    pub backoff: Duration,
    /// How long a process is waited for that has to be started first; nothing for no longer than the question may take.
    pub start_timeout: Option<Duration>,
    /// Whether a question has one clock for all of its letters, or each letter its own.
    pub timeout_scope: TimeoutScope,
    /// When a bundle is suspended.
    pub suspension: SuspensionRule,
}

/// What [`Confinement::call_time`] bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutScope {
    /// A question, with all of its files and calls.
    Query,
    /// Each letter of a batch.
    Message,
}

/// When a bundle is suspended: its worker was ended so often within a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspensionRule {
    /// How often.
    pub failures_max: usize,
    /// How long the span is.
    pub period: Duration,
    /// How long a suspended bundle is not asked. Then one question tries it again.
    pub retry_after: Duration,
}

impl Default for SuspensionRule {
    fn default() -> SuspensionRule {
        SuspensionRule { failures_max: 3, period: Duration::from_secs(600), retry_after: Duration::from_secs(60) }
    }
}

impl SuspensionRule {
    /// The suspension in words that stay the same: an answer that differs would be put on record each time.
    fn suspension_error(&self, last: &PolicyError) -> PolicyError {
        let last = match last {
            PolicyError::WorkerFailed { message: what } => what.clone(),
            other => other.to_string(),
        };
        let (ends, minutes) = (self.failures_max, self.period.as_secs() / 60);
        let what = format!(
            "the bundle is suspended: its worker was ended {ends} times within {minutes} minutes, the last time {last}"
        );
        PolicyError::WorkerFailed { message: what }
    }
}

impl Default for WorkerPoolSettings {
    fn default() -> WorkerPoolSettings {
        WorkerPoolSettings {
            processes_max: 8,
            time_share: Duration::from_millis(600),
            share_period: Duration::from_secs(3),
            backoff: Duration::from_secs(1),
            start_timeout: None,
            timeout_scope: TimeoutScope::Query,
            suspension: SuspensionRule::default(),
        }
    }
}

impl WorkerPoolSettings {
    /// Of the cluster's own bundles: they have no share to keep to, and are asked in batches.
    pub fn for_cluster() -> WorkerPoolSettings {
        let start = Some(Duration::from_secs(5));
        WorkerPoolSettings { processes_max: 4, time_share: Duration::MAX, start_timeout: start, timeout_scope: TimeoutScope::Message, ..WorkerPoolSettings::default() }
    }

    /// Of those whom nobody waits for: each question is asked, as long as starting and answering take.
    pub fn without_deadlines() -> WorkerPoolSettings {
        let long = Duration::from_secs(60);
        WorkerPoolSettings { time_share: Duration::MAX, start_timeout: Some(long), ..WorkerPoolSettings::default() }
    }
}

/// The processes for policies, of all tenants or of all bundles of the cluster.
#[derive(Debug)]
pub struct WorkerPool {
    command: WorkerCommand,
    confinement: Confinement,
    settings: WorkerPoolSettings,
    /// By tenant. Whoever holds one may look at the others, but waits for none of them.
    tenant_workers: Mutex<BTreeMap<String, Arc<Mutex<TenantWorker>>>>,
    /// Why each is suspended that is.
    suspension_reasons: Mutex<BTreeMap<String, String>>,
    /// One bundle is compiled at a time: compiling takes a process too.
    compile_lock: Mutex<()>,
}

impl WorkerPool {
    /// None yet.
    pub fn new(launch: WorkerCommand, confinement: Confinement, patience: WorkerPoolSettings) -> WorkerPool {
        let (seats, suspended, compiling) = (Mutex::default(), Mutex::default(), Mutex::default());
        WorkerPool { command: launch, confinement, settings: patience, tenant_workers: seats, suspension_reasons: suspended, compile_lock: compiling }
    }

    /// Compile files by name, in a process of its own that ends with it.
    pub fn compile(&self, files: BTreeMap<String, String>) -> Result<PolicyBundle, PolicyError> {
        let hash = bundle_hash(&files);
        if files.is_empty() {
            return Ok(PolicyBundle { hash, ..PolicyBundle::default() });
        }
        let _one_at_a_time = lock(&self.compile_lock);
        let loaded = Worker::new(self.command.clone(), self.confinement.clone()).load(&files)?;
        let LoadedBundle { rules, hooks, mentions, .. } = loaded;
        Ok(PolicyBundle { hash, files, rules, hooks, mentions })
    }

    /// Run the tests of files by name, in a process of its own that ends with it, and say which fail.
    pub fn run_tests(&self, files: &BTreeMap<String, String>) -> Result<Vec<String>, PolicyError> {
        if !files.keys().any(|name| is_test_file(name)) {
            return Ok(Vec::new());
        }
        let _one_at_a_time = lock(&self.compile_lock);
        Worker::new(self.command.clone(), self.confinement.clone()).run_tests(files)
    }

    /// Ask the policies of a tenant.
    pub fn query<T>(
        &self,
        tenant: &str,
        bundle: &PolicyBundle,
        question: impl FnOnce(&WorkerSession) -> Result<T, PolicyError>,
    ) -> Result<T, PolicyError> {
        let (seat, tenants) = self.tenant_worker(tenant);
        let mut seat = lock(&seat);
        let began = Instant::now();
        seat.use_bundle(bundle, began);
        seat.account.check_callable(&self.settings, tenants, began)?;
        let answer = self.ensure_ready(&mut seat, bundle, began).and_then(|until| {
            let guest = WorkerSession { worker: RefCell::new(&mut seat), deadline: until };
            question(&guest)
        });
        seat.finish_query(&self.settings, began, answer.as_ref().err());
        self.update_suspension(tenant, &seat);
        answer
    }

    /// Why a tenant or a bundle is suspended, if it is. Nobody waits for one that is being asked.
    pub fn suspension_reason(&self, tenant: &str) -> Option<String> {
        lock(&self.suspension_reasons).get(tenant).cloned()
    }

    fn update_suspension(&self, tenant: &str, seat: &TenantWorker) {
        let mut suspended = lock(&self.suspension_reasons);
        match seat.account.suspension() {
            Some(why) => drop(suspended.insert(tenant.to_string(), why.to_string())),
            None => drop(suspended.remove(tenant)),
        }
    }

    /// The processes there are now, by tenant.
    pub fn process_ids(&self) -> BTreeMap<String, u32> {
        let seats = lock(&self.tenant_workers).clone();
        let process = |(tenant, seat): (String, Arc<Mutex<TenantWorker>>)| Some((tenant, lock(&seat).process_id()?));
        seats.into_iter().filter_map(process).collect()
    }

    /// Where a tenant sits, and how many there are.
    fn tenant_worker(&self, tenant: &str) -> (Arc<Mutex<TenantWorker>>, u32) {
        let mut seats = lock(&self.tenant_workers);
        if !seats.contains_key(tenant) {
            let is_asked = |seat: &Mutex<TenantWorker>| {
                seat.try_lock().map_or(true, |seat| seat.last_query_at().is_none_or(|at| at.elapsed() < IDLE_TENANT_TIMEOUT))
            };
            seats.retain(|_, seat| is_asked(seat));
            lock(&self.suspension_reasons).retain(|tenant, _| seats.contains_key(tenant));
        }
        let seat = seats.entry(tenant.to_string()).or_default().clone();
        (seat, u32::try_from(seats.len()).unwrap_or(u32::MAX))
    }

    /// Have a process with the bundle, started if there is none. Says until when it may answer, where the question has a
    /// clock of its own.
    fn ensure_ready(
        &self,
        seat: &mut TenantWorker,
        bundle: &PolicyBundle,
        began: Instant,
    ) -> Result<Option<Instant>, PolicyError> {
        if !seat.has_process() {
            self.stop_least_recently_used()?;
            seat.start(Worker::new(self.command.clone(), self.confinement.clone()), bundle);
        }
        let Some(start) = self.settings.start_timeout else {
            let until = began + self.confinement.call_time;
            return seat.wait_until_ready(until).map(|()| Some(until));
        };
        seat.wait_until_ready(began + start)?;
        match self.settings.timeout_scope {
            TimeoutScope::Query => Ok(Some(Instant::now() + self.confinement.call_time)),
            TimeoutScope::Message => Ok(None),
        }
    }

    /// End the process that was asked longest ago if there would be too many. One that is starting or at work is left
    /// alone, or whoever starts slowly could have any number of them.
    fn stop_least_recently_used(&self) -> Result<(), PolicyError> {
        let seats = lock(&self.tenant_workers).clone();
        // Who cannot be looked at is at work, as is the one that asks for room.
        let free: Vec<MutexGuard<TenantWorker>> = seats.values().filter_map(|seat| seat.try_lock().ok()).collect();
        let at_work = seats.len() - free.len();
        let mut held: Vec<MutexGuard<TenantWorker>> = free.into_iter().filter(|seat| seat.has_process()).collect();
        if at_work + held.len() <= self.settings.processes_max {
            return Ok(());
        }
        held.retain(|seat| seat.process_id().is_some());
        match held.iter_mut().min_by_key(|seat| seat.last_query_at()) {
            Some(seat) => seat.stop(),
            None => return Err(unavailable("too many policies are at work; it is asked again")),
        }
        Ok(())
    }
}

/// The policies of a tenant while a question is asked.
#[derive(Debug)]
pub struct WorkerSession<'a> {
    worker: RefCell<&'a mut TenantWorker>,
    /// Nothing where each letter has a clock of its own.
    deadline: Option<Instant>,
}

impl HookExecutor for WorkerSession<'_> {
    fn files_defining(&self, function: &str) -> Vec<String> {
        self.worker.borrow().files_defining(function)
    }

    fn call_each(&self, file: &str, function: &str, calls: &CallBatch) -> Vec<Result<PolicyValue, PolicyError>> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let within = self.deadline.map_or(Duration::MAX, left);
        self.worker.borrow_mut().call_each(file, function, calls, within)
    }
}

fn unavailable(what: &str) -> PolicyError {
    PolicyError::WorkerFailed { message: what.to_string() }
}

/// Nothing is left half done by one who panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
