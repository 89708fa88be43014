//! The state of a node on two axes. *Service* is what operators want of it, *sight* is what the leader knows about it.
//! Neither overwrites the other: a drained node that is fenced and returns is still drained.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Whether a node may get work, as operators set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    Ready,
    /// Finishes its running jobs.
    Draining,
    /// Out of service until an operator returns it.
    Hold,
}

impl Service {
    pub fn as_str(self) -> &'static str {
        match self {
            Service::Ready => "Ready",
            Service::Draining => "Draining",
            Service::Hold => "Hold",
        }
    }
}

/// Whether the leader hears the agent of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    Seen,
    /// Silent for a few seconds.
    Suspect,
    /// Silent for longer; its attempts may still run.
    Unreachable,
    /// Silent, and none of its attempts runs any more: their self-fence deadlines have passed, or an operator declared
    /// it.
    Fenced,
}

impl Sight {
    pub fn as_str(self) -> &'static str {
        match self {
            Sight::Seen => "Seen",
            Sight::Suspect => "Suspect",
            Sight::Unreachable => "Unreachable",
            Sight::Fenced => "Fenced",
        }
    }
}

/// The one word for both axes, in the API, tables and metrics. Only a ready node gets new work.
///
/// The worst word counts, in this order: `Fenced`, `Unreachable`, `Hold`, `Draining`, `Suspect`, `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeStatus {
    Ready,
    Suspect,
    Unreachable,
    Fenced,
    Draining,
    Hold,
}

/// The axis that a word belongs to.
pub(crate) enum Axis {
    Service(Service),
    Sight(Sight),
}

impl NodeStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            NodeStatus::Ready => Service::Ready.as_str(),
            NodeStatus::Suspect => Sight::Suspect.as_str(),
            NodeStatus::Unreachable => Sight::Unreachable.as_str(),
            NodeStatus::Fenced => Sight::Fenced.as_str(),
            NodeStatus::Draining => Service::Draining.as_str(),
            NodeStatus::Hold => Service::Hold.as_str(),
        }
    }

    pub(crate) fn axis(self) -> Axis {
        match self {
            NodeStatus::Ready => Axis::Service(Service::Ready),
            NodeStatus::Draining => Axis::Service(Service::Draining),
            NodeStatus::Hold => Axis::Service(Service::Hold),
            NodeStatus::Suspect => Axis::Sight(Sight::Suspect),
            NodeStatus::Unreachable => Axis::Sight(Sight::Unreachable),
            NodeStatus::Fenced => Axis::Sight(Sight::Fenced),
        }
    }
}

impl From<Service> for NodeStatus {
    fn from(service: Service) -> NodeStatus {
        match service {
            Service::Ready => NodeStatus::Ready,
            Service::Draining => NodeStatus::Draining,
            Service::Hold => NodeStatus::Hold,
        }
    }
}

/// The status on one axis, with the actor, reason and time of its last change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded<T> {
    pub status: T,
    /// The actor that set it.
    pub by: String,
    pub why: String,
    pub since: Timestamp,
}

impl<T> Recorded<T> {
    fn with<U>(&self, status: U) -> Recorded<U> {
        Recorded { status, by: self.by.clone(), why: self.why.clone(), since: self.since }
    }
}

/// The state of a node on both axes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SavedNodeState", into = "SavedNodeState")]
pub struct NodeState {
    pub service: Recorded<Service>,
    pub sight: Recorded<Sight>,
    /// Last report of a silent node, as far as the current leader knows: a new leader counts the silence from its
    /// takeover.
    pub silent_since: Option<Timestamp>,
}

impl NodeState {
    /// Before there were two axes a new word replaced the former one. Events, savepoints and tables of that time are
    /// read with this meaning.
    pub fn of_single_status(single: Recorded<NodeStatus>) -> NodeState {
        let (service, sight) = match single.status.axis() {
            Axis::Service(service) => (service, Sight::Seen),
            Axis::Sight(sight) => (Service::Ready, sight),
        };
        NodeState { service: single.with(service), sight: single.with(sight), silent_since: None }
    }

    /// The one word for both axes, with the actor, reason and time of the axis that decides it.
    pub fn combined(&self) -> Recorded<NodeStatus> {
        match (self.service.status, self.sight.status) {
            (_, Sight::Fenced) => self.sight.with(NodeStatus::Fenced),
            (_, Sight::Unreachable) => self.sight.with(NodeStatus::Unreachable),
            (Service::Ready, Sight::Suspect) => self.sight.with(NodeStatus::Suspect),
            // A ready node that is seen: whichever made it ready last.
            (Service::Ready, Sight::Seen) if self.sight.since > self.service.since => {
                self.sight.with(NodeStatus::Ready)
            }
            (service, Sight::Suspect | Sight::Seen) => self.service.with(service.into()),
        }
    }

    pub fn status(&self) -> NodeStatus {
        match (self.service.status, self.sight.status) {
            (_, Sight::Fenced) => NodeStatus::Fenced,
            (_, Sight::Unreachable) => NodeStatus::Unreachable,
            (Service::Ready, Sight::Suspect) => NodeStatus::Suspect,
            (service, Sight::Suspect | Sight::Seen) => service.into(),
        }
    }
}

/// The state in a savepoint: the one word as earlier releases wrote it, and both axes.
#[derive(Serialize, Deserialize)]
struct SavedNodeState {
    #[serde(flatten)]
    combined: Recorded<NodeStatus>,
    /// Absent in savepoints of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service: Option<Recorded<Service>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sight: Option<Recorded<Sight>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    silent_since: Option<Timestamp>,
}

impl From<SavedNodeState> for NodeState {
    fn from(saved: SavedNodeState) -> NodeState {
        match (saved.service, saved.sight) {
            (Some(service), Some(sight)) => NodeState { service, sight, silent_since: saved.silent_since },
            _ => NodeState::of_single_status(saved.combined),
        }
    }
}

impl From<NodeState> for SavedNodeState {
    fn from(state: NodeState) -> SavedNodeState {
        let combined = state.combined();
        let NodeState { service, sight, silent_since } = state;
        SavedNodeState { combined, service: Some(service), sight: Some(sight), silent_since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded<T>(status: T, at: i64) -> Recorded<T> {
        Recorded { status, by: "ada".to_string(), why: format!("at {at}"), since: Timestamp(at) }
    }

    #[test]
    fn the_worst_word_of_both_axes_counts() {
        use Service::{Draining, Hold, Ready};
        use Sight::{Fenced, Seen, Suspect, Unreachable};
        let word = |service, sight| {
            let state = NodeState { service: recorded(service, 1), sight: recorded(sight, 2), silent_since: None };
            assert_eq!(state.combined().status, state.status(), "{state:?}");
            (state.status().as_str(), state.combined().since.0)
        };
        let row = |service| [Seen, Suspect, Unreachable, Fenced].map(|sight| word(service, sight));
        let lost = [("Unreachable", 2), ("Fenced", 2)];
        assert_eq!(row(Ready), [("Ready", 2), ("Suspect", 2), lost[0], lost[1]]);
        assert_eq!(row(Draining), [("Draining", 1), ("Draining", 1), lost[0], lost[1]]);
        assert_eq!(row(Hold), [("Hold", 1), ("Hold", 1), lost[0], lost[1]]);
    }

    // The core does not depend on muster-json, and these texts have no fractions.
    #[allow(clippy::disallowed_methods)]
    #[test]
    fn a_savepoint_with_one_status_is_read_as_both_axes() {
        let read = |status: &str| -> NodeState {
            let text = format!(r#"{{"status":"{status}","by":"ada","why":"fan","since":7}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let axes = |state: &NodeState| (state.service.status, state.sight.status);
        assert_eq!(axes(&read("ready")), (Service::Ready, Sight::Seen));
        assert_eq!(axes(&read("draining")), (Service::Draining, Sight::Seen));
        assert_eq!(axes(&read("unreachable")), (Service::Ready, Sight::Unreachable));
        let (sight, silent_since) = (recorded(Sight::Fenced, 9), Some(Timestamp(5)));
        let state = NodeState { service: recorded(Service::Hold, 8), sight, silent_since };
        let text = serde_json::to_string(&state).unwrap();
        assert!(text.contains(r#""status":"fenced""#), "an older release reads one word: {text}");
        assert_eq!(serde_json::from_str::<NodeState>(&text).unwrap(), state);
    }
}
