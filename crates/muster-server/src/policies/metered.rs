//! Adapter (Interpreter): another interpreter, whose answers are counted for the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_core::JobId;
use muster_core::objects::policy::{
    Admission, BundleVersion, FailureView, GpuLimit, Hook, PolicyBundle, PolicyScope, Retry,
};
use muster_core::policy::{CandidateView, ClusterView, JobView, NodeView, TenantView};

use super::Interpreter;

/// What policies were asked since the start.
#[derive(Default)]
pub struct PolicyCallMetrics(Mutex<BTreeMap<Hook, PolicyCallTotals>>);

/// Sums over the questions to one hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyCallTotals {
    /// How often a bundle was asked; about several nodes or victims at once counts once.
    pub calls: u64,
    /// How often it failed.
    pub failures: u64,
    /// Time it took to answer.
    pub duration: Duration,
}

impl PolicyCallMetrics {
    /// The sums so far, of hooks that were asked.
    pub fn totals(&self) -> BTreeMap<Hook, PolicyCallTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, hook: Hook, (asked, failed): (usize, usize), took: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = all.entry(hook).or_default();
        heard.calls += asked as u64;
        heard.failures += failed as u64;
        heard.duration += took;
    }
}

/// Asks another, and counts.
pub struct MeteredInterpreter {
    inner: Arc<dyn Interpreter>,
    metrics: Arc<PolicyCallMetrics>,
}

impl MeteredInterpreter {
    /// Count what this one is asked.
    pub fn new(inner: Arc<dyn Interpreter>, questions: Arc<PolicyCallMetrics>) -> MeteredInterpreter {
        MeteredInterpreter { inner, metrics: questions }
    }

    fn call<T>(&self, hook: Hook, question: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let began = Instant::now();
        let said = question();
        self.metrics.record(hook, (1, usize::from(said.is_err())), began.elapsed());
        said
    }

    fn call_batch<T>(
        &self,
        hook: Hook,
        question: impl FnOnce() -> Vec<Result<T, String>>,
    ) -> Vec<Result<T, String>> {
        let began = Instant::now();
        let said = question();
        let failed = said.iter().filter(|said| said.is_err()).count();
        self.metrics.record(hook, (said.len(), failed), began.elapsed());
        said
    }
}

impl Interpreter for MeteredInterpreter {
    fn compile(
        &self,
        scope: &PolicyScope,
        files: BTreeMap<String, String>,
    ) -> Result<PolicyBundle, Vec<String>> {
        self.inner.compile(scope, files)
    }

    fn failing_tests(
        &self,
        scope: &PolicyScope,
        files: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, String> {
        self.inner.failing_tests(scope, files)
    }

    fn suspension_reason(&self, version: &BundleVersion) -> Option<String> {
        self.inner.suspension_reason(version)
    }

    fn admission_timeout(&self) -> Duration {
        self.inner.admission_timeout()
    }

    fn admit(&self, version: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Admission, String>> {
        self.call_batch(Hook::Admit, || self.inner.admit(version, jobs))
    }

    fn priority(
        &self,
        version: &BundleVersion,
        jobs: &[(&JobView, &TenantView)],
    ) -> Vec<Result<Option<u32>, String>> {
        self.call_batch(Hook::Priority, || self.inner.priority(version, jobs))
    }

    fn score(
        &self,
        version: &BundleVersion,
        jobs: &[&JobView],
        nodes: &[NodeView],
    ) -> Vec<Result<Vec<i64>, String>> {
        self.call_batch(Hook::Score, || self.inner.score(version, jobs, nodes))
    }

    fn power(&self, version: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>> {
        self.call_batch(Hook::Power, || self.inner.power(version, jobs))
    }

    fn victims(
        &self,
        version: &BundleVersion,
        job: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String> {
        self.call(Hook::Victims, || self.inner.victims(version, job, candidates))
    }

    fn limit(
        &self,
        version: &BundleVersion,
        tenants: &[(&TenantView, &ClusterView)],
    ) -> Vec<Result<GpuLimit, String>> {
        self.call_batch(Hook::Limit, || self.inner.limit(version, tenants))
    }

    fn retry(&self, version: &BundleVersion, job: &JobView, failure: &FailureView) -> Result<Retry, String> {
        self.call(Hook::Retry, || self.inner.retry(version, job, failure))
    }
}
