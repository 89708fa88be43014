//! The address of a server, parsed.

use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;

use crate::error::CliError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// The URL, for messages.
    pub text: String,
    /// Host name or IP address, without brackets.
    pub host: String,
    /// 80 or 443 if the address has none.
    pub port: u16,
    /// Path before `/api`, without a trailing slash; usually empty.
    pub base: String,
    pub tls: bool,
    /// Whether the address names this machine.
    pub loopback: bool,
}

impl ServerAddress {
    /// The value of the `Host` header.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for ServerAddress {
    type Err = CliError;

    fn from_str(text: &str) -> Result<ServerAddress, CliError> {
        let bad = |why: &str| {
            CliError::usage(format!("`{text}` is not a server address: {why}"))
                .hint("write it like `http://127.0.0.1:8080` or `https://muster.example.org`")
        };
        let url = if text.contains("://") { text.to_string() } else { format!("http://{text}") };
        let uri: Uri = url.parse().map_err(|_| bad("it is not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad("only http and https are supported")),
        };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_string();
        if host.is_empty() || uri.query().is_some() {
            return Err(bad("it needs a host and no query"));
        }
        Ok(ServerAddress {
            text: url.trim_end_matches('/').to_string(),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            base: uri.path().trim_end_matches('/').to_string(),
            loopback: is_loopback(&host),
            host,
            tls,
        })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_port_and_base_path_are_parsed() {
        let address: ServerAddress = "https://gpu.example.org/muster/".parse().unwrap();
        assert_eq!((address.host.as_str(), address.port, address.base.as_str()), ("gpu.example.org", 443, "/muster"));
        assert!(address.tls && !address.loopback);
        let address: ServerAddress = "[::1]:9000".parse().unwrap();
        assert_eq!((address.authority(), address.loopback), ("[::1]:9000".to_string(), true));
        let address: ServerAddress = "localhost:8080".parse().unwrap();
        assert_eq!((address.text.as_str(), address.loopback), ("http://localhost:8080", true));
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for text in ["", "ftp://a", "http://", "http://a?b=c", "http://a b"] {
            assert!(text.parse::<ServerAddress>().is_err(), "{text}");
        }
    }
}
