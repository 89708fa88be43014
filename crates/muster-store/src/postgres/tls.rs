//! TLS to PostgreSQL, with the options of libpq: `sslmode`, `sslrootcert`, `sslcert` and `sslkey`.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::config::{PostgresConfig, SslMode};
use crate::error::StoreError;

/// `sslrootcert=system`: files in which Linux distributions keep the certificates of public CAs.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS configuration of all connections to one PostgreSQL server.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Read the certificates. Also needed with `sslmode=disable`, because the driver requires a value.
    pub fn from_config(config: &PostgresConfig) -> Result<Tls, StoreError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Verifier::from_config(config, &provider)?);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| StoreError::Misconfigured(format!("TLS cannot be used: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let client = match (&config.sslcert, &config.sslkey) {
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(unusable("sslkey", key))?;
                builder
                    .with_client_auth_cert(certificates("sslcert", certificate)?, key)
                    .map_err(unusable("sslcert", certificate))?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => {
                return Err(StoreError::Misconfigured(
                    "`sslcert` and `sslkey` go together; set both or none".to_string(),
                ));
            }
        };
        Ok(Tls(Arc::new(client)))
    }
}

fn certificates(key: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(unusable(key, file))?;
    match found.is_empty() {
        true => Err(unusable(key, file)("it contains no certificate in PEM")),
        false => Ok(found),
    }
}

fn unusable<E: std::fmt::Display>(key: &str, file: &Path) -> impl Fn(E) -> StoreError {
    let subject = format!("`{key}` of PostgreSQL, file `{}`", file.display());
    move |error| StoreError::Misconfigured(format!("{subject}, cannot be used: {error}"))
}

/// Verifies the server certificate according to `sslmode`.
#[derive(Debug)]
struct Verifier {
    /// `None` accepts any certificate: `prefer`, and `require` without `sslrootcert`.
    roots: Option<TrustedRoots>,
    /// True for `verify-full`.
    check_host_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Certificates of `sslrootcert`.
#[derive(Debug)]
struct TrustedRoots {
    file: String,
    chain_verifier: Arc<WebPkiServerVerifier>,
    /// As in libpq, a server certificate that is itself in the file is trusted, also if it is self-signed.
    certificates: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn from_config(config: &PostgresConfig, provider: &Arc<CryptoProvider>) -> Result<Verifier, StoreError> {
        let needs_roots = matches!(config.sslmode, SslMode::VerifyCa | SslMode::VerifyFull);
        let roots = match (&config.sslrootcert, config.sslmode) {
            (_, SslMode::Disable | SslMode::Prefer) => None,
            (Some(file), _) => Some(TrustedRoots::read(file, provider)?),
            (None, _) if needs_roots => {
                return Err(StoreError::Misconfigured(format!(
                    "sslmode `{}` verifies the server certificate; set `sslrootcert` to the file of the CA, or to \
                     `system` for the CAs of this machine",
                    config.sslmode.as_str()
                )));
            }
            (None, _) => None,
        };
        Ok(Verifier {
            roots,
            check_host_name: config.sslmode == SslMode::VerifyFull,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    /// Replace a rustls error by a message that names the file or host name to correct.
    fn explain(&self, roots: &TrustedRoots, name: &ServerName<'_>, error: rustls::Error) -> rustls::Error {
        let server = name.to_str();
        let message = match &error {
            rustls::Error::InvalidCertificate(problem) => match problem {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                    "the certificate of `{server}` is not signed by a CA in `{}` (sslrootcert); use the file of the CA \
                     that signed it",
                    roots.file
                ),
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    format!(
                        "the certificate is for another host name than `{server}`; connect by the name in the \
                     certificate, or use `sslmode=verify-ca`"
                    )
                }
                _ => return error,
            },
            _ => return error,
        };
        CertificateError::Other(OtherError(Arc::new(io::Error::other(message)))).into()
    }
}

impl TrustedRoots {
    fn read(file: &Path, provider: &Arc<CryptoProvider>) -> Result<TrustedRoots, StoreError> {
        let file = match file.as_os_str() == "system" {
            true => system_roots()?,
            false => file,
        };
        let certificates = certificates("sslrootcert", file)?;
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(certificates.iter().cloned());
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
            .build()
            .map_err(unusable("sslrootcert", file))?;
        Ok(TrustedRoots { file: file.display().to_string(), chain_verifier: chain, certificates })
    }
}

fn system_roots() -> Result<&'static Path, StoreError> {
    let found = SYSTEM_ROOTS.iter().map(Path::new).find(|file| file.exists());
    found.ok_or_else(|| {
        StoreError::Misconfigured(format!(
            "`sslrootcert=system`: this machine has none of {}; name the file of the CA",
            SYSTEM_ROOTS.join(", ")
        ))
    })
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        let verified = match roots.certificates.iter().any(|certificate| certificate == end_entity) {
            true => ParsedCertificate::try_from(end_entity)
                .and_then(|parsed| rustls::client::verify_server_name(&parsed, name))
                .map(|()| ServerCertVerified::assertion()),
            false => roots.chain_verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now),
        };
        match verified {
            // The name is checked last, so the chain is valid.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.check_host_name => Ok(ServerCertVerified::assertion()),
            verified => verified.map_err(|error| self.explain(roots, name, error)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A TLS handshake to be made.
pub struct Handshake {
    connector: TlsConnector,
    host: String,
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = EncryptedStream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { connector: TlsConnector::from(self.0.clone()), host: host.to_string() })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = EncryptedStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host.clone())
                .map_err(|_| io::Error::other(format!("`{}` is not a host name", self.host)))?;
            self.connector.connect(name, socket).await.map(EncryptedStream).map_err(unwrap_certificate_error)
        })
    }
}

/// The message of [`Verifier::explain`], without the error types that rustls wraps around it.
fn unwrap_certificate_error(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(message))) => {
            io::Error::other(message.0.to_string())
        }
        _ => error,
    }
}

pub struct EncryptedStream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for EncryptedStream {
    /// No channel binding: `verify-full` already authenticates the server.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
