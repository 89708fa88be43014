//! The join URL: all that a new agent needs to enrol its node. `muster node token` prints it.
//!
//! `muster://SECRET@HOST:PORT,HOST:PORT?ca=FINGERPRINT`: the secret of a single-use join token, the addresses of the
//! servers, and the SHA-256 fingerprint of the CA certificate of the cluster. The agent trusts no other CA, so nobody
//! between agent and server can read the secret.

use std::fmt;
use std::str::FromStr;

const SCHEME: &str = "muster://";
/// Default port of the agent link.
pub const DEFAULT_PORT: u16 = 50052;
/// Most servers of a cluster in one join URL.
pub const SERVERS_MAX: usize = 16;

/// A parsed join URL. Its secret is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinUrl {
    pub secret: String,
    /// `HOST:PORT` of each server; at least one.
    pub servers: Vec<String>,
    /// SHA-256 of the CA certificate in DER, in hexadecimal.
    pub ca_fingerprint: String,
}

/// Why a text is no join URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a join URL: {0}; `muster node token` prints one")]
pub struct NotAJoinUrl(&'static str);

impl JoinUrl {
    /// The public id within the secret of the join token, which also names the enrolment.
    pub fn token_id(&self) -> Option<&str> {
        self.secret.split('_').nth(1)
    }
}

impl fmt::Debug for JoinUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}***@{}?ca={}", self.servers.join(","), self.ca_fingerprint)
    }
}

impl fmt::Display for JoinUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}@{}?ca={}", self.secret, self.servers.join(","), self.ca_fingerprint)
    }
}

impl FromStr for JoinUrl {
    type Err = NotAJoinUrl;

    fn from_str(text: &str) -> Result<JoinUrl, NotAJoinUrl> {
        let rest = text.trim().strip_prefix(SCHEME).ok_or(NotAJoinUrl("it does not begin with muster://"))?;
        let (secret, rest) = rest.split_once('@').ok_or(NotAJoinUrl("it has no join token"))?;
        let (servers, fingerprint) =
            rest.split_once("?ca=").ok_or(NotAJoinUrl("it has no fingerprint of the cluster's CA (ca=…)"))?;
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(NotAJoinUrl("its join token is damaged"));
        }
        if fingerprint.len() != 64 || !fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotAJoinUrl("the fingerprint of the cluster's CA must have 64 hexadecimal digits"));
        }
        let servers = parse_servers(servers)?;
        Ok(JoinUrl { secret: secret.to_string(), servers, ca_fingerprint: fingerprint.to_ascii_lowercase() })
    }
}

fn parse_servers(text: &str) -> Result<Vec<String>, NotAJoinUrl> {
    let servers: Option<Vec<String>> = text.split(',').map(with_port).collect();
    match servers {
        None => Err(NotAJoinUrl("an address is not HOST or HOST:PORT")),
        Some(servers) if servers.len() > SERVERS_MAX => Err(NotAJoinUrl("it has more than 16 servers")),
        Some(servers) => Ok(servers),
    }
}

/// An address with its port, [`DEFAULT_PORT`] if it has none. `None` if the text is no address.
pub fn with_port(address: &str) -> Option<String> {
    let is_host = |host: &str| {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match is_v6 {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.len() <= 253 && host.bytes().all(is_name),
        }
    };
    match address.rsplit_once(':') {
        Some((host, port)) if is_host(host) => port.parse::<u16>().ok().map(|port| format!("{host}:{port}")),
        _ if is_host(address) => Some(format!("{address}:{DEFAULT_PORT}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<JoinUrl, NotAJoinUrl> {
        text.replace("CA", &"ab".repeat(32)).parse()
    }

    #[test]
    fn a_join_url_survives_printing_and_parsing() {
        let parsed = url("muster://mjt_1_ff@gpu-head,10.0.0.2:7000,[::1]:1?ca=CA").unwrap();
        assert_eq!(parsed.servers, ["gpu-head:50052", "10.0.0.2:7000", "[::1]:1"]);
        assert_eq!(parsed.to_string().parse(), Ok(parsed.clone()));
        assert!(!format!("{parsed:?}").contains("mjt_1_ff"), "the secret is not shown");
        assert_eq!(parsed.token_id(), Some("1"));
    }

    #[test]
    fn damaged_join_urls_are_refused_with_the_reason() {
        for (text, why) in [
            ("https://x", "it does not begin with muster://"),
            ("muster://head:1?ca=CA", "it has no join token"),
            ("muster://s@head:1", "it has no fingerprint of the cluster's CA (ca=…)"),
            ("muster://s@head:1?ca=12", "the fingerprint of the cluster's CA must have 64 hexadecimal digits"),
            ("muster://@head:1?ca=CA", "its join token is damaged"),
            ("muster://s@head:x?ca=CA", "an address is not HOST or HOST:PORT"),
            ("muster://s@?ca=CA", "an address is not HOST or HOST:PORT"),
            ("muster://s@a/b?ca=CA", "an address is not HOST or HOST:PORT"),
        ] {
            assert_eq!(url(text), Err(NotAJoinUrl(why)), "{text}");
        }
    }
}
