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

use muster_core::plan::{Planned, Start, Verdicts, plan};
use muster_core::policy::Version;
use muster_core::verdict::Reason;
use muster_core::{Actor, Event, Job, JobId, NodeId, State, Timestamp};

use crate::clock::Clock;
use crate::policies::{Asker, Interpreter};

/// Jobs that are kept; of more than that the oldest go.
const JOBS_MAX: usize = 1_000;
/// Asking and planning go on in turn at most so often: each may bring up others to ask about.
const TURNS_MAX: usize = 8;

/// The shadow of a server, if it has one.
#[derive(Default)]
pub struct Shadow(Mutex<Option<Run>>);

/// A shadow that runs.
#[derive(Debug, Clone)]
pub struct Run {
    /// What runs, as if it were put into force.
    pub version: Arc<Version>,
    /// How often both were compared.
    pub looks: u64,
    /// How often there was something to decide and no time to compare.
    pub missed: u64,
    /// Jobs that were treated alike by both, and by that no longer waited.
    pub alike: u64,
    /// What would have been decided otherwise, the last of each job.
    pub otherwise: BTreeMap<JobId, Otherwise>,
}

/// What would have been decided otherwise about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otherwise {
    /// When that was seen last.
    pub at: Timestamp,
    /// How often it was seen.
    pub times: u64,
    /// With the policies in force.
    pub in_force: Fate,
    /// With those of the shadow.
    pub shadow: Fate,
}

/// What a plan does with a job that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It starts there.
    Starts(Vec<NodeId>),
    /// Others stop for it.
    MakesRoom(Vec<JobId>),
    /// It waits, for a reason.
    Waits(String),
    /// A policy refuses it: it would not have been accepted.
    Refused(String),
}

impl Fate {
    /// Whether two are the same decision. To wait is to wait, whatever for; a refusal is another decision.
    fn is_like(&self, other: &Fate) -> bool {
        match (self, other) {
            (Fate::Waits(_), Fate::Waits(_)) | (Fate::Refused(_), Fate::Refused(_)) => true,
            _ => self == other,
        }
    }

    /// Whether a plan does something with the job.
    fn is_done(&self) -> bool {
        matches!(self, Fate::Starts(_) | Fate::MakesRoom(_))
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>().join(", ");
        match self {
            Fate::Starts(nodes) => {
                write!(f, "starts on {}", listed(&mut nodes.iter().map(NodeId::to_string)))
            }
            Fate::MakesRoom(jobs) => {
                write!(f, "displaces {}", listed(&mut jobs.iter().map(JobId::to_string)))
            }
            Fate::Waits(why) => write!(f, "waits: {why}"),
            Fate::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

impl Shadow {
    /// Begin with a bundle, in place of the one before.
    pub fn begin(&self, version: Version) {
        let (version, otherwise) = (Arc::new(version), BTreeMap::new());
        *self.lock() = Some(Run { version, looks: 0, missed: 0, alike: 0, otherwise });
    }

    /// End it, and say what it came to.
    pub fn end(&self) -> Option<Run> {
        self.lock().take()
    }

    /// What it has come to so far.
    pub fn run(&self) -> Option<Run> {
        self.lock().clone()
    }

    /// Whether there is one.
    pub fn is_on(&self) -> bool {
        self.lock().is_some()
    }

    /// There was something to decide, and no time to look.
    pub fn miss(&self) {
        if let Some(run) = &mut *self.lock() {
            run.missed += 1;
        }
    }

    fn version(&self) -> Option<Arc<Version>> {
        self.lock().as_ref().map(|run| run.version.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keep what a look found, unless another shadow has begun since.
    fn note(&self, version: &Arc<Version>, looked: Looked, at: Timestamp) {
        let mut shadow = self.lock();
        let Some(run) = shadow.as_mut().filter(|run| Arc::ptr_eq(&run.version, version)) else { return };
        run.looks += 1;
        run.alike += looked.alike;
        for (job, in_force, shadow) in looked.otherwise {
            let times = run.otherwise.get(&job).map_or(0, |before| before.times) + 1;
            run.otherwise.insert(job, Otherwise { at, times, in_force, shadow });
        }
        while run.otherwise.len() > JOBS_MAX {
            run.otherwise.pop_first();
        }
    }
}

/// Everything the thread needs.
pub struct Shadower {
    /// States in which there is something to decide.
    pub states: Receiver<Box<State>>,
    /// What runs, and what it comes to.
    pub shadow: Arc<Shadow>,
    /// Who runs policies.
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Shadower {
    /// Compare until the planner is gone.
    pub fn run(self) {
        while let Ok(state) = self.states.recv() {
            let Some(version) = self.shadow.version() else { continue };
            let Some(interpreter) = &self.interpreter else { continue };
            let now = self.clock.now().max(state.clock);
            let looked = look(&state, &version, interpreter, now);
            self.shadow.note(&version, looked, now);
        }
    }
}

/// What a look found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Looked {
    /// Jobs that both start, or make room for, in the same way.
    alike: u64,
    /// With the policies in force, and with the shadow.
    otherwise: Vec<(JobId, Fate, Fate)>,
}

/// Plan from a state with the policies in force and with others, and compare. As much as two rounds and two times asking
/// everyone.
fn look(state: &State, version: &Version, interpreter: &Arc<dyn Interpreter>, now: Timestamp) -> Looked {
    let mut beside = state.clone();
    beside.apply(&Event::PolicyApplied { version: Box::new(version.clone()) });
    let (in_force, shadow) =
        (Decided::of(state.clone(), interpreter, now), Decided::of(beside, interpreter, now));
    let mut looked = Looked::default();
    for job in state.jobs.values().filter(|job| job.is_ready()) {
        let (one, other) = (in_force.fate(job), shadow.fate(job));
        match one.is_like(&other) {
            true => looked.alike += u64::from(one.is_done()),
            false => looked.otherwise.push((job.id, one, other)),
        }
    }
    looked
}

/// A state in which everyone was asked, and what its plan does.
struct Decided {
    state: State,
    verdicts: Verdicts,
    /// With whom it does something.
    fates: BTreeMap<JobId, Fate>,
}

impl Decided {
    fn of(mut state: State, interpreter: &Arc<dyn Interpreter>, now: Timestamp) -> Decided {
        let mut asker = Asker::new(interpreter.clone());
        let mut planned = plan(&state, now);
        for _ in 0..TURNS_MAX {
            let Some(news) = asker.news(&state, &planned.plan, (now, Duration::ZERO)) else { break };
            let Ok(decision) = state.decide(&Actor::system(), &news, now) else { break };
            decision.events.iter().for_each(|event| state.apply(event));
            planned = plan(&state, now);
        }
        let Planned { plan, verdicts } = planned;
        let nodes = |start: &Start| {
            let nodes: BTreeSet<NodeId> = start.tasks.iter().map(|task| task.node.clone()).collect();
            nodes.into_iter().collect()
        };
        let starts = plan.starts.iter().map(|start| (start.job, Fate::Starts(nodes(start))));
        let rooms = plan.claims.iter().map(|room| (room.job, Fate::MakesRoom(room.victims.clone())));
        Decided { state, verdicts, fates: starts.chain(rooms).collect() }
    }

    fn fate(&self, job: &Job) -> Fate {
        self.fates.get(&job.id).cloned().unwrap_or_else(|| {
            let reasons = self.verdicts.without_position(&self.state, job).reasons;
            let refusal = |reason: &Reason| match reason {
                Reason::PolicyRefused { why } => Some(Fate::Refused(why.clone())),
                _ => None,
            };
            let waits = || {
                let first = reasons.first().map(Reason::sentence);
                Fate::Waits(first.unwrap_or_else(|| "others are ahead".to_string()))
            };
            reasons.iter().find_map(refusal).unwrap_or_else(waits)
        })
    }
}

#[cfg(test)]
mod tests {
    use muster_core::policy::{Bundle, Scope};

    use super::*;

    fn version() -> Version {
        let (bundle, by, why) = (Arc::new(Bundle::default()), String::new(), String::new());
        Version { number: 1, scope: Scope::Cluster, bundle, by, why, at: Timestamp(0) }
    }

    fn looked(jobs: std::ops::Range<u64>) -> Looked {
        let fate = |job| (JobId::single(job), Fate::Starts(Vec::new()), Fate::Waits("why".to_string()));
        Looked { alike: 2, otherwise: jobs.map(fate).collect() }
    }

    #[test]
    fn what_is_seen_again_counts_and_the_oldest_go() {
        let shadow = Shadow::default();
        shadow.begin(version());
        let run = shadow.run().unwrap();
        shadow.note(&run.version, looked(1..3), Timestamp(5));
        shadow.note(&run.version, looked(2..3), Timestamp(9));
        let run = shadow.run().unwrap();
        assert_eq!((run.looks, run.alike, run.otherwise.len()), (2, 4, 2));
        let twice = &run.otherwise[&JobId::single(2)];
        assert_eq!((twice.times, twice.at), (2, Timestamp(9)));
        shadow.note(&run.version, looked(10..10 + JOBS_MAX as u64), Timestamp(9));
        let run = shadow.run().unwrap();
        assert_eq!((run.otherwise.len(), run.otherwise.first_key_value().unwrap().0.number), (JOBS_MAX, 10));
    }

    #[test]
    fn what_another_shadow_saw_is_not_kept() {
        let shadow = Shadow::default();
        shadow.begin(version());
        let first = shadow.run().unwrap().version;
        shadow.begin(version());
        shadow.note(&first, looked(1..2), Timestamp(5));
        assert_eq!(shadow.run().unwrap().looks, 0);
        assert!(shadow.end().is_some() && shadow.end().is_none() && !shadow.is_on());
    }

    #[test]
    fn to_wait_is_to_wait_whatever_for() {
        let waits = |why: &str| Fate::Waits(why.to_string());
        let on = |node: &str| Fate::Starts(vec![node.parse().unwrap()]);
        assert!(waits("a").is_like(&waits("b")) && on("n1").is_like(&on("n1")));
        assert!(!on("n1").is_like(&on("n2")) && !on("n1").is_like(&waits("a")));
        let displaces = Fate::MakesRoom(vec![JobId::single(1), JobId::single(2)]);
        let refused = |why: &str| Fate::Refused(why.to_string());
        assert!(refused("a").is_like(&refused("b")) && !refused("a").is_like(&waits("a")));
        let told = [on("n1"), displaces, waits("a"), refused("a")].map(|fate| fate.to_string());
        assert_eq!(told, ["starts on n1", "displaces job-1, job-2", "waits: a", "refused: a"]);
    }
}
