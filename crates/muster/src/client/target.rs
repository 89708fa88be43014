//! The target of a request: a path under `/api/v1` with its query, percent-encoded so that no name can change the path.

use std::fmt;

const API_BASE_PATH: &str = "/api/v1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTarget {
    path: String,
    query: String,
}

impl RequestTarget {
    /// A path under `/api/v1`, taken as it is.
    pub fn new(path: &str) -> RequestTarget {
        RequestTarget { path: format!("{API_BASE_PATH}/{path}"), query: String::new() }
    }

    /// A path outside of `/api/v1`, such as `/health`.
    pub fn absolute(path: &str) -> RequestTarget {
        RequestTarget { path: path.to_string(), query: String::new() }
    }

    /// Appends a path segment, percent-encoded: it may come from the user.
    pub fn segment(mut self, name: &str) -> RequestTarget {
        self.path.push('/');
        percent_encode(name, &mut self.path);
        self
    }

    /// Appends a query parameter.
    pub fn query(mut self, key: &str, value: impl fmt::Display) -> RequestTarget {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        self.query.push_str(key);
        self.query.push('=');
        percent_encode(&value.to_string(), &mut self.query);
        self
    }

    /// Appends a query parameter that has a value.
    pub fn query_if_some(self, key: &str, value: Option<impl fmt::Display>) -> RequestTarget {
        match value {
            Some(value) => self.query(key, value),
            None => self,
        }
    }
}

impl fmt::Display for RequestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, self.query)
    }
}

impl From<&str> for RequestTarget {
    fn from(path: &str) -> RequestTarget {
        RequestTarget::new(path)
    }
}

/// Percent-encode all but the unreserved characters of RFC 3986. A segment `.` or `..` would change the path.
fn percent_encode(text: &str, into: &mut String) {
    let dots_only = !text.is_empty() && text.bytes().all(|byte| byte == b'.');
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') || (byte == b'.' && !dots_only);
        if plain { into.push(char::from(byte)) } else { into.push_str(&format!("%{byte:02X}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_and_query_values_are_escaped() {
        let target = RequestTarget::new("nodes").segment("../jobs?x=1 ä").segment("..").query("why", "a&b=c");
        assert_eq!(target.to_string(), "/api/v1/nodes/..%2Fjobs%3Fx%3D1%20%C3%A4/%2E%2E?why=a%26b%3Dc");
    }

    #[test]
    fn absent_query_values_are_omitted() {
        let target = RequestTarget::new("jobs")
            .query_if_some("state", None::<&str>)
            .query_if_some("limit", Some(5))
            .query("tenant_id", "a");
        assert_eq!(target.to_string(), "/api/v1/jobs?limit=5&tenant_id=a");
    }
}
