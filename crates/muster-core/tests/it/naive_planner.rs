//! A naive planner: slow and simple, without indexes, caches or classes of equal nodes. It examines every job and every
//! node each time, and must agree with `plan` about starts, placements and evictions.

mod backfill;
mod claims;
mod defragment;
mod devices;
mod elastic;
mod expected_end;
mod fair_share;
mod fragmentation;
mod gang_eviction;
mod guarantee;
mod locality;
mod multi_node;
mod order;
mod place;
mod policies;
mod preempt;
mod quota;
mod score;
mod space;
mod srpt;

use std::collections::{BTreeMap, BTreeSet};

use muster_core::estimate::expected_end::Certainty;
use muster_core::objects::demand::Demand;
use muster_core::objects::job::{Job, PlacedTask};
use muster_core::objects::node::{Node, NodeStatus};
use muster_core::planner::plan;
use muster_core::resources::Kind;
use muster_core::{JobId, NodeId, State, TenantId, Timestamp};

use crate::naive_planner::backfill::Reservation;
use crate::naive_planner::expected_end::{ExpectedEnd, irrevocable};
use crate::naive_planner::fragmentation::Fragmentation;
use crate::naive_planner::order::bucket_key;
use crate::naive_planner::space::{Space, free_on, space_by_node, space_of_task};
use crate::recompute::{demand_of, milliwatts_of};
use crate::story::Step;
use crate::story_runner::{StoryRunner, run_stories, story_count};

#[test]
fn a_naive_planner_agrees_in_every_story() {
    run_stories(story_count(2_500), |story| {
        let mut runner = StoryRunner::new(story);
        for step in &story.steps {
            if let Step::Plan(_) = step {
                compare(&runner.world.state, runner.world.now);
            }
            runner.step(step);
        }
    });
}

/// Both planners propose the same starts and evictions.
pub fn compare(state: &State, now: Timestamp) {
    let planned = plan(state, now).plan;
    let starts: Vec<_> = planned.starts.iter().map(|start| (start.job, start.tasks.clone())).collect();
    let evictions: Vec<Evicted> = planned.evictions.into_iter().map(|one| (one.job, one.tasks, one.victims)).collect();
    let naive = NaivePlanner::plan(state, now, starts.iter().cloned().collect());
    assert_eq!(starts, naive.starts, "starts");
    assert_eq!(evictions, naive.evictions, "evictions");
    let revocable = planned.starts.iter().filter(|start| start.revocable).map(|start| start.job);
    assert_eq!(revocable.collect::<BTreeSet<_>>(), naive.revocable, "revocable starts");
    state.nodes.values().filter(|node| node.is_schedulable()).for_each(|node| compare_fragmentation(state, node));
}

/// Both planners expect the same fragmentation of a node, to a millionth of a device. Most errors of a few thousandths
/// change no choice, so the values are compared as well.
fn compare_fragmentation(state: &State, node: &Node) {
    let own = Fragmentation::of(state, node).milli(&free_on(node));
    let kind = Kind::of(node);
    let free = state.resources.entry(&node.id).unwrap().free;
    let expected = kind.fragmentation_milli(&state.resources.fragmentation_of(&kind), free);
    assert!((own - expected).abs() <= 0.001, "{}: {expected} thousandths are fragmented, not {own}", node.id);
}

/// A preemptor, its placement, and its victims.
type Evicted = (JobId, Vec<PlacedTask>, Vec<JobId>);

struct NaivePlanner<'a> {
    state: &'a State,
    now: Timestamp,
    /// Starts of the product's plan; see `best_placement`.
    proposed: BTreeMap<JobId, Vec<PlacedTask>>,
    /// Free space of schedulable nodes, without claimed space.
    free: BTreeMap<NodeId, Space>,
    fragmentation: BTreeMap<NodeId, Fragmentation>,
    /// Space of pending stops that no claim waits for.
    releasing: BTreeMap<NodeId, Space>,
    /// Usage of the jobs that start or hold a claim.
    planned_usage: Vec<(&'a Job, Demand)>,
    /// Placements of the same jobs.
    planned_tasks: Vec<(&'a Job, Vec<PlacedTask>)>,
    claimants: BTreeSet<JobId>,
    evicted: BTreeSet<JobId>,
    /// Space of pending stops and victims that is promised to a claim.
    promised: BTreeMap<NodeId, Space>,
    reservations: Vec<Reservation>,
    /// Number of searches for a reservation.
    searches: u32,
    mode: EvictionMode<'a>,
    /// Jobs that backfill revocably.
    revocable: BTreeSet<JobId>,
    starts: Vec<(JobId, Vec<PlacedTask>)>,
    evictions: Vec<Evicted>,
    /// Tasks of starts and evictions of this plan, with their tenants.
    planned_devices: Vec<(&'a TenantId, PlacedTask)>,
}

/// Which running jobs are victims: jobs of lower priority, or those that the objective `fast` lets yield.
#[derive(Clone, Copy)]
enum EvictionMode<'a> {
    ByPriority,
    /// Jobs that lose almost nothing and have a lower SRPT index than the preemptor.
    LossFree(&'a Job),
    /// Jobs with more remaining GPU time than the preemptor.
    NetGain,
}

impl<'a> NaivePlanner<'a> {
    fn plan(state: &'a State, now: Timestamp, proposed: BTreeMap<JobId, Vec<PlacedTask>>) -> NaivePlanner<'a> {
        let open = || state.nodes.values().filter(|node| node.status() == NodeStatus::Ready);
        let mut naive = NaivePlanner {
            state,
            now,
            proposed,
            free: open().map(|node| (node.id.clone(), free_on(node))).collect(),
            fragmentation: open().map(|node| (node.id.clone(), Fragmentation::of(state, node))).collect(),
            releasing: BTreeMap::new(),
            planned_usage: Vec::new(),
            planned_tasks: Vec::new(),
            claimants: BTreeSet::new(),
            evicted: BTreeSet::new(),
            promised: BTreeMap::new(),
            reservations: Vec::new(),
            searches: 0,
            mode: EvictionMode::ByPriority,
            revocable: BTreeSet::new(),
            starts: Vec::new(),
            evictions: Vec::new(),
            planned_devices: Vec::new(),
        };
        naive.count_pending_stops();
        naive.hold_claimed_space();
        naive.start_claimants();
        let mut buckets = naive.buckets();
        let (mut blocked, mut left_over) = (Vec::new(), Vec::new());
        while let Some(job) = naive.next_head(&mut buckets) {
            if naive.claimants.contains(&job.id)
                || (naive.admits(job) && (naive.start(job) || naive.preempt(job) || naive.srpt_loss_free(job)))
            {
                continue;
            }
            if naive.admits(job)
                && let Some(reservation) = naive.earliest_reservation(job)
            {
                if naive.srpt_net_gain(job, reservation.at) {
                    continue;
                }
                naive.reserve(reservation);
            }
            blocked.push(job);
            // The rest of the bucket is blocked in the same way.
            let same = |other: &Job| bucket_key(state, other) == bucket_key(state, job);
            let behind = buckets.iter().filter(|bucket| bucket.first().is_some_and(|other| same(other))).flatten();
            left_over.extend([job].into_iter().chain(behind.copied()));
            buckets.retain(|bucket| !bucket.first().is_some_and(|other| same(other)));
        }
        naive.defragment(blocked);
        naive.srpt_group(left_over);
        naive.grow_elastic();
        naive
    }

    fn record_start(&mut self, job: &'a Job, tasks: Vec<PlacedTask>) {
        let expected_end = self.expected_end(job);
        let is_free = |(node, taken): (&NodeId, &Space)| {
            let usable = self.unreserved(node, &self.free[node], irrevocable(expected_end), Some(&job.spec.tenant));
            usable.is_some_and(|usable| usable.holds(taken))
        };
        if expected_end.1 == Certainty::Revocable && !space_by_node(job, &tasks).iter().all(is_free) {
            self.revocable.insert(job.id);
        }
        tasks.iter().for_each(|task| self.take_space(job, task, expected_end));
        self.count_usage(job, &tasks);
        self.starts.push((job.id, tasks));
    }

    /// Count a gang that starts or gets a claim.
    fn count_usage(&mut self, job: &'a Job, tasks: &[PlacedTask]) {
        let milliwatts = milliwatts_of(self.state, tasks);
        self.planned_usage.push((job, Demand { milliwatts, ..demand_of(job, tasks) }));
        self.planned_tasks.push((job, tasks.to_vec()));
    }

    fn take_space(&mut self, job: &'a Job, task: &PlacedTask, expected_end: ExpectedEnd) {
        let taken = space_of_task(job, task);
        self.free.get_mut(&task.node).unwrap().take(&taken);
        self.planned_devices.push((&job.spec.tenant, task.clone()));
        for reservation in self.reservations.iter_mut().filter(|reservation| reservation.blocks_backfill(expected_end))
        {
            reservation.spare.entry(task.node.clone()).and_modify(|spare| spare.take(&taken));
        }
    }
}
