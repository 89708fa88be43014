//! TLS of the link: the agent trusts the one CA whose fingerprint it knows, and shows its own certificate.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

use crate::error::LinkError;
use crate::identity::Identity;

/// Without a certificate, for joining: the server asks for none then.
pub(crate) fn config_for_joining(ca_fingerprint: &str) -> Result<Arc<ClientConfig>, LinkError> {
    Ok(Arc::new(with_protocol(builder(ca_fingerprint)?.with_no_client_auth())))
}

pub(crate) fn config_of(identity: &Identity) -> Result<Arc<ClientConfig>, LinkError> {
    let chain = CertificateDer::pem_slice_iter(identity.certificate().as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| Error::General(error.to_string()))?;
    let key = PrivateKeyDer::try_from(identity.private_key()).map_err(|why| Error::General(why.to_string()))?;
    let builder = builder(&identity.membership.ca_fingerprint)?;
    Ok(Arc::new(with_protocol(builder.with_client_auth_cert(chain, key)?)))
}

fn with_protocol(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

fn builder(
    ca_fingerprint: &str,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, LinkError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = PinnedCa { fingerprint: ca_fingerprint.to_string(), provider: provider.clone() };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

/// Accepts servers whose certificate is signed by the CA with this fingerprint. The server sends the CA certificate
/// with its own, so the agent needs to know no more than the fingerprint.
#[derive(Debug)]
struct PinnedCa {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl PinnedCa {
    fn verifier(&self, chain: &[CertificateDer<'_>]) -> Result<Arc<WebPkiServerVerifier>, Error> {
        let ca = chain.iter().find(|certificate| fingerprint(certificate) == self.fingerprint);
        let ca = ca.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone());
        builder.build().map_err(|error| Error::General(error.to_string()))
    }
}

/// SHA-256 of a certificate in DER, in hexadecimal.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ServerCertVerifier for PinnedCa {
    /// The clock of a node may be wrong, most of all right after boot. The CA is pinned and signs for the servers of one
    /// cluster only, so a certificate outside its validity is accepted, with a warning: a node that is cut off by its
    /// own clock would be worse.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = self.verifier(intermediates)?;
        let name = ServerName::try_from(muster_wire::certificate_names::SERVER_NAME)
            .map_err(|error| Error::General(error.to_string()))?;
        let verify = |at| verifier.verify_server_cert(end_entity, intermediates, &name, ocsp_response, at);
        let checked = verify(now);
        let time_in_validity = match &checked {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => *not_after,
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => *not_before,
            _ => return checked,
        };
        tracing::warn!("the clock of this node or of the server is wrong: the server's certificate is not valid today");
        verify(time_in_validity)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
