//! Adapter (Interpreter): policies in Starlark. Those of the cluster run in this process: operators vouch for them, and
//! every call is bounded all the same. Those of tenants are compiled and run in processes of their own, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::JobId;
use muster_core::policy::{
    Admission, Bundle, CandidateView, FailureView, JobView, NodeView, Retry, Scope, TenantView, Version,
};
use muster_policy::hooks::{self, Caller};
use muster_policy::{Confinement, Launch, Limits, Patience, PolicyError, Program, Workers, compile};
use muster_server::policies::Interpreter;

/// Programs that are kept compiled: those in force, and a few that were.
const PROGRAMS_KEPT: usize = 8;

/// Runs policies.
pub struct Starlark {
    /// By the hash of their bundle, the newest last.
    programs: Mutex<Vec<(String, Arc<Program>)>>,
    /// For those of tenants.
    workers: Workers,
}

impl Starlark {
    /// For those whom others wait for: the policies of tenants have a share of the time.
    pub fn hurried() -> Starlark {
        let usual = Patience::default();
        Starlark::with(Patience { share: usual.share * slowness(), ..usual })
    }

    /// For those whom nobody waits for.
    pub fn unhurried() -> Starlark {
        Starlark::with(Patience::endless())
    }

    fn with(patience: Patience) -> Starlark {
        let workers = Workers::new(Launch::this_binary(), confinement(), patience);
        Starlark { programs: Mutex::default(), workers }
    }

    /// The program of a bundle, compiled once. A server that starts anew compiles what is in force again.
    fn program(&self, bundle: &Bundle) -> Result<Arc<Program>, PolicyError> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, program)) = programs.iter().find(|(hash, _)| *hash == bundle.hash) {
            return Ok(program.clone());
        }
        let program = Arc::new(Program::of_files(&bundle.files, limits())?);
        if programs.len() >= PROGRAMS_KEPT {
            programs.remove(0);
        }
        programs.push((bundle.hash.clone(), program.clone()));
        Ok(program)
    }

    fn ask<T>(
        &self,
        version: &Version,
        question: impl FnOnce(&dyn Caller) -> Result<T, PolicyError>,
    ) -> Result<T, String> {
        let bundle = &version.bundle;
        let answer = match &version.scope {
            Scope::Cluster => self.program(bundle).and_then(|program| question(&*program)),
            Scope::Tenant(tenant) => self.workers.ask(tenant.as_str(), bundle, |guest| question(guest)),
        };
        answer.map_err(|error| error.to_string())
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

impl Interpreter for Starlark {
    fn compile(&self, scope: &Scope, files: BTreeMap<String, String>) -> Result<Bundle, Vec<String>> {
        let compiled = match scope {
            Scope::Cluster => compile(files, limits()).map(|(bundle, _)| bundle),
            Scope::Tenant(_) => self.workers.compile(files),
        };
        compiled.map_err(|error| vec![error.to_string()])
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

    fn retry(&self, version: &Version, job: &JobView, failure: &FailureView) -> Result<Retry, String> {
        self.ask(version, |policies| hooks::retry(&policies, job, failure))
    }
}
