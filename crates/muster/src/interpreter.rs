//! Adapter (Interpreter): policies in Starlark. No policy runs in this process: every bundle, the cluster's too, is compiled
//! and asked in a worker. The cluster's is asked in batches, that of a tenant job by job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_core::JobId;
use muster_core::objects::policy::{
    Admission, BundleVersion, FailureView, GpuLimit, PolicyBundle, PolicyScope, Retry,
};
use muster_core::policy::{CandidateView, ClusterView, JobView, NodeView, TenantView};
use muster_policy::hooks::{self, HookExecutor};
use muster_policy::{Confinement, WorkerCommand, Limits, WorkerPoolSettings, PolicyError, WorkerPool};
use muster_server::policies::Interpreter;
use tracing::{error, info};

/// How long a letter of calls of the cluster's bundle may take: more than its first calls together.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of the answers to a letter of a whole batch.
const BATCH_REPLY_BYTES_MAX: usize = 16 << 20;
/// Why nothing is asked on a server that was started without policies.
const DISABLED_REASON: &str = "the server was started with --without-policies and runs none";

/// Runs policies.
pub struct StarlarkInterpreter {
    /// For bundles of the cluster, by version.
    cluster_workers: WorkerPool,
    /// For those of tenants, by tenant.
    tenant_workers: WorkerPool,
    /// Nothing is asked; compiling goes on, so that better policies can be applied.
    disabled: bool,
    /// The suspensions that the log has.
    logged_suspensions: Mutex<BTreeSet<String>>,
}

impl StarlarkInterpreter {
    /// For the planner and for requests: the policies of tenants have a share of the time.
    pub fn for_live_decisions() -> StarlarkInterpreter {
        let usual = WorkerPoolSettings::default();
        let tenants = WorkerPoolSettings { time_share: usual.time_share * debug_slowdown(), ..usual };
        StarlarkInterpreter::with_settings(WorkerPoolSettings::for_cluster(), tenants)
    }

    /// For what-if, shadow and benchmarks.
    pub fn for_simulation() -> StarlarkInterpreter {
        let endless = WorkerPoolSettings::without_deadlines();
        StarlarkInterpreter::with_settings(WorkerPoolSettings { start_timeout: endless.start_timeout, ..WorkerPoolSettings::for_cluster() }, endless)
    }

    /// For a server that starts past every bundle.
    pub fn disabled() -> StarlarkInterpreter {
        StarlarkInterpreter { disabled: true, ..StarlarkInterpreter::for_live_decisions() }
    }

    /// What to say where nothing is asked.
    pub fn disabled_notice(&self) -> Option<&'static str> {
        let why = "no policy runs (--without-policies): jobs that a bundle in force is asked about wait or start as \
                   `scheduler.policy_failure` says; `muster policy rollback` or `muster policy apply` puts another into \
                   force, then restart without the flag";
        self.disabled.then_some(why)
    }

    fn with_settings(cluster: WorkerPoolSettings, tenants: WorkerPoolSettings) -> StarlarkInterpreter {
        let workers = |confinement, patience| WorkerPool::new(WorkerCommand::this_binary(), confinement, patience);
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

    /// The workers that a version is asked in, and by which name.
    fn pool_and_key(&self, version: &BundleVersion) -> (&WorkerPool, String) {
        let name = match &version.scope {
            // By its number too: a bundle that is applied again begins with a clean record.
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
        let answer = workers.query(&name, &version.bundle, |guest| question(guest));
        self.log_suspension(version, &name, workers.suspension_reason(&name));
        answer.map_err(|error| error.to_string())
    }

    /// Say once that a bundle is suspended, and once that it no longer is.
    fn log_suspension(&self, version: &BundleVersion, name: &str, suspended: Option<String>) {
        let mut logged = self.logged_suspensions.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, scope) = (version.number, &version.scope);
        match suspended {
            Some(why) if logged.insert(name.to_string()) => {
                error!(version = number, %scope, %why, "a policy bundle is suspended; `muster policy rollback` goes back");
            }
            None if logged.remove(name) => {
                info!(version = number, %scope, "a policy bundle answers again and is no longer suspended");
            }
            _ => {}
        }
    }

    /// The same about many at once. Those of a tenant are asked one by one: each question has a clock of its own, and
    /// one that takes too long spoils no other.
    fn query_each<J, T>(
        &self,
        version: &BundleVersion,
        jobs: &[J],
        question: impl Fn(&dyn HookExecutor, &[J]) -> Vec<Result<T, PolicyError>>,
    ) -> Vec<Result<T, String>> {
        let nobody = || PolicyError::WorkerFailed { message: "nobody answered".to_string() };
        let one_by_one = |job| {
            let only = |policies: &dyn HookExecutor| {
                question(policies, std::slice::from_ref(job)).pop().unwrap_or_else(|| Err(nobody()))
            };
            self.query(version, only)
        };
        let together = |policies: &dyn HookExecutor| Ok(question(policies, jobs));
        match &version.scope {
            PolicyScope::Tenant(_) => jobs.iter().map(one_by_one).collect(),
            PolicyScope::Cluster => match self.query(version, together) {
                Ok(said) => said.into_iter().map(|one| one.map_err(|error| error.to_string())).collect(),
                Err(error) => jobs.iter().map(|_| Err(error.clone())).collect(),
            },
        }
    }
}

/// A build for tests runs policies twenty times slower, on machines that do other things as well.
fn debug_slowdown() -> u32 {
    if cfg!(debug_assertions) { 40 } else { 1 }
}

/// The bounds of every call.
pub fn call_limits() -> Limits {
    let usual = Limits::default();
    Limits { call_time: usual.call_time * debug_slowdown(), load_time: usual.load_time * debug_slowdown(), ..usual }
}

fn tenant_confinement() -> Confinement {
    let (usual, limits) = (Confinement::default(), call_limits());
    Confinement {
        call_time: usual.call_time * debug_slowdown(),
        load_time: usual.load_time * debug_slowdown(),
        cpu_seconds: usual.cpu_seconds * u64::from(debug_slowdown()),
        limits,
        ..usual
    }
}

/// Those of the bundle that operators apply: a letter of calls has longer, and its answers more room.
pub fn cluster_confinement() -> Confinement {
    let (usual, slowness) = (Confinement::default(), if cfg!(debug_assertions) { 4_u32 } else { 1 });
    Confinement {
        call_time: MESSAGE_TIMEOUT * slowness.min(2),
        load_time: usual.load_time * slowness,
        cpu_seconds: usual.cpu_seconds * u64::from(slowness),
        answer_bytes: BATCH_REPLY_BYTES_MAX,
        ..tenant_confinement()
    }
}

impl Interpreter for StarlarkInterpreter {
    fn compile(
        &self,
        scope: &PolicyScope,
        files: BTreeMap<String, String>,
    ) -> Result<PolicyBundle, Vec<String>> {
        self.pool_for_scope(scope).compile(files).map_err(|error| vec![error.to_string()])
    }

    fn failing_tests(
        &self,
        scope: &PolicyScope,
        files: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, String> {
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

    fn priority(
        &self,
        version: &BundleVersion,
        jobs: &[(&JobView, &TenantView)],
    ) -> Vec<Result<Option<u32>, String>> {
        self.query_each(version, jobs, |policies, jobs| hooks::priority_each(&policies, jobs))
    }

    fn score(
        &self,
        version: &BundleVersion,
        jobs: &[&JobView],
        nodes: &[NodeView],
    ) -> Vec<Result<Vec<i64>, String>> {
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

    fn limit(
        &self,
        version: &BundleVersion,
        tenants: &[(&TenantView, &ClusterView)],
    ) -> Vec<Result<GpuLimit, String>> {
        self.query_each(version, tenants, |policies, tenants| hooks::limit_each(&policies, tenants))
    }

    fn retry(&self, version: &BundleVersion, job: &JobView, failure: &FailureView) -> Result<Retry, String> {
        self.query(version, |policies| hooks::retry(&policies, job, failure))
    }
}
