//! Adapter (Interpreter): policies in Starlark, run in this process. Operators vouch for them; every call is bounded all
//! the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::JobId;
use muster_core::policy::{
    Admission, Bundle, CandidateView, FailureView, JobView, NodeView, Retry, TenantView,
};
use muster_policy::{Limits, PolicyError, Program, compile, hooks};
use muster_server::policies::Interpreter;

/// Programs that are kept compiled: those in force, and a few that were.
const PROGRAMS_KEPT: usize = 8;

/// Runs policies in this process.
#[derive(Default)]
pub struct Starlark {
    /// By the hash of their bundle, the newest last.
    programs: Mutex<Vec<(String, Arc<Program>)>>,
}

impl Starlark {
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
        bundle: &Bundle,
        question: impl FnOnce(&Program) -> Result<T, PolicyError>,
    ) -> Result<T, String> {
        let program = self.program(bundle);
        program.and_then(|program| question(&program)).map_err(|error| error.to_string())
    }
}

/// A build for tests runs policies twenty times slower, on machines that do other things as well.
fn limits() -> Limits {
    let usual = Limits::default();
    match cfg!(debug_assertions) {
        true => Limits { time: usual.time * 40, load_time: usual.load_time * 10, ..usual },
        false => usual,
    }
}

impl Interpreter for Starlark {
    fn compile(&self, files: BTreeMap<String, String>) -> Result<Bundle, Vec<String>> {
        let compiled = compile(files, limits());
        compiled.map(|(bundle, _)| bundle).map_err(|error| vec![error.to_string()])
    }

    fn admit(&self, bundle: &Bundle, job: &JobView) -> Result<Admission, String> {
        self.ask(bundle, |program| hooks::admit(program, job))
    }

    fn priority(&self, bundle: &Bundle, job: &JobView, tenant: &TenantView) -> Result<Option<u32>, String> {
        self.ask(bundle, |program| hooks::priority(program, job, tenant))
    }

    fn score(&self, bundle: &Bundle, job: &JobView, nodes: &[NodeView]) -> Result<Vec<i64>, String> {
        self.ask(bundle, |program| hooks::score(program, job, nodes))
    }

    fn victims(
        &self,
        bundle: &Bundle,
        job: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String> {
        self.ask(bundle, |program| hooks::victims(program, job, candidates))
    }

    fn retry(&self, bundle: &Bundle, job: &JobView, failure: &FailureView) -> Result<Retry, String> {
        self.ask(bundle, |program| hooks::retry(program, job, failure))
    }

    fn power(&self, bundle: &Bundle, job: &JobView) -> Result<Option<u64>, String> {
        self.ask(bundle, |program| hooks::power(program, job))
    }
}
