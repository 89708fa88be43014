//! Host and origin checks for browsers (DNS rebinding, CORS).
//!
//! A page on the internet can make a browser call the server's loopback port, and can even make its own DNS name point
//! there. So in local mode the server answers only to its own host names, and a foreign `Origin` is refused on every
//! method.

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HOST, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::identity::Authenticator;

/// Host names and origins that are allowed beside the server's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    /// Host names of this server beside the loopback ones.
    pub hosts: Vec<String>,
    /// Origins such as `https://dash.example.org` whose pages may call; `*` is any.
    pub cors_origins: Vec<String>,
}

/// Check the host and the origin of a request, and add the CORS headers to the response.
pub async fn check_origin(State(app): State<AppState>, request: Request, next: Next) -> Response {
    // Counting starts with the first request: no scrape can read the counters before it.
    app.event_counters.subscribe_once(&app.cluster);
    let allowed = match allowed_origin(&app, &request) {
        Ok(allowed) => allowed,
        Err(error) => return error.into_response(),
    };
    let mut response = match *request.method() {
        Method::OPTIONS => preflight(),
        _ => next.run(request).await,
    };
    if let Some(origin) = allowed {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("X-Request-Id, Retry-After, Location"));
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    response
}

/// The value of `Access-Control-Allow-Origin`; `None` if the request names no origin.
fn allowed_origin(app: &AppState, request: &Request) -> Result<Option<HeaderValue>, ApiError> {
    if request.headers().get_all(HOST).iter().count() > 1 {
        // A proxy in front of the server may have checked the other one.
        return Err(ApiError::malformed("the request has more than one `Host` header"));
    }
    // HTTP/2, and HTTP/1.1 with an absolute URI in the request line, name the host there; it takes precedence.
    let authority_host = request.uri().authority().map(|authority| authority.as_str());
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    if let (Some(authority_host), Some(header)) = (authority_host, header)
        && !authority_host.eq_ignore_ascii_case(header)
    {
        return Err(ApiError::malformed("the URI and the `Host` header name different servers"));
    }
    let host = authority_host.or(header).map(str::to_string);
    if app.identity == Authenticator::Local && !is_own_host(host.as_deref(), &app.allowed_origins.hosts) {
        let detail = format!("host `{}` is not allowed", host.unwrap_or_default());
        return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, "foreign-host", detail)
            .hint("call the server by its loopback address, or add the name to `api.allowed_hosts`"));
    }
    let Some(origin) = request.headers().get(ORIGIN) else { return Ok(None) };
    let text = origin.to_str().unwrap_or_default();
    let same = host.as_deref().is_some_and(|host| authority(text).eq_ignore_ascii_case(host));
    let any = app.allowed_origins.cors_origins.iter().any(|allowed| allowed == "*");
    if any {
        return Ok(Some(HeaderValue::from_static("*")));
    }
    if same || app.allowed_origins.cors_origins.iter().any(|allowed| allowed.trim_end_matches('/') == text) {
        return Ok(Some(origin.clone()));
    }
    Err(ApiError::new(StatusCode::FORBIDDEN, "foreign-origin", format!("origin `{text}` is not allowed"))
        .hint("add the origin to `api.cors_origins`"))
}

fn preflight() -> Response {
    let mut headers = HeaderMap::new();
    let allow_headers = "Content-Type, Authorization, Idempotency-Key, Last-Event-ID";
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, OPTIONS"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allow_headers));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    (StatusCode::OK, headers).into_response()
}

fn is_own_host(host: Option<&str>, names: &[String]) -> bool {
    let Some(host) = host else { return false };
    let name = without_port(host).trim_end_matches('.');
    let loopback = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    loopback
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|own| own.eq_ignore_ascii_case(name) || own.eq_ignore_ascii_case(host))
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
    fn only_loopback_and_configured_names_are_own_hosts() {
        let names = ["muster.lab".to_string()];
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.8.8.8", "[::1]:80", "muster.lab:1"] {
            assert!(is_own_host(Some(host), &names), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "", "[::2]:80"] {
            assert!(!is_own_host(Some(host), &names), "{host}");
        }
        assert!(!is_own_host(None, &names));
    }
}
