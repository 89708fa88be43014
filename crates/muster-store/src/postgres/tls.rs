//! TLS towards PostgreSQL, with the words of libpq: `sslmode`, `sslrootcert`, `sslcert` and `sslkey`.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::config::{PostgresConfig, SslMode};
use crate::error::StoreError;

/// `sslrootcert=system`: where Linux distributions keep the certificates of public CAs.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How every connection to one PostgreSQL server is encrypted.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Read the certificates. Also made where `sslmode` is `disable`, because the driver asks for a value.
    pub fn of(config: &PostgresConfig) -> Result<Tls, StoreError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Verifier::of(config, &provider)?);
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
        true => Err(unusable(key, file)("it holds no certificate in PEM")),
        false => Ok(found),
    }
}

fn unusable<E: std::fmt::Display>(key: &str, file: &Path) -> impl Fn(E) -> StoreError {
    let place = format!("`{key}` of PostgreSQL, file `{}`", file.display());
    move |error| StoreError::Misconfigured(format!("{place}, cannot be used: {error}"))
}

/// Judges the certificate of the server as `sslmode` says.
#[derive(Debug)]
struct Verifier {
    /// `None` accepts any certificate: `prefer`, and `require` without `sslrootcert`.
    roots: Option<Roots>,
    /// Whether the name must fit as well: `verify-full`.
    check_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Whose signature counts.
#[derive(Debug)]
struct Roots {
    file: String,
    chain: Arc<WebPkiServerVerifier>,
    /// A certificate that is itself in the file is trusted like by libpq, also if it is self-signed.
    own: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn of(config: &PostgresConfig, provider: &Arc<CryptoProvider>) -> Result<Verifier, StoreError> {
        let needs_roots = matches!(config.sslmode, SslMode::VerifyCa | SslMode::VerifyFull);
        let roots = match (&config.sslrootcert, config.sslmode) {
            (_, SslMode::Disable | SslMode::Prefer) => None,
            (Some(file), _) => Some(Roots::read(file, provider)?),
            (None, _) if needs_roots => {
                return Err(StoreError::Misconfigured(format!(
                    "sslmode `{}` needs to know whom to trust; set `sslrootcert` to the file of the CA, or to `system` \
                     for the CAs of this machine",
                    config.sslmode.word()
                )));
            }
            (None, _) => None,
        };
        Ok(Verifier {
            roots,
            check_name: config.sslmode == SslMode::VerifyFull,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    /// What a person reads who has to find the right file or name.
    fn explain(&self, roots: &Roots, name: &ServerName<'_>, error: rustls::Error) -> rustls::Error {
        let server = name.to_str();
        let said = match &error {
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
        CertificateError::Other(OtherError(Arc::new(io::Error::other(said)))).into()
    }
}

impl Roots {
    fn read(file: &Path, provider: &Arc<CryptoProvider>) -> Result<Roots, StoreError> {
        let file = match file.as_os_str() == "system" {
            true => system_roots()?,
            false => file,
        };
        let own = certificates("sslrootcert", file)?;
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(own.iter().cloned());
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
            .build()
            .map_err(unusable("sslrootcert", file))?;
        Ok(Roots { file: file.display().to_string(), chain, own })
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
        let judged = match roots.own.iter().any(|own| own == end_entity) {
            true => ParsedCertificate::try_from(end_entity)
                .and_then(|parsed| rustls::client::verify_server_name(&parsed, name))
                .map(|()| ServerCertVerified::assertion()),
            false => roots.chain.verify_server_cert(end_entity, intermediates, name, ocsp, now),
        };
        match judged {
            // The name is looked at last, so the chain is good.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.check_name => Ok(ServerCertVerified::assertion()),
            judged => judged.map_err(|error| self.explain(roots, name, error)),
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

/// One handshake that is about to begin.
pub struct Handshake {
    connector: TlsConnector,
    host: String,
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        Ok(Handshake { connector: TlsConnector::from(self.0.clone()), host: host.to_string() })
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host.clone())
                .map_err(|_| io::Error::other(format!("`{}` is not a host name", self.host)))?;
            self.connector.connect(name, socket).await.map(Encrypted).map_err(plainly)
        })
    }
}

/// Our own words about a certificate, without the library's wrapping around them.
fn plainly(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(said))) => {
            io::Error::other(said.0.to_string())
        }
        _ => error,
    }
}

/// An encrypted connection.
pub struct Encrypted(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Encrypted {
    /// Passwords are not bound to the connection: `verify-full` already tells which server answers.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
