//! Adapter (Interpreter): policies in Starlark. No policy runs in this process: every bundle is compiled and queried in
//! a worker process. The bundle of the cluster is queried in batches, the bundle of a tenant job by job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_core::JobId;
use muster_core::objects::policy::{Admission, BundleVersion, FailureView, GpuLimit, PolicyBundle, PolicyScope, Retry};
use muster_core::policy::{CandidateView, ClusterView, JobView, NodeView, TenantView};
use muster_policy::hooks::{self, HookExecutor};
use muster_policy::{Confinement, Limits, PolicyError, WorkerCommand, WorkerPool, WorkerPoolSettings};
use muster_server::policies::Interpreter;
use tracing::{error, info};

/// Timeout of a batch of calls to the cluster bundle: more than its first calls take together.
const BATCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of the answers to one batch.
const BATCH_REPLY_BYTES_MAX: usize = 16 << 20;
const DISABLED_REASON: &str = "policies are disabled: the server was started with --without-policies";

/// Compiles and queries policy bundles in worker processes.
pub struct StarlarkInterpreter {
    /// Workers of cluster bundles, by version.
    cluster_workers: WorkerPool,
    /// Workers of tenant bundles, by tenant.
    tenant_workers: WorkerPool,
    /// No bundle is queried; bundles still compile, so that corrected policies can be applied.
    disabled: bool,
    /// Suspensions that have been logged, by worker name.
    logged_suspensions: Mutex<BTreeSet<String>>,
}

impl StarlarkInterpreter {
    /// For the planner and for requests: tenant bundles have a limited share of the time.
    pub fn for_live_decisions() -> StarlarkInterpreter {
        let defaults = WorkerPoolSettings::default();
        let tenants = WorkerPoolSettings { time_share: defaults.time_share * debug_slowdown(), ..defaults };
        StarlarkInterpreter::with_settings(WorkerPoolSettings::for_cluster(), tenants)
    }

    /// For what-if, shadow evaluation and benchmarks: no deadlines.
    pub fn for_simulation() -> StarlarkInterpreter {
        let no_deadlines = WorkerPoolSettings::without_deadlines();
        StarlarkInterpreter::with_settings(
            WorkerPoolSettings { start_timeout: no_deadlines.start_timeout, ..WorkerPoolSettings::for_cluster() },
            no_deadlines,
        )
    }

    /// For a server started with `--without-policies`.
    pub fn disabled() -> StarlarkInterpreter {
        StarlarkInterpreter { disabled: true, ..StarlarkInterpreter::for_live_decisions() }
    }

    /// The warning to print if policies are disabled.
    pub fn disabled_notice(&self) -> Option<&'static str> {
        let notice = "policies are disabled (--without-policies): jobs of an active bundle wait or start according to \
                      `scheduler.policy_failure`; run `muster policy rollback` or `muster policy apply`, then restart \
                      without the flag";
        self.disabled.then_some(notice)
    }

    fn with_settings(cluster: WorkerPoolSettings, tenants: WorkerPoolSettings) -> StarlarkInterpreter {
        let workers = |confinement, settings| WorkerPool::new(WorkerCommand::this_binary(), confinement, settings);
        StarlarkInterpreter {
            cluster_workers: workers(cluster_confinement(), cluster),
            tenant_workers: workers(tenant_confinement(), tenants),
            disabled: false,
            logged_suspensions: Mutex::default(),
        }
    }

    fn pool_for_scope(&self, scope: &PolicyScope) -> &WorkerPool {
        match scope {
            PolicyScope::Cluster => &self.cluster_workers,
            PolicyScope::Tenant(_) => &self.tenant_workers,
        }
    }

    /// The worker pool of a version, and the name of its worker.
    fn pool_and_key(&self, version: &BundleVersion) -> (&WorkerPool, String) {
        let name = match &version.scope {
            // With the number, so that a bundle that is applied again starts without its earlier failures.
            PolicyScope::Cluster => format!("{} {}", version.number, version.bundle.hash),
            PolicyScope::Tenant(tenant) => tenant.to_string(),
        };
        (self.pool_for_scope(&version.scope), name)
    }

    fn query<T>(
        &self,
        version: &BundleVersion,
        question: impl FnOnce(&dyn HookExecutor) -> Result<T, PolicyError>,
    ) -> Result<T, String> {
        if self.disabled {
            return Err(DISABLED_REASON.to_string());
        }
        let (workers, name) = self.pool_and_key(version);
        let answer = workers.query(&name, &version.bundle, |worker| question(worker));
        self.log_suspension(version, &name, workers.suspension_reason(&name));
        answer.map_err(|error| error.to_string())
    }

    /// Logs once that a bundle is suspended, and once that it is no longer suspended.
    fn log_suspension(&self, version: &BundleVersion, name: &str, suspended: Option<String>) {
        let mut logged = self.logged_suspensions.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, scope) = (version.number, &version.scope);
        match suspended {
            Some(why) if logged.insert(name.to_string()) => {
                error!(version = number, %scope, %why, "policy bundle suspended; consider `muster policy rollback`");
            }
            None if logged.remove(name) => {
                info!(version = number, %scope, "policy bundle answers again and is no longer suspended");
            }
            _ => {}
        }
    }

    /// Queries many jobs. A tenant bundle is queried job by job, each with its own deadline, so that one slow call does
    /// not fail the others.
    fn query_each<J, T>(
        &self,
        version: &BundleVersion,
        jobs: &[J],
        question: impl Fn(&dyn HookExecutor, &[J]) -> Vec<Result<T, PolicyError>>,
    ) -> Vec<Result<T, String>> {
        let no_answer = || PolicyError::WorkerFailed { message: "the worker sent no answer".to_string() };
        let query_one = |job| {
            let single = |policies: &dyn HookExecutor| {
                question(policies, std::slice::from_ref(job)).pop().unwrap_or_else(|| Err(no_answer()))
            };
            self.query(version, single)
        };
        let batch = |policies: &dyn HookExecutor| Ok(question(policies, jobs));
        match &version.scope {
            PolicyScope::Tenant(_) => jobs.iter().map(query_one).collect(),
            PolicyScope::Cluster => match self.query(version, batch) {
                Ok(answers) => answers.into_iter().map(|one| one.map_err(|error| error.to_string())).collect(),
                Err(error) => jobs.iter().map(|_| Err(error.clone())).collect(),
            },
        }
    }
}

/// Debug builds run policies about twenty times slower, on machines that are busy with other tests.
fn debug_slowdown() -> u32 {
    if cfg!(debug_assertions) { 40 } else { 1 }
}

/// The limits of every call.
pub fn call_limits() -> Limits {
    let defaults = Limits::default();
    Limits {
        call_time: defaults.call_time * debug_slowdown(),
        load_time: defaults.load_time * debug_slowdown(),
        ..defaults
    }
}

fn tenant_confinement() -> Confinement {
    let (defaults, limits) = (Confinement::default(), call_limits());
    Confinement {
        call_time: defaults.call_time * debug_slowdown(),
        load_time: defaults.load_time * debug_slowdown(),
        cpu_seconds: defaults.cpu_seconds * u64::from(debug_slowdown()),
        limits,
        ..defaults
    }
}

/// The limits of the cluster bundle, which operators apply: more time per batch, and larger answers.
pub fn cluster_confinement() -> Confinement {
    let (defaults, slowdown) = (Confinement::default(), if cfg!(debug_assertions) { 4_u32 } else { 1 });
    Confinement {
        call_time: BATCH_TIMEOUT * slowdown.min(2),
        load_time: defaults.load_time * slowdown,
        cpu_seconds: defaults.cpu_seconds * u64::from(slowdown),
        answer_bytes: BATCH_REPLY_BYTES_MAX,
        ..tenant_confinement()
    }
}

impl Interpreter for StarlarkInterpreter {
    fn compile(&self, scope: &PolicyScope, files: BTreeMap<String, String>) -> Result<PolicyBundle, Vec<String>> {
        self.pool_for_scope(scope).compile(files).map_err(|error| vec![error.to_string()])
    }

    fn failing_tests(&self, scope: &PolicyScope, files: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
        self.pool_for_scope(scope).run_tests(files).map_err(|error| error.to_string())
    }

    fn suspension_reason(&self, version: &BundleVersion) -> Option<String> {
        let (workers, name) = self.pool_and_key(version);
        if self.disabled { Some(DISABLED_REASON.to_string()) } else { workers.suspension_reason(&name) }
    }

    fn admission_timeout(&self) -> Duration {
        if cfg!(debug_assertions) { Duration::from_secs(30) } else { Duration::from_secs(1) }
    }

    fn admit(&self, version: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Admission, String>> {
        self.query_each(version, jobs, |policies, jobs| hooks::admit_each(&policies, jobs))
    }

    fn priority(&self, version: &BundleVersion, jobs: &[(&JobView, &TenantView)]) -> Vec<Result<Option<u32>, String>> {
        self.query_each(version, jobs, |policies, jobs| hooks::priority_each(&policies, jobs))
    }

    fn score(&self, version: &BundleVersion, jobs: &[&JobView], nodes: &[NodeView]) -> Vec<Result<Vec<i64>, String>> {
        self.query_each(version, jobs, |policies, jobs| hooks::score_each(&policies, jobs, nodes))
    }

    fn power(&self, version: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>> {
        self.query_each(version, jobs, |policies, jobs| hooks::power_each(&policies, jobs))
    }

    fn victims(
        &self,
        version: &BundleVersion,
        job: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String> {
        self.query(version, |policies| hooks::victims(&policies, job, candidates))
    }

    fn limit(&self, version: &BundleVersion, tenants: &[(&TenantView, &ClusterView)]) -> Vec<Result<GpuLimit, String>> {
        self.query_each(version, tenants, |policies, tenants| hooks::limit_each(&policies, tenants))
    }

    fn retry(&self, version: &BundleVersion, job: &JobView, failure: &FailureView) -> Result<Retry, String> {
        self.query(version, |policies| hooks::retry(&policies, job, failure))
    }
}
