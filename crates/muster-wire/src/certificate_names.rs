//! The DNS names in the certificates of the agent link.
//!
//! Certificates of the link name roles and not hosts: the servers of a cluster share one name, whatever their addresses,
//! and the certificate of an agent names one enrolment of one node. A server checks that the certificate of a peer is
//! valid for the name of the node and the enrolment that the peer claims, so it never parses names out of certificates.

use sha2::{Digest, Sha256};

/// The name in the certificate of every server.
pub const SERVER_NAME: &str = "server.link.muster.internal";

/// The name in the certificate of an agent. Node names may be longer than a DNS label, so their hash is used.
pub fn agent_name(node: &str, enrolment: &str) -> String {
    format!("{}.{}.agent.link.muster.internal", label(enrolment), label(node))
}

fn label(text: &str) -> String {
    Sha256::digest(text.as_bytes())[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_enrolment_of_each_node_has_a_name_of_its_own() {
        let names =
            [agent_name("n1", "a"), agent_name("n1", "b"), agent_name("n2", "a"), agent_name(&"x".repeat(200), "a")];
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
        for name in names {
            assert!(name.split('.').all(|label| label.len() <= 63), "{name}");
        }
    }
}
