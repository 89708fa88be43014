//! Certificates of agents, as data. Whether one is valid is judged as in production, by the clock of the server.

use muster_server::link::peer::{PeerError, judged_at, may_renew};

/// Shorter than the faults of clocks and networks, so that certificates expire during them.
const CERTIFICATE_VALID_MS: i64 = 30_000;
/// Of a certificate that has expired. Longer than any fault.
const LATE_RENEWAL_MS_MAX: i64 = 24 * 3_600_000;

/// A certificate of an agent. Times are those of the server that issued it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimCertificate {
    node: String,
    enrolment: String,
    not_before_ms: i64,
    not_after_ms: i64,
}

impl SimCertificate {
    pub fn issue(node: &str, enrolment: &str, now_ms: i64) -> SimCertificate {
        let (node, enrolment) = (node.to_string(), enrolment.to_string());
        SimCertificate { node, enrolment, not_before_ms: now_ms, not_after_ms: now_ms + CERTIFICATE_VALID_MS }
    }

    pub fn enrolment(&self) -> &str {
        &self.enrolment
    }

    /// As `muster_server::link::peer::check_name`.
    pub fn check_name(&self, node: &str, enrolment: &str) -> Result<(), PeerError> {
        match (self.node.as_str(), self.enrolment.as_str()) == (node, enrolment) {
            true => Ok(()),
            false => Err(PeerError::Other("it names another node or enrolment".to_string())),
        }
    }

    /// As `muster_server::link::peer::check`.
    pub fn check(&self, node: &str, enrolment: &str, now_ms: i64) -> Result<(), PeerError> {
        self.check_name(node, enrolment)?;
        let seconds = |ms: i64| ms.max(0).unsigned_abs();
        let judged_at = judged_at(seconds(now_ms), seconds(self.not_before_ms));
        match judged_at <= seconds(self.not_after_ms) {
            true => Ok(()),
            false => Err(PeerError::Expired),
        }
    }

    /// Whether the handshake of a renewal succeeds.
    pub fn is_renewable(&self, now_ms: i64) -> bool {
        let ms = |ms: i64| ms.max(0).unsigned_abs();
        may_renew(ms(now_ms), ms(self.not_after_ms), ms(LATE_RENEWAL_MS_MAX))
    }
}
