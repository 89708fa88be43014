//! A response of the log route with `format=raw`: the bytes in the body, their place in the headers.

use hyper::HeaderMap;
use hyper::body::Bytes;

use crate::error::CliError;

/// A part of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBytes {
    pub bytes: Bytes,
    pub next_offset: u64,
    /// Requested bytes before this part that no longer exist.
    pub skipped_bytes: u64,
    /// There will be no more output.
    pub complete: bool,
}

impl LogBytes {
    pub(super) fn new(headers: &HeaderMap, bytes: Bytes) -> Result<LogBytes, CliError> {
        let text = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.ok_or_else(|| CliError::failed(format!("the server sent a part of a log without `{name}`")))
        };
        let number = |name: &str| {
            text(name)?
                .parse()
                .map_err(|_| CliError::failed(format!("the server sent `{name}`, which is not a number")))
        };
        Ok(LogBytes {
            bytes,
            next_offset: number("muster-log-next-offset")?,
            skipped_bytes: number("muster-log-skipped-bytes")?,
            complete: text("muster-log-complete")? == "true",
        })
    }
}
