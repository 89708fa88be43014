//! The orders of nodes, and the events after which they are sent again.

use std::sync::Arc;

use muster_core::facts::command::{Actor, Command, SubmitJob, TaskReport};
use muster_core::facts::plan::{Plan, Start};
use muster_core::gpu::device::GpuFacts;
use muster_core::objects::node::NodeFacts;
use muster_core::objects::policy::rules::{Check, PowerPolicy, Rules, Strategy, TuningTarget};
use muster_core::objects::policy::{PolicyBundle, PolicyScope};
use muster_core::objects::tenant::TenantConfig;
use muster_core::{JobSpec, Timestamp};

use super::*;

const JOB: JobId = JobId::single(1);

/// A cluster, and the nodes whose orders have changed since the last call of `take_changed_nodes`.
struct DispatchFixture {
    state: State,
    tracker: OrderTracker,
    changed_nodes: BTreeSet<NodeId>,
    now: Timestamp,
}

impl DispatchFixture {
    /// Three nodes of two GPUs, and a gang of one lead and three workers with alternate ranks on two of the nodes.
    fn with_gang() -> DispatchFixture {
        let (state, tracker) = (State::empty(), OrderTracker::default());
        let mut fixture = DispatchFixture { state, tracker, changed_nodes: BTreeSet::new(), now: Timestamp(1_000) };
        let config = Box::new(TenantConfig::unlimited("red"));
        fixture.execute(Command::CreateTenant { id: "red".parse().unwrap(), config });
        fixture.execute(register("n1", "", "one.example.org"));
        fixture.execute(register("n2", "10.0.0.2", "two.example.org"));
        fixture.execute(register("n3", "", ""));
        fixture.execute(submit(
            r#"[{"name":"lead","count":1,"each":{"gpus":1,"cpus":1,"memory_mib":1}},
                {"name":"worker","count":3,"each":{"gpus":1,"cpus":2,"memory_mib":1}}]"#,
        ));
        fixture.take_changed_nodes();
        fixture.execute(Command::AdoptPlan { plan: Box::new(plan_with_ranks_on(["n2", "n1", "n2", "n1"])), epoch: 1 });
        assert_eq!(fixture.take_changed_nodes(), ["n1", "n2"]);
        fixture
    }

    fn execute(&mut self, command: Command) {
        let by = Actor::local("ada");
        let decision = self.state.decide(&by, &command, self.now).unwrap();
        for event in &decision.events {
            self.changed_nodes.extend(self.tracker.nodes_affected_by(event));
            self.state.apply(event);
        }
    }

    fn report_task(&mut self, node: &str, report: TaskReport) {
        self.execute(Command::ReportTask { node: node.parse().unwrap(), job: JOB, attempt: 1, report });
    }

    fn take_changed_nodes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.changed_nodes).iter().map(NodeId::to_string).collect()
    }

    /// The order for a node's part of the gang.
    fn order(&self, node: &str) -> AttemptOrder {
        let orders = orders(&self.state, &node.parse().unwrap(), 1);
        assert_eq!(orders.attempts.len(), 1);
        orders.attempts[0].clone()
    }

    fn grace_ms(&self, node: &str) -> i64 {
        self.order(node).stop.unwrap().grace_ms
    }
}

/// A plan that starts the gang with rank 0 on the first of these nodes, rank 1 on the second, and so on.
fn plan_with_ranks_on(nodes: [&str; 4]) -> Plan {
    let task = |(rank, node): (u32, &str)| PlacedTask {
        rank,
        group: rank.min(1),
        node: node.parse().unwrap(),
        gpus: vec![rank as u8 / 2],
        share: None,
    };
    let tasks = (0..).zip(nodes).map(task).collect();
    let start = Start { job: JOB, tasks, effective_priority: None, expected_ms: None, revocable: false, score: None };
    Plan { starts: vec![start], ..Plan::default() }
}

fn register(name: &str, address: &str, hostname: &str) -> Command {
    let gpu = |index: u8| GpuFacts {
        uuid: format!("{name}-{index}"),
        model: "H100".to_string(),
        memory_mib: 80_000,
        numa_node: (name == "n2").then_some(u32::from(index)), // Unknown on the other nodes.
        nvlink: Vec::new(),
        socket: None,
        pcie_switch: None,
        mig: Vec::new(),
        power_limit_milliwatts: None,
    };
    let facts = NodeFacts {
        hostname: hostname.to_string(),
        address: address.to_string(),
        cpus: 8,
        memory_mib: 1_024,
        gpus: vec![gpu(0), gpu(1)],
        numa: Vec::new(),
        rack: None,
        block: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: String::new(),
        incarnation: String::new(),
        simulated: true,
    };
    Command::RegisterNode { node: name.parse().unwrap(), facts: Box::new(facts) }
}

fn submit(tasks: &str) -> Command {
    let spec: JobSpec = muster_json::from_str(&format!(
        r#"{{"name":"x","tenant":"red","user":"ada","priority":100,"run":{{"command":["x"]}},"tasks":{tasks}}}"#
    ))
    .unwrap();
    let (spec, known_outcomes) = (spec.into(), Default::default());
    Command::SubmitJob(SubmitJob {
        spec,
        array: None,
        hold: false,
        key: None,
        known_outcomes,
        known_key: None,
        is_operator: true,
    })
}

#[test]
fn orders_carry_the_rank_and_group_rank_of_each_task() {
    let fixture = DispatchFixture::with_gang();
    let ranks = |order: &AttemptOrder| -> Vec<(u32, String, u32)> {
        order.tasks.iter().map(|task| (task.rank, task.group.clone(), task.group_rank)).collect()
    };
    let (first, second) = (fixture.order("n2"), fixture.order("n1"));
    assert_eq!(ranks(&first), [(0, "lead".to_string(), 0), (2, "worker".to_string(), 1)]);
    assert_eq!(ranks(&second), [(1, "worker".to_string(), 0), (3, "worker".to_string(), 2)]);
    assert_eq!((first.node_rank, second.node_rank), (0, 1));
    for order in [first, second] {
        assert_eq!((order.nodes, order.gang_size), (vec!["n2".to_string(), "n1".to_string()], 4));
        assert_eq!(order.master_address, "10.0.0.2", "the node of rank 0");
    }
}

#[test]
fn orders_carry_numa_nodes_only_if_known_for_all_gpus_of_a_task() {
    let fixture = DispatchFixture::with_gang();
    let numa_nodes_of_tasks =
        |node: &str| -> Vec<Vec<u32>> { fixture.order(node).tasks.into_iter().map(|task| task.numa_nodes).collect() };
    assert_eq!(numa_nodes_of_tasks("n2"), [vec![0], vec![1]]);
    assert_eq!(numa_nodes_of_tasks("n1"), [Vec::<u32>::new(), Vec::new()]);
    let mut facts = fixture.state.nodes[&"n2".parse().unwrap()].facts.clone();
    assert_eq!(numa_nodes(Some(&facts), &[1, 0]), Some(vec![0, 1]));
    facts.gpus[0].numa_node = None;
    assert_eq!(numa_nodes(Some(&facts), &[1, 0]), None, "cores near one GPU may be far from the other");
}

#[test]
fn orders_carry_the_gpu_share_of_a_task() {
    let mut fixture = DispatchFixture::with_gang();
    assert_eq!(fixture.order("n1").tasks[0].share, None, "a whole GPU is no share");
    fixture.execute(submit(
        r#"[{"name":"reader","count":1,
            "each":{"gpus":1,"gpu_compute_milli":250,"gpu_memory_mib":10000,"cpus":1,"memory_mib":1}}]"#,
    ));
    let plan = muster_core::planner::plan(&fixture.state, fixture.now).plan;
    let node = plan.starts[0].tasks[0].node.clone();
    fixture.execute(Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
    let orders = orders(&fixture.state, &node, 1);
    let share = orders.attempts.iter().find_map(|order| order.tasks[0].share.clone());
    let expected =
        TaskShare { mode: "mps".to_string(), compute_milli: 250, memory_mib: 10_000, profile: None, start: None };
    assert_eq!(share, Some(expected));
}

#[test]
fn node_address_falls_back_to_hostname_and_then_to_node_name() {
    let fixture = DispatchFixture::with_gang();
    let address = |node: &str| node_address(&fixture.state, &node.parse().unwrap());
    assert_eq!(["n1", "n2", "n3"].map(address), ["one.example.org", "10.0.0.2", "n3"]);
}

#[test]
fn a_checkpoint_after_the_stop_request_shortens_the_grace_on_all_nodes() {
    let mut fixture = DispatchFixture::with_gang();
    for node in ["n1", "n2"] {
        fixture.report_task(node, TaskReport::Started);
    }
    fixture.execute(Command::RequeueJob { job: JOB });
    assert_eq!((fixture.grace_ms("n1"), fixture.grace_ms("n2")), (30_000, 30_000));
    fixture.take_changed_nodes();

    fixture.now = fixture.now.plus(5_000);
    fixture.report_task("n2", TaskReport::Saved);
    assert_eq!(fixture.take_changed_nodes(), ["n1", "n2"], "both nodes get new orders");
    assert_eq!((fixture.grace_ms("n1"), fixture.grace_ms("n2")), (7_000, 7_000));

    fixture.now = fixture.now.plus(1_000);
    fixture.report_task("n1", TaskReport::Saved);
    assert_eq!(fixture.grace_ms("n1"), 7_000, "a second checkpoint does not extend the grace");
    assert_eq!(fixture.take_changed_nodes(), [""; 0], "and changes no orders");
}

#[test]
fn a_checkpoint_before_the_stop_or_of_a_cancelled_job_keeps_the_full_grace() {
    let mut fixture = DispatchFixture::with_gang();
    fixture.report_task("n1", TaskReport::Started);
    fixture.take_changed_nodes();
    fixture.report_task("n1", TaskReport::Saved);
    assert_eq!(fixture.take_changed_nodes(), [""; 0]);
    fixture.execute(Command::RequeueJob { job: JOB });
    assert_eq!(fixture.grace_ms("n1"), 30_000, "a checkpoint before the stop request does not shorten the grace");
    fixture.execute(Command::CancelJob { job: JOB });
    fixture.take_changed_nodes();
    fixture.report_task("n1", TaskReport::Saved);
    assert_eq!((fixture.take_changed_nodes(), fixture.grace_ms("n1")), (vec![], 30_000));
}

#[test]
fn orders_carry_the_pools_of_the_gpus_of_a_node() {
    let mut fixture = DispatchFixture::with_gang();
    assert!(orders(&fixture.state, &"n1".parse().unwrap(), 1).pools.is_empty());
    let cool = Pool {
        name: "cool".to_string(),
        gpu_types: Vec::new(),
        min_memory_milli_gb: 0,
        max_temp_milli_c: 60_000,
        power_policy: PowerPolicy::Efficiency,
        health_threshold_milli: 900,
        opt_strategies: vec![Strategy {
            kind: TuningTarget::Power,
            fields: [("target_watts".to_string(), Fact::Milli(250_500))].into(),
        }],
        health_checks: vec![Check { name: "ecc".to_string(), fields: BTreeMap::new() }],
    };
    let other = Pool { name: "other".to_string(), gpu_types: vec!["A100".to_string()], ..cool.clone() };
    let pools = [cool, other].into_iter().map(|pool| (pool.name.clone(), pool)).collect();
    let rules = Rules { pools, ..Rules::default() };
    let files = [("a.gsky".to_string(), String::new())].into();
    let bundle = Arc::new(PolicyBundle { hash: "a".to_string(), files, rules, ..PolicyBundle::default() });
    fixture.take_changed_nodes();
    fixture.execute(Command::ApplyPolicy { scope: PolicyScope::Cluster, bundle, why: String::new() });
    assert_eq!(fixture.take_changed_nodes(), ["n1", "n2", "n3"]);
    let pools = orders(&fixture.state, &"n1".parse().unwrap(), 1).pools;
    let [pool] = &pools[..] else { panic!("{pools:?}") };
    assert_eq!((pool.name.as_str(), &pool.gpus[..], pool.power_policy.as_str()), ("cool", &[0, 1][..], "efficiency"));
    assert_eq!((pool.tuning[0].name.as_str(), pool.tuning[0].fields["target_watts"].as_str()), ("power", "250.5"));
    assert_eq!((pool.max_temp_milli_c, pool.health_checks[0].name.as_str()), (60_000, "ecc"));
    fixture.execute(Command::RemoveNode { node: "n3".parse().unwrap() });
    fixture.take_changed_nodes();
    let none = Arc::new(PolicyBundle::default());
    fixture.execute(Command::ApplyPolicy { scope: PolicyScope::Cluster, bundle: none, why: String::new() });
    assert_eq!(fixture.take_changed_nodes(), ["n1", "n2"]);
}
