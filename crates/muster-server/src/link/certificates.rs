//! The CA of the cluster, the server's certificate on the agent link, and the certificates of agents.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_wire::certificate_names::{SERVER_NAME, agent_name};
use muster_wire::v1;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};

use super::peer::LateRenewalVerifier;
use crate::tls::{TlsError, own_ca, ring_provider};

/// Certificates are dated in whole days, so that one issued late in the evening is valid for a day at least.
const AGENT_CERTIFICATE_VALID_DAYS: i32 = 2;
/// An agent then has half a day at least to find a leader before the certificate expires.
const RENEW_AFTER: Duration = Duration::from_secs(12 * 3_600);
/// Length of an uncompressed point of P-256, and its first byte.
const PUBLIC_KEY_BYTES: usize = 65;
const UNCOMPRESSED_POINT: u8 = 4;

/// Signs certificates with the key of the CA in the data folder.
pub struct LinkCertificates {
    issuer: Issuer<'static, KeyPair>,
    ca: CertificateDer<'static>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// A public key as the agent sent it.
struct AgentKey<'a>(&'a [u8]);

impl PublicKeyData for AgentKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl LinkCertificates {
    /// The CA of this data folder, generated at the first call.
    pub fn open(data_dir: &Path) -> Result<LinkCertificates, TlsError> {
        let issuer = own_ca::issuer(data_dir, own_ca::today())?;
        let path = own_ca::ca_path(data_dir);
        let unreadable = |why: String| TlsError::Unreadable { path: path.clone(), why };
        let ca = CertificateDer::from_pem_file(&path).map_err(|error| unreadable(error.to_string()))?;
        let unusable = |source| TlsError::Unusable { path: path.clone(), source };
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone()).map_err(unusable)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), ring_provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| unreadable(error.to_string()))?;
        Ok(LinkCertificates { issuer, ca, verifier })
    }

    /// SHA-256 of the CA certificate, in hexadecimal. Agents trust the CA with this fingerprint only.
    pub fn ca_fingerprint(&self) -> String {
        Sha256::digest(&self.ca).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Checks certificates strictly: signature, purpose and time.
    pub fn verifier(&self) -> &Arc<dyn ClientCertVerifier> {
        &self.verifier
    }

    /// TLS of the link, with a certificate made for this start. Agents without a certificate may connect, to enrol.
    pub fn server_config(&self, data_dir: &Path) -> Result<ServerConfig, TlsError> {
        let not_generated = |source| TlsError::NotGenerated { path: data_dir.to_path_buf(), source };
        let mut params = params(SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth).map_err(not_generated)?;
        own_ca::set_validity(&mut params, own_ca::today(), own_ca::SERVER_CERTIFICATE_VALID_DAYS);
        let key = KeyPair::generate().map_err(not_generated)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(not_generated)?;
        let unusable = |source| TlsError::Unusable { path: own_ca::ca_path(data_dir), source };
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|why| unusable(rustls::Error::General(why.to_string())))?;
        let builder = ServerConfig::builder_with_provider(ring_provider()).with_safe_default_protocol_versions();
        let verifier = Arc::new(LateRenewalVerifier::new(self.verifier.clone()));
        let builder = builder.map_err(unusable)?.with_client_cert_verifier(verifier);
        let chain = vec![certificate.der().clone(), self.ca.clone()];
        let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    /// A certificate for one enrolment of a node. `None` if the key is no public key.
    pub fn issue(
        &self,
        node: &str,
        enrolment: &str,
        public_key: &[u8],
    ) -> Option<Result<v1::NodeCertificate, rcgen::Error>> {
        let is_key = public_key.len() == PUBLIC_KEY_BYTES && public_key.first() == Some(&UNCOMPRESSED_POINT);
        is_key.then(|| {
            let mut params = params(&agent_name(node, enrolment), ExtendedKeyUsagePurpose::ClientAuth)?;
            params.distinguished_name.push(DnType::OrganizationalUnitName, node);
            own_ca::set_validity(&mut params, own_ca::today(), AGENT_CERTIFICATE_VALID_DAYS);
            let certificate = params.signed_by(&AgentKey(public_key), &self.issuer)?;
            Ok(v1::NodeCertificate { certificate: certificate.pem(), renew_after_ms: RENEW_AFTER.as_millis() as i64 })
        })
    }
}

fn params(name: &str, purpose: ExtendedKeyUsagePurpose) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.to_string()])?;
    params.distinguished_name.push(DnType::CommonName, "muster");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
