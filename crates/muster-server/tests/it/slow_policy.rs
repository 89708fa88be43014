//! A policy that takes its time delays no submission for longer than the interpreter allows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_core::JobId;
use muster_core::policy::{
    Admission, Bundle, CandidateView, ClusterView, FailureView, GpuLimit, Hook, JobView, NodeView, Retry,
    Scope, TenantView, Version,
};
use muster_server::policies::Interpreter;
use serde_json::json;

use crate::house::House;

/// Refuses every job, after a while.
struct Refusing {
    after: Duration,
}

impl Interpreter for Refusing {
    fn compile(&self, _: &Scope, files: BTreeMap<String, String>) -> Result<Bundle, Vec<String>> {
        let hash = "0".repeat(64);
        Ok(Bundle { hash, files, hooks: BTreeSet::from([Hook::Admit]), ..Bundle::default() })
    }

    fn admission_wait(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn admit(&self, _: &Version, jobs: &[&JobView]) -> Vec<Result<Admission, String>> {
        std::thread::sleep(self.after);
        vec![Ok(Admission::Refuse { why: "closed".to_string() }); jobs.len()]
    }

    fn priority(&self, _: &Version, jobs: &[(&JobView, &TenantView)]) -> Vec<Result<Option<u32>, String>> {
        vec![Ok(None); jobs.len()]
    }

    fn score(&self, _: &Version, jobs: &[&JobView], nodes: &[NodeView]) -> Vec<Result<Vec<i64>, String>> {
        vec![Ok(vec![0; nodes.len()]); jobs.len()]
    }

    fn power(&self, _: &Version, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>> {
        vec![Ok(None); jobs.len()]
    }

    fn victims(&self, _: &Version, _: &JobView, _: &[CandidateView]) -> Result<BTreeSet<JobId>, String> {
        Ok(BTreeSet::new())
    }

    fn limit(&self, _: &Version, tenants: &[(&TenantView, &ClusterView)]) -> Vec<Result<GpuLimit, String>> {
        vec![Ok(GpuLimit::default()); tenants.len()]
    }

    fn retry(&self, _: &Version, _: &JobView, _: &FailureView) -> Result<Retry, String> {
        Ok(Retry::AsAsked)
    }
}

fn house(after: Duration) -> House {
    let house = House::with_policies(Arc::new(Refusing { after }));
    let reply = house.client().post("/api/v1/policies", &json!({"files": {"a.gsky": ""}}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    house
}

fn job() -> serde_json::Value {
    json!({"name": "a", "command": ["a"], "gpu_count": 1})
}

#[test]
fn a_quick_policy_refuses_at_submission() {
    let house = house(Duration::ZERO);
    let reply = house.client().post("/api/v1/jobs", &job());
    assert_eq!(reply.status, 403, "{}", reply.text);
    assert!(reply.text.contains("closed"), "{}", reply.text);
}

#[test]
fn a_slow_policy_holds_up_no_submission_and_is_heard_before_the_start() {
    let house = house(Duration::from_secs(2));
    // More than may wait for policies at the same time: had they waited for the answer, each would be refused.
    let jobs: Vec<String> = std::thread::scope(|scope| {
        let submissions: Vec<_> = (0..24).map(|_| scope.spawn(|| house.submit(job()))).collect();
        submissions.into_iter().map(|one| one.join().unwrap()).collect()
    });
    house.until("the policy's answer", |house| {
        house.client().get(&format!("/api/v1/jobs/{}/why", jobs[0])).text.contains("closed")
    });
    for job in jobs {
        assert_eq!(house.get(&format!("/api/v1/jobs/{job}"))["state"], "pending");
    }
}
