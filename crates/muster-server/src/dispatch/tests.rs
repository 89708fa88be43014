//! The orders of nodes, and the events after which they are sent again.

use std::sync::Arc;

use muster_core::Timestamp;
use muster_core::facts::command::{Actor, Command, TaskReport};
use muster_core::facts::plan::{Plan, Start};
use muster_core::gpu::device::GpuFacts;
use muster_core::objects::enrolment::JoinToken;
use muster_core::objects::policy::rules::{Check, PowerPolicy, Rules, Strategy, TuningTarget};
use muster_core::objects::policy::{PolicyBundle, PolicyScope};
use muster_core::objects::tenant::TenantConfig;
use muster_store::Entry;
use muster_testing::{JobBuilder, gpu, job, node, submission};

use super::*;
use crate::cluster::Batch;

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
        let (state, mut tracker) = (State::empty(), OrderTracker::default());
        tracker.nodes_to_send_orders(&reset(&state, 1));
        let mut fixture = DispatchFixture { state, tracker, changed_nodes: BTreeSet::new(), now: Timestamp(1_000) };
        let config = Box::new(TenantConfig::unlimited("red"));
        fixture.execute(Command::CreateTenant { id: "red".parse().unwrap(), config });
        fixture.execute(register("n1", "", "one.example.org"));
        fixture.execute(register("n2", "10.0.0.2", "two.example.org"));
        fixture.execute(register("n3", "", ""));
        fixture.execute(submit(red_job().group_name("lead").next_group("worker").tasks(3).cpus(2)));
        fixture.take_changed_nodes();
        fixture.execute(Command::AdoptPlan { plan: Box::new(plan_with_ranks_on(["n2", "n1", "n2", "n1"])), epoch: 1 });
        assert_eq!(fixture.take_changed_nodes(), ["n1", "n2"]);
        fixture
    }

    fn execute(&mut self, command: Command) {
        let by = Actor::local("ada");
        let decision = self.state.decide(&by, &command, self.now).unwrap();
        for event in &decision.events {
            self.state.apply(event);
            let entry = Entry { seq: self.state.seq, epoch: 1, at: self.now, event: event.clone() };
            self.changed_nodes.extend(self.tracker.nodes_to_send_orders(&batch(entry)));
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
        let orders = orders(&self.state, &node.parse().unwrap(), term(1));
        assert_eq!(orders.attempts.len(), 1);
        orders.attempts[0].clone()
    }

    fn grace_ms(&self, node: &str) -> i64 {
        self.order(node).stop.unwrap().grace_ms
    }
}

fn term(epoch: u64) -> LeaderEpoch {
    LeaderEpoch { epoch, nonce: 100 + epoch }
}

fn reset(state: &State, epoch: u64) -> DispatchInput {
    DispatchInput::Journal(JournalUpdate::Reset { state: Box::new(state.clone()), term: term(epoch) })
}

fn batch(entry: Entry) -> DispatchInput {
    DispatchInput::Journal(JournalUpdate::Batch(Arc::new(Batch { entries: vec![entry] })))
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
    let gpu = |index: u32| GpuFacts {
        memory_mib: 80_000,
        numa_node: (name == "n2").then_some(index), // Unknown on the other nodes.
        power_limit_milliwatts: None,
        ..gpu(&format!("{name}-{index}"), "H100")
    };
    let node = node().cpus(8).memory_mib(1_024).hostname(hostname).address(address).gpu_facts([0, 1].map(gpu));
    Command::RegisterNode { node: name.parse().unwrap(), facts: Box::new(node.build()) }
}

/// A job of the tenant `red`, whose tasks have 1 GPU, 1 core and 1 MiB each.
fn red_job() -> JobBuilder {
    job().name("x").tenant("red").command("x").memory_mib(1)
}

fn submit(job: JobBuilder) -> Command {
    Command::SubmitJob(submission(job))
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
        assert_eq!(order.master_port, Some(29_500));
        let hosts: Vec<(&str, u32)> = order.hosts.iter().map(|host| (host.address.as_str(), host.tasks)).collect();
        assert_eq!(hosts, [("10.0.0.2", 2), ("one.example.org", 2)]);
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
    fixture.execute(submit(red_job().group_name("reader").share(250).gpu_memory_mib(10_000)));
    let plan = muster_core::planner::plan(&fixture.state, fixture.now).plan;
    let node = plan.starts[0].tasks[0].node.clone();
    fixture.execute(Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
    let orders = orders(&fixture.state, &node, term(1));
    let share = orders.attempts.iter().find_map(|order| order.tasks[0].share.clone());
    let expected =
        TaskShare { mode: "mps".to_string(), compute_milli: 250, memory_mib: 10_000, profile: None, start: None };
    assert_eq!(share, Some(expected));
}

/// An agent ends what its orders no longer name.
#[test]
fn orders_that_are_too_large_leave_out_only_what_was_never_sent() {
    let mut fixture = DispatchFixture::with_gang();
    let node: NodeId = "n3".parse().unwrap();
    for name in ["a", "b", "c", "d"] {
        let mut spec = red_job().name(name).gpus(0).build();
        (spec.run.command, spec.run.script) = (Vec::new(), Some("x\n".repeat(250)));
        fixture.execute(Command::SubmitJob(submission(spec)));
    }
    let job_of = |name: &str, state: &State| state.jobs.values().find(|job| job.spec.name == name).unwrap().id;
    // The last one that was submitted is placed first.
    let mut named = Vec::new();
    for name in ["d", "c", "b", "a"] {
        fixture.now = fixture.now.plus(10);
        let job = job_of(name, &fixture.state);
        let task = PlacedTask { rank: 0, group: 0, node: node.clone(), gpus: Vec::new(), share: None };
        let (effective_priority, expected_ms, score) = (None, None, None);
        let start = Start { job, tasks: vec![task], effective_priority, expected_ms, revocable: false, score };
        let plan = Box::new(Plan { starts: vec![start], ..Plan::default() });
        fixture.execute(Command::AdoptPlan { plan, epoch: 1 });
        named.push(names_of(&fixture.state, &node));
    }
    assert_eq!(named, ["d", "d c", "d c", "d c"], "two programs fit");
    let exit = muster_core::objects::job::Exit::Code { code: 0 };
    let ended = TaskReport::Ended { exit, stopped: false, ended_ms_ago: None };
    let job = job_of("a", &fixture.state);
    fixture.execute(Command::CancelJob { job });
    assert_eq!(names_of(&fixture.state, &node), "d c a-without-program", "a stop is always sent");
    let job = job_of("d", &fixture.state);
    fixture.execute(Command::ReportTask { node: node.clone(), job, attempt: 1, report: ended });
    assert_eq!(names_of(&fixture.state, &node), "c b a-without-program");
    assert_eq!(orders(&fixture.state, &node, term(1)).attempts.len(), 3, "far below the actual limit");
}

fn names_of(state: &State, node: &NodeId) -> String {
    let orders = orders_up_to(state, node, term(1), 2_000);
    let name = |order: &AttemptOrder| match order.run.script.is_some() {
        true => order.name.clone(),
        false => format!("{}-without-program", order.name),
    };
    orders.attempts.iter().map(name).collect::<Vec<_>>().join(" ")
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
    assert!(orders(&fixture.state, &"n1".parse().unwrap(), term(1)).pools.is_empty());
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
    let pools = orders(&fixture.state, &"n1".parse().unwrap(), term(1)).pools;
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

#[test]
fn a_heartbeat_is_answered_if_the_agent_follows_older_orders() {
    let mut fixture = DispatchFixture::with_gang();
    let heartbeat = |node: &str, following: Option<(u64, u64)>| {
        let following = following.map(|(epoch, generation)| OrdersStamp { epoch, nonce: 100 + epoch, generation });
        DispatchInput::Heartbeat {
            node: node.parse().unwrap(),
            following,
            sent_at_boot_ms: 7,
            received_at: Duration::from_secs(7),
        }
    };
    let orders_of_n1 = orders(&fixture.state, &"n1".parse().unwrap(), term(1)).stamp();
    let current = Some((orders_of_n1.epoch, orders_of_n1.generation));
    let mut is_answered = |input: DispatchInput| !fixture.tracker.nodes_to_send_orders(&input).is_empty();
    assert!(is_answered(heartbeat("n1", None)), "no orders have arrived");
    assert!(is_answered(heartbeat("n1", Some((1, 1)))), "those that start the gang were lost");
    assert!(!is_answered(heartbeat("n1", current)));
    assert!(is_answered(heartbeat("n1", Some((9, 900)))), "of another epoch");
    let of_lost_history = OrdersStamp { nonce: 7, generation: 900, ..orders_of_n1 };
    assert!(is_answered(heartbeat_at(7, 7, of_lost_history)), "the same epoch of a lost history");
    assert!(!is_answered(heartbeat("n9", None)), "an unknown node");

    fixture.report_task("n2", TaskReport::Started);
    let mut is_answered = |input: DispatchInput| !fixture.tracker.nodes_to_send_orders(&input).is_empty();
    assert!(is_answered(heartbeat("n1", current)), "the report of one node changes the orders of the whole gang");
    assert!(!is_answered(heartbeat("n3", current)), "an event without effect on the node");

    assert!(!is_answered(DispatchInput::Journal(JournalUpdate::LeadershipLost)));
    assert!(!is_answered(heartbeat("n1", current)), "only the leader sends orders");
    let reset = reset(&fixture.state, 2);
    assert_eq!(fixture.tracker.nodes_to_send_orders(&reset).len(), 3);
    assert_eq!(fixture.tracker.nodes_to_send_orders(&heartbeat("n3", current)).len(), 1, "of the former epoch");
}

/// A heartbeat of `n1`, received at this second.
fn heartbeat_at(second: u64, sent_at_boot_ms: i64, stamp: OrdersStamp) -> DispatchInput {
    let (node, received_at) = ("n1".parse().unwrap(), Duration::from_secs(second));
    DispatchInput::Heartbeat { node, following: Some(stamp), sent_at_boot_ms, received_at }
}

#[test]
fn a_heartbeat_is_acknowledged_once_the_lease_was_renewed_after_its_receipt() {
    let mut fixture = DispatchFixture::with_gang();
    let stamp = orders(&fixture.state, &"n1".parse().unwrap(), term(1)).stamp();
    let mut echoes_of = |input: DispatchInput, renewed_at: u64| -> Vec<i64> {
        let echoes = fixture.tracker.echoes(&input, Duration::from_secs(renewed_at));
        fixture.tracker.nodes_to_send_orders(&input);
        echoes.iter().map(|echo| echo.sent_at_boot_ms).collect()
    };
    assert_eq!(echoes_of(heartbeat_at(10, 1, stamp), 9), [0; 0]);
    assert_eq!(echoes_of(heartbeat_at(12, 2, stamp), 9), [0; 0], "the lease was renewed before");
    assert_eq!(echoes_of(heartbeat_at(14, 3, stamp), 13), [2], "the newest that the renewal confirms");
    assert_eq!(echoes_of(heartbeat_at(15, 4, stamp), 13), [0; 0], "each once");
    let lost = DispatchInput::Journal(JournalUpdate::LeadershipLost);
    assert_eq!(echoes_of(lost, 13), [0; 0]);
    assert_eq!(echoes_of(heartbeat_at(17, 5, stamp), 16), [0; 0], "of the former term");
    assert_eq!(echoes_of(heartbeat_at(19, 6, stamp), 18), [0; 0], "this server does not lead");
}

/// The commit of each renewal takes as long as a heartbeat interval.
#[test]
fn heartbeats_are_acknowledged_although_each_renewal_takes_longer_than_a_heartbeat_interval() {
    let mut fixture = DispatchFixture::with_gang();
    let stamp = orders(&fixture.state, &"n1".parse().unwrap(), term(1)).stamp();
    let mut acknowledged = Vec::new();
    for second in 10..20 {
        // This heartbeat arrives together with the renewal that was sent before it, and confirms the former one.
        let heartbeat = heartbeat_at(second, second as i64, stamp);
        acknowledged.extend(fixture.tracker.echoes(&heartbeat, Duration::from_millis(second * 1_000 - 1_500)));
        let echoes = fixture.tracker.echoes(&DispatchInput::EngineEnded, Duration::from_millis(second * 1_000 - 500));
        acknowledged.extend(echoes);
        assert!(fixture.tracker.unacknowledged.values().all(|waiting| waiting.len() <= 2));
    }
    let acknowledged: Vec<i64> = acknowledged.iter().map(|echo| echo.sent_at_boot_ms).collect();
    assert_eq!(acknowledged, (10..19).collect::<Vec<i64>>());
}

/// The silence of a node that is not seen may prove its attempts dead in a command that is not decided yet.
#[test]
fn a_node_that_is_not_seen_is_not_acknowledged_although_it_follows_new_orders() {
    let mut fixture = DispatchFixture::with_gang();
    let node: NodeId = "n1".parse().unwrap();
    let set_sight = |fixture: &mut DispatchFixture, sight: Sight| {
        let (node, fenced) = (node.clone(), Vec::new());
        fixture.execute(Command::SetNodeSight { node, sight, silent_ms: 400_000, fenced });
    };
    let is_acknowledged = |fixture: &mut DispatchFixture, second: u64| {
        let stamp = orders(&fixture.state, &node, fixture.tracker.leader_epoch).stamp();
        fixture.tracker.echoes(&heartbeat_at(second, 1, stamp), Duration::from_secs(second - 1));
        !fixture.tracker.echoes(&DispatchInput::EngineEnded, Duration::from_secs(second + 1)).is_empty()
    };
    assert!(is_acknowledged(&mut fixture, 10));
    set_sight(&mut fixture, Sight::Suspect);
    assert!(!is_acknowledged(&mut fixture, 20), "suspect");
    set_sight(&mut fixture, Sight::Unreachable);
    assert!(!is_acknowledged(&mut fixture, 30), "unreachable");
    let reset = reset(&fixture.state, 2);
    fixture.tracker.nodes_to_send_orders(&reset);
    assert!(!is_acknowledged(&mut fixture, 40), "unreachable for the next leader");
    set_sight(&mut fixture, Sight::Seen);
    assert!(is_acknowledged(&mut fixture, 50));
}

/// Orders from before a silence may name attempts that were fenced during it.
#[test]
fn a_heartbeat_with_orders_from_before_a_silence_is_not_acknowledged() {
    let mut fixture = DispatchFixture::with_gang();
    let node: NodeId = "n1".parse().unwrap();
    let before = orders(&fixture.state, &node, term(1)).stamp();
    for sight in [Sight::Suspect, Sight::Seen] {
        let (node, fenced) = (node.clone(), Vec::new());
        fixture.execute(Command::SetNodeSight { node, sight, silent_ms: 9_000, fenced });
    }
    assert_eq!(fixture.take_changed_nodes(), ["n1"], "it is sent its orders");
    let after = orders(&fixture.state, &node, term(1)).stamp();
    let acknowledged = |tracker: &mut OrderTracker, second: u64, stamp: OrdersStamp| {
        tracker.echoes(&heartbeat_at(second, 1, stamp), Duration::from_secs(second - 1));
        !tracker.echoes(&DispatchInput::EngineEnded, Duration::from_secs(second + 1)).is_empty()
    };
    assert!(!acknowledged(&mut fixture.tracker, 10, before));
    assert!(acknowledged(&mut fixture.tracker, 20, after));
    assert!(!acknowledged(&mut fixture.tracker, 30, OrdersStamp { epoch: 0, ..after }), "orders of another leader");
    assert!(!acknowledged(&mut fixture.tracker, 40, OrdersStamp { nonce: 7, ..after }), "of a lost history");
    assert!(
        acknowledged(&mut fixture.tracker, 50, OrdersStamp { nonce: 0, ..after }),
        "an agent of an earlier release"
    );
}

/// The node joins again while a part of the gang may run there.
#[test]
fn after_a_new_enrolment_an_attempt_is_only_adopted_until_its_start_is_reported() {
    let mut fixture = DispatchFixture::with_gang();
    let token = JoinToken {
        id: "again".to_string(),
        hash: String::new(),
        node: Some("n1".parse().unwrap()),
        made_by: "ada".to_string(),
        made_at: fixture.now,
        expires_at: fixture.now.plus(60_000),
    };
    fixture.execute(Command::AddJoinToken { token: Box::new(token) });
    fixture.now = fixture.now.plus(1);
    fixture.execute(Command::EnrolNode { node: "n1".parse().unwrap(), token: "again".to_string() });
    let flags = |fixture: &DispatchFixture, node: &str| {
        let order = fixture.order(node);
        (order.started, order.adopt_only)
    };
    assert_eq!(flags(&fixture, "n1"), (true, true), "an agent of an earlier release reads `started` alone");
    assert_eq!(flags(&fixture, "n2"), (false, false));
    fixture.report_task("n1", TaskReport::Started);
    assert_eq!(flags(&fixture, "n1"), (true, false));
}
