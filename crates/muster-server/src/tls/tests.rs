//! The accept loop with real connections: plain, encrypted, during shutdown, and with slow clients.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Version};
use axum::routing::get;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::civil::date;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::connections::AnonymousTimeouts;
use super::serve::{ConnectionRules, serve_with};
use super::*;

struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> TempFolder {
        let path = std::env::temp_dir().join(format!("muster-tls-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        TempFolder(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server under test.
struct TlsTestServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

async fn start(acceptor: Option<TlsAcceptor>, rules: ConnectionRules) -> TlsTestServer {
    let slow = || async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        "finished"
    };
    let who = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().to_string() };
    let router = Router::new().route("/who", get(who)).route("/slow", get(slow));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async move { stopped.await.unwrap_or_default() };
    let connections = Connections::new(ConnectionLimits { total_max: 20, per_address_max: 10 });
    let ended = tokio::spawn(serve_with(rules, (listener, connections), acceptor, router, shutdown));
    TlsTestServer { address, stop, ended }
}

async fn fetch_over<S>(stream: S, path: &str, version: Version) -> Result<(Version, String), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::get(format!("http://localhost{path}")).header("host", "localhost");
    let request = request.body(Body::empty()).unwrap();
    let response = if version == Version::HTTP_2 {
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    };
    let version = response.version();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((version, String::from_utf8_lossy(&body).into_owned()))
}

async fn fetch(address: SocketAddr, path: &str) -> Result<(Version, String), hyper::Error> {
    fetch_over(TcpStream::connect(address).await.unwrap(), path, Version::HTTP_11).await
}

/// A round trip over TLS, with the protocol that ALPN settles on.
async fn fetch_tls(address: SocketAddr, name: &str, ca: &Path, protocols: &[&[u8]]) -> io::Result<(Version, String)> {
    let mut config = client_config_trusting(ca).map_err(io::Error::other)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_string()).unwrap();
    let stream = TcpStream::connect(address).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let version = if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 };
    fetch_over(stream, "/who", version).await.map_err(io::Error::other)
}

#[tokio::test]
async fn plain_http_works_and_names_the_peer() {
    let server = start(None, ConnectionRules::default()).await;
    assert_eq!(fetch(server.address, "/who").await.unwrap(), (Version::HTTP_11, "127.0.0.1".to_string()));
    let stream = TcpStream::connect(server.address).await.unwrap();
    let answer = fetch_over(stream, "/who", Version::HTTP_2).await.unwrap();
    assert_eq!(answer.0, Version::HTTP_2, "without TLS by prior knowledge");
}

#[tokio::test]
async fn our_own_ca_is_trusted_under_every_name_and_protocol() {
    let folder = TempFolder::new("round-trip");
    let acceptor = acceptor(&TlsConfig::OwnCa, &folder.0, &["gpu.example.org".to_string()]).unwrap();
    let server = start(Some(acceptor), ConnectionRules::default()).await;
    let ca = ca_path(&folder.0);
    let names = ["localhost", "127.0.0.1", "gpu.example.org"].map(str::to_string);
    for name in names.into_iter().chain(host_name()) {
        let answer = fetch_tls(server.address, &name, &ca, &[b"h2", b"http/1.1"]).await.unwrap();
        assert_eq!(answer, (Version::HTTP_2, "127.0.0.1".to_string()), "{name}");
    }
    let answer = fetch_tls(server.address, "localhost", &ca, &[b"http/1.1"]).await.unwrap();
    assert_eq!(answer.0, Version::HTTP_11);
    let other_name = fetch_tls(server.address, "evil.example.org", &ca, &[]).await.unwrap_err();
    assert!(other_name.to_string().contains("not valid for name"), "{other_name}");
    let other = TempFolder::new("other-ca");
    own_ca::ensure_certificate(&other.0, &[], own_ca::today()).unwrap();
    let other_ca = fetch_tls(server.address, "localhost", &ca_path(&other.0), &[]).await.unwrap_err();
    assert!(other_ca.to_string().contains("invalid peer certificate"), "{other_ca}");
    assert!(fetch(server.address, "/who").await.is_err(), "plain HTTP is not answered");
    fetch_tls(server.address, "localhost", &ca, &[]).await.unwrap(); // The server still answers.
}

#[tokio::test]
async fn configured_certificate_files_are_served() {
    let folder = TempFolder::new("files");
    let (certificate, key) = own_ca::ensure_certificate(&folder.0, &[], own_ca::today()).unwrap();
    let files = TlsConfig::Files { certificate: certificate.clone(), key };
    let server = start(Some(acceptor(&files, Path::new("/nowhere"), &[]).unwrap()), ConnectionRules::default()).await;
    fetch_tls(server.address, "localhost", &ca_path(&folder.0), &[]).await.unwrap();
}

#[test]
fn unusable_certificate_files_are_reported() {
    let folder = TempFolder::new("unusable");
    let (certificate, key) = own_ca::ensure_certificate(&folder.0, &[], own_ca::today()).unwrap();
    let ca_key = folder.0.join("tls/ca.key");
    let error_of = |certificate: &Path, key: &Path| {
        let files = TlsConfig::Files { certificate: certificate.to_path_buf(), key: key.to_path_buf() };
        acceptor(&files, &folder.0, &[]).map(|_| ()).unwrap_err().to_string()
    };
    let shown = |path: &Path| path.display().to_string();
    let missing = folder.0.join("none.pem");
    assert_eq!(
        error_of(&missing, &key),
        format!(
            "cannot read `{}`: I/O error: No such file or directory (os error 2); it should be in PEM form",
            shown(&missing)
        )
    );
    assert_eq!(
        error_of(&key, &key),
        format!("cannot read `{}`: it holds no certificate; it should be in PEM form", shown(&key))
    );
    let mixed = error_of(&certificate, &ca_key);
    assert!(mixed.starts_with(&format!("`{}` cannot be used: ", shown(&certificate))), "{mixed}");
}

#[test]
fn certificates_are_kept_until_half_their_life_is_over() {
    let folder = TempFolder::new("renewal");
    let made = date(2026, 1, 1);
    let read = |day, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let (certificate, key) = own_ca::ensure_certificate(&folder.0, &names, day).unwrap();
        for file in [&key, &folder.0.join("tls/ca.key")] {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let ca = fs::read_to_string(ca_path(&folder.0)).unwrap();
        (fs::read_to_string(certificate).unwrap(), ca)
    };
    let (first, ca) = read(made, &["a"]);
    assert_eq!(read(date(2026, 12, 1), &["a"]), (first.clone(), ca.clone()), "kept at a restart");
    let (named, same_ca) = read(made, &["a", "b"]);
    assert!(named != first && same_ca == ca, "another name");
    let (renewed, same_ca) = read(date(2027, 2, 10), &["a", "b"]);
    assert!(renewed != named && same_ca == ca, "half of 800 days");
    fs::remove_file(folder.0.join("tls/server.key")).unwrap();
    assert!(read(date(2027, 2, 10), &["a", "b"]).0 != renewed, "the key was lost");
    fs::remove_file(ca_path(&folder.0)).unwrap();
    assert!(read(date(2027, 2, 10), &["a", "b"]).1 != ca, "the CA was lost: CA and certificate are generated again");
}

#[tokio::test]
async fn a_stopping_server_finishes_requests_and_refuses_connections() {
    let server = start(None, ConnectionRules::default()).await;
    let address = server.address;
    let open_request = tokio::spawn(async move { fetch(address, "/slow").await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(open_request.await.unwrap().unwrap().1, "finished");
    server.ended.await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_does_not_delay_the_shutdown() {
    let server = start(None, ConnectionRules::default()).await;
    let _idle = TcpStream::connect(server.address).await.unwrap();
    fetch(server.address, "/who").await.unwrap();
    server.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(5), server.ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_drain_timeout_cuts_off_unfinished_requests() {
    let timeouts = ConnectionRules { drain: Duration::from_millis(50), ..ConnectionRules::default() };
    let server = start(None, timeouts).await;
    let address = server.address;
    let cut_off = tokio::spawn(async move { fetch(address, "/slow").await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop.send(()).unwrap();
    server.ended.await.unwrap();
    assert!(cut_off.await.unwrap().is_err());
}

#[tokio::test]
async fn slow_handshakes_and_slow_headers_time_out() {
    let folder = TempFolder::new("slow");
    let short = Duration::from_millis(100);
    let timeouts = ConnectionRules { handshake: short, headers: short, ..ConnectionRules::default() };
    let plain = start(None, timeouts).await;
    let encrypted = start(Some(acceptor(&TlsConfig::OwnCa, &folder.0, &[]).unwrap()), timeouts).await;
    for (address, beginning) in [(plain.address, "GET / HTTP/1.1\r\nhost:"), (encrypted.address, "\x16\x03\x01")] {
        let began = Instant::now();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await; // Ends when the server hangs up.
        assert!(began.elapsed() < Duration::from_secs(5), "{beginning:?}");
    }
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let server = start(None, closing_after(Duration::from_millis(200), Duration::from_secs(60))).await;
    // Nothing at all, and the beginning of an HTTP/2 preface: the header timeout applies to neither.
    for beginning in ["", "PRI * HTTP/2.0\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "{beginning:?}: still open");
    }
}

fn closing_after(first_request: Duration, authentication: Duration) -> ConnectionRules {
    let anonymous = AnonymousTimeouts { first_request, authentication };
    ConnectionRules { anonymous, ..ConnectionRules::default() }
}

/// A client that sends requests without a token, for example a probe with keep-alive.
#[tokio::test]
async fn a_connection_whose_client_does_not_authenticate_is_closed() {
    let server = start(None, closing_after(Duration::from_millis(500), Duration::from_millis(500))).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /who HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answers = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answers)).await;
    assert!(closed.is_ok(), "still open");
}

#[tokio::test]
async fn idle_connections_do_not_keep_others_out() {
    let server = start(None, ConnectionRules::default()).await;
    let mut idle = Vec::new();
    for _ in 0..60 {
        idle.push(TcpStream::connect(server.address).await.unwrap());
    }
    fetch(server.address, "/who").await.unwrap();
    // This address may have ten connections and sixteen extra ones for loopback; the oldest were closed.
    let mut byte = [0];
    for stream in idle.iter_mut().take(30) {
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut byte)).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "still open");
    }
}
