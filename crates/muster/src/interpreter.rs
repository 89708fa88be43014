//! Adapter (Interpreter): policies in Starlark. No policy runs in this process: every bundle, the cluster's too, is compiled
//! and asked in a worker. The cluster's is asked in batches, that of a tenant job by job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use muster_core::JobId;
use muster_core::policy::{
    Admission, Bundle, CandidateView, ClusterView, FailureView, GpuLimit, JobView, NodeView, Retry, Scope,
    TenantView, Version,
};
use muster_policy::hooks::{self, Caller};
use muster_policy::{Confinement, Launch, Limits, Patience, PolicyError, Workers};
use muster_server::policies::Interpreter;
use tracing::{error, info};

/// How long a letter of calls of the cluster's bundle may take: more than its first calls together.
const LETTER_TIME: Duration = Duration::from_secs(2);
/// Bytes of the answers to a letter of a whole batch.
const BATCH_BYTES: usize = 16 << 20;
/// Why nothing is asked on a server that was started without policies.
const WITHOUT: &str = "the server was started with --without-policies and runs none";

/// Runs policies.
pub struct Starlark {
    /// For bundles of the cluster, by version.
    cluster: Workers,
    /// For those of tenants, by tenant.
    tenants: Workers,
    /// Nothing is asked; compiling goes on, so that better policies can be applied.
    is_off: bool,
    /// The suspensions that the log has.
    logged: Mutex<BTreeSet<String>>,
}

impl Starlark {
    /// For the planner and for requests: the policies of tenants have a share of the time.
    pub fn hurried() -> Starlark {
        let usual = Patience::default();
        let tenants = Patience { share: usual.share * slowness(), ..usual };
        Starlark::with(Patience::of_cluster(), tenants)
    }

    /// For what-if, shadow and benchmarks.
    pub fn unhurried() -> Starlark {
        let endless = Patience::endless();
        Starlark::with(Patience { start: endless.start, ..Patience::of_cluster() }, endless)
    }

    /// For a server that starts past every bundle.
    pub fn off() -> Starlark {
        Starlark { is_off: true, ..Starlark::hurried() }
    }

    /// What to say where nothing is asked.
    pub fn is_off(&self) -> Option<&'static str> {
        let why = "no policy runs (--without-policies): jobs that a bundle in force is asked about wait or start as \
                   `scheduler.policy_failure` says; `muster policy rollback` or `muster policy apply` puts another into \
                   force, then restart without the flag";
        self.is_off.then_some(why)
    }

    fn with(cluster: Patience, tenants: Patience) -> Starlark {
        let workers = |confinement, patience| Workers::new(Launch::this_binary(), confinement, patience);
        Starlark {
            cluster: workers(cluster_confinement(), cluster),
            tenants: workers(confinement(), tenants),
            is_off: false,
            logged: Mutex::default(),
        }
    }

    fn workers_for(&self, scope: &Scope) -> &Workers {
        match scope {
            Scope::Cluster => &self.cluster,
            Scope::Tenant(_) => &self.tenants,
        }
    }

    /// The workers that a version is asked in, and by which name.
    fn workers_of(&self, version: &Version) -> (&Workers, String) {
        let name = match &version.scope {
            // By its number too: a bundle that is applied again begins with a clean record.
            Scope::Cluster => format!("{} {}", version.number, version.bundle.hash),
            Scope::Tenant(tenant) => tenant.to_string(),
        };
        (self.workers_for(&version.scope), name)
    }

    fn ask<T>(
        &self,
        version: &Version,
        question: impl FnOnce(&dyn Caller) -> Result<T, PolicyError>,
    ) -> Result<T, String> {
        if self.is_off {
            return Err(WITHOUT.to_string());
        }
        let (workers, name) = self.workers_of(version);
        let answer = workers.ask(&name, &version.bundle, |guest| question(guest));
        self.log_suspension(version, &name, workers.suspended(&name));
        answer.map_err(|error| error.to_string())
    }

    /// Say once that a bundle is suspended, and once that it no longer is.
    fn log_suspension(&self, version: &Version, name: &str, suspended: Option<String>) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn ask_each<J, T>(
        &self,
        version: &Version,
        jobs: &[J],
        question: impl Fn(&dyn Caller, &[J]) -> Vec<Result<T, PolicyError>>,
    ) -> Vec<Result<T, String>> {
        let nobody = || PolicyError::Ended { what: "nobody answered".to_string() };
        let one_by_one = |job| {
            let only = |policies: &dyn Caller| {
                question(policies, std::slice::from_ref(job)).pop().unwrap_or_else(|| Err(nobody()))
            };
            self.ask(version, only)
        };
        let together = |policies: &dyn Caller| Ok(question(policies, jobs));
        match &version.scope {
            Scope::Tenant(_) => jobs.iter().map(one_by_one).collect(),
            Scope::Cluster => match self.ask(version, together) {
                Ok(said) => said.into_iter().map(|one| one.map_err(|error| error.to_string())).collect(),
                Err(error) => jobs.iter().map(|_| Err(error.clone())).collect(),
            },
        }
    }
}

/// A build for tests runs policies twenty times slower, on machines that do other things as well.
fn slowness() -> u32 {
    if cfg!(debug_assertions) { 40 } else { 1 }
}

/// The bounds of every call.
pub fn limits() -> Limits {
    let usual = Limits::default();
    Limits { time: usual.time * slowness(), load_time: usual.load_time * slowness(), ..usual }
}

fn confinement() -> Confinement {
    let (usual, limits) = (Confinement::default(), limits());
    Confinement {
        call_time: usual.call_time * slowness(),
        load_time: usual.load_time * slowness(),
        cpu_seconds: usual.cpu_seconds * u64::from(slowness()),
        limits,
        ..usual
    }
}

/// Those of the bundle that operators apply: a letter of calls has longer, and its answers more room.
pub fn cluster_confinement() -> Confinement {
    let (usual, slowness) = (Confinement::default(), if cfg!(debug_assertions) { 4_u32 } else { 1 });
    Confinement {
        call_time: LETTER_TIME * slowness.min(2),
        load_time: usual.load_time * slowness,
        cpu_seconds: usual.cpu_seconds * u64::from(slowness),
        answer_bytes: BATCH_BYTES,
        ..confinement()
    }
}

impl Interpreter for Starlark {
    fn compile(&self, scope: &Scope, files: BTreeMap<String, String>) -> Result<Bundle, Vec<String>> {
        self.workers_for(scope).compile(files).map_err(|error| vec![error.to_string()])
    }

    fn failing_tests(&self, scope: &Scope, files: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
        self.workers_for(scope).test(files).map_err(|error| error.to_string())
    }

    fn suspended(&self, version: &Version) -> Option<String> {
        let (workers, name) = self.workers_of(version);
        if self.is_off { Some(WITHOUT.to_string()) } else { workers.suspended(&name) }
    }

    fn admission_wait(&self) -> Duration {
        if cfg!(debug_assertions) { Duration::from_secs(30) } else { Duration::from_secs(1) }
    }

    fn admit(&self, version: &Version, jobs: &[&JobView]) -> Vec<Result<Admission, String>> {
        self.ask_each(version, jobs, |policies, jobs| hooks::admit_each(&policies, jobs))
    }

    fn priority(
        &self,
        version: &Version,
        jobs: &[(&JobView, &TenantView)],
    ) -> Vec<Result<Option<u32>, String>> {
        self.ask_each(version, jobs, |policies, jobs| hooks::priority_each(&policies, jobs))
    }

    fn score(
        &self,
        version: &Version,
        jobs: &[&JobView],
        nodes: &[NodeView],
    ) -> Vec<Result<Vec<i64>, String>> {
        self.ask_each(version, jobs, |policies, jobs| hooks::score_each(&policies, jobs, nodes))
    }

    fn power(&self, version: &Version, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>> {
        self.ask_each(version, jobs, |policies, jobs| hooks::power_each(&policies, jobs))
    }

    fn victims(
        &self,
        version: &Version,
        job: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String> {
        self.ask(version, |policies| hooks::victims(&policies, job, candidates))
    }

    fn limit(
        &self,
        version: &Version,
        tenants: &[(&TenantView, &ClusterView)],
    ) -> Vec<Result<GpuLimit, String>> {
        self.ask_each(version, tenants, |policies, tenants| hooks::limit_each(&policies, tenants))
    }

    fn retry(&self, version: &Version, job: &JobView, failure: &FailureView) -> Result<Retry, String> {
        self.ask(version, |policies| hooks::retry(&policies, job, failure))
    }
}
