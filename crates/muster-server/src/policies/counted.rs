//! Adapter (Interpreter): another interpreter, whose answers are counted for the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_core::JobId;
use muster_core::policy::{
    Admission, Bundle, CandidateView, ClusterView, FailureView, GpuLimit, Hook, JobView, NodeView, Retry,
    Scope, TenantView, Version,
};

use super::Interpreter;

/// What policies were asked since the start.
#[derive(Default)]
pub struct Questions(Mutex<BTreeMap<Hook, Heard>>);

/// Sums over the questions to one hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heard {
    /// How often a bundle was asked; about several nodes or victims at once counts once.
    pub asked: u64,
    /// How often it failed.
    pub failed: u64,
    /// Time it took to answer.
    pub took: Duration,
}

impl Questions {
    /// The sums so far, of hooks that were asked.
    pub fn tally(&self) -> BTreeMap<Hook, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, hook: Hook, (asked, failed): (usize, usize), took: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = all.entry(hook).or_default();
        heard.asked += asked as u64;
        heard.failed += failed as u64;
        heard.took += took;
    }
}

/// Asks another, and counts.
pub struct Counted {
    inner: Arc<dyn Interpreter>,
    questions: Arc<Questions>,
}

impl Counted {
    /// Count what this one is asked.
    pub fn new(inner: Arc<dyn Interpreter>, questions: Arc<Questions>) -> Counted {
        Counted { inner, questions }
    }

    fn ask<T>(&self, hook: Hook, question: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let began = Instant::now();
        let said = question();
        self.questions.note(hook, (1, usize::from(said.is_err())), began.elapsed());
        said
    }

    fn ask_each<T>(
        &self,
        hook: Hook,
        question: impl FnOnce() -> Vec<Result<T, String>>,
    ) -> Vec<Result<T, String>> {
        let began = Instant::now();
        let said = question();
        let failed = said.iter().filter(|said| said.is_err()).count();
        self.questions.note(hook, (said.len(), failed), began.elapsed());
        said
    }
}

impl Interpreter for Counted {
    fn compile(&self, scope: &Scope, files: BTreeMap<String, String>) -> Result<Bundle, Vec<String>> {
        self.inner.compile(scope, files)
    }

    fn failing_tests(&self, scope: &Scope, files: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
        self.inner.failing_tests(scope, files)
    }

    fn suspended(&self, version: &Version) -> Option<String> {
        self.inner.suspended(version)
    }

    fn admission_wait(&self) -> Duration {
        self.inner.admission_wait()
    }

    fn admit(&self, version: &Version, jobs: &[&JobView]) -> Vec<Result<Admission, String>> {
        self.ask_each(Hook::Admit, || self.inner.admit(version, jobs))
    }

    fn priority(
        &self,
        version: &Version,
        jobs: &[(&JobView, &TenantView)],
    ) -> Vec<Result<Option<u32>, String>> {
        self.ask_each(Hook::Priority, || self.inner.priority(version, jobs))
    }

    fn score(
        &self,
        version: &Version,
        jobs: &[&JobView],
        nodes: &[NodeView],
    ) -> Vec<Result<Vec<i64>, String>> {
        self.ask_each(Hook::Score, || self.inner.score(version, jobs, nodes))
    }

    fn power(&self, version: &Version, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>> {
        self.ask_each(Hook::Power, || self.inner.power(version, jobs))
    }

    fn victims(
        &self,
        version: &Version,
        job: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String> {
        self.ask(Hook::Victims, || self.inner.victims(version, job, candidates))
    }

    fn limit(
        &self,
        version: &Version,
        tenants: &[(&TenantView, &ClusterView)],
    ) -> Vec<Result<GpuLimit, String>> {
        self.ask_each(Hook::Limit, || self.inner.limit(version, tenants))
    }

    fn retry(&self, version: &Version, job: &JobView, failure: &FailureView) -> Result<Retry, String> {
        self.ask(Hook::Retry, || self.inner.retry(version, job, failure))
    }
}
