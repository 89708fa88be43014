//! What a call asks for: a path under `/api/v1` with its query, written so that no name can break out of it.

use std::fmt;

const BASE: &str = "/api/v1";

/// A path and a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    path: String,
    query: String,
}

impl Target {
    /// A path under `/api/v1`, as written in the program.
    pub fn new(path: &str) -> Target {
        Target { path: format!("{BASE}/{path}"), query: String::new() }
    }

    /// A path outside of it, such as `/health`.
    pub fn outside(path: &str) -> Target {
        Target { path: path.to_string(), query: String::new() }
    }

    /// One more step of the path, from a person.
    pub fn at(mut self, name: &str) -> Target {
        self.path.push('/');
        encode(name, &mut self.path);
        self
    }

    /// A field of the query.
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Target {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        self.query.push_str(key);
        self.query.push('=');
        encode(&value.to_string(), &mut self.query);
        self
    }

    /// The same, where there is something to say.
    pub fn with_some(self, key: &str, value: Option<impl fmt::Display>) -> Target {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, self.query)
    }
}

impl From<&str> for Target {
    fn from(path: &str) -> Target {
        Target::new(path)
    }
}

/// Percent-encode everything but RFC 3986's unreserved letters. A lone `.` or `..` would be a step of its own.
fn encode(text: &str, into: &mut String) {
    let dots_only = !text.is_empty() && text.bytes().all(|byte| byte == b'.');
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'_' | b'~')
            || (byte == b'.' && !dots_only);
        if plain { into.push(char::from(byte)) } else { into.push_str(&format!("%{byte:02X}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_their_step() {
        let target = Target::new("nodes").at("../jobs?x=1 ä").at("..").with("why", "a&b=c");
        assert_eq!(target.to_string(), "/api/v1/nodes/..%2Fjobs%3Fx%3D1%20%C3%A4/%2E%2E?why=a%26b%3Dc");
    }

    #[test]
    fn what_is_not_said_is_left_out() {
        let target = Target::new("jobs")
            .with_some("state", None::<&str>)
            .with_some("limit", Some(5))
            .with("tenant_id", "a");
        assert_eq!(target.to_string(), "/api/v1/jobs?limit=5&tenant_id=a");
    }
}
