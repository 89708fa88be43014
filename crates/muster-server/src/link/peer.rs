//! Authentication of agents: checks of the certificate that an agent presents.
//!
//! The dates of a certificate limit how long a stolen one is useful; which enrolment of a node is the current one, the
//! state says. So a certificate of a server whose clock is ahead is good at once ([`judged_at`]).

use std::sync::Arc;
use std::time::Duration;

use muster_wire::certificate_names::agent_name;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// An agent that was switched off for this long after its certificate expired still gets a new one.
const LATE_RENEWAL_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Why the certificate of a peer does not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerError {
    /// It needs a new certificate first.
    Expired,
    /// It is not the certificate of this node and enrolment.
    Other(String),
}

/// Checks that a certificate is valid and belongs to an enrolment of a node.
pub fn check(
    verifier: &dyn ClientCertVerifier,
    certificate: &CertificateDer<'_>,
    node: &str,
    enrolment: &str,
) -> Result<(), PeerError> {
    check_name(certificate, node, enrolment)?;
    match verify_begun(verifier, certificate, &[], UnixTime::now()) {
        Ok(_) => Ok(()),
        Err(Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
            Err(PeerError::Expired)
        }
        Err(error) => Err(PeerError::Other(error.to_string())),
    }
}

/// Checks the name alone. The handshake has checked signature and purpose, and that the certificate has not expired long
/// ago.
pub fn check_name(certificate: &CertificateDer<'_>, node: &str, enrolment: &str) -> Result<(), PeerError> {
    let other = |error: Error| PeerError::Other(error.to_string());
    let name =
        ServerName::try_from(agent_name(node, enrolment)).map_err(|error| PeerError::Other(error.to_string()))?;
    let parsed = ParsedCertificate::try_from(certificate).map_err(other)?;
    verify_server_name(&parsed, &name).map_err(other)
}

/// Verifies a certificate, also before its first day.
fn verify_begun(
    verifier: &dyn ClientCertVerifier,
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<ClientCertVerified, Error> {
    let checked = verifier.verify_client_cert(certificate, intermediates, now);
    let Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) = &checked else {
        return checked;
    };
    let judged_at = judged_at(now.as_secs(), not_before.as_secs());
    verifier.verify_client_cert(certificate, intermediates, UnixTime::since_unix_epoch(Duration::from_secs(judged_at)))
}

/// The time at which a certificate is judged: a certificate from the future was issued by a server whose clock is ahead, or
/// was until a person set it. To refuse it would lock the node out until the other clocks have caught up.
pub fn judged_at(now: u64, not_before: u64) -> u64 {
    now.max(not_before)
}

/// True if the holder of a certificate that has expired may still renew it.
pub fn may_renew(now: u64, not_after: u64, late_max: u64) -> bool {
    now.saturating_sub(not_after) <= late_max
}

/// Accepts certificates that expired less than [`LATE_RENEWAL_MAX`] ago into the handshake, so that their holders can
/// renew them. Everything else checks strictly ([`check`]).
#[derive(Debug)]
pub struct LateRenewalVerifier {
    strict: Arc<dyn ClientCertVerifier>,
}

impl LateRenewalVerifier {
    pub fn new(strict: Arc<dyn ClientCertVerifier>) -> LateRenewalVerifier {
        LateRenewalVerifier { strict }
    }
}

impl ClientCertVerifier for LateRenewalVerifier {
    fn offer_client_auth(&self) -> bool {
        self.strict.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.strict.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.strict.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let checked = verify_begun(&*self.strict, end_entity, intermediates, now);
        let Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) = &checked else {
            return checked;
        };
        match may_renew(now.as_secs(), not_after.as_secs(), LATE_RENEWAL_MAX.as_secs()) {
            true => self.strict.verify_client_cert(end_entity, intermediates, *not_after),
            false => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.strict.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.strict.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.strict.supported_verify_schemes()
    }
}
