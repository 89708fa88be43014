//! Policy queries: the cluster's policies first, then those of the tenant; limits and failures of hooks.

use std::sync::Mutex;

use muster_core::objects::tenant::TenantConfig;
use muster_core::{Actor, Event};
use muster_testing::{job, submission};

use super::*;

/// Answers by the hash of the bundle.
#[derive(Default)]
struct ScriptedInterpreter {
    priorities: BTreeMap<String, u32>,
    /// Limits in thousandths of GPUs.
    limits: Mutex<BTreeMap<String, Result<u64, String>>>,
    /// `HASH TENANT` for each tenant in a call of `limit`.
    queried_tenants: Mutex<Vec<String>>,
}

impl Interpreter for ScriptedInterpreter {
    fn compile(&self, _: &PolicyScope, _: BTreeMap<String, String>) -> Result<PolicyBundle, Vec<String>> {
        Err(Vec::new())
    }

    fn admit(&self, version: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Admission, String>> {
        jobs.iter().map(|_| Ok(Admission::Refuse { why: version.bundle.hash.clone() })).collect()
    }

    fn priority(&self, version: &BundleVersion, jobs: &[(&JobView, &TenantView)]) -> Vec<Result<Option<u32>, String>> {
        vec![Ok(self.priorities.get(&version.bundle.hash).copied()); jobs.len()]
    }

    fn score(&self, _: &BundleVersion, jobs: &[&JobView], nodes: &[NodeView]) -> Vec<Result<Vec<i64>, String>> {
        vec![Ok(vec![0; nodes.len()]); jobs.len()]
    }

    fn power(&self, _: &BundleVersion, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>> {
        vec![Ok(None); jobs.len()]
    }

    fn victims(&self, _: &BundleVersion, _: &JobView, candidates: &[CandidateView]) -> Result<BTreeSet<JobId>, String> {
        Ok(candidates.iter().map(|one| one.id).collect())
    }

    fn limit(&self, version: &BundleVersion, tenants: &[(&TenantView, &ClusterView)]) -> Vec<Result<GpuLimit, String>> {
        let hash = &version.bundle.hash;
        let queried = tenants.iter().map(|(tenant, _)| format!("{hash} {}", tenant.id));
        self.queried_tenants.lock().unwrap().extend(queried);
        let limits = self.limits.lock().unwrap();
        let limit = limits.get(hash).cloned().transpose();
        let limit = limit.map(|gpu_milli| GpuLimit { gpu_milli, ..GpuLimit::default() });
        vec![limit; tenants.len()]
    }

    fn retry(&self, _: &BundleVersion, _: &JobView, _: &FailureView) -> Result<Retry, String> {
        Ok(Retry::ByRestartRule)
    }
}

fn execute(state: &mut State, command: &Command) -> Vec<Event> {
    let by = Actor::local("ann");
    let events = state.decide(&by, command, Timestamp(0)).unwrap().events;
    events.iter().for_each(|event| state.apply(event));
    events
}

fn apply_policy(state: &mut State, scope: PolicyScope, hash: &str, hooks: &[Hook]) {
    let bundle = PolicyBundle {
        hash: hash.to_string(),
        files: [("a.gsky".to_string(), String::new())].into(),
        hooks: hooks.iter().copied().collect(),
        ..PolicyBundle::default()
    };
    execute(state, &Command::ApplyPolicy { scope, bundle: Arc::new(bundle), why: String::new() });
}

fn spec(tenant: &str) -> JobSpec {
    job().tenant(tenant).user("ann").priority(500).gpus(0).memory_mib(1).label("team", "x").build()
}

/// Two tenants, and policies of the cluster and of one of them.
fn state(hooks: &[Hook]) -> State {
    let mut state = State::default();
    for name in ["red", "blue"] {
        let config = Box::new(TenantConfig::unlimited(name));
        execute(&mut state, &Command::CreateTenant { id: name.parse().unwrap(), config });
    }
    apply_policy(&mut state, PolicyScope::Cluster, "cluster", hooks);
    apply_policy(&mut state, PolicyScope::Tenant("red".parse().unwrap()), "red", hooks);
    state
}

fn submit(state: &mut State, tenant: &str) {
    execute(state, &Command::SubmitJob(submission(spec(tenant))));
}

#[test]
fn a_tenants_policy_only_lowers_the_priority_that_the_clusters_policy_set() {
    for (cluster, red, expected) in [(900, 10_000, 900), (900, 3, 3), (500, 501, 500), (20, 30, 20)] {
        let mut state = state(&[Hook::Priority]);
        submit(&mut state, "red");
        let priorities = [("cluster".to_string(), cluster), ("red".to_string(), red)].into();
        let mut querier =
            PolicyQuerier::new(Arc::new(ScriptedInterpreter { priorities, ..ScriptedInterpreter::default() }));
        let answers = querier.new_answers(&state, &Plan::default(), (Timestamp(0), Duration::ZERO));
        execute(&mut state, &answers.unwrap());
        let known: Vec<u32> =
            state.policies.answers.iter().map(|(bucket, one)| one.priority.unwrap_or(bucket.priority)).collect();
        assert_eq!(known, [expected], "the cluster says {cluster}, red says {red}");
    }
}

#[test]
fn a_tenants_policy_does_not_apply_to_jobs_of_other_tenants() {
    let mut state = state(&[Hook::Admit, Hook::Priority, Hook::Score, Hook::Power]);
    submit(&mut state, "red");
    submit(&mut state, "blue");
    let mut querier = PolicyQuerier::new(Arc::new(ScriptedInterpreter {
        priorities: [("red".to_string(), 3)].into(),
        ..ScriptedInterpreter::default()
    }));
    let answers = querier.new_answers(&state, &Plan::default(), (Timestamp(0), Duration::ZERO));
    execute(&mut state, &answers.unwrap());
    let answers = state.policies.answers.iter();
    let known: Vec<_> = answers.map(|(bucket, one)| (bucket.tenant.as_str(), one.priority)).collect();
    assert_eq!(known, [("blue", None), ("red", Some(3))]);
}

#[test]
fn admission_queries_only_the_policies_of_the_cluster_and_of_the_jobs_tenant() {
    let state = state(&[Hook::Admit]);
    let queried = |tenant: &str| {
        let check = AdmissionCheck::for_spec(&state, &spec(tenant), Timestamp(0)).unwrap();
        check.versions.iter().map(|version| version.bundle.hash.clone()).collect::<Vec<_>>()
    };
    assert_eq!((queried("red"), queried("blue")), (vec!["cluster".into(), "red".into()], vec!["cluster".into()]));
    let refused =
        AdmissionCheck::for_spec(&state, &spec("blue"), Timestamp(0)).unwrap().refusal(&ScriptedInterpreter::default());
    assert_eq!(refused, Some("cluster".to_string()));
}

#[test]
fn a_tenants_policy_does_not_see_users_and_labels_of_other_tenants_victims() {
    let candidate = CandidateView {
        id: JobId::single(7),
        tenant: "blue".parse().unwrap(),
        user: "bob".to_string(),
        priority: 1,
        gpus: 1,
        ran_ms: 1,
        lost_gpu_ms: 1,
        preemptions: 0,
        saves: false,
        labels: [("secret".to_string(), "x".to_string())].into(),
    };
    let shown = |scope: PolicyScope| {
        let shown = candidate.shown_to(&scope);
        (shown.user, shown.labels.len())
    };
    assert_eq!(shown(PolicyScope::Cluster), ("bob".to_string(), 1));
    assert_eq!(shown(PolicyScope::Tenant("blue".parse().unwrap())), ("bob".to_string(), 1));
    assert_eq!(shown(PolicyScope::Tenant("red".parse().unwrap())), (String::new(), 0));
}

/// The recorded limits of tenants in thousandths of GPUs, and the tenants that were queried since the last call.
fn limits_after(
    state: &mut State,
    (querier, scripted): (&mut PolicyQuerier, &ScriptedInterpreter),
    elapsed: Duration,
) -> (Vec<(String, Option<u64>)>, Vec<String>) {
    if let Some(answers) = querier.new_answers(state, &Plan::default(), (Timestamp(0), elapsed)) {
        execute(state, &answers);
    }
    let known = state.policies.limits.values();
    let known = known.map(|one| (one.tenant.to_string(), one.limit.gpu_milli)).collect();
    (known, std::mem::take(&mut *scripted.queried_tenants.lock().unwrap()))
}

#[test]
fn limits_are_queried_for_tenants_with_waiting_jobs_and_for_their_ancestors() {
    let mut state = state(&[Hook::Limit]);
    let lab: TenantId = "lab".parse().unwrap();
    let config = Box::new(TenantConfig::unlimited("lab"));
    execute(&mut state, &Command::CreateTenant { id: lab.clone(), config });
    let config = Box::new(TenantConfig { parent: Some(lab), ..TenantConfig::unlimited("red") });
    execute(&mut state, &Command::ChangeTenant { id: "red".parse().unwrap(), config });
    let scripted = Arc::new(ScriptedInterpreter::default());
    scripted.limits.lock().unwrap().insert("cluster".to_string(), Ok(4_000));
    scripted.limits.lock().unwrap().insert("red".to_string(), Ok(3_000));
    let mut querier = PolicyQuerier::new(scripted.clone());
    let mut after =
        |state: &mut State, seconds| limits_after(state, (&mut querier, &scripted), Duration::from_secs(seconds));
    let expected = |limits: &[(&str, u64)]| -> Vec<(String, Option<u64>)> {
        limits.iter().map(|(tenant, milli)| (tenant.to_string(), Some(*milli))).collect()
    };
    assert_eq!(after(&mut state, 0), (Vec::new(), Vec::new()), "no job waits");
    submit(&mut state, "red");
    let queried = ["cluster lab", "cluster red", "red red"].map(str::to_string).to_vec();
    let known = expected(&[("lab", 4_000), ("red", 3_000)]);
    assert_eq!(after(&mut state, 1), (known.clone(), queried.clone()), "at once, and the lowest limit counts");
    assert_eq!(after(&mut state, 29), (known, Vec::new()), "not every round");
    scripted.limits.lock().unwrap().insert("red".to_string(), Ok(5_000));
    let known = expected(&[("lab", 4_000), ("red", 4_000)]);
    assert_eq!(after(&mut state, 31), (known.clone(), queried), "refreshed, and a tenant's policy raises no limit");
    submit(&mut state, "blue");
    let queried = vec!["cluster blue".to_string()];
    let known = [expected(&[("blue", 4_000)]), known].concat();
    assert_eq!(after(&mut state, 32), (known, queried), "a new tenant is queried at once");
}

#[test]
fn a_failing_limit_hook_blocks_the_tenant_or_is_ignored_as_configured() {
    for (policy_failure, blocked) in
        [(PolicyFailure::Closed, Some("a policy failed: oh".to_string())), (PolicyFailure::Open, None)]
    {
        let mut state = state(&[Hook::Limit]);
        let settings = Box::new(muster_core::Settings { policy_failure, ..state.settings.clone() });
        execute(&mut state, &Command::Configure { settings });
        submit(&mut state, "red");
        let scripted = Arc::new(ScriptedInterpreter::default());
        scripted.limits.lock().unwrap().insert("cluster".to_string(), Ok(4_000));
        scripted.limits.lock().unwrap().insert("red".to_string(), Err("oh".to_string()));
        let mut querier = PolicyQuerier::new(scripted.clone());
        limits_after(&mut state, (&mut querier, &scripted), Duration::ZERO);
        let red = state.policies.limits.values().next().cloned().unwrap();
        assert_eq!((red.limit.gpu_milli, &red.blocked), (Some(4_000), &blocked), "the cluster's limit holds");
        assert_eq!(red.failed, Some("oh".to_string()));
        scripted.limits.lock().unwrap().insert("red".to_string(), Ok(1_000));
        limits_after(&mut state, (&mut querier, &scripted), Duration::from_secs(1));
        assert!(state.policies.limits.values().all(|one| one.failed.is_some()), "the retry interval has not passed");
        let (known, _) = limits_after(&mut state, (&mut querier, &scripted), Duration::from_secs(4));
        assert_eq!(known, [("red".to_string(), Some(1_000))]);
        assert!(state.policies.limits.values().all(|one| one.failed.is_none() && one.blocked.is_none()));
    }
}

#[test]
fn a_dry_run_queries_the_limits_of_a_tenant_without_waiting_jobs() {
    let state = state(&[Hook::Limit]);
    let scripted = ScriptedInterpreter::default();
    scripted.limits.lock().unwrap().insert("cluster".to_string(), Ok(4_000));
    let limits = query_missing_limits(&state, &"red".parse().unwrap(), &scripted, Timestamp(0));
    let known: Vec<_> = limits.iter().map(|one| (one.tenant.as_str(), one.limit.gpu_milli)).collect();
    assert_eq!(known, [("red", Some(4_000))]);
    let known = state.with_limits(limits);
    assert!(query_missing_limits(&known, &"red".parse().unwrap(), &scripted, Timestamp(0)).is_empty());
}
