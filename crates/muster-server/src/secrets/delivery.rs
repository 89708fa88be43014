//! Step 9, dispatch: the secrets that go to the agent of a node with its orders, until it reports that the attempt has started.

use std::collections::BTreeMap;

use muster_core::objects::job::{Attempt, Job};
use muster_core::objects::secret::Secret;
use muster_core::{NodeId, State};
use muster_protocol::agent::{AttemptOrder, AttemptSecrets, Exit, SecretFile};
use tracing::{debug, warn};

use super::{SecretFault, SecretVault};

/// Most bytes of values in one message: as base64 in JSON they fit into a frame of the link. The attempts beyond it get
/// theirs with later orders.
const MESSAGE_BYTES_MAX: u64 = 2 << 20;

/// The secrets of an attempt that a node has to launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedSecrets {
    pub job: String,
    pub attempt: u32,
    /// The name of each secret by the name of its file, and the secret if there is one.
    pub files: BTreeMap<String, (String, Option<Secret>)>,
}

/// The secrets that the agent of a node still needs. A simulated node runs no programs and needs none.
pub fn wanted_secrets(state: &State, node: &NodeId) -> Vec<WantedSecrets> {
    if !state.nodes.get(node).is_some_and(|node| node.runs_programs()) {
        return Vec::new();
    }
    let attempts = state.attempts_on(node).filter_map(|job| Some((job, job.attempt()?)));
    let to_launch = attempts.filter(|(job, attempt)| {
        let is_waiting = attempt.reports.get(node).is_none() && attempt.stopping.is_none();
        is_waiting && !job.spec.run.secrets.is_empty()
    });
    to_launch.map(|(job, attempt)| wanted_by(state, job, attempt)).collect()
}

fn wanted_by(state: &State, job: &Job, attempt: &Attempt) -> WantedSecrets {
    let spec = &job.spec;
    let found = |name: &str| state.secret_for(&spec.tenant, &spec.user, name).cloned();
    let files = spec.run.secrets.iter().map(|used| (used.file.clone(), (used.name.clone(), found(&used.name))));
    WantedSecrets { job: job.id.to_string(), attempt: attempt.number, files: files.collect() }
}

impl WantedSecrets {
    pub fn is_of(&self, order: &AttemptOrder) -> bool {
        (self.job.as_str(), self.attempt) == (order.job.as_str(), order.attempt)
    }

    fn bytes(&self) -> u64 {
        self.files.values().filter_map(|(_, secret)| Some(secret.as_ref()?.bytes)).sum()
    }

    fn refused(&self, why: Exit) -> AttemptSecrets {
        let refusal = match why {
            Exit::NotStarted(text) => Some(text),
            _ => None,
        };
        AttemptSecrets { job: self.job.clone(), attempt: self.attempt, files: Vec::new(), refusal }
    }
}

impl SecretVault {
    /// The secrets for one message, and whether some attempts must wait for a later one.
    pub fn secrets_to_send(&self, wanted: &[WantedSecrets]) -> (Vec<AttemptSecrets>, bool) {
        let (mut to_send, mut bytes, mut are_left) = (Vec::new(), 0, false);
        for attempt in wanted {
            if bytes > 0 && bytes + attempt.bytes() > MESSAGE_BYTES_MAX {
                are_left = true;
                continue;
            }
            bytes += attempt.bytes();
            match self.secrets_of(attempt) {
                Some(secrets) => to_send.push(secrets),
                None => are_left = true,
            }
        }
        (to_send, are_left)
    }

    /// `None` if the database does not answer now: the attempt waits.
    fn secrets_of(&self, wanted: &WantedSecrets) -> Option<AttemptSecrets> {
        let mut files = Vec::new();
        for (file, (name, secret)) in &wanted.files {
            let Some(secret) = secret else {
                let why = format!("the secret `{name}` was removed; set it again, then submit the job again");
                return Some(wanted.refused(Exit::invalid_job(&why)));
            };
            match self.open(secret) {
                Ok(value) => files.push(SecretFile { name: file.clone(), value }),
                Err(SecretFault::Store(error)) => {
                    debug!(job = wanted.job, "the secrets are sent later: {error}");
                    return None;
                }
                Err(fault) => {
                    warn!(job = wanted.job, "the secrets cannot be delivered: {fault}");
                    return Some(wanted.refused(Exit::NotStarted(format!("the secrets cannot be delivered: {fault}"))));
                }
            }
        }
        Some(AttemptSecrets { job: wanted.job.clone(), attempt: wanted.attempt, files, refusal: None })
    }
}
