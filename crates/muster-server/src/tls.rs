//! TLS: the certificate of the server, and the accept loop for plain and encrypted connections.
//!
//! A site supplies certificate files, or the server generates its own CA and certificate in the data folder. Everything
//! uses rustls with *ring*, whichever provider the process has installed.

mod connections;
pub(crate) mod own_ca;
mod serve;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsConfig;
use crate::identity::FileError;

pub use connections::{ClientConnection, ConnectionLimits, Connections, raise_descriptor_limit};
pub use own_ca::ca_path;
pub use serve::{PeerCertificate, serve, serve_agents};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate or key file cannot be read.
    #[error("cannot read `{path}`: {why}; it should be in PEM form")]
    Unreadable { path: PathBuf, why: String },
    /// The certificate and the key cannot be used together.
    #[error("`{path}` cannot be used: {source}")]
    Unusable {
        /// The certificate.
        path: PathBuf,
        source: rustls::Error,
    },
    /// The server's own certificate could not be generated.
    #[error("cannot generate a certificate in `{path}`: {source}")]
    NotGenerated {
        /// The folder.
        path: PathBuf,
        source: rcgen::Error,
    },
    /// The server's own certificate could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The TLS acceptor of the server. `names` are the host names that clients use, besides those of loopback and the name of
/// this machine; they only matter for the server's own certificate.
pub fn acceptor(tls: &TlsConfig, data_dir: &Path, names: &[String]) -> Result<TlsAcceptor, TlsError> {
    let (certificate, key) = match tls {
        TlsConfig::Files { certificate, key } => (certificate.clone(), key.clone()),
        TlsConfig::OwnCa => {
            let names: Vec<String> = names.iter().cloned().chain(host_name()).collect();
            own_ca::ensure_certificate(data_dir, &names, own_ca::today())?
        }
    };
    let mut config = server_config(&certificate, &key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Configuration of a client that trusts the CA in this file.
pub fn client_config_trusting(ca: &Path) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|source| TlsError::Unusable { path: ca.to_path_buf(), source })?;
    }
    let builder = ClientConfig::builder_with_provider(ring_provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|source| TlsError::Unusable { path: ca.to_path_buf(), source })?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn server_config(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let unusable = |source| TlsError::Unusable { path: certificate.to_path_buf(), source };
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
    let builder = ServerConfig::builder_with_provider(ring_provider()).with_safe_default_protocol_versions();
    builder.map_err(unusable)?.with_no_client_auth().with_single_cert(chain, key).map_err(unusable)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => Err(unreadable(path, "it holds no certificate")),
        Ok(chain) => Ok(chain),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn unreadable(path: &Path, why: impl ToString) -> TlsError {
    TlsError::Unreadable { path: path.to_path_buf(), why: why.to_string() }
}

pub(crate) fn ring_provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The name of this machine, if it is one that a certificate can carry.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    (!name.is_empty() && name.bytes().all(is_plain)).then_some(name)
}

#[cfg(test)]
mod tests;
