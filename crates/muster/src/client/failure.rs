//! Why a call has no answer, and what the process returns for it.

use std::time::Duration;

use hyper::StatusCode;
use muster_protocol::problem::Problem;

use crate::error::{CliError, Exit};

/// What to try without a token that is valid. The server speaks of headers; people here have flags.
const TOKEN_HINT: &str = "give one with `--token-file FILE`, MUSTER_TOKEN or MUSTER_DATA_DIR";

/// Why a call has no answer.
#[derive(Debug)]
pub enum Failure {
    /// No connection could be made: nothing was sent.
    Unreachable(String),
    /// The server is there and cannot prove who it is: nothing was sent.
    Untrusted(String),
    /// The connection broke: it is not known whether the server acted.
    Dropped(String),
    /// No answer came in time.
    Silent(Duration),
    /// The server said no.
    Declined(Box<Declined>),
    /// The call cannot be written down.
    Nonsense(String),
}

/// A refusal or fault in the server's own words.
#[derive(Debug)]
pub struct Declined {
    status: StatusCode,
    code: String,
    detail: String,
    hint: Option<String>,
}

impl Failure {
    /// The connection broke under us.
    pub fn dropped(error: hyper::Error) -> Failure {
        Failure::Dropped(error.to_string())
    }

    /// An answer that is not a success.
    pub fn declined(status: StatusCode, body: &[u8]) -> Failure {
        let declined = match muster_json::from_slice::<Problem>(body) {
            Ok(problem) => {
                Declined { status, code: problem.code, detail: problem.detail, hint: problem.hint }
            }
            Err(_) => Declined { status, code: String::new(), detail: plain_words(status, body), hint: None },
        };
        Failure::Declined(Box::new(declined))
    }

    /// Whether the same call may succeed in a moment: it is worth sending again, if it can be sent twice.
    pub fn may_pass(&self) -> bool {
        match self {
            Failure::Dropped(_) | Failure::Silent(_) => true,
            Failure::Declined(declined) => declined.status == StatusCode::SERVICE_UNAVAILABLE,
            Failure::Unreachable(_) | Failure::Untrusted(_) | Failure::Nonsense(_) => false,
        }
    }

    /// What a person reads, and what the process returns.
    pub fn into_error(self, server: &str) -> CliError {
        let may_pass = self.may_pass() || matches!(self, Failure::Unreachable(_));
        CliError { may_pass, ..self.in_words(server) }
    }

    fn in_words(self, server: &str) -> CliError {
        match self {
            Failure::Unreachable(why) => {
                CliError::new(Exit::Unreachable, format!("cannot reach {server}: {why}"))
                    .hint("start one with `muster dev`, or name another with `--server` or MUSTER_SERVER")
            }
            Failure::Untrusted(why) => {
                CliError::new(Exit::Unreachable, format!("cannot trust {server}: {why}"))
                    .hint("name its certificate authority with `--ca-file FILE` or MUSTER_CA_FILE")
            }
            Failure::Dropped(why) => {
                CliError::new(Exit::Unreachable, format!("the connection to {server} broke: {why}"))
                    .hint("`muster doctor` looks further; an encrypted server is reached by https://")
            }
            Failure::Silent(waited) => CliError::new(
                Exit::TimedOut,
                format!("{server} did not answer within {} s", waited.as_secs()),
            ),
            Failure::Declined(declined) => declined.into_error(),
            Failure::Nonsense(why) => CliError::failed(format!("cannot ask {server} that: {why}")),
        }
    }
}

impl Declined {
    fn into_error(self) -> CliError {
        if self.status == StatusCode::UNAUTHORIZED {
            return CliError::new(Exit::NotAllowed, "the server wants a valid token").hint(TOKEN_HINT);
        }
        CliError { hint: self.hint, ..CliError::new(exit_of(self.status.as_u16(), &self.code), self.detail) }
    }
}

/// The problem with which the server ends a stream.
pub fn stream_error(problem: Problem) -> CliError {
    let hint = match problem.code.as_str() {
        "token-ended" => Some(format!("a new token is needed: {TOKEN_HINT}")),
        _ => problem.hint,
    };
    CliError { hint, ..CliError::new(exit_of(problem.status, &problem.code), problem.detail) }
}

/// What the process returns for a refusal, by status and code.
pub fn exit_of(status: u16, code: &str) -> Exit {
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

/// Something that is not ours answered, or a proxy in between.
fn plain_words(status: StatusCode, body: &[u8]) -> String {
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

    fn error_of(status: u16, code: &str) -> CliError {
        let body = muster_json::to_vec(&problem(status, code));
        let status = StatusCode::from_u16(status).unwrap();
        Failure::declined(status, &body).into_error("http://x")
    }

    #[test]
    fn a_stream_ends_with_the_exit_code_of_its_problem() {
        let ended = stream_error(problem(401, "token-ended"));
        assert_eq!(ended.exit, Exit::NotAllowed);
        assert!(ended.hint.unwrap().contains("--token-file"));
        assert_eq!(stream_error(problem(500, "fault")).exit, Exit::Failed);
    }

    #[test]
    fn every_refusal_has_its_exit_code() {
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
            assert_eq!(error_of(status, code).exit, exit, "{status} {code}");
        }
    }

    #[test]
    fn an_answer_from_somebody_else_is_shown_as_it_is() {
        let failure = Failure::declined(StatusCode::BAD_GATEWAY, b"\n<html>nginx</html>\n");
        assert_eq!(
            failure.into_error("http://x").what,
            "the server answers 502 Bad Gateway: <html>nginx</html>"
        );
    }
}
