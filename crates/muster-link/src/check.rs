//! Checks of the link to each known server, for `muster doctor --node`. They disturb neither the agent nor the server.

use std::time::Duration;

use muster_wire::v1::agent_link_client::AgentLinkClient;
use muster_wire::v1::{CheckRequest, CheckResponse};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::error::LinkError;
use crate::identity::Identity;
use crate::{channel, tls};

const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// The steps of the way to a server, each named by what fails if it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkStep {
    Dns,
    Tcp,
    Tls,
    Answer,
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFailure {
    pub step: LinkStep,
    pub why: String,
}

/// Asks one server what it knows of this node.
pub async fn check_server(identity: &Identity, server: &str) -> Result<Result<CheckResponse, LinkFailure>, LinkError> {
    let tls = tls::config_of(identity)?;
    Ok(walk(identity, server, tls).await)
}

async fn walk(
    identity: &Identity,
    server: &str,
    tls: std::sync::Arc<rustls::ClientConfig>,
) -> Result<CheckResponse, LinkFailure> {
    let failed = |step: LinkStep| move |why: String| LinkFailure { step, why };
    let late =
        |step: LinkStep| move |_| LinkFailure { step, why: format!("no answer within {} s", STEP_TIMEOUT.as_secs()) };
    let found = timeout(STEP_TIMEOUT, lookup_host(server)).await.map_err(late(LinkStep::Dns))?;
    let addresses: Vec<_> = found.map_err(|error| failed(LinkStep::Dns)(error.to_string()))?.collect();
    let connected = timeout(STEP_TIMEOUT, TcpStream::connect(&*addresses)).await.map_err(late(LinkStep::Tcp))?;
    drop(connected.map_err(|error| failed(LinkStep::Tcp)(error.to_string()))?);
    let channel = timeout(STEP_TIMEOUT, channel::connect(server, tls)).await.map_err(late(LinkStep::Tls))?;
    let mut client = AgentLinkClient::new(channel.map_err(failed(LinkStep::Tls))?);
    let (node, enrolment) = (identity.membership.node.clone(), identity.membership.enrolment.clone());
    let answer = timeout(STEP_TIMEOUT, client.check(CheckRequest { node, enrolment })).await;
    let answer = answer.map_err(late(LinkStep::Answer))?;
    // With TLS 1.3 a server refuses a client certificate after the handshake.
    answer.map(tonic::Response::into_inner).map_err(|status| failed(LinkStep::Answer)(status.message().to_string()))
}

/// The end of a certificate's validity, such as `2026-03-01T09:14:07Z`. `None` if it cannot be read.
pub fn certificate_end(pem: &str) -> Option<String> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (content, _) = der_element(&certificate)?;
    let (mut fields, _) = der_element(content)?;
    // Version, serial number, signature algorithm and issuer precede the validity.
    for _ in 0..4 {
        fields = der_element(fields)?.1;
    }
    let (validity, _) = der_element(fields)?;
    let (end, _) = der_element(der_element(validity)?.1)?;
    let digits = std::str::from_utf8(end).ok()?.strip_suffix('Z')?;
    // A year of two digits is one of this century: muster issues no certificates of the former.
    let digits = if digits.len() == 12 { format!("20{digits}") } else { digits.to_string() };
    let part = |range: std::ops::Range<usize>| digits.get(range);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    Some(format!("{year}-{month}-{day}T{}:{}:{}Z", part(8..10)?, part(10..12)?, part(12..14)?))
}

/// The content of the first element of DER, and what follows it.
fn der_element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&short, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f).min(4))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["n1".to_string()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let pem = params.self_signed(&key).unwrap().pem();
        assert_eq!(certificate_end(&pem).as_deref(), Some("2031-02-03T00:00:00Z"));
        assert_eq!(certificate_end("no certificate"), None);
    }
}
