//! What is asked of whom: the cluster's policies, then those of the tenant.

use std::sync::Mutex;

use muster_core::command::SubmitJob;
use muster_core::job::{OnNodeLost, Resources, RestartRule, Run, TaskGroup, Topology};
use muster_core::tenant::TenantConfig;
use muster_core::{Actor, Event};

use super::*;

/// Answers by the hash of a bundle.
#[derive(Default)]
struct Scripted {
    priorities: BTreeMap<String, u32>,
    /// Limits in thousandths of GPUs.
    limits: Mutex<BTreeMap<String, Result<u64, String>>>,
    /// Tenants that were asked about.
    asked: Mutex<Vec<String>>,
}

impl Interpreter for Scripted {
    fn compile(&self, _: &Scope, _: BTreeMap<String, String>) -> Result<Bundle, Vec<String>> {
        Err(Vec::new())
    }

    fn admit(&self, version: &Version, jobs: &[&JobView]) -> Vec<Result<Admission, String>> {
        jobs.iter().map(|_| Ok(Admission::Refuse { why: version.bundle.hash.clone() })).collect()
    }

    fn priority(
        &self,
        version: &Version,
        jobs: &[(&JobView, &TenantView)],
    ) -> Vec<Result<Option<u32>, String>> {
        vec![Ok(self.priorities.get(&version.bundle.hash).copied()); jobs.len()]
    }

    fn score(&self, _: &Version, jobs: &[&JobView], nodes: &[NodeView]) -> Vec<Result<Vec<i64>, String>> {
        vec![Ok(vec![0; nodes.len()]); jobs.len()]
    }

    fn power(&self, _: &Version, jobs: &[&JobView]) -> Vec<Result<Option<u64>, String>> {
        vec![Ok(None); jobs.len()]
    }

    fn victims(
        &self,
        _: &Version,
        _: &JobView,
        candidates: &[CandidateView],
    ) -> Result<BTreeSet<JobId>, String> {
        Ok(candidates.iter().map(|one| one.id).collect())
    }

    fn limit(
        &self,
        version: &Version,
        tenants: &[(&TenantView, &ClusterView)],
    ) -> Vec<Result<GpuLimit, String>> {
        let hash = &version.bundle.hash;
        let asked = tenants.iter().map(|(tenant, _)| format!("{hash} {}", tenant.id));
        self.asked.lock().unwrap().extend(asked);
        let limits = self.limits.lock().unwrap();
        let said = limits.get(hash).cloned().transpose();
        let said = said.map(|gpu_milli| GpuLimit { gpu_milli, ..GpuLimit::default() });
        vec![said; tenants.len()]
    }

    fn retry(&self, _: &Version, _: &JobView, _: &FailureView) -> Result<Retry, String> {
        Ok(Retry::AsAsked)
    }
}

fn tell(state: &mut State, command: &Command) -> Vec<Event> {
    let by = Actor::local("ann");
    let events = state.decide(&by, command, Timestamp(0)).unwrap().events;
    events.iter().for_each(|event| state.apply(event));
    events
}

fn put(state: &mut State, scope: Scope, hash: &str, hooks: &[Hook]) {
    let bundle = Bundle {
        hash: hash.to_string(),
        files: [("a.gsky".to_string(), String::new())].into(),
        hooks: hooks.iter().copied().collect(),
        ..Bundle::default()
    };
    tell(state, &Command::ApplyPolicy { scope, bundle: Arc::new(bundle), why: String::new() });
}

fn spec(tenant: &str) -> JobSpec {
    let each = Resources {
        gpus: 0,
        gpu_models: BTreeSet::default(),
        gpu_memory_mib: 0,
        gpu_compute_milli: 1_000,
        isolation: Default::default(),
        cpus: 1,
        memory_mib: 1,
    };
    JobSpec {
        name: "job".to_string(),
        tenant: tenant.parse().unwrap(),
        user: "ann".to_string(),
        priority: 500,
        tasks: vec![TaskGroup { name: "task".to_string(), count: 1, count_max: None, each }],
        topology: Topology::Any,
        allow_cross_numa: None,
        prefer_nvlink: false,
        gang_scheduling: None,
        time_limit_ms: None,
        restart: RestartRule::default(),
        on_node_lost: OnNodeLost::Wait,
        checkpoint: None,
        after: Vec::new(),
        start_after: None,
        pool: None,
        node_labels: BTreeMap::new(),
        run: Run { command: vec!["true".to_string()], ..Run::default() },
        labels: [("team".to_string(), "x".to_string())].into(),
        annotations: BTreeMap::new(),
    }
}

/// Two tenants, and policies of the cluster and of one of them.
fn state(hooks: &[Hook]) -> State {
    let mut state = State::default();
    for name in ["red", "blue"] {
        let config = Box::new(TenantConfig::unlimited(name));
        tell(&mut state, &Command::CreateTenant { id: name.parse().unwrap(), config });
    }
    put(&mut state, Scope::Cluster, "cluster", hooks);
    put(&mut state, Scope::Tenant("red".parse().unwrap()), "red", hooks);
    state
}

fn submit(state: &mut State, tenant: &str) {
    let spec = Arc::new(spec(tenant));
    let known_outcomes = BTreeMap::new();
    tell(
        state,
        &Command::SubmitJob(SubmitJob {
            spec,
            array: None,
            hold: false,
            key: None,
            known_outcomes,
            known_key: None,
            is_operator: true,
        }),
    );
}

#[test]
fn a_tenants_policy_only_lowers_what_the_clusters_left() {
    for (cluster, red, expected) in [(900, 10_000, 900), (900, 3, 3), (500, 501, 500), (20, 30, 20)] {
        let mut state = state(&[Hook::Priority]);
        submit(&mut state, "red");
        let priorities = [("cluster".to_string(), cluster), ("red".to_string(), red)].into();
        let mut asker = Asker::new(Arc::new(Scripted { priorities, ..Scripted::default() }));
        let news = asker.news(&state, &Plan::default(), (Timestamp(0), Duration::ZERO));
        tell(&mut state, &news.unwrap());
        let known: Vec<u32> = state
            .policies
            .answers
            .iter()
            .map(|(bucket, one)| one.priority.unwrap_or(bucket.priority))
            .collect();
        assert_eq!(known, [expected], "the cluster says {cluster}, red says {red}");
    }
}

#[test]
fn a_tenants_policy_says_nothing_of_the_jobs_of_others() {
    let mut state = state(&[Hook::Admit, Hook::Priority, Hook::Score, Hook::Power]);
    submit(&mut state, "red");
    submit(&mut state, "blue");
    let mut asker =
        Asker::new(Arc::new(Scripted { priorities: [("red".to_string(), 3)].into(), ..Scripted::default() }));
    let news = asker.news(&state, &Plan::default(), (Timestamp(0), Duration::ZERO));
    tell(&mut state, &news.unwrap());
    let answers = state.policies.answers.iter();
    let known: Vec<_> = answers.map(|(bucket, one)| (bucket.tenant.as_str(), one.priority)).collect();
    assert_eq!(known, [("blue", None), ("red", Some(3))]);
}

#[test]
fn only_the_cluster_and_the_own_tenant_are_asked_at_the_door() {
    let state = state(&[Hook::Admit]);
    let asked = |tenant: &str| {
        let applicant = Applicant::of(&state, &spec(tenant), Timestamp(0)).unwrap();
        applicant.asked.iter().map(|version| version.bundle.hash.clone()).collect::<Vec<_>>()
    };
    assert_eq!((asked("red"), asked("blue")), (vec!["cluster".into(), "red".into()], vec!["cluster".into()]));
    let refused = Applicant::of(&state, &spec("blue"), Timestamp(0)).unwrap().refused(&Scripted::default());
    assert_eq!(refused, Some("cluster".to_string()));
}

#[test]
fn a_tenant_does_not_learn_whose_jobs_would_go() {
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
    let shown = |scope: Scope| {
        let shown = candidate.shown_to(&scope);
        (shown.user, shown.labels.len())
    };
    assert_eq!(shown(Scope::Cluster), ("bob".to_string(), 1));
    assert_eq!(shown(Scope::Tenant("blue".parse().unwrap())), ("bob".to_string(), 1));
    assert_eq!(shown(Scope::Tenant("red".parse().unwrap())), (String::new(), 0));
}

/// The known limits of tenants, in thousandths of GPUs, and the tenants that policies were asked about since.
fn limits_after(
    state: &mut State,
    (asker, scripted): (&mut Asker, &Scripted),
    elapsed: Duration,
) -> (Vec<(String, Option<u64>)>, Vec<String>) {
    if let Some(news) = asker.news(state, &Plan::default(), (Timestamp(0), elapsed)) {
        tell(state, &news);
    }
    let known = state.policies.limits.values();
    let known = known.map(|one| (one.tenant.to_string(), one.limit.gpu_milli)).collect();
    (known, std::mem::take(&mut *scripted.asked.lock().unwrap()))
}

#[test]
fn limits_are_asked_of_tenants_that_wait_and_of_all_above_them() {
    let mut state = state(&[Hook::Limit]);
    let lab: TenantId = "lab".parse().unwrap();
    let config = Box::new(TenantConfig::unlimited("lab"));
    tell(&mut state, &Command::CreateTenant { id: lab.clone(), config });
    let config = Box::new(TenantConfig { parent: Some(lab), ..TenantConfig::unlimited("red") });
    tell(&mut state, &Command::ChangeTenant { id: "red".parse().unwrap(), config });
    let scripted = Arc::new(Scripted::default());
    scripted.limits.lock().unwrap().insert("cluster".to_string(), Ok(4_000));
    scripted.limits.lock().unwrap().insert("red".to_string(), Ok(3_000));
    let mut asker = Asker::new(scripted.clone());
    let mut after = |state: &mut State, seconds| {
        limits_after(state, (&mut asker, &scripted), Duration::from_secs(seconds))
    };
    let told = |limits: &[(&str, u64)]| -> Vec<(String, Option<u64>)> {
        limits.iter().map(|(tenant, milli)| (tenant.to_string(), Some(*milli))).collect()
    };
    assert_eq!(after(&mut state, 0), (Vec::new(), Vec::new()), "nobody waits");
    submit(&mut state, "red");
    let asked = ["cluster lab", "cluster red", "red red"].map(str::to_string).to_vec();
    let known = told(&[("lab", 4_000), ("red", 3_000)]);
    assert_eq!(after(&mut state, 1), (known.clone(), asked.clone()), "at once, and the least counts");
    assert_eq!(after(&mut state, 29), (known, Vec::new()), "not every round");
    scripted.limits.lock().unwrap().insert("red".to_string(), Ok(5_000));
    let known = told(&[("lab", 4_000), ("red", 4_000)]);
    assert_eq!(after(&mut state, 31), (known.clone(), asked), "again, and a tenant raises nothing");
    submit(&mut state, "blue");
    let asked = vec!["cluster blue".to_string()];
    let known = [told(&[("blue", 4_000)]), known].concat();
    assert_eq!(after(&mut state, 32), (known, asked), "who is new is asked about at once");
}

#[test]
fn a_failing_limit_closes_or_opens() {
    for (policy_failure, blocked) in
        [(PolicyFailure::Closed, Some("a policy failed: oh".to_string())), (PolicyFailure::Open, None)]
    {
        let mut state = state(&[Hook::Limit]);
        let settings = Box::new(muster_core::Settings { policy_failure, ..state.settings.clone() });
        tell(&mut state, &Command::Configure { settings });
        submit(&mut state, "red");
        let scripted = Arc::new(Scripted::default());
        scripted.limits.lock().unwrap().insert("cluster".to_string(), Ok(4_000));
        scripted.limits.lock().unwrap().insert("red".to_string(), Err("oh".to_string()));
        let mut asker = Asker::new(scripted.clone());
        limits_after(&mut state, (&mut asker, &scripted), Duration::ZERO);
        let red = state.policies.limits.values().next().cloned().unwrap();
        assert_eq!((red.limit.gpu_milli, &red.blocked), (Some(4_000), &blocked), "the cluster's limit holds");
        assert_eq!(red.failed, Some("oh".to_string()));
        scripted.limits.lock().unwrap().insert("red".to_string(), Ok(1_000));
        limits_after(&mut state, (&mut asker, &scripted), Duration::from_secs(1));
        assert!(state.policies.limits.values().all(|one| one.failed.is_some()), "it has not rested yet");
        let (known, _) = limits_after(&mut state, (&mut asker, &scripted), Duration::from_secs(4));
        assert_eq!(known, [("red".to_string(), Some(1_000))]);
        assert!(state.policies.limits.values().all(|one| one.failed.is_none() && one.blocked.is_none()));
    }
}

#[test]
fn who_is_not_waiting_is_asked_about_for_an_outlook() {
    let state = state(&[Hook::Limit]);
    let scripted = Scripted::default();
    scripted.limits.lock().unwrap().insert("cluster".to_string(), Ok(4_000));
    let limits = unknown_limits(&state, &"red".parse().unwrap(), &scripted, Timestamp(0));
    let told: Vec<_> = limits.iter().map(|one| (one.tenant.as_str(), one.limit.gpu_milli)).collect();
    assert_eq!(told, [("red", Some(4_000))]);
    let known = state.with_limits(limits);
    assert!(unknown_limits(&known, &"red".parse().unwrap(), &scripted, Timestamp(0)).is_empty());
}
