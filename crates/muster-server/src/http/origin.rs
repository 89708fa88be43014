//! From where we may be called by a browser: the names we answer to, and the pages that may ask.
//!
//! A page on the internet can make a browser call our loopback port, and can even make its own name point
//! there. So without tokens we answer only to names that are ours, and a foreign `Origin` is refused on every
//! method.

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HOST, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::Door;
use crate::http::fault::Fault;
use crate::identity::Identity;

/// Names and pages that are allowed, beside our own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    /// Names by which we may be called, beside the loopback ones.
    pub hosts: Vec<String>,
    /// Origins such as `https://dash.example.org` that may call; `*` is any.
    pub cors: Vec<String>,
}

/// Let a request pass if it comes from where it may, and tell browsers so.
pub async fn check(State(door): State<Door>, request: Request, next: Next) -> Response {
    // Counting begins with the first request: before it nobody could ask for the counts.
    door.seen.follow(&door.cluster);
    let allowed = match admit(&door, &request) {
        Ok(allowed) => allowed,
        Err(fault) => return fault.into_response(),
    };
    let mut response = match *request.method() {
        Method::OPTIONS => preflight(),
        _ => next.run(request).await,
    };
    if let Some(origin) = allowed {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("X-Request-Id, Retry-After, Location"),
        );
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    response
}

/// The origin to name in the answer, if there is one.
fn admit(door: &Door, request: &Request) -> Result<Option<HeaderValue>, Fault> {
    if request.headers().get_all(HOST).iter().count() > 1 {
        // A proxy before us may have looked at the other one.
        return Err(Fault::malformed("the request has more than one `Host` header"));
    }
    // HTTP/2, and HTTP/1.1 with a whole address in the request line, name the server there; then that counts.
    let called = request.uri().authority().map(|authority| authority.as_str());
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    if let (Some(called), Some(header)) = (called, header)
        && !called.eq_ignore_ascii_case(header)
    {
        return Err(Fault::malformed("the address and the `Host` header name different servers"));
    }
    let host = called.or(header).map(str::to_string);
    if door.identity == Identity::Local && !is_ours(host.as_deref(), &door.origins.hosts) {
        let detail = format!("this server does not answer to `{}`", host.unwrap_or_default());
        return Err(Fault::new(StatusCode::MISDIRECTED_REQUEST, "foreign-host", detail)
            .hint("call it by its loopback address, or add the name to `api.allowed_hosts`"));
    }
    let Some(origin) = request.headers().get(ORIGIN) else { return Ok(None) };
    let text = origin.to_str().unwrap_or_default();
    let same = host.as_deref().is_some_and(|host| authority(text).eq_ignore_ascii_case(host));
    let any = door.origins.cors.iter().any(|allowed| allowed == "*");
    if any {
        return Ok(Some(HeaderValue::from_static("*")));
    }
    if same || door.origins.cors.iter().any(|allowed| allowed.trim_end_matches('/') == text) {
        return Ok(Some(origin.clone()));
    }
    Err(Fault::new(StatusCode::FORBIDDEN, "foreign-origin", format!("pages of `{text}` may not call"))
        .hint("add the origin to `api.cors_origins`"))
}

fn preflight() -> Response {
    let mut headers = HeaderMap::new();
    let allow_headers = "Content-Type, Authorization, Idempotency-Key, Last-Event-ID";
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, OPTIONS"),
    );
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allow_headers));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    (StatusCode::OK, headers).into_response()
}

fn is_ours(host: Option<&str>, names: &[String]) -> bool {
    let Some(host) = host else { return false };
    let name = without_port(host).trim_end_matches('.');
    let loopback = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    loopback
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|ours| ours.eq_ignore_ascii_case(name) || ours.eq_ignore_ascii_case(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn authority(origin: &str) -> &str {
    origin.split_once("://").map_or("", |(_, authority)| authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_answered() {
        let names = ["muster.lab".to_string()];
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.8.8.8", "[::1]:80", "muster.lab:1"]
        {
            assert!(is_ours(Some(host), &names), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "", "[::2]:80"] {
            assert!(!is_ours(Some(host), &names), "{host}");
        }
        assert!(!is_ours(None, &names));
    }
}
