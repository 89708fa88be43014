//! A slow policy delays a submission at most for the admission timeout of the interpreter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_core::JobId;
use muster_core::objects::policy::{
    Admission, BundleVersion, FailureView, GpuLimit, Hook, PolicyBundle, PolicyScope, Retry,
};
use muster_core::policy::{CandidateView, ClusterView, JobView, NodeView, TenantView};
use muster_server::policies::Interpreter;
use serde_json::json;

use crate::test_server::TestServer;

/// Refuses every job after a delay.
struct DelayedRefusal {
    delay: Duration,
}

impl Interpreter for DelayedRefusal {
    fn compile(&self, _: &PolicyScope, files: BTreeMap<String, String>) -> Result<PolicyBundle, Vec<String>> {
        let hash = "0".repeat(64);
        Ok(PolicyBundle { hash, files, hooks: BTreeSet::from([Hook::Admit]), ..PolicyBundle::default() })
    }

    fn admission_timeout(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn admit(&self, _: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Admission, String>> {
        std::thread::sleep(self.delay);
        vec![Ok(Admission::Refuse { why: "closed".to_string() }); jobs.len()]
    }

    fn priority(&self, _: &BundleVersion, jobs: &[(&JobView, &TenantView)]) -> Vec<Result<Option<u32>, String>> {
        vec![Ok(None); jobs.len()]
    }

    fn score(&self, _: &BundleVersion, jobs: &[&JobView], nodes: &[NodeView]) -> Vec<Result<Vec<i64>, String>> {
        vec![Ok(vec![0; nodes.len()]); jobs.len()]
    }

    fn power(&self, _: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>> {
        vec![Ok(None); jobs.len()]
    }

    fn victims(&self, _: &BundleVersion, _: &JobView, _: &[CandidateView]) -> Result<BTreeSet<JobId>, String> {
        Ok(BTreeSet::new())
    }

    fn limit(&self, _: &BundleVersion, tenants: &[(&TenantView, &ClusterView)]) -> Vec<Result<GpuLimit, String>> {
        vec![Ok(GpuLimit::default()); tenants.len()]
    }

    fn retry(&self, _: &BundleVersion, _: &JobView, _: &FailureView) -> Result<Retry, String> {
        Ok(Retry::ByRestartRule)
    }
}

fn server_with_delayed_policy(delay: Duration) -> TestServer {
    let server = TestServer::with_policies(Arc::new(DelayedRefusal { delay }));
    let reply = server.client().post("/api/v1/policies", &json!({"files": {"a.gsky": ""}}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    server
}

fn job_body() -> serde_json::Value {
    json!({"name": "a", "command": ["a"], "gpu_count": 1})
}

#[test]
fn a_fast_admit_policy_refuses_at_submission() {
    let server = server_with_delayed_policy(Duration::ZERO);
    let reply = server.client().post("/api/v1/jobs", &job_body());
    assert_eq!(reply.status, 403, "{}", reply.text);
    assert!(reply.text.contains("closed"), "{}", reply.text);
}

#[test]
fn a_slow_admit_policy_delays_no_submission_and_is_called_again_before_the_start() {
    let server = server_with_delayed_policy(Duration::from_secs(2));
    // More than may wait for policies at the same time: if the submissions waited for the answer, all would be refused.
    let jobs: Vec<String> = std::thread::scope(|scope| {
        let submissions: Vec<_> = (0..24).map(|_| scope.spawn(|| server.submit(job_body()))).collect();
        submissions.into_iter().map(|one| one.join().unwrap()).collect()
    });
    server.wait_until("the policy's answer", |server| {
        server.client().get(&format!("/api/v1/jobs/{}/why", jobs[0])).text.contains("closed")
    });
    for job in jobs {
        assert_eq!(server.get(&format!("/api/v1/jobs/{job}"))["state"], "pending");
    }
}
