//! Limits on the calls of the link before their messages are decoded: anyone who reaches the port may send them.
//!
//! Only the connection of an agent, which needs the certificate of an enrolled node, carries large messages and stays open.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::timeout;
use tonic::Status;

use crate::tls::PeerCertificate;

const CONNECT_PATH: &str = "/muster.v1.AgentLink/Connect";
const ENROL_PATH: &str = "/muster.v1.AgentLink/Enrol";
/// A node name, a join token and a public key take less than a tenth of it.
const CALL_BYTES_MAX: usize = 4 << 10;
/// Time for a call in all, with its message.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Refuses calls without the certificate that they need, and reads the messages of all calls but the connection of an
/// agent up to a limit.
pub async fn limit_call(request: Request, next: Next) -> Response {
    limit_call_to(CALL_TIMEOUT, request, next).await
}

async fn limit_call_to(time_max: Duration, request: Request, next: Next) -> Response {
    let has_certificate = request.extensions().get::<PeerCertificate>().is_some();
    match request.uri().path() {
        CONNECT_PATH if has_certificate => next.run(request).await,
        ENROL_PATH => run_limited(time_max, request, next).await,
        _ if has_certificate => run_limited(time_max, request, next).await,
        _ => refuse(Status::permission_denied("this call needs the certificate of an enrolled node")),
    }
}

async fn run_limited(time_max: Duration, request: Request, next: Next) -> Response {
    let call = async {
        let (head, body) = request.into_parts();
        match to_bytes(body, CALL_BYTES_MAX).await {
            Ok(message) => next.run(Request::from_parts(head, Body::from(message))).await,
            Err(_) => refuse(Status::resource_exhausted(format!("the message has more than {CALL_BYTES_MAX} bytes"))),
        }
    };
    let late = || refuse(Status::deadline_exceeded("the call took too long"));
    timeout(time_max, call).await.unwrap_or_else(|_| late())
}

fn refuse(status: Status) -> Response {
    status.into_http()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::Extension;
    use axum::http::HeaderMap;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use rustls::pki_types::CertificateDer;
    use tower::ServiceExt;

    use super::*;

    fn router(has_certificate: bool) -> Router {
        let echo = |body: axum::body::Bytes| async move { body.len().to_string() };
        let router = Router::new().fallback(post(echo)).layer(from_fn(limit_call));
        match has_certificate {
            true => router.layer(Extension(PeerCertificate(CertificateDer::from(Vec::new())))),
            false => router,
        }
    }

    fn grpc_status(headers: &HeaderMap) -> &str {
        headers.get("grpc-status").map_or("none", |status| status.to_str().unwrap())
    }

    async fn call(router: Router, path: &str, body: Body) -> String {
        let request = Request::post(path).body(body).unwrap();
        grpc_status(router.oneshot(request).await.unwrap().headers()).to_string()
    }

    #[tokio::test]
    async fn calls_without_a_certificate_are_small_and_short_and_only_join() {
        let body = |bytes: usize| Body::from(vec![0; bytes]);
        for (path, bytes, anonymous, enrolled) in [
            (ENROL_PATH, 4 << 10, "none", "none"),
            (ENROL_PATH, (4 << 10) + 1, "8", "8"),
            (CONNECT_PATH, 1 << 20, "7", "none"),
            ("/muster.v1.AgentLink/Renew", 4 << 10, "7", "none"),
            ("/muster.v1.AgentLink/Renew", 1 << 20, "7", "8"),
        ] {
            assert_eq!(call(router(false), path, body(bytes)).await, anonymous, "{path} {bytes}");
            assert_eq!(call(router(true), path, body(bytes)).await, enrolled, "{path} {bytes} with a certificate");
        }
    }

    #[tokio::test]
    async fn a_call_whose_message_never_ends_is_ended() {
        let endless = Body::from_stream(tokio_stream::pending::<Result<Vec<u8>, std::convert::Infallible>>());
        let limit = |request: Request, next: Next| limit_call_to(Duration::from_millis(50), request, next);
        let router = Router::new().fallback(post(|| async {})).layer(from_fn(limit));
        assert_eq!(call(router, ENROL_PATH, endless).await, "4");
    }
}
