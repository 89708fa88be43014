//! Laws: invariants of every story, valid and invalid commands alike.

use std::collections::BTreeMap;

use muster_core::facts::command::{Answer, Command};
use muster_core::facts::plan::{PlanPart, RejectedPart, Rejection};
use muster_core::facts::verdict::Reason;
use muster_core::objects::job::{Attempt, Job, JobSpec};
use muster_core::objects::node::{Node, Sight};
use muster_core::objects::policy::Hook;
use muster_core::objects::shape::Shape;
use muster_core::planner::{Planned, Remedy, dry_run, first_ahead, plan, position, remedies};
use muster_core::resources::{Kind, ResourceVec};
use muster_core::state::Claim;
use muster_core::{JobId, NodeId, State, Timestamp};

use crate::builders::{eviction, job, node, plan_of_evictions, submission};
use crate::recompute::{is_admitted, is_ready, least_demand};
use crate::story::JobRequest;
use crate::story_policies;
use crate::story_runner::{StoryRunner, run_stories, saved_and_restored, story_count};
use crate::world::{World, actor};

#[test]
fn every_story_keeps_the_laws() {
    run_stories(story_count(10_000), |story| {
        let mut runner = StoryRunner::new(story);
        story.steps.iter().for_each(|step| runner.step(step));
        runner.replay();
        runner.come_to_rest();
    });
}

/// A claim on devices that the preemptor does not need, or that do not exist, would keep them from other jobs.
#[test]
fn a_claim_takes_only_what_it_needs() {
    let mut world = World::new();
    world.register("n0", node());
    let low = world.submit(job().gpus(4));
    world.plan();
    let high = world.submit(job().priority(500));
    let plan = plan_of_evictions(vec![eviction(high, "n0", &[0, 1, 2, 40], &[low])]);
    let rejected = RejectedPart { part: PlanPart::Eviction, job: high, reason: Rejection::IncompleteGang };
    assert_eq!(world.adopt(&plan), (0, vec![rejected]));
}

pub fn check_plan_is_deterministic(world: &World, planned: &Planned) {
    let copy = saved_and_restored(&world.state);
    assert_eq!(&plan(&copy, world.now), planned, "the same snapshot gave another plan");
}

/// A job starts in the next round after a remedy is applied.
pub fn check_remedies(world: &World) {
    let job = world.state.jobs.values().find(|job| is_ready(job));
    // Only every fourth time, because remedies cost many rounds.
    let Some(job) = job.filter(|_| world.state.seq.is_multiple_of(4)) else { return };
    for remedy in remedies(&world.state, &actor(), job.id, world.now) {
        let mut real = world.clone();
        let changed = match remedy.job_change() {
            Some(change) => real.run(Command::ChangeJob { job: job.id, change }).map(|_| job.id),
            None => {
                real.run(Command::CancelJob { job: job.id }).unwrap();
                let spec = remedy.applied_to(&job.spec);
                real.run(Command::SubmitJob(submission(spec))).map(|answer| match answer {
                    Answer::Job(job) => job,
                    other => panic!("{other:?}"),
                })
            }
        };
        let id = changed.unwrap_or_else(|refusal| panic!("{remedy:?} was refused: {refusal}"));
        // Policy limits are dropped with the last queued job of a tenant.
        let _ = real.run(story_policies::repeat_limits(&world.state));
        let plan = plan(&real.state, real.now).plan;
        let helped = plan.starts.iter().any(|start| start.job == id)
            || (plan.evictions.iter().any(|eviction| eviction.job == id)
                && matches!(remedy, Remedy::Priority { displaces: true, .. }));
        assert!(helped, "{remedy:?} does not help {}: {plan:?}", job.id);
    }
}

/// True if policies are asked before the start of such a job: a dry run does not know their answers.
fn asks_policies(state: &State, spec: &JobSpec) -> bool {
    let unknown = state
        .lineage(&spec.tenant)
        .filter(|one| story_policies::is_hook_active(state, Hook::Limit, &one.id))
        .any(|one| !state.policies.limits.contains_key(&one.id));
    unknown || Hook::BEFORE_START.into_iter().any(|hook| state.policies.answers_hook(hook, &spec.tenant))
}

/// A dry run equals the next round after the submission.
pub fn check_dry_run(world: &World, request: &JobRequest) {
    let submission = request.submission(&world.state, world.now);
    if submission.array.is_some()
        || submission.hold
        || submission.key.is_some()
        || !submission.spec.after.is_empty()
        || asks_policies(&world.state, &submission.spec)
    {
        return;
    }
    let spec = submission.spec.clone();
    let mut real = world.clone();
    let Ok(Answer::Job(job)) = real.run(Command::SubmitJob(submission)) else { return };
    let expected = dry_run(&world.state, &spec, world.now);
    let planned = plan(&real.state, real.now);
    let start = planned.plan.starts.iter().find(|start| start.job == job).map(|start| start.tasks.clone());
    let eviction = planned.plan.evictions.iter().find(|eviction| eviction.job == job).cloned();
    assert_eq!((&expected.start, &expected.eviction), (&start, &eviction), "the dry run was wrong");
    let found = position(&real.state, &real.state.jobs[&job], real.now);
    assert_eq!(found.map(|_| expected.position), found, "the position of the dry run was wrong");
}

/// Claims whose devices are free and whose preemptor may start: it must start in the next round.
pub fn claims_with_space(state: &State, now: Timestamp) -> BTreeMap<JobId, Claim> {
    let has_space = |(id, claim): &(&JobId, &Claim)| {
        let job = &state.jobs[id];
        let shape = Shape::of(&job.spec);
        let has_space = |(node, wanted): (&NodeId, ResourceVec)| {
            let node = &state.nodes[node];
            let kind = Kind::of(node);
            // A node may have registered again with other devices.
            let is_eligible = job.spec.tasks.iter().all(|group| kind.could_hold_tasks(&shape, &group.each) > 0);
            let alone = state.claims.values().filter(|other| other.is_on(&node.id)).count() == 1;
            let is_eligible = is_eligible && state.is_claim_usable(job, claim, now);
            let free = state.resources.entry(&node.id).is_some_and(|entry| entry.free.covers(wanted));
            let booked = state.windows.values().any(|window| window.nodes.contains(&node.id));
            node.is_schedulable() && is_eligible && alone && free && !booked
        };
        is_ready(job)
            && is_admitted(state, job, least_demand(state, job), now)
            && !has_model_limits(state, job)
            && ResourceVec::by_node(&job.spec, &claim.tasks).into_iter().all(has_space)
    };
    state.claims.iter().filter(has_space).map(|(job, claim)| (*job, claim.clone())).collect()
}

/// Model limits are a reason only if no kind of node is left, so free space alone does not decide.
fn has_model_limits(state: &State, job: &Job) -> bool {
    state.lineage(&job.spec.tenant).any(|tenant| !tenant.config.maximum_by_model.is_empty())
}

/// No pointless eviction: a preemptor starts where its victims were stopped.
pub fn check_claims_are_used(due: &BTreeMap<JobId, Claim>, planned: &Planned) {
    for (job, claim) in due {
        let start = planned.plan.starts.iter().find(|start| start.job == *job);
        // An elastic gang may have further tasks elsewhere.
        let there = start.is_some_and(|start| {
            claim.tasks.iter().all(|wanted| start.tasks.iter().any(|task| task.node == wanted.node))
        });
        assert!(there, "{job} does not use its claim: {claim:?} {:#?}", planned.plan);
    }
}

/// Positions are a permutation of the ready jobs, and starts without a claim follow them.
pub fn check_order(world: &World, planned: &Planned) {
    let ready: Vec<&Job> = world.state.jobs.values().filter(|job| is_ready(job)).collect();
    let places: BTreeMap<JobId, u64> = ready
        .iter()
        .map(|job| (job.id, position(&world.state, job, world.now).expect("a ready job has a position").position))
        .collect();
    let mut sorted: Vec<u64> = places.values().copied().collect();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=ready.len() as u64).collect::<Vec<_>>(), "positions repeat or are left out");
    for job in &ready {
        let place = places[&job.id] as usize;
        let mut before: Vec<(u64, JobId)> = places.iter().map(|(id, place)| (*place, *id)).collect();
        before.sort_unstable();
        let expected: Vec<JobId> = before.iter().take(place - 1).take(3).map(|(_, id)| *id).collect();
        assert_eq!(first_ahead(&world.state, job, world.now, 3), expected, "the jobs ahead of {}", job.id);
    }
    let unclaimed = planned.plan.starts.iter().filter(|start| !world.state.claims.contains_key(&start.job));
    // Each start changes fair shares and guarantees, so only jobs of one bucket are sure to keep their order. The naive
    // planner checks the rest.
    let mut orders: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for start in unclaimed {
        let spec = &world.state.jobs[&start.job].spec;
        let line =
            format!("{} of {} {} {:?} {:?}", spec.user, spec.tenant, spec.priority, spec.tasks, spec.time_limit_ms);
        orders.entry(line).or_default().push(places[&start.job]);
    }
    for (line, order) in orders {
        assert!(order.is_sorted(), "the order of {line} was not respected: {order:?}");
    }
}

/// Every waiting job has a reason, and a running job exactly if one of its parts is on a lost node or has not started in
/// time beside the others.
pub fn check_verdicts(world: &World, planned: &Planned) {
    for job in world.state.jobs.values() {
        let reasons = planned.verdicts.of(&world.state, job, world.now).reasons;
        let is_on_lost_node = |attempt: &Attempt| {
            let mut nodes = world.state.nodes.values();
            nodes.any(|node| attempt.has_open_part(&node.id) && node.state.sight.status > Sight::Suspect)
        };
        let runs_in_part = |attempt: &Attempt| {
            let is_partial = attempt.first_started_at.is_some() && attempt.started_at.is_none();
            is_partial && attempt.start_bound_ms.is_some() && attempt.stopping.is_none()
        };
        let is_explained = |attempt: &Attempt| is_on_lost_node(attempt) || runs_in_part(attempt);
        assert_eq!(!reasons.is_empty(), job.attempt().is_none_or(is_explained), "{}: {reasons:?}", job.id);
        let seen = !reasons.contains(&Reason::Considering);
        assert!(seen || was_rejected(world, planned, job), "the round did not consider {}", job.id);
    }
}

/// A job that fits somewhere and does not start has a reason other than missing space.
pub fn check_no_space_is_wasted(world: &World, planned: &Planned) {
    let state = &world.state;
    let waits = |job: &&Job| {
        is_ready(job) && is_admitted(state, job, least_demand(state, job), world.now) && !has_model_limits(state, job)
    };
    for job in state.jobs.values().filter(waits) {
        let reasons = planned.verdicts.of(state, job, world.now).reasons;
        let other = |reason: &Reason| {
            matches!(
                reason,
                Reason::Reservation { .. }
                    | Reason::Partition { .. }
                    | Reason::Window { .. }
                    | Reason::Claimed { .. }
                    | Reason::QuotaTenant { .. }
                    | Reason::QuotaUser { .. }
                    | Reason::ArrayLimit { .. }
                    | Reason::Policy { .. }
                    | Reason::PolicyRefused { .. }
                    | Reason::PolicyUnasked
                    | Reason::PolicyLimit { .. }
            )
        };
        let node = fits_somewhere(state, job).filter(|_| !reasons.iter().any(other));
        assert_eq!(node, None, "{} would fit there: {reasons:?}", job.id);
    }
}

/// True for a part of the plan that was rejected. Adoption is strict about cores and memory if a claim is used or
/// made in the same plan, and may reject what would fit; the next round considers the job again.
fn was_rejected(world: &World, planned: &Planned, job: &Job) -> bool {
    let eviction = planned.plan.evictions.iter().any(|eviction| eviction.job == job.id);
    let start = planned.plan.starts.iter().any(|start| start.job == job.id);
    (eviction && !world.state.claims.contains_key(&job.id)) || start
}

/// The nodes on which a job of one task group fits beside the claims of other jobs.
fn fits_somewhere(state: &State, job: &Job) -> Option<String> {
    let (shape, group) = (Shape::of(&job.spec), &job.spec.tasks[0]);
    let claimed = state.claimed_space();
    let tasks_by_node = |node: &Node| {
        let entry = state.resources.entry(&node.id).filter(|entry| entry.open)?;
        let others = claimed.get(&node.id).into_iter().flatten().filter(|(id, _)| *id != job.id);
        let free = others.fold(entry.free, |free, (_, space)| free.minus(*space));
        let one = |count: &u32| {
            let shape = Shape { groups: vec![(*count, group.each.clone())], ..shape.clone() };
            entry.kind.admits(&shape) && entry.kind.fit(&shape, free).is_some()
        };
        (1..=group.count).rev().find(one)
    };
    let tasks_by_node: Vec<(&NodeId, u32)> =
        state.nodes.values().filter_map(|node| Some((&node.id, tasks_by_node(node)?))).collect();
    let rack = |node: &NodeId| {
        let facts = &state.nodes[node].facts;
        Some((facts.block.clone(), facts.rack.clone()?))
    };
    let is_near = |one: &NodeId, other: &NodeId| match () {
        () if one == other || (!shape.locality.is_required() && !shape.must_share_a_rack()) => true,
        () if shape.locality.is_required() => false,
        () => rack(one).is_some() && rack(one) == rack(other),
    };
    let around =
        |one: &NodeId| tasks_by_node.iter().filter(|(node, _)| is_near(one, node)).map(|(_, count)| count).sum::<u32>();
    let enough = tasks_by_node.iter().any(|(node, _)| around(node) >= group.count);
    (job.spec.tasks.len() == 1 && enough).then(|| format!("{tasks_by_node:?}"))
}
