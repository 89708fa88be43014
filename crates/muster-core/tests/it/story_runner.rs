//! Runs random stories and checks the laws after every step.
//!
//! Equal seeds give equal stories; `STORIES=200000 SEED=8 cargo test -p muster-core laws` runs more and others.

use std::str::FromStr;
use std::sync::Once;

use muster_core::State;
use muster_core::facts::command::{Answer, Command};
use muster_core::facts::plan::Plan;
use muster_core::objects::job::Job;
use muster_core::planner::plan;
use muster_core::state::StateRestorer;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::law_checker::LawChecker;
use crate::laws;
use crate::story::{JobRequest, Step, Story, command};
use crate::story_policies;
use crate::world::{World, end_reports};

/// Far more rounds than a small cluster needs.
const ROUNDS_TO_REST: usize = 60;

/// The number of stories: the variable `STORIES`, or `default`.
pub fn story_count(default: u32) -> u32 {
    number_from("STORIES").unwrap_or(default)
}

fn number_from<T: FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Run a test on this many random stories. A story that fails is shrunk and printed.
pub fn run_stories(cases: u32, test: impl Fn(&Story)) {
    silence_shrinking();
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
    // The default generator is cryptographic and, unoptimised, slower than the stories.
    let seed = u128::from(number_from("SEED").unwrap_or(7u64)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060);
    let random = TestRng::from_seed(RngAlgorithm::XorShift, &seed.to_le_bytes());
    let result = TestRunner::new_with_rng(config, random).run(&Story::any(), |story| {
        test(&story);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, story)) => panic!("{why}\nin the story\n{story}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// Shrinking fails many times; only the last failure is printed.
fn silence_shrinking() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let in_story = std::thread::current().name().is_some_and(|name| name.contains("story"));
            let last = info.payload().downcast_ref::<String>().is_some_and(|why| why.contains("in the story"));
            if !in_story || last {
                default(info);
            }
        }));
    });
}

/// Runs a story step by step, with the law checker as observer.
pub struct StoryRunner {
    pub world: World,
    laws: LawChecker,
    plans: Vec<Plan>,
    saved: Option<(State, usize)>,
}

impl StoryRunner {
    pub fn new(story: &Story) -> StoryRunner {
        let mut runner =
            StoryRunner { world: World::new(), laws: LawChecker::default(), plans: Vec::new(), saved: None };
        for command in story.opening() {
            let _ = runner.run(command);
        }
        runner
    }

    /// One step. A command of a story may be refused.
    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Plan(request) => self.plan(request),
            Step::StalePlan(index) => self.adopt_stale(*index),
            Step::Restart => self.restart(),
            Step::Tick(ms) => self.world.now = self.world.now.plus(*ms),
            _ => {}
        }
        if let Some(command) = command(&self.world.state, self.world.now, step) {
            let _ = self.run(command);
        }
        if let Step::Tick(_) = step {
            let led_ms = self.world.now.0;
            let _ = self.run(Command::StopLateGangs { led_ms });
        }
        self.laws.check_state(&self.world.state);
    }

    fn run(&mut self, command: Command) -> Option<Answer> {
        let laws = &mut self.laws;
        self.world.run_observed(command, &mut |before, event| laws.check_event(before, event)).ok()
    }

    fn plan(&mut self, request: &JobRequest) {
        let due = laws::claims_with_space(&self.world.state, self.world.now);
        let planned = plan(&self.world.state, self.world.now);
        laws::check_plan_is_deterministic(&self.world, &planned);
        laws::check_dry_run(&self.world, request);
        laws::check_remedies(&self.world);
        laws::check_order(&self.world, &planned);
        laws::check_claims_are_used(&due, &planned);
        self.plans.push(planned.plan.clone());
        let starts = planned.plan.starts.len();
        let takes_claim = planned.plan.starts.iter().any(|start| self.world.state.claims.contains_key(&start.job));
        let adopted = self.run(Command::AdoptPlan { plan: Box::new(planned.plan.clone()), epoch: 1 });
        let Some(Answer::Adopted { gangs, rejected }) = adopted else { panic!("a plan was refused") };
        // Adoption counts the cores of a claim once more in the plan that uses it; see `was_rejected`.
        assert!(takes_claim || gangs >= starts, "{rejected:?} of a fresh plan: {:#?}", planned.plan);
        laws::check_verdicts(&self.world, &planned);
        // The space of rejected parts is free again, and the verdicts do not know that.
        if rejected.is_empty() && planned.plan.repartitionings.is_empty() {
            laws::check_no_space_is_wasted(&self.world, &planned);
        }
    }

    fn adopt_stale(&mut self, index: usize) {
        if let Some(plan) = self.plans.iter().rev().nth(index).cloned() {
            let _ = self.run(Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
        }
    }

    /// The server restarts from a savepoint.
    fn restart(&mut self) {
        let restored = saved_and_restored(&self.world.state);
        assert_eq!(restored, self.world.state, "a savepoint does not give the same state");
        self.saved = Some((restored.clone(), self.world.events.len()));
        self.world.state = restored;
    }

    /// If nothing new happens and stopping jobs end, the plans become empty: no jobs preempt each other in a cycle.
    pub fn come_to_rest(&mut self) {
        for _ in 0..ROUNDS_TO_REST {
            if let Some(answers) = story_policies::accept_all(&self.world.state) {
                let _ = self.run(answers);
            }
            let plan = plan(&self.world.state, self.world.now).plan;
            if plan.is_empty() {
                return;
            }
            let _ = self.run(Command::AdoptPlan { plan: Box::new(plan), epoch: 1 });
            self.end_stopping_jobs();
            self.world.now = self.world.now.plus(1);
        }
        let plan = plan(&self.world.state, self.world.now).plan;
        panic!("the cluster does not come to rest: {plan:?}");
    }

    fn end_stopping_jobs(&mut self) {
        let stopping = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        let stopping: Vec<Job> = self.world.state.jobs.values().filter(stopping).cloned().collect();
        for report in stopping.iter().flat_map(end_reports) {
            let _ = self.run(report);
        }
    }

    /// Replay of all events, and of those since the last savepoint, gives the same state.
    pub fn replay(&self) {
        let mut replayed = State::default();
        self.world.events.iter().for_each(|event| replayed.apply(event));
        assert_eq!(replayed, self.world.state, "replay gives another state");
        if let Some((saved, from)) = &self.saved {
            let mut resumed = saved.clone();
            self.world.events[*from..].iter().for_each(|event| resumed.apply(event));
            assert_eq!(resumed, self.world.state, "replay from a savepoint gives another state");
        }
    }
}

/// The state after a round trip through a savepoint.
pub fn saved_and_restored(state: &State) -> State {
    let mut restoring = StateRestorer::default();
    state.save(|piece| restoring.add(piece).expect("the pieces of one state belong together"));
    restoring.finish()
}
