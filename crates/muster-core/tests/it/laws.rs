//! Laws: what holds for every story, told by chance, sense and nonsense.
//!
//! The same seed tells the same stories; `STORIES=200000 SEED=8 cargo test -p muster-core laws` tells more and
//! others. A failing story is cut down to the least that fails and printed.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Once;

use muster_core::capacity::Free;
use muster_core::command::{Answer, Command, Said};
use muster_core::job::{Exit, JobSpec, PlacedTask};
use muster_core::plan::{MakeRoom, Plan, Planned, Remedy, first_ahead, outlook, plan, position, remedies};
use muster_core::policy::Hook;
use muster_core::queue::Shape;
use muster_core::state::{Claim, Restoring};
use muster_core::verdict::Reason;
use muster_core::{Job, JobId, NodeId, State, Timestamp};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::judge::Judge;
use crate::policies;
use crate::story::{Ask, Step, Story, command, node_name};
use crate::world::{World, actor, facts, is_admitted, is_ready, least_demand, spec, submission};

#[test]
fn every_story_keeps_the_laws() {
    tell(stories(10_000), |story| {
        let mut teller = Teller::new(story);
        story.steps.iter().for_each(|step| teller.step(step));
        teller.replay();
        teller.come_to_rest();
    });
}

/// `AdoptPlan` checks that the job fits on the devices a claim names, but not that the claim names only those:
/// it can keep devices from others that its job does not need, that others hold, or that do not exist.
#[test]
fn a_claim_takes_only_what_it_needs() {
    let mut world = World::new();
    let machine = facts(4, "H100", 64, 1 << 20);
    world.ask(Command::RegisterNode { node: node_name(0), facts: Box::new(machine) }).unwrap();
    world.ask(Command::SubmitJob(submission(spec("low", 4)))).unwrap();
    world.plan();
    let mut strong = spec("strong", 1);
    strong.priority = 500;
    let Ok(Answer::Job(job)) = world.ask(Command::SubmitJob(submission(strong))) else { panic!("refused") };
    let victims = world.state.nodes[&node_name(0)].jobs.iter().copied().collect();
    let task = PlacedTask { rank: 0, group: 0, node: node_name(0), gpus: vec![0, 1, 2, 40], share: None };
    let room = MakeRoom { job, tasks: vec![task], victims };
    let plan = Box::new(Plan { claims: vec![room], ..Plan::default() });
    let answer = world.ask(Command::AdoptPlan { plan, epoch: 1 });
    assert_eq!(answer, Ok(Answer::Adopted { taken: 0, left: 1 }));
}

/// Far more rounds than any of the small clusters needs.
const ROUNDS_TO_REST: usize = 60;

/// How many stories to tell.
pub fn stories(usual: u32) -> u32 {
    number_from("STORIES").unwrap_or(usual)
}

fn number_from<T: FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Tell this many stories; the least one that fails is printed.
pub fn tell(cases: u32, test: impl Fn(&Story)) {
    silence_shrinking();
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
    // The usual generator is strong and, unoptimised, takes longer than the stories.
    let seed = u128::from(number_from("SEED").unwrap_or(7u64)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060);
    let chance = TestRng::from_seed(RngAlgorithm::XorShift, &seed.to_le_bytes());
    let told = TestRunner::new_with_rng(config, chance).run(&Story::any(), |story| {
        test(&story);
        Ok(())
    });
    match told {
        Ok(()) => {}
        Err(TestError::Fail(why, story)) => panic!("{why}\nin the story\n{story}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// Cutting a story down means failing many times; only the last word is of interest.
fn silence_shrinking() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let telling = std::thread::current().name().is_some_and(|name| name.contains("story"));
            let last =
                info.payload().downcast_ref::<String>().is_some_and(|why| why.contains("in the story"));
            if !telling || last {
                usual(info);
            }
        }));
    });
}

/// Tells a story and watches over it.
pub struct Teller {
    pub world: World,
    judge: Judge,
    old_plans: Vec<Plan>,
    saved: Option<(State, usize)>,
}

impl Teller {
    pub fn new(story: &Story) -> Teller {
        let mut teller =
            Teller { world: World::new(), judge: Judge::default(), old_plans: Vec::new(), saved: None };
        for command in story.opening() {
            let _ = teller.ask(command);
        }
        teller
    }

    /// One step. A refusal is an answer.
    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Plan(ask) => self.plan(ask),
            Step::OldPlan(index) => self.adopt_old(*index),
            Step::Restart => self.restart(),
            Step::Tick(ms) => self.world.now = self.world.now.plus(*ms),
            _ => {}
        }
        if let Some(command) = command(&self.world.state, self.world.now, step) {
            let _ = self.ask(command);
        }
        self.judge.see_state(&self.world.state);
    }

    fn ask(&mut self, command: Command) -> Option<Answer> {
        let judge = &mut self.judge;
        self.world.ask_watched(command, &mut |before, event| judge.see(before, event)).ok()
    }

    fn plan(&mut self, ask: &Ask) {
        let due = claims_with_room(&self.world.state, self.world.now);
        let planned = plan(&self.world.state, self.world.now);
        self.see_same_snapshot_same_plan(&planned);
        self.see_outlook(ask);
        self.see_remedies();
        see_order(&self.world, &planned);
        see_claims_taken(&due, &planned);
        self.old_plans.push(planned.plan.clone());
        let starts = planned.plan.starts.len();
        let takes_claim =
            planned.plan.starts.iter().any(|start| self.world.state.claims.contains_key(&start.job));
        let taken = self.ask(Command::AdoptPlan { plan: Box::new(planned.plan.clone()), epoch: 1 });
        let Some(Answer::Adopted { taken, left }) = taken else { panic!("a plan was refused") };
        // `AdoptPlan` counts the cores of a claim once more in the plan that takes it; see `was_left`.
        assert!(takes_claim || taken >= starts, "a fresh plan did not hold: {:#?}", planned.plan);
        see_verdicts(&self.world, &planned);
        // What was left is free again, and the verdicts do not know it.
        if left == 0 && planned.plan.cuts.is_empty() {
            see_no_room_wasted(&self.world, &planned);
        }
    }

    fn adopt_old(&mut self, index: usize) {
        if let Some(plan) = self.old_plans.iter().rev().nth(index).cloned() {
            let _ = self.ask(Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
        }
    }

    /// Memory is lost; the savepoint is all there is.
    fn restart(&mut self) {
        let restored = saved_and_restored(&self.world.state);
        assert_eq!(restored, self.world.state, "a savepoint does not give the same state");
        self.saved = Some((restored.clone(), self.world.events.len()));
        self.world.state = restored;
    }

    /// When nothing new happens and everyone who is told to stop does, plans come to an end: nobody is started and
    /// displaced in turn for ever.
    fn come_to_rest(&mut self) {
        for _ in 0..ROUNDS_TO_REST {
            if let Some(answers) = policies::yes(&self.world.state) {
                let _ = self.ask(answers);
            }
            let plan = plan(&self.world.state, self.world.now).plan;
            if plan.is_empty() {
                return;
            }
            let _ = self.ask(Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
            self.end_who_must_stop();
            self.world.now = self.world.now.plus(1);
        }
        let plan = plan(&self.world.state, self.world.now).plan;
        panic!("the cluster does not come to rest: {plan:?}");
    }

    fn end_who_must_stop(&mut self) {
        let stopping = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        let stopping: Vec<Job> = self.world.state.jobs.values().filter(stopping).cloned().collect();
        for job in stopping {
            let Some(attempt) = job.attempt() else { continue };
            for node in attempt.nodes() {
                let said =
                    Said::Ended { exit: Exit::Signal { signal: 15 }, stopped: true, ended_ms_ago: None };
                let (job, attempt) = (job.id, attempt.number);
                let _ = self.ask(Command::ReportTask { node, job, attempt, said });
            }
        }
    }

    /// All events, and those since the last savepoint, lead to the same state.
    fn replay(&self) {
        let mut replayed = State::default();
        self.world.events.iter().for_each(|event| replayed.apply(event));
        assert_eq!(replayed, self.world.state, "replay gives another state");
        if let Some((saved, from)) = &self.saved {
            let mut resumed = saved.clone();
            self.world.events[*from..].iter().for_each(|event| resumed.apply(event));
            assert_eq!(resumed, self.world.state, "replay from a savepoint gives another state");
        }
    }

    fn see_same_snapshot_same_plan(&self, planned: &Planned) {
        let copy = saved_and_restored(&self.world.state);
        assert_eq!(&plan(&copy, self.world.now), planned, "the same snapshot gave another plan");
    }

    /// What is said to help, helps when it is done.
    fn see_remedies(&self) {
        let job = self.world.state.jobs.values().find(|job| is_ready(job));
        // Costs many rounds, so not every time.
        let Some(job) = job.filter(|_| self.world.state.seq.is_multiple_of(4)) else { return };
        for remedy in remedies(&self.world.state, &actor(), job.id, self.world.now) {
            let mut real = self.world.clone();
            let changed = match remedy.job_change() {
                Some(change) => real.ask(Command::ChangeJob { job: job.id, change }).map(|_| job.id),
                None => {
                    real.ask(Command::CancelJob { job: job.id }).unwrap();
                    let spec = remedy.applied_to(&job.spec);
                    real.ask(Command::SubmitJob(submission(spec))).map(|answer| match answer {
                        Answer::Job(job) => job,
                        other => panic!("{other:?}"),
                    })
                }
            };
            let id = changed.unwrap_or_else(|refusal| panic!("{remedy:?} was refused: {refusal}"));
            // Limits are forgotten with the last job of a tenant, and asked for again.
            let _ = real.ask(policies::limits_again(&self.world.state));
            let plan = plan(&real.state, real.now).plan;
            let helped = plan.starts.iter().any(|start| start.job == id)
                || (plan.claims.iter().any(|room| room.job == id)
                    && matches!(remedy, Remedy::Priority { displaces: true, .. }));
            assert!(helped, "{remedy:?} does not help {}: {plan:?}", job.id);
        }
    }

    /// Whether policies are asked of a job before it starts: what they say of one that is not there yet nobody knows.
    fn asks_policies(&self, spec: &JobSpec) -> bool {
        let state = &self.world.state;
        let unknown = state
            .lineage(&spec.tenant)
            .filter(|one| policies::answer(state, Hook::Limit, &one.id))
            .any(|one| !state.policies.limits.contains_key(&one.id));
        unknown || Hook::BEFORE_START.into_iter().any(|hook| state.policies.asks(hook, &spec.tenant))
    }

    /// What `muster plan` says of a job is what becomes of it.
    fn see_outlook(&self, ask: &Ask) {
        let submission = ask.submission(&self.world.state, self.world.now);
        if submission.array.is_some()
            || submission.hold
            || submission.key.is_some()
            || !submission.spec.after.is_empty()
            || self.asks_policies(&submission.spec)
        {
            return;
        }
        let spec = submission.spec.clone();
        let mut real = self.world.clone();
        let Ok(Answer::Job(job)) = real.ask(Command::SubmitJob(submission)) else { return };
        let foreseen = outlook(&self.world.state, &spec, self.world.now);
        let planned = plan(&real.state, real.now);
        let start =
            planned.plan.starts.iter().find(|start| start.job == job).map(|start| start.tasks.clone());
        let room = planned.plan.claims.iter().find(|room| room.job == job).cloned();
        assert_eq!((&foreseen.start, &foreseen.room), (&start, &room), "the outlook was wrong");
        let found = position(&real.state, &real.state.jobs[&job], real.now);
        assert_eq!(found.map(|_| foreseen.position), found, "the position foreseen was wrong");
    }
}

/// Claims whose devices are free and whose job may start: they must start in the next round.
fn claims_with_room(state: &State, now: Timestamp) -> BTreeMap<JobId, Claim> {
    let has_room = |(id, claim): &(&JobId, &Claim)| {
        let job = &state.jobs[id];
        let shape = Shape::of(&job.spec);
        let has_room = |(node, wanted): (&NodeId, Free)| {
            let node = &state.nodes[node];
            let kind = muster_core::capacity::Kind::of(node);
            // A machine may have come back as another one.
            let would_do = job.spec.tasks.iter().all(|group| kind.could_hold_tasks(&shape, &group.each) > 0);
            let alone = state.claims.values().filter(|other| other.is_on(&node.id)).count() == 1;
            let would_do = would_do && state.claim_works(job, claim, now);
            let free = state.capacity.filed(&node.id).is_some_and(|filed| filed.free.holds(wanted));
            let booked = state.windows.values().any(|window| window.nodes.contains(&node.id));
            node.takes_work() && would_do && alone && free && !booked
        };
        is_ready(job)
            && is_admitted(state, job, least_demand(state, job), now)
            && !has_model_limits(state, job)
            && Free::by_node(&job.spec, &claim.tasks).into_iter().all(has_room)
    };
    state.claims.iter().filter(has_room).map(|(job, claim)| (*job, claim.clone())).collect()
}

/// Limits per model are told only where no kind of node is left, so room alone says nothing then.
fn has_model_limits(state: &State, job: &Job) -> bool {
    state.lineage(&job.spec.tenant).any(|tenant| !tenant.config.maximum_by_model.is_empty())
}

/// No pointless kill: who had others stopped starts where they stopped.
fn see_claims_taken(due: &BTreeMap<JobId, Claim>, planned: &Planned) {
    for (job, claim) in due {
        let start = planned.plan.starts.iter().find(|start| start.job == *job);
        // An elastic gang may have more elsewhere as well.
        let there = start.is_some_and(|start| {
            claim.tasks.iter().all(|wanted| start.tasks.iter().any(|task| task.node == wanted.node))
        });
        assert!(there, "{job} has room and does not take it: {claim:?} {:#?}", planned.plan);
    }
}

/// Positions are a permutation of the ready jobs, and starts follow them; claims come first by right.
fn see_order(world: &World, planned: &Planned) {
    let ready: Vec<&Job> = world.state.jobs.values().filter(|job| is_ready(job)).collect();
    let places: BTreeMap<JobId, u64> = ready
        .iter()
        .map(|job| {
            (job.id, position(&world.state, job, world.now).expect("a ready job has a position").position)
        })
        .collect();
    let mut sorted: Vec<u64> = places.values().copied().collect();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=ready.len() as u64).collect::<Vec<_>>(), "positions repeat or are left out");
    for job in &ready {
        let place = places[&job.id] as usize;
        let mut before: Vec<(u64, JobId)> = places.iter().map(|(id, place)| (*place, *id)).collect();
        before.sort_unstable();
        let expected: Vec<JobId> = before.iter().take(place - 1).take(3).map(|(_, id)| *id).collect();
        assert_eq!(first_ahead(&world.state, job, world.now, 3), expected, "who is ahead of {}", job.id);
    }
    let unclaimed = planned.plan.starts.iter().filter(|start| !world.state.claims.contains_key(&start.job));
    // Each start makes its tenant's share smaller and uses up its guarantee, so only those who ask for the same
    // keep their order for sure. The naive planner knows the rest.
    let mut orders: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for start in unclaimed {
        let spec = &world.state.jobs[&start.job].spec;
        let line = format!(
            "{} of {} {} {:?} {:?}",
            spec.user, spec.tenant, spec.priority, spec.tasks, spec.time_limit_ms
        );
        orders.entry(line).or_default().push(places[&start.job]);
    }
    for (line, order) in orders {
        assert!(order.is_sorted(), "the order of {line} was not respected: {order:?}");
    }
}

/// Every waiting job has an answer.
fn see_verdicts(world: &World, planned: &Planned) {
    for job in world.state.jobs.values() {
        let reasons = planned.verdicts.of(&world.state, job, world.now).reasons;
        assert_eq!(reasons.is_empty(), job.attempt().is_some(), "{}: {reasons:?}", job.id);
        let seen = !reasons.contains(&Reason::Considering);
        assert!(seen || was_left(world, planned, job), "the round did not look at {}", job.id);
    }
}

/// Who could start and does not, waits for a reason that is not the lack of room.
fn see_no_room_wasted(world: &World, planned: &Planned) {
    let state = &world.state;
    let waits = |job: &&Job| {
        is_ready(job)
            && is_admitted(state, job, least_demand(state, job), world.now)
            && !has_model_limits(state, job)
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

/// `AdoptPlan` is strict about cores and memory where a claim is taken or made in the same plan, and may leave
/// what would fit; such a job is looked at again in the next round.
fn was_left(world: &World, planned: &Planned, job: &Job) -> bool {
    let room = planned.plan.claims.iter().any(|room| room.job == job.id);
    let start = planned.plan.starts.iter().any(|start| start.job == job.id);
    (room && !world.state.claims.contains_key(&job.id)) || start
}

/// Where a job of one group of tasks would fit beside what is claimed by others.
fn fits_somewhere(state: &State, job: &Job) -> Option<String> {
    let (shape, group) = (Shape::of(&job.spec), &job.spec.tasks[0]);
    let claimed = state.claimed();
    let seats = |node: &muster_core::Node| {
        let filed = state.capacity.filed(&node.id).filter(|filed| filed.open)?;
        let others = claimed.get(&node.id).into_iter().flatten().filter(|(id, _)| *id != job.id);
        let free = others.fold(filed.free, |free, (_, space)| free.without(*space));
        let one = |count: &u32| {
            let shape = Shape { groups: vec![(*count, group.each.clone())], ..shape.clone() };
            filed.kind.admits(&shape) && filed.kind.fit(&shape, free).is_some()
        };
        (1..=group.count).rev().find(one)
    };
    let seats: Vec<(&NodeId, u32)> =
        state.nodes.values().filter_map(|node| Some((&node.id, seats(node)?))).collect();
    let rack = |node: &NodeId| {
        let facts = &state.nodes[node].facts;
        Some((facts.block.clone(), facts.rack.clone()?))
    };
    let near = |one: &NodeId, other: &NodeId| match () {
        () if one == other || (!shape.wish.is_demand() && !shape.must_share_a_rack()) => true,
        () if shape.wish.is_demand() => false,
        () => rack(one).is_some() && rack(one) == rack(other),
    };
    let around =
        |one: &NodeId| seats.iter().filter(|(node, _)| near(one, node)).map(|(_, count)| count).sum::<u32>();
    let enough = seats.iter().any(|(node, _)| around(node) >= group.count);
    (job.spec.tasks.len() == 1 && enough).then(|| format!("{seats:?}"))
}

/// Through the pieces of a savepoint and back.
fn saved_and_restored(state: &State) -> State {
    let mut restoring = Restoring::default();
    state.save(|piece| restoring.add(piece).expect("the pieces of one state belong together"));
    restoring.finish()
}
