//! Why a request failed, and the message and exit code for it.

use std::time::Duration;

use hyper::StatusCode;
use muster_protocol::problem::Problem;

use crate::error::{CliError, Exit};

/// The hint for a missing or invalid token. It replaces the hint of the server, which names headers instead of flags.
const TOKEN_HINT: &str = "give one with `--token-file FILE`, MUSTER_TOKEN or MUSTER_DATA_DIR";

/// Why a request failed.
#[derive(Debug)]
pub enum CallFailure {
    /// No connection could be opened: nothing was sent.
    Unreachable(String),
    /// The certificate of the server is not trusted: nothing was sent.
    Untrusted(String),
    /// The connection broke: it is unknown whether the server acted.
    Dropped(String),
    /// No response arrived within the timeout.
    TimedOut(Duration),
    /// The response has an error status.
    Refused(Box<RefusedCall>),
    /// The request cannot be encoded.
    InvalidRequest(String),
}

/// A refusal or fault in the words of the server.
#[derive(Debug)]
pub struct RefusedCall {
    status: StatusCode,
    code: String,
    detail: String,
    hint: Option<String>,
}

impl CallFailure {
    pub fn connection_dropped(error: hyper::Error) -> CallFailure {
        CallFailure::Dropped(error.to_string())
    }

    /// A response with an error status. Its body is a problem document, unless a proxy wrote the response.
    pub fn from_response(status: StatusCode, body: &[u8]) -> CallFailure {
        let declined = match muster_json::from_slice::<Problem>(body) {
            Ok(problem) => RefusedCall { status, code: problem.code, detail: problem.detail, hint: problem.hint },
            Err(_) => {
                RefusedCall { status, code: String::new(), detail: foreign_response_text(status, body), hint: None }
            }
        };
        CallFailure::Refused(Box::new(declined))
    }

    /// Whether the same request may succeed in a moment: worth a retry if the request is idempotent.
    pub fn is_transient(&self) -> bool {
        match self {
            CallFailure::Dropped(_) | CallFailure::TimedOut(_) => true,
            CallFailure::Refused(declined) => declined.status == StatusCode::SERVICE_UNAVAILABLE,
            CallFailure::Unreachable(_) | CallFailure::Untrusted(_) | CallFailure::InvalidRequest(_) => false,
        }
    }

    /// The message and exit code. A server that cannot be reached may be restarting: transient for commands that poll.
    pub fn into_error(self, server: &str) -> CliError {
        let is_transient = self.is_transient() || matches!(self, CallFailure::Unreachable(_));
        CliError { is_transient, ..self.into_message(server) }
    }

    fn into_message(self, server: &str) -> CliError {
        match self {
            CallFailure::Unreachable(why) => CliError::new(Exit::Unreachable, format!("cannot reach {server}: {why}"))
                .hint("start a server with `muster dev`, or name another with `--server` or MUSTER_SERVER"),
            CallFailure::Untrusted(why) => CliError::new(Exit::Unreachable, format!("cannot trust {server}: {why}"))
                .hint("name its certificate authority with `--ca-file FILE` or MUSTER_CA_FILE"),
            CallFailure::Dropped(why) => {
                CliError::new(Exit::Unreachable, format!("the connection to {server} broke: {why}"))
                    .hint("`muster doctor` checks the connection; a server with TLS needs an https:// address")
            }
            CallFailure::TimedOut(waited) => {
                CliError::new(Exit::TimedOut, format!("{server} did not answer within {} s", waited.as_secs()))
            }
            CallFailure::Refused(declined) => declined.into_error(),
            CallFailure::InvalidRequest(why) => {
                CliError::failed(format!("cannot build the request to {server}: {why}"))
            }
        }
    }
}

impl RefusedCall {
    fn into_error(self) -> CliError {
        if self.status == StatusCode::UNAUTHORIZED {
            return CliError::new(Exit::NotAllowed, "the server requires a valid token").hint(TOKEN_HINT);
        }
        CliError { hint: self.hint, ..CliError::new(exit_for_status(self.status.as_u16(), &self.code), self.detail) }
    }
}

/// The error for the problem document with which the server ended a stream.
pub fn stream_error(problem: Problem) -> CliError {
    let hint = match problem.code.as_str() {
        "token-ended" => Some(format!("use a new token: {TOKEN_HINT}")),
        _ => problem.hint,
    };
    let is_transient = problem.code == "unavailable";
    CliError { hint, is_transient, ..CliError::new(exit_for_status(problem.status, &problem.code), problem.detail) }
}

/// The exit code for a refusal, by HTTP status and refusal code.
pub fn exit_for_status(status: u16, code: &str) -> Exit {
    match (status, code) {
        (_, "over-quota" | "over-user-quota" | "queue-full" | "dead-dependency") => Exit::Conflict,
        (_, "infeasible") => Exit::Infeasible,
        (404, _) => Exit::NotFound,
        (401 | 403, _) => Exit::NotAllowed,
        (409, _) => Exit::Conflict,
        (408 | 504, _) => Exit::TimedOut,
        (400, _) | (422, "invalid" | "reserved-name") => Exit::Usage,
        _ => Exit::Failed,
    }
}

/// The first line of a response that is not a problem document, from a proxy or another server.
fn foreign_response_text(status: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line: String = line.chars().take(200).collect();
    if line.is_empty() {
        format!("the server answers {status}")
    } else {
        format!("the server answers {status}: {line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16, code: &str) -> Problem {
        Problem {
            kind: format!("urn:muster:problem:{code}"),
            title: String::new(),
            status,
            code: code.to_string(),
            detail: "no".to_string(),
            hint: None,
            error: "no".to_string(),
        }
    }

    fn error_for(status: u16, code: &str) -> CliError {
        let body = muster_json::to_vec(&problem(status, code));
        let status = StatusCode::from_u16(status).unwrap();
        CallFailure::from_response(status, &body).into_error("http://x")
    }

    #[test]
    fn a_stream_ends_with_the_exit_code_of_its_problem() {
        let ended = stream_error(problem(401, "token-ended"));
        assert_eq!(ended.exit, Exit::NotAllowed);
        assert!(ended.hint.unwrap().contains("--token-file"));
        assert_eq!(stream_error(problem(500, "fault")).exit, Exit::Failed);
    }

    #[test]
    fn refusal_codes_map_to_exit_codes() {
        let cases = [
            (404, "unknown-job", Exit::NotFound),
            (401, "unauthenticated", Exit::NotAllowed),
            (403, "forbidden", Exit::NotAllowed),
            (403, "over-quota", Exit::Conflict),
            (403, "over-user-quota", Exit::Conflict),
            (409, "wrong-phase", Exit::Conflict),
            (422, "infeasible", Exit::Infeasible),
            (400, "invalid", Exit::Usage),
            (500, "fault", Exit::Failed),
            (503, "unavailable", Exit::Failed),
        ];
        for (status, code, exit) in cases {
            assert_eq!(error_for(status, code).exit, exit, "{status} {code}");
        }
    }

    #[test]
    fn a_response_that_is_not_a_problem_document_is_shown_verbatim() {
        let failure = CallFailure::from_response(StatusCode::BAD_GATEWAY, b"\n<html>nginx</html>\n");
        assert_eq!(failure.into_error("http://x").message, "the server answers 502 Bad Gateway: <html>nginx</html>");
    }
}
