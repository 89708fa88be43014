//! Adapter (Interpreter): wraps another interpreter and counts its calls for the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_core::JobId;
use muster_core::objects::policy::{
    Admission, BundleVersion, FailureView, GpuLimit, Hook, PolicyBundle, PolicyScope, Retry,
};
use muster_core::policy::{CandidateView, ClusterView, JobView, NodeView, TenantView};

use super::Interpreter;

/// Policy calls since the start, by hook.
#[derive(Default)]
pub struct PolicyCallMetrics(Mutex<BTreeMap<Hook, PolicyCallTotals>>);

/// Sums over the calls of one hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyCallTotals {
    /// Answers requested of bundles; several nodes or victims of one job count once.
    pub calls: u64,
    pub failures: u64,
    pub duration: Duration,
}

impl PolicyCallMetrics {
    /// The sums so far of all hooks that were called.
    pub fn totals(&self) -> BTreeMap<Hook, PolicyCallTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, hook: Hook, (calls, failures): (usize, usize), duration: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = all.entry(hook).or_default();
        totals.calls += calls as u64;
        totals.failures += failures as u64;
        totals.duration += duration;
    }
}

/// An interpreter that counts the calls of another.
pub struct MeteredInterpreter {
    inner: Arc<dyn Interpreter>,
    metrics: Arc<PolicyCallMetrics>,
}

impl MeteredInterpreter {
    pub fn new(inner: Arc<dyn Interpreter>, metrics: Arc<PolicyCallMetrics>) -> MeteredInterpreter {
        MeteredInterpreter { inner, metrics }
    }

    fn call<T>(&self, hook: Hook, call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let began = Instant::now();
        let answer = call();
        self.metrics.record(hook, (1, usize::from(answer.is_err())), began.elapsed());
        answer
    }

    fn call_batch<T>(&self, hook: Hook, call: impl FnOnce() -> Vec<Result<T, String>>) -> Vec<Result<T, String>> {
        let began = Instant::now();
        let answers = call();
        let failures = answers.iter().filter(|answer| answer.is_err()).count();
        self.metrics.record(hook, (answers.len(), failures), began.elapsed());
        answers
    }
}

impl Interpreter for MeteredInterpreter {
    fn compile(&self, scope: &PolicyScope, files: BTreeMap<String, String>) -> Result<PolicyBundle, Vec<String>> {
        self.inner.compile(scope, files)
    }

    fn failing_tests(&self, scope: &PolicyScope, files: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
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

    fn priority(&self, version: &BundleVersion, jobs: &[(&JobView, &TenantView)]) -> Vec<Result<Option<u32>, String>> {
        self.call_batch(Hook::Priority, || self.inner.priority(version, jobs))
    }

    fn score(&self, version: &BundleVersion, jobs: &[&JobView], nodes: &[NodeView]) -> Vec<Result<Vec<i64>, String>> {
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

    fn limit(&self, version: &BundleVersion, tenants: &[(&TenantView, &ClusterView)]) -> Vec<Result<GpuLimit, String>> {
        self.call_batch(Hook::Limit, || self.inner.limit(version, tenants))
    }

    fn retry(&self, version: &BundleVersion, job: &JobView, failure: &FailureView) -> Result<Retry, String> {
        self.call(Hook::Retry, || self.inner.retry(version, job, failure))
    }
}
