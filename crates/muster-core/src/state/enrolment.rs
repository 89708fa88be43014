//! Step 4, decide: join tokens, the enrolment of nodes, and the CA of the cluster.
//!
//! The server checks secrets and certificates. The state decides which token may be used for which node, so that two
//! servers can never accept the same token.

use crate::facts::event::Event;
use crate::facts::refusal::Refusal;
use crate::ids::NodeId;
use crate::objects::enrolment::{Enrolment, JoinToken};
use crate::state::State;
use crate::state::decision::Decision;
use crate::time::Timestamp;

/// Longest validity of a join token.
pub const JOIN_TOKEN_MS_MAX: i64 = 24 * 3_600_000;
/// Most join tokens that are valid at the same time.
const JOIN_TOKENS_MAX: usize = 10_000;

impl State {
    pub(super) fn decide_add_join_token(&self, token: &JoinToken, now: Timestamp) -> Result<Decision, Refusal> {
        if self.join_tokens.contains_key(&token.id) || self.enrolments.values().any(|known| known.id == token.id) {
            return Err(Refusal::DuplicateToken { id: token.id.clone() });
        }
        let valid_ms = token.expires_at.since(now);
        if !(1..=JOIN_TOKEN_MS_MAX).contains(&valid_ms) {
            let problem = "a join token is valid for at least a moment and at most 24 hours".to_string();
            return Err(Refusal::Invalid { field: "expires_in_seconds", problem });
        }
        if self.join_tokens.len() >= JOIN_TOKENS_MAX {
            let problem = format!("{JOIN_TOKENS_MAX} join tokens are unused; wait until some expire");
            return Err(Refusal::Invalid { field: "join_token", problem });
        }
        Ok(Decision::done(vec![Event::JoinTokenAdded { token: Box::new(token.clone()), at: now }]))
    }

    /// Use a join token, whose secret the server has checked, for a node.
    pub(super) fn decide_enrol(&self, node: &NodeId, token: &str, now: Timestamp) -> Result<Decision, Refusal> {
        let known = self.join_tokens.get(token).filter(|known| known.expires_at > now);
        let Some(known) = known else { return Err(Refusal::JoinTokenUnusable { id: token.to_string() }) };
        match &known.node {
            Some(only) if only != node => {
                return Err(Refusal::JoinTokenOfAnotherNode { node: node.clone(), only: only.clone() });
            }
            // Otherwise the holder of a token for any new node could take over a working node.
            None if self.enrolments.contains_key(node) || self.has_joined(node) => {
                return Err(Refusal::NodeEnrolled { node: node.clone() });
            }
            _ => {}
        }
        Ok(Decision::done(vec![Event::NodeEnrolled { node: node.clone(), token: token.to_string(), at: now }]))
    }

    /// Record the CA of the cluster. With enrolled nodes it never changes: their agents trust no other.
    pub(super) fn decide_cluster_ca(&self, fingerprint: &str, now: Timestamp) -> Result<Decision, Refusal> {
        match &self.cluster_ca {
            Some(known) if known == fingerprint => Ok(Decision::done(Vec::new())),
            Some(known) if !self.enrolments.is_empty() => {
                Err(Refusal::OtherClusterCa { known: known.clone(), offered: fingerprint.to_string() })
            }
            _ => {
                // Join tokens carry the fingerprint of the former CA.
                let mut events = self.unused_join_tokens(|_| true, "the CA of the cluster was replaced", now);
                events.push(Event::ClusterCaChosen { fingerprint: fingerprint.to_string(), at: now });
                Ok(Decision::done(events))
            }
        }
    }

    /// Remove join tokens that have expired.
    pub(super) fn end_old_join_tokens(&self, now: Timestamp, events: &mut Vec<Event>) {
        events.extend(self.unused_join_tokens(|token| token.expires_at <= now, "it expired", now));
    }

    fn unused_join_tokens(&self, ended: impl Fn(&JoinToken) -> bool, why: &str, now: Timestamp) -> Vec<Event> {
        let ended = self.join_tokens.values().filter(|token| ended(token));
        ended.map(|token| Event::JoinTokenEnded { id: token.id.clone(), why: why.to_string(), at: now }).collect()
    }

    pub(super) fn enrol(&mut self, node: &NodeId, token: &str, at: Timestamp) {
        self.join_tokens.remove(token);
        let former_incarnation = self.nodes.get(node).map(|known| known.facts.incarnation.clone());
        self.enrolments.insert(node.clone(), Enrolment { id: token.to_string(), at, former_incarnation });
    }

    /// True if an agent has registered the node.
    fn has_joined(&self, node: &NodeId) -> bool {
        self.nodes.get(node).is_some_and(|known| !known.declared)
    }

    /// True if certificates of this enrolment of the node are accepted.
    pub fn is_enrolled(&self, node: &NodeId, enrolment: &str) -> bool {
        self.enrolments.get(node).is_some_and(|known| known.id == enrolment)
    }
}
