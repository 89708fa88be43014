//! Shadow policies: a bundle on trial, evaluated beside the active policies without any effect.
//!
//! When the planner has something to decide, it sends a copy of its state. The shadow evaluator, a thread of its own,
//! plans that copy twice: once with the active policies and once with the shadow bundle in their place. It calls the
//! hooks of both again for each evaluation. It compares the two decisions about each waiting job and keeps those that
//! differ. Each shadow evaluation starts from live state, so divergence never accumulates; `muster sim whatif` shows the
//! consequences instead.

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
use crate::policies::{Interpreter, PolicyQuerier};

/// Most jobs with a divergence that are kept; beyond that the oldest jobs are dropped.
const DIVERGENT_JOBS_MAX: usize = 1_000;
/// Bound on the alternation of policy queries and planning: each plan may name further victims that the policies must be
/// asked about.
const POLICY_ROUNDS_MAX: usize = 8;

/// The shadow run of a server, if there is one.
#[derive(Default)]
pub struct Shadow(Mutex<Option<ShadowRun>>);

/// A shadow bundle and the results of its evaluations so far.
#[derive(Debug, Clone)]
pub struct ShadowRun {
    /// The shadow bundle, as the version it would be if it were applied.
    pub version: Arc<BundleVersion>,
    /// Evaluations of both.
    pub comparisons: u64,
    /// Plans that were not evaluated because the evaluator was busy.
    pub skipped: u64,
    /// Jobs that both start, or preempt for, in the same way.
    pub agreements: u64,
    /// The last divergence of each job.
    pub divergences: BTreeMap<JobId, Divergence>,
}

/// Different decisions about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    pub last_seen_at: Timestamp,
    /// Evaluations with a divergence of this job.
    pub times: u64,
    /// The decision with the active policies.
    pub active: JobDecision,
    /// The decision with the shadow bundle.
    pub shadow: JobDecision,
}

/// The decision of a plan about a waiting job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobDecision {
    /// The job starts on these nodes.
    Starts(Vec<NodeId>),
    /// These victims are stopped for the job.
    Preempts(Vec<JobId>),
    /// The job waits, with the sentence of its first reason.
    Waits(String),
    /// A policy refuses the job: it would not have been accepted.
    Refused(String),
}

impl JobDecision {
    /// Whether two decisions are the same. The reason of a wait or refusal does not matter.
    fn is_same_decision(&self, other: &JobDecision) -> bool {
        match (self, other) {
            (JobDecision::Waits(_), JobDecision::Waits(_)) | (JobDecision::Refused(_), JobDecision::Refused(_)) => true,
            _ => self == other,
        }
    }

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
                write!(f, "preempts {}", listed(&mut jobs.iter().map(JobId::to_string)))
            }
            JobDecision::Waits(why) => write!(f, "waits: {why}"),
            JobDecision::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

impl Shadow {
    /// Start a run with a bundle, in place of the current run.
    pub fn start(&self, version: BundleVersion) {
        let (version, divergences) = (Arc::new(version), BTreeMap::new());
        *self.lock() = Some(ShadowRun { version, comparisons: 0, skipped: 0, agreements: 0, divergences });
    }

    /// End the run and return its results.
    pub fn stop(&self) -> Option<ShadowRun> {
        self.lock().take()
    }

    pub fn current_run(&self) -> Option<ShadowRun> {
        self.lock().clone()
    }

    pub fn is_active(&self) -> bool {
        self.lock().is_some()
    }

    /// Count a plan that was not evaluated because the evaluator was busy.
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

    /// Add the results of an evaluation, unless another run has started since.
    fn record_comparison(&self, version: &Arc<BundleVersion>, comparison: Comparison, at: Timestamp) {
        let mut shadow = self.lock();
        let Some(run) = shadow.as_mut().filter(|run| Arc::ptr_eq(&run.version, version)) else { return };
        run.comparisons += 1;
        run.agreements += comparison.agreements;
        for (job, active, shadow) in comparison.divergences {
            let times = run.divergences.get(&job).map_or(0, |before| before.times) + 1;
            run.divergences.insert(job, Divergence { last_seen_at: at, times, active, shadow });
        }
        while run.divergences.len() > DIVERGENT_JOBS_MAX {
            run.divergences.pop_first();
        }
    }
}

/// Everything the shadow evaluator's thread needs.
pub struct ShadowEvaluator {
    /// States to evaluate.
    pub states: Receiver<Box<State>>,
    pub shadow: Arc<Shadow>,
    pub interpreter: Option<Arc<dyn Interpreter>>,
    pub clock: Arc<dyn Clock>,
}

impl ShadowEvaluator {
    /// Evaluate until the planner has ended.
    pub fn run(self) {
        while let Ok(state) = self.states.recv() {
            let Some(version) = self.shadow.version() else { continue };
            let Some(interpreter) = &self.interpreter else { continue };
            let now = self.clock.now().max(state.clock);
            let comparison = compare_policies(&state, &version, interpreter, now);
            self.shadow.record_comparison(&version, comparison, now);
        }
    }
}

/// The result of one evaluation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Comparison {
    /// Jobs that both start, or preempt for, in the same way.
    agreements: u64,
    /// The decision with the active policies, then the decision with the shadow bundle.
    divergences: Vec<(JobId, JobDecision, JobDecision)>,
}

/// Plan a state with the active policies and with a shadow bundle, and compare. Costs two planning rounds and twice the
/// policy calls of all buckets.
fn compare_policies(
    state: &State,
    version: &BundleVersion,
    interpreter: &Arc<dyn Interpreter>,
    now: Timestamp,
) -> Comparison {
    let mut shadow_state = state.clone();
    shadow_state.apply(&Event::PolicyApplied { version: Box::new(version.clone()) });
    let active = PolicyEvaluation::evaluate(state.clone(), interpreter, now);
    let shadow = PolicyEvaluation::evaluate(shadow_state, interpreter, now);
    let mut comparison = Comparison::default();
    for job in state.jobs.values().filter(|job| job.is_ready()) {
        let (active, shadow) = (active.decision_for(job), shadow.decision_for(job));
        match active.is_same_decision(&shadow) {
            true => comparison.agreements += u64::from(active.starts_or_preempts()),
            false => comparison.divergences.push((job.id, active, shadow)),
        }
    }
    comparison
}

/// A state with fresh policy answers, and the plan computed from it.
struct PolicyEvaluation {
    state: State,
    verdicts: Verdicts,
    /// Jobs that start or preempt.
    decisions: BTreeMap<JobId, JobDecision>,
}

impl PolicyEvaluation {
    fn evaluate(mut state: State, interpreter: &Arc<dyn Interpreter>, now: Timestamp) -> PolicyEvaluation {
        let mut querier = PolicyQuerier::new(interpreter.clone());
        let mut planned = plan(&state, now);
        for _ in 0..POLICY_ROUNDS_MAX {
            let Some(answers) = querier.new_answers(&state, &planned.plan, (now, Duration::ZERO)) else {
                break;
            };
            let Ok(decision) = state.decide(&Actor::system(), &answers, now) else { break };
            decision.events.iter().for_each(|event| state.apply(event));
            planned = plan(&state, now);
        }
        let Planned { plan, verdicts } = planned;
        let nodes = |start: &Start| {
            let nodes: BTreeSet<NodeId> = start.tasks.iter().map(|task| task.node.clone()).collect();
            nodes.into_iter().collect()
        };
        let starts = plan.starts.iter().map(|start| (start.job, JobDecision::Starts(nodes(start))));
        let evictions =
            plan.evictions.iter().map(|eviction| (eviction.job, JobDecision::Preempts(eviction.victims.clone())));
        PolicyEvaluation { state, verdicts, decisions: starts.chain(evictions).collect() }
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
                JobDecision::Waits(first.unwrap_or_else(|| "other jobs are ahead in the queue".to_string()))
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
        let divergence =
            |job| (JobId::single(job), JobDecision::Starts(Vec::new()), JobDecision::Waits("why".to_string()));
        Comparison { agreements: 2, divergences: jobs.map(divergence).collect() }
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
        assert_eq!(
            (run.divergences.len(), run.divergences.first_key_value().unwrap().0.number),
            (DIVERGENT_JOBS_MAX, 10)
        );
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
        let preempts = JobDecision::Preempts(vec![JobId::single(1), JobId::single(2)]);
        let refused = |why: &str| JobDecision::Refused(why.to_string());
        assert!(refused("a").is_same_decision(&refused("b")) && !refused("a").is_same_decision(&waits("a")));
        let texts = [on("n1"), preempts, waits("a"), refused("a")].map(|decision| decision.to_string());
        assert_eq!(texts, ["starts on n1", "preempts job-1, job-2", "waits: a", "refused: a"]);
    }
}
