//! A shadow: policies that run beside those in force and decide nothing.
//!
//! Whenever there is something to decide, the planner hands over a copy of its state. On a thread of its own that copy is
//! planned twice: with the policies in force, and with those of the shadow in their place; both are asked anew at that
//! moment. What the two would do with each waiting job is compared, and where it differs that is kept to be looked at.
//! Every look begins with what is really so: a shadow tells what would be decided otherwise, and `muster sim whatif` what
//! would come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::facts::plan::Start;
use muster_core::facts::verdict::Reason;
use muster_core::objects::job::Job;
use muster_core::objects::policy::BundleVersion;
use muster_core::planner::{Planned, Verdicts, plan};
use muster_core::{Actor, Event, JobId, NodeId, State, Timestamp};

use crate::clock::Clock;
use crate::policies::{PolicyQuerier, Interpreter};

/// Jobs that are kept; of more than that the oldest go.
const DIVERGENT_JOBS_MAX: usize = 1_000;
/// Asking and planning go on in turn at most so often: each may bring up others to ask about.
const POLICY_ROUNDS_MAX: usize = 8;

/// The shadow of a server, if it has one.
#[derive(Default)]
pub struct Shadow(Mutex<Option<ShadowRun>>);

/// A shadow that runs.
#[derive(Debug, Clone)]
pub struct ShadowRun {
    /// What runs, as if it were put into force.
    pub version: Arc<BundleVersion>,
    /// How often both were compared.
    pub comparisons: u64,
    /// How often there was something to decide and no time to compare.
    pub skipped: u64,
    /// Jobs that were treated alike by both, and by that no longer waited.
    pub agreements: u64,
    /// What would have been decided otherwise, the last of each job.
    pub divergences: BTreeMap<JobId, Divergence>,
}

/// What would have been decided otherwise about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// When that was seen last.
    pub last_seen_at: Timestamp,
    /// How often it was seen.
    pub times: u64,
    /// With the policies in force.
    pub active: JobDecision,
    /// With those of the shadow.
    pub shadow: JobDecision,
}

/// What a plan does with a job that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobDecision {
    /// It starts there.
    Starts(Vec<NodeId>),
    /// Others stop for it.
    Preempts(Vec<JobId>),
    /// It waits, for a reason.
    Waits(String),
    /// A policy refuses it: it would not have been accepted.
    Refused(String),
}

impl JobDecision {
    /// Whether two are the same decision. To wait is to wait, whatever for; a refusal is another decision.
    fn is_same_decision(&self, other: &JobDecision) -> bool {
        match (self, other) {
            (JobDecision::Waits(_), JobDecision::Waits(_)) | (JobDecision::Refused(_), JobDecision::Refused(_)) => true,
            _ => self == other,
        }
    }

    /// Whether a plan does something with the job.
    fn starts_or_preempts(&self) -> bool {
        matches!(self, JobDecision::Starts(_) | JobDecision::Preempts(_))
    }
}

impl fmt::Display for JobDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>().join(", ");
        match self {
            JobDecision::Starts(nodes) => {
                write!(f, "starts on {}", listed(&mut nodes.iter().map(NodeId::to_string)))
            }
            JobDecision::Preempts(jobs) => {
                write!(f, "displaces {}", listed(&mut jobs.iter().map(JobId::to_string)))
            }
            JobDecision::Waits(why) => write!(f, "waits: {why}"),
            JobDecision::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

impl Shadow {
    /// Begin with a bundle, in place of the one before.
    pub fn start(&self, version: BundleVersion) {
        let (version, otherwise) = (Arc::new(version), BTreeMap::new());
        *self.lock() = Some(ShadowRun { version, comparisons: 0, skipped: 0, agreements: 0, divergences: otherwise });
    }

    /// End it, and say what it came to.
    pub fn stop(&self) -> Option<ShadowRun> {
        self.lock().take()
    }

    /// What it has come to so far.
    pub fn current_run(&self) -> Option<ShadowRun> {
        self.lock().clone()
    }

    /// Whether there is one.
    pub fn is_active(&self) -> bool {
        self.lock().is_some()
    }

    /// There was something to decide, and no time to look.
    pub fn count_skipped(&self) {
        if let Some(run) = &mut *self.lock() {
            run.skipped += 1;
        }
    }

    fn version(&self) -> Option<Arc<BundleVersion>> {
        self.lock().as_ref().map(|run| run.version.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<ShadowRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keep what a look found, unless another shadow has begun since.
    fn record_comparison(&self, version: &Arc<BundleVersion>, looked: Comparison, at: Timestamp) {
        let mut shadow = self.lock();
        let Some(run) = shadow.as_mut().filter(|run| Arc::ptr_eq(&run.version, version)) else { return };
        run.comparisons += 1;
        run.agreements += looked.agreements;
        for (job, in_force, shadow) in looked.divergences {
            let times = run.divergences.get(&job).map_or(0, |before| before.times) + 1;
            run.divergences.insert(job, Divergence { last_seen_at: at, times, active: in_force, shadow });
        }
        while run.divergences.len() > DIVERGENT_JOBS_MAX {
            run.divergences.pop_first();
        }
    }
}

/// Everything the thread needs.
pub struct ShadowEvaluator {
    /// States in which there is something to decide.
    pub states: Receiver<Box<State>>,
    /// What runs, and what it comes to.
    pub shadow: Arc<Shadow>,
    /// Who runs policies.
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl ShadowEvaluator {
    /// Compare until the planner is gone.
    pub fn run(self) {
        while let Ok(state) = self.states.recv() {
            let Some(version) = self.shadow.version() else { continue };
            let Some(interpreter) = &self.interpreter else { continue };
            let now = self.clock.now().max(state.clock);
            let looked = compare_policies(&state, &version, interpreter, now);
            self.shadow.record_comparison(&version, looked, now);
        }
    }
}

/// What a look found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Comparison {
    /// Jobs that both start, or make room for, in the same way.
    agreements: u64,
    /// With the policies in force, and with the shadow.
    divergences: Vec<(JobId, JobDecision, JobDecision)>,
}

/// Plan from a state with the policies in force and with others, and compare. As much as two rounds and two times asking
/// everyone.
fn compare_policies(
    state: &State,
    version: &BundleVersion,
    interpreter: &Arc<dyn Interpreter>,
    now: Timestamp,
) -> Comparison {
    let mut beside = state.clone();
    beside.apply(&Event::PolicyApplied { version: Box::new(version.clone()) });
    let (in_force, shadow) =
        (PolicyEvaluation::evaluate(state.clone(), interpreter, now), PolicyEvaluation::evaluate(beside, interpreter, now));
    let mut looked = Comparison::default();
    for job in state.jobs.values().filter(|job| job.is_ready()) {
        let (one, other) = (in_force.decision_for(job), shadow.decision_for(job));
        match one.is_same_decision(&other) {
            true => looked.agreements += u64::from(one.starts_or_preempts()),
            false => looked.divergences.push((job.id, one, other)),
        }
    }
    looked
}

/// A state in which everyone was asked, and what its plan does.
struct PolicyEvaluation {
    state: State,
    verdicts: Verdicts,
    /// With whom it does something.
    decisions: BTreeMap<JobId, JobDecision>,
}

impl PolicyEvaluation {
    fn evaluate(mut state: State, interpreter: &Arc<dyn Interpreter>, now: Timestamp) -> PolicyEvaluation {
        let mut asker = PolicyQuerier::new(interpreter.clone());
        let mut planned = plan(&state, now);
        for _ in 0..POLICY_ROUNDS_MAX {
            let Some(news) = asker.new_answers(&state, &planned.plan, (now, Duration::ZERO)) else { break };
            let Ok(decision) = state.decide(&Actor::system(), &news, now) else { break };
            decision.events.iter().for_each(|event| state.apply(event));
            planned = plan(&state, now);
        }
        let Planned { plan, verdicts } = planned;
        let nodes = |start: &Start| {
            let nodes: BTreeSet<NodeId> = start.tasks.iter().map(|task| task.node.clone()).collect();
            nodes.into_iter().collect()
        };
        let starts = plan.starts.iter().map(|start| (start.job, JobDecision::Starts(nodes(start))));
        let rooms = plan.evictions.iter().map(|room| (room.job, JobDecision::Preempts(room.victims.clone())));
        PolicyEvaluation { state, verdicts, decisions: starts.chain(rooms).collect() }
    }

    fn decision_for(&self, job: &Job) -> JobDecision {
        self.decisions.get(&job.id).cloned().unwrap_or_else(|| {
            let reasons = self.verdicts.without_position(&self.state, job).reasons;
            let refusal = |reason: &Reason| match reason {
                Reason::PolicyRefused { why } => Some(JobDecision::Refused(why.clone())),
                _ => None,
            };
            let waits = || {
                let first = reasons.first().map(Reason::sentence);
                JobDecision::Waits(first.unwrap_or_else(|| "others are ahead".to_string()))
            };
            reasons.iter().find_map(refusal).unwrap_or_else(waits)
        })
    }
}

#[cfg(test)]
mod tests {
    use muster_core::objects::policy::{PolicyBundle, PolicyScope};

    use super::*;

    fn version() -> BundleVersion {
        let (bundle, by, why) = (Arc::new(PolicyBundle::default()), String::new(), String::new());
        BundleVersion { number: 1, scope: PolicyScope::Cluster, bundle, by, why, at: Timestamp(0) }
    }

    fn comparison_of(jobs: std::ops::Range<u64>) -> Comparison {
        let fate = |job| (JobId::single(job), JobDecision::Starts(Vec::new()), JobDecision::Waits("why".to_string()));
        Comparison { agreements: 2, divergences: jobs.map(fate).collect() }
    }

    #[test]
    fn repeated_divergences_are_counted_and_the_oldest_jobs_are_dropped() {
        let shadow = Shadow::default();
        shadow.start(version());
        let run = shadow.current_run().unwrap();
        shadow.record_comparison(&run.version, comparison_of(1..3), Timestamp(5));
        shadow.record_comparison(&run.version, comparison_of(2..3), Timestamp(9));
        let run = shadow.current_run().unwrap();
        assert_eq!((run.comparisons, run.agreements, run.divergences.len()), (2, 4, 2));
        let twice = &run.divergences[&JobId::single(2)];
        assert_eq!((twice.times, twice.last_seen_at), (2, Timestamp(9)));
        shadow.record_comparison(&run.version, comparison_of(10..10 + DIVERGENT_JOBS_MAX as u64), Timestamp(9));
        let run = shadow.current_run().unwrap();
        assert_eq!((run.divergences.len(), run.divergences.first_key_value().unwrap().0.number), (DIVERGENT_JOBS_MAX, 10));
    }

    #[test]
    fn a_comparison_of_an_ended_shadow_is_dropped() {
        let shadow = Shadow::default();
        shadow.start(version());
        let first = shadow.current_run().unwrap().version;
        shadow.start(version());
        shadow.record_comparison(&first, comparison_of(1..2), Timestamp(5));
        assert_eq!(shadow.current_run().unwrap().comparisons, 0);
        assert!(shadow.stop().is_some() && shadow.stop().is_none() && !shadow.is_active());
    }

    #[test]
    fn waiting_is_the_same_decision_whatever_its_reason() {
        let waits = |why: &str| JobDecision::Waits(why.to_string());
        let on = |node: &str| JobDecision::Starts(vec![node.parse().unwrap()]);
        assert!(waits("a").is_same_decision(&waits("b")) && on("n1").is_same_decision(&on("n1")));
        assert!(!on("n1").is_same_decision(&on("n2")) && !on("n1").is_same_decision(&waits("a")));
        let displaces = JobDecision::Preempts(vec![JobId::single(1), JobId::single(2)]);
        let refused = |why: &str| JobDecision::Refused(why.to_string());
        assert!(refused("a").is_same_decision(&refused("b")) && !refused("a").is_same_decision(&waits("a")));
        let told = [on("n1"), displaces, waits("a"), refused("a")].map(|fate| fate.to_string());
        assert_eq!(told, ["starts on n1", "displaces job-1, job-2", "waits: a", "refused: a"]);
    }
}
