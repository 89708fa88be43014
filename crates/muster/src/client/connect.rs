//! One connection to the server, plain or with TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::failure::Failure;
use crate::error::CliError;
use crate::options::{Connection, ServerAddress};

/// Nobody waits longer than this for a machine that does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where Linux distributions keep the authorities that the machine trusts.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Opens connections to one server.
pub struct Connector {
    address: ServerAddress,
    tls: Option<TlsConnector>,
}

impl Connector {
    pub fn new(connection: &Connection) -> Result<Connector, CliError> {
        let address = connection.server.clone();
        let tls = match address.tls {
            true => Some(TlsConnector::from(Arc::new(tls_config(connection.ca_file.as_deref())?))),
            false => None,
        };
        Ok(Connector { address, tls })
    }

    /// The address as people write it.
    pub fn server(&self) -> &str {
        &self.address.text
    }

    /// The value of the `Host` header.
    pub fn host(&self) -> String {
        self.address.authority()
    }

    /// A path below the server's own.
    pub fn path(&self, target: &str) -> String {
        format!("{}{target}", self.address.base)
    }

    /// Connect, shake hands, and be ready to send.
    pub async fn open(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.connect())
            .await
            .unwrap_or_else(|_| Err(Failure::Unreachable("no answer within 5 s".to_string())))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let tcp = TcpStream::connect((self.address.host.as_str(), self.address.port))
            .await
            .map_err(|error| Failure::Unreachable(plain(&error)))?;
        // A call is one small write; waiting for more to send would only delay it.
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => speak(tcp).await,
            Some(tls) => speak(self.encrypt(tls, tcp).await?).await,
        }
    }

    async fn encrypt(
        &self,
        tls: &TlsConnector,
        tcp: TcpStream,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, Failure> {
        let name = ServerName::try_from(self.address.host.clone()).map_err(|error| {
            Failure::Unreachable(format!("`{}` is no host name: {error}", self.address.host))
        })?;
        let secured = tls.connect(name, tcp).await;
        secured.map_err(|error| Failure::Untrusted(error.to_string()))
    }
}

async fn speak<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(Failure::dropped)?;
    // It ends with the exchange; what goes wrong is also told to the sender.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// Without the number that the operating system gives it.
fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_string(),
        _ => error.to_string(),
    }
}

fn tls_config(ca_file: Option<&Path>) -> Result<ClientConfig, CliError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| CliError::failed(format!("cannot set up TLS: {error}")))?;
    Ok(builder.with_root_certificates(trusted(ca_file)?).with_no_client_auth())
}

fn trusted(ca_file: Option<&Path>) -> Result<RootCertStore, CliError> {
    let Some(file) = ca_file else { return system_roots() };
    let bad = |error: &dyn std::fmt::Display| {
        CliError::usage(format!("cannot read certificates from `{}`: {error}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| bad(&error))? {
        roots.add(certificate.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
    }
    if roots.is_empty() {
        return Err(bad(&"there are none in it"));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, CliError> {
    let mut roots = RootCertStore::empty();
    for bundle in SYSTEM_BUNDLES {
        let Ok(certificates) = CertificateDer::pem_file_iter(bundle) else { continue };
        roots.add_parsable_certificates(certificates.flatten());
        return Ok(roots);
    }
    Err(CliError::usage("this machine has no list of certificate authorities")
        .hint("name the server's own authority with `--ca-file FILE` or MUSTER_CA_FILE"))
}
