//! Enrolment of nodes: join tokens, and which certificate the agent of a node may use.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::time::Timestamp;

/// A join token lets one agent enrol its node, once. The secret itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// Short public id. It later names the enrolment.
    pub id: String,
    /// SHA-256 of the secret, in hexadecimal.
    pub hash: String,
    /// The only node that may use it; `None` for any node that is not enrolled yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    pub made_by: String,
    pub made_at: Timestamp,
    pub expires_at: Timestamp,
}

/// The current enrolment of a node. Certificates of former enrolments are no longer accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolment {
    /// Id of the join token that was used. Tokens are used once, so each enrolment has another id.
    pub id: String,
    pub at: Timestamp,
    /// The agent of the former enrolment that the journal knew. It may still run, so it gets no orders: the node has none
    /// until an agent of this enrolment registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_incarnation: Option<String>,
}
