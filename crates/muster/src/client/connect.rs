//! Opening a connection to the server, with or without TLS.

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

use super::failure::CallFailure;
use crate::connection::{Connection, ServerAddress};
use crate::error::CliError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where Linux distributions keep the certificate authorities that the machine trusts.
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

    /// The URL of the server, for messages.
    pub fn server(&self) -> &str {
        &self.address.text
    }

    /// The value of the `Host` header.
    pub fn host(&self) -> String {
        self.address.authority()
    }

    /// The target below the base path of the server.
    pub fn path(&self, target: &str) -> String {
        format!("{}{target}", self.address.base)
    }

    /// Connects and completes the TLS and HTTP handshakes.
    pub async fn open(&self) -> Result<SendRequest<Full<Bytes>>, CallFailure> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.connect())
            .await
            .unwrap_or_else(|_| Err(CallFailure::Unreachable("no connection within 5 s".to_string())))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, CallFailure> {
        let tcp = TcpStream::connect((self.address.host.as_str(), self.address.port))
            .await
            .map_err(|error| CallFailure::Unreachable(short_io_error(&error)))?;
        // A request is one small write; Nagle's algorithm would only delay it.
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => http_handshake(tcp).await,
            Some(tls) => http_handshake(self.tls_handshake(tls, tcp).await?).await,
        }
    }

    async fn tls_handshake(
        &self,
        tls: &TlsConnector,
        tcp: TcpStream,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, CallFailure> {
        let name = ServerName::try_from(self.address.host.clone()).map_err(|error| {
            CallFailure::Unreachable(format!("`{}` is not a host name: {error}", self.address.host))
        })?;
        let secured = tls.connect(name, tcp).await;
        secured.map_err(|error| CallFailure::Untrusted(error.to_string()))
    }
}

async fn http_handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, CallFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(CallFailure::connection_dropped)?;
    // The task ends with the exchange; the sender sees its errors too.
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    Ok(sender)
}

/// An I/O error without the error number of the operating system.
fn short_io_error(error: &std::io::Error) -> String {
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
    Ok(builder.with_root_certificates(root_certificates(ca_file)?).with_no_client_auth())
}

fn root_certificates(ca_file: Option<&Path>) -> Result<RootCertStore, CliError> {
    let Some(file) = ca_file else { return system_roots() };
    let bad = |error: &dyn std::fmt::Display| {
        CliError::usage(format!("cannot read certificates from `{}`: {error}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| bad(&error))? {
        roots.add(certificate.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
    }
    if roots.is_empty() {
        return Err(bad(&"the file contains none"));
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
        .hint("name the certificate authority of the server with `--ca-file FILE` or MUSTER_CA_FILE"))
}
