//! A pool of worker processes: one for each tenant or bundle, up to a maximum.
//!
//! The pool bounds the time that a caller waits, whatever a policy does:
//! * A query has a deadline, [`Confinement::call_time`]: one for all files and calls of a tenant's policies, or one for
//!   each message of a batch to a bundle of the cluster.
//! * A missing worker process is started in the background and waited for at most
//!   [`WorkerPoolSettings::start_timeout`].
//! * A bundle whose process was killed is not called for a backoff that doubles each time. After repeated failures it
//!   is suspended.
//! * All tenants together share a time budget.
//!
//! A query that is not served for one of these reasons gets an error that says so. The error stays the same until
//! something changes, because answers that differ are recorded.

mod tenant_worker;
mod time_account;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_core::objects::policy::PolicyBundle;

use crate::bundle::bundle_hash;
use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::hooks::HookExecutor;
use crate::policy_files::is_test_file;
use crate::policy_value::PolicyValue;
use crate::worker::{Confinement, LoadedBundle, Worker, WorkerCommand};
use tenant_worker::TenantWorker;

/// A tenant without queries for this long has no share of the time and no process any more.
const IDLE_TENANT_TIMEOUT: Duration = Duration::from_secs(600);

/// Limits of a worker pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerPoolSettings {
    /// The most processes at a time. The least recently used one is stopped for a new one.
    pub processes_max: usize,
    /// Time for all tenants together in each period. Every tenant has an equal part of it.
    pub time_share: Duration,
    /// The period of the time share.
    pub share_period: Duration,
    /// How long a tenant is not called after its process was killed. It doubles with each failure in a row, up to 64
    /// times.
    pub backoff: Duration,
    /// How long a query waits for a process that has to be started first; `None` for no longer than the query itself
    /// may take.
    pub start_timeout: Option<Duration>,
    /// Whether [`Confinement::call_time`] applies to a query or to each of its messages.
    pub timeout_scope: TimeoutScope,
    pub suspension: SuspensionRule,
}

/// What [`Confinement::call_time`] limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutScope {
    /// A query with all of its files and calls.
    Query,
    /// Each message of a batch.
    Message,
}

/// A bundle is suspended after this many worker failures within a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspensionRule {
    pub failures_max: usize,
    pub period: Duration,
    /// How long a suspended bundle is not called. One query then tries it again.
    pub retry_after: Duration,
}

impl Default for SuspensionRule {
    fn default() -> SuspensionRule {
        SuspensionRule { failures_max: 3, period: Duration::from_secs(600), retry_after: Duration::from_secs(60) }
    }
}

impl SuspensionRule {
    /// The error of a suspended bundle. It does not change while the suspension lasts: every answer that differs from
    /// the previous one is recorded.
    fn suspension_error(&self, last: &PolicyError) -> PolicyError {
        let last = match last {
            PolicyError::WorkerFailed { message } => message.clone(),
            other => other.to_string(),
        };
        let (failures, minutes) = (self.failures_max, self.period.as_secs() / 60);
        let message = format!(
            "the bundle is suspended: its worker failed {failures} times within {minutes} minutes; last failure: {last}"
        );
        PolicyError::WorkerFailed { message }
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
    /// For bundles of the cluster: they have no time share and are called in batches.
    pub fn for_cluster() -> WorkerPoolSettings {
        WorkerPoolSettings {
            processes_max: 4,
            time_share: Duration::MAX,
            start_timeout: Some(Duration::from_secs(5)),
            timeout_scope: TimeoutScope::Message,
            ..WorkerPoolSettings::default()
        }
    }

    /// For callers that can wait: every query is served, however long the start of a process takes.
    pub fn without_deadlines() -> WorkerPoolSettings {
        let start_timeout = Some(Duration::from_secs(60));
        WorkerPoolSettings { time_share: Duration::MAX, start_timeout, ..WorkerPoolSettings::default() }
    }
}

/// The worker processes of all tenants, or of all bundles of the cluster.
#[derive(Debug)]
pub struct WorkerPool {
    command: WorkerCommand,
    confinement: Confinement,
    settings: WorkerPoolSettings,
    /// By tenant. A thread that holds one of the inner locks may only `try_lock` the others, so that no two threads
    /// deadlock.
    tenant_workers: Mutex<BTreeMap<String, Arc<Mutex<TenantWorker>>>>,
    /// Why each suspended tenant is suspended.
    suspension_reasons: Mutex<BTreeMap<String, String>>,
    /// Serialises compilations: each needs a process beside those of the pool.
    compile_lock: Mutex<()>,
}

impl WorkerPool {
    /// A pool without processes.
    pub fn new(command: WorkerCommand, confinement: Confinement, settings: WorkerPoolSettings) -> WorkerPool {
        WorkerPool {
            command,
            confinement,
            settings,
            tenant_workers: Mutex::default(),
            suspension_reasons: Mutex::default(),
            compile_lock: Mutex::default(),
        }
    }

    /// Compile files by name in a temporary process.
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

    /// Run the tests of files by name in a temporary process, and return one line for each that fails.
    pub fn run_tests(&self, files: &BTreeMap<String, String>) -> Result<Vec<String>, PolicyError> {
        if !files.keys().any(|name| is_test_file(name)) {
            return Ok(Vec::new());
        }
        let _one_at_a_time = lock(&self.compile_lock);
        Worker::new(self.command.clone(), self.confinement.clone()).run_tests(files)
    }

    /// Run a query against the policies of a tenant.
    pub fn query<T>(
        &self,
        tenant: &str,
        bundle: &PolicyBundle,
        query: impl FnOnce(&WorkerSession) -> Result<T, PolicyError>,
    ) -> Result<T, PolicyError> {
        let (worker, tenants) = self.tenant_worker(tenant);
        let mut worker = lock(&worker);
        let started_at = Instant::now();
        worker.use_bundle(bundle, started_at);
        worker.account.check_callable(&self.settings, tenants, started_at)?;
        let answer = self.ensure_ready(&mut worker, bundle, started_at).and_then(|deadline| {
            let session = WorkerSession { worker: RefCell::new(&mut worker), deadline };
            query(&session)
        });
        worker.finish_query(&self.settings, started_at, answer.as_ref().err());
        self.update_suspension(tenant, &worker);
        answer
    }

    /// Why a tenant or a bundle is suspended; `None` if it is not. Does not wait for queries in progress.
    pub fn suspension_reason(&self, tenant: &str) -> Option<String> {
        lock(&self.suspension_reasons).get(tenant).cloned()
    }

    fn update_suspension(&self, tenant: &str, worker: &TenantWorker) {
        let mut reasons = lock(&self.suspension_reasons);
        match worker.account.suspension() {
            Some(error) => drop(reasons.insert(tenant.to_string(), error.to_string())),
            None => drop(reasons.remove(tenant)),
        }
    }

    /// The ids of the running processes, by tenant.
    pub fn process_ids(&self) -> BTreeMap<String, u32> {
        let workers = lock(&self.tenant_workers).clone();
        let process_id = |(tenant, worker): (String, Arc<Mutex<TenantWorker>>)| {
            let id = lock(&worker).process_id()?;
            Some((tenant, id))
        };
        workers.into_iter().filter_map(process_id).collect()
    }

    /// The worker of a tenant, and the number of tenants. A new tenant removes those that are idle.
    fn tenant_worker(&self, tenant: &str) -> (Arc<Mutex<TenantWorker>>, u32) {
        let mut workers = lock(&self.tenant_workers);
        if !workers.contains_key(tenant) {
            let is_recent =
                |worker: &TenantWorker| worker.last_query_at().is_none_or(|at| at.elapsed() < IDLE_TENANT_TIMEOUT);
            // A locked worker is serving a query.
            workers.retain(|_, worker| worker.try_lock().map_or(true, |worker| is_recent(&worker)));
            lock(&self.suspension_reasons).retain(|tenant, _| workers.contains_key(tenant));
        }
        let worker = workers.entry(tenant.to_string()).or_default().clone();
        (worker, u32::try_from(workers.len()).unwrap_or(u32::MAX))
    }

    /// Wait until a process with the bundle is ready; start one if there is none. Returns the deadline of the query, or
    /// `None` if each message has its own.
    fn ensure_ready(
        &self,
        worker: &mut TenantWorker,
        bundle: &PolicyBundle,
        started_at: Instant,
    ) -> Result<Option<Instant>, PolicyError> {
        if !worker.has_process() {
            self.stop_least_recently_used()?;
            worker.start(Worker::new(self.command.clone(), self.confinement.clone()), bundle);
        }
        let Some(start_timeout) = self.settings.start_timeout else {
            let deadline = started_at + self.confinement.call_time;
            return worker.wait_until_ready(deadline).map(|()| Some(deadline));
        };
        worker.wait_until_ready(started_at + start_timeout)?;
        match self.settings.timeout_scope {
            TimeoutScope::Query => Ok(Some(Instant::now() + self.confinement.call_time)),
            TimeoutScope::Message => Ok(None),
        }
    }

    /// Stop the least recently used process if a further one would exceed the maximum. A process that is starting or
    /// serving a query is not stopped, but counts: otherwise slow starts could exceed the maximum.
    fn stop_least_recently_used(&self) -> Result<(), PolicyError> {
        let workers = lock(&self.tenant_workers).clone();
        // A locked worker is serving a query, and so is the one that needs a process.
        let unlocked: Vec<MutexGuard<TenantWorker>> =
            workers.values().filter_map(|worker| worker.try_lock().ok()).collect();
        let busy = workers.len() - unlocked.len();
        let mut idle: Vec<MutexGuard<TenantWorker>> =
            unlocked.into_iter().filter(|worker| worker.has_process()).collect();
        if busy + idle.len() <= self.settings.processes_max {
            return Ok(());
        }
        idle.retain(|worker| worker.process_id().is_some());
        match idle.iter_mut().min_by_key(|worker| worker.last_query_at()) {
            Some(worker) => worker.stop(),
            None => return Err(unavailable("all policy workers are busy; the call will be retried")),
        }
        Ok(())
    }
}

/// The policies of a tenant during one query.
#[derive(Debug)]
pub struct WorkerSession<'a> {
    worker: RefCell<&'a mut TenantWorker>,
    /// `None` if each message has its own deadline.
    deadline: Option<Instant>,
}

impl HookExecutor for WorkerSession<'_> {
    fn files_defining(&self, function: &str) -> Vec<String> {
        self.worker.borrow().files_defining(function)
    }

    fn call_each(&self, file: &str, function: &str, calls: &CallBatch) -> Vec<Result<PolicyValue, PolicyError>> {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let within = self.deadline.map_or(Duration::MAX, left);
        self.worker.borrow_mut().call_each(file, function, calls, within)
    }
}

fn unavailable(message: &str) -> PolicyError {
    PolicyError::WorkerFailed { message: message.to_string() }
}

/// Lock, ignoring poison: no thread leaves the data half changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
