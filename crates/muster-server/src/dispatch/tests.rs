//! Orders as nodes get them, and which events make them worth sending again.

use std::sync::Arc;

use muster_core::command::{Actor, Command, Said, SubmitJob};
use muster_core::node::{GpuFacts, NodeFacts};
use muster_core::plan::{Plan, Start};
use muster_core::policy::{Bundle, Scope};
use muster_core::rules::{Check, PowerPolicy, Rules, Strategy, Tuned};
use muster_core::tenant::TenantConfig;
use muster_core::{JobSpec, Timestamp};

use super::*;

const JOB: JobId = JobId::single(1);

/// A cluster, and the nodes whose orders have changed since somebody last looked.
struct Desk {
    state: State,
    route: Route,
    touched: BTreeSet<NodeId>,
    now: Timestamp,
}

impl Desk {
    /// Three nodes of two GPUs, and a gang that takes two of them in turn: one lead and three workers.
    fn with_gang() -> Desk {
        let (state, route) = (State::empty(), Route::default());
        let mut desk = Desk { state, route, touched: BTreeSet::new(), now: Timestamp(1_000) };
        let config = Box::new(TenantConfig::unlimited("red"));
        desk.tell(Command::CreateTenant { id: "red".parse().unwrap(), config });
        desk.tell(register("n1", "", "one.example.org"));
        desk.tell(register("n2", "10.0.0.2", "two.example.org"));
        desk.tell(register("n3", "", ""));
        desk.tell(submit(
            r#"[{"name":"lead","count":1,"each":{"gpus":1,"cpus":1,"memory_mib":1}},
                {"name":"worker","count":3,"each":{"gpus":1,"cpus":2,"memory_mib":1}}]"#,
        ));
        desk.changed();
        desk.tell(Command::AdoptPlan { plan: Box::new(in_turn(["n2", "n1", "n2", "n1"])), epoch: 1 });
        assert_eq!(desk.changed(), ["n1", "n2"]);
        desk
    }

    fn tell(&mut self, command: Command) {
        let by = Actor::local("ada");
        let decision = self.state.decide(&by, &command, self.now).unwrap();
        for event in &decision.events {
            self.touched.extend(self.route.touched(event));
            self.state.apply(event);
        }
    }

    fn say(&mut self, node: &str, said: Said) {
        self.tell(Command::ReportTask { node: node.parse().unwrap(), job: JOB, attempt: 1, said });
    }

    fn changed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.touched).iter().map(NodeId::to_string).collect()
    }

    /// What a node is told of the gang.
    fn order(&self, node: &str) -> Order {
        let orders = orders(&self.state, &node.parse().unwrap(), 1);
        assert_eq!(orders.attempts.len(), 1);
        orders.attempts[0].clone()
    }

    fn grace_ms(&self, node: &str) -> i64 {
        self.order(node).stop.unwrap().grace_ms
    }
}

/// A plan that starts the gang, with rank 0 on the first of these nodes and so on.
fn in_turn(nodes: [&str; 4]) -> Plan {
    let task = |(rank, node): (u32, &str)| PlacedTask {
        rank,
        group: rank.min(1),
        node: node.parse().unwrap(),
        gpus: vec![rank as u8 / 2],
        share: None,
    };
    let tasks = (0..).zip(nodes).map(task).collect();
    let start = Start { job: JOB, tasks, effective: None, expected_ms: None, lent: false, score: None };
    Plan { starts: vec![start], ..Plan::default() }
}

fn register(name: &str, address: &str, hostname: &str) -> Command {
    let gpu = |index: u8| GpuFacts {
        uuid: format!("{name}-{index}"),
        model: "H100".to_string(),
        memory_mib: 80_000,
        numa_node: (name == "n2").then_some(u32::from(index)), // Of the others it is not known.
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
fn each_task_is_told_its_place_in_the_gang() {
    let desk = Desk::with_gang();
    let places = |order: &Order| -> Vec<(u32, String, u32)> {
        order.tasks.iter().map(|task| (task.rank, task.group.clone(), task.group_rank)).collect()
    };
    let (first, second) = (desk.order("n2"), desk.order("n1"));
    assert_eq!(places(&first), [(0, "lead".to_string(), 0), (2, "worker".to_string(), 1)]);
    assert_eq!(places(&second), [(1, "worker".to_string(), 0), (3, "worker".to_string(), 2)]);
    assert_eq!((first.node_rank, second.node_rank), (0, 1));
    for order in [first, second] {
        assert_eq!((order.nodes, order.gang_size), (vec!["n2".to_string(), "n1".to_string()], 4));
        assert_eq!(order.master_address, "10.0.0.2", "where rank 0 is");
    }
}

#[test]
fn a_task_is_told_the_numa_nodes_of_its_gpus_where_all_are_known() {
    let desk = Desk::with_gang();
    let told = |node: &str| -> Vec<Vec<u32>> {
        desk.order(node).tasks.into_iter().map(|task| task.numa_nodes).collect()
    };
    assert_eq!(told("n2"), [vec![0], vec![1]]);
    assert_eq!(told("n1"), [Vec::<u32>::new(), Vec::new()]);
    let mut facts = desk.state.nodes[&"n2".parse().unwrap()].facts.clone();
    assert_eq!(numa_nodes(Some(&facts), &[1, 0]), Some(vec![0, 1]));
    facts.gpus[0].numa_node = None;
    assert_eq!(numa_nodes(Some(&facts), &[1, 0]), None, "near to one and far from the other");
}

#[test]
fn a_task_with_a_part_of_a_gpu_is_told_which_part() {
    let mut desk = Desk::with_gang();
    assert_eq!(desk.order("n1").tasks[0].share, None, "a whole GPU is no part");
    desk.tell(submit(
        r#"[{"name":"reader","count":1,
            "each":{"gpus":1,"gpu_compute_milli":250,"gpu_memory_mib":10000,"cpus":1,"memory_mib":1}}]"#,
    ));
    let plan = muster_core::plan::plan(&desk.state, desk.now).plan;
    let node = plan.starts[0].tasks[0].node.clone();
    desk.tell(Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
    let orders = orders(&desk.state, &node, 1);
    let share = orders.attempts.iter().find_map(|order| order.tasks[0].share.clone());
    let wanted = TaskShare {
        mode: "mps".to_string(),
        compute_milli: 250,
        memory_mib: 10_000,
        profile: None,
        start: None,
    };
    assert_eq!(share, Some(wanted));
}

#[test]
fn a_node_is_reached_by_what_it_has_said() {
    let desk = Desk::with_gang();
    let address = |node: &str| address(&desk.state, &node.parse().unwrap());
    assert_eq!(["n1", "n2", "n3"].map(address), ["one.example.org", "10.0.0.2", "n3"]);
}

#[test]
fn who_has_saved_its_work_when_told_to_stop_is_let_go_on_all_nodes() {
    let mut desk = Desk::with_gang();
    for node in ["n1", "n2"] {
        desk.say(node, Said::Started);
    }
    desk.tell(Command::RequeueJob { job: JOB });
    assert_eq!((desk.grace_ms("n1"), desk.grace_ms("n2")), (30_000, 30_000));
    desk.changed();

    desk.now = desk.now.plus(5_000);
    desk.say("n2", Said::Saved);
    assert_eq!(desk.changed(), ["n1", "n2"], "both are told");
    assert_eq!((desk.grace_ms("n1"), desk.grace_ms("n2")), (7_000, 7_000));

    desk.now = desk.now.plus(1_000);
    desk.say("n1", Said::Saved);
    assert_eq!(desk.grace_ms("n1"), 7_000, "saying it again gains no time");
    assert_eq!(desk.changed(), [""; 0], "and changes nothing");
}

#[test]
fn who_saves_its_work_while_it_runs_or_ends_for_good_is_not_hurried() {
    let mut desk = Desk::with_gang();
    desk.say("n1", Said::Started);
    desk.changed();
    desk.say("n1", Said::Saved);
    assert_eq!(desk.changed(), [""; 0]);
    desk.tell(Command::RequeueJob { job: JOB });
    assert_eq!(desk.grace_ms("n1"), 30_000, "what it saved before is not an answer");
    desk.tell(Command::CancelJob { job: JOB });
    desk.changed();
    desk.say("n1", Said::Saved);
    assert_eq!((desk.changed(), desk.grace_ms("n1")), (vec![], 30_000));
}

/// Pools are told to the nodes that have devices of them, anew when policies change.
#[test]
fn nodes_are_told_the_pools_of_their_devices() {
    let mut desk = Desk::with_gang();
    assert!(orders(&desk.state, &"n1".parse().unwrap(), 1).pools.is_empty());
    let cool = Pool {
        name: "cool".to_string(),
        gpu_types: Vec::new(),
        min_memory_milli_gb: 0,
        max_temp_milli_c: 60_000,
        power_policy: PowerPolicy::Efficiency,
        health_threshold_milli: 900,
        opt_strategies: vec![Strategy {
            kind: Tuned::Power,
            fields: [("target_watts".to_string(), Fact::Milli(250_500))].into(),
        }],
        health_checks: vec![Check { name: "ecc".to_string(), fields: BTreeMap::new() }],
    };
    let other = Pool { name: "other".to_string(), gpu_types: vec!["A100".to_string()], ..cool.clone() };
    let pools = [cool, other].into_iter().map(|pool| (pool.name.clone(), pool)).collect();
    let rules = Rules { pools, ..Rules::default() };
    let files = [("a.gsky".to_string(), String::new())].into();
    let bundle = Arc::new(Bundle { hash: "a".to_string(), files, rules, ..Bundle::default() });
    desk.changed();
    desk.tell(Command::ApplyPolicy { scope: Scope::Cluster, bundle, why: String::new() });
    assert_eq!(desk.changed(), ["n1", "n2", "n3"]);
    let pools = orders(&desk.state, &"n1".parse().unwrap(), 1).pools;
    let [pool] = &pools[..] else { panic!("{pools:?}") };
    assert_eq!(
        (pool.name.as_str(), &pool.gpus[..], pool.power_policy.as_str()),
        ("cool", &[0, 1][..], "efficiency")
    );
    assert_eq!(
        (pool.tuning[0].name.as_str(), pool.tuning[0].fields["target_watts"].as_str()),
        ("power", "250.5")
    );
    assert_eq!((pool.max_temp_milli_c, pool.checks[0].name.as_str()), (60_000, "ecc"));
    desk.tell(Command::RemoveNode { node: "n3".parse().unwrap() });
    desk.changed();
    let none = Arc::new(Bundle::default());
    desk.tell(Command::ApplyPolicy { scope: Scope::Cluster, bundle: none, why: String::new() });
    assert_eq!(desk.changed(), ["n1", "n2"]);
}
