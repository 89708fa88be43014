//! Structured log lines on stderr, as console text or JSON.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{LogConfig, LogFormat};

/// Levels of dependencies whose lines would flood the log: `debug` lines, and a line for each migration of the database.
const DEPENDENCY_LOG_LEVELS: &str =
    "h2=info,hyper=info,hyper_util=info,refinery_core=warn,rustls=info,tokio_postgres=info,tower_http=info";

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// `RUST_LOG` is not a valid filter.
    #[error("RUST_LOG is `{text}`: {why}; write for example `info` or `info,muster_server=debug`")]
    BadFilter { text: String, why: String },
    #[error("logging was started twice")]
    AlreadyStarted,
}

/// Start logging for the whole process. `rust_log`, the variable of that name, takes precedence over the level.
pub fn start_logging(log: &LogConfig, rust_log: Option<&str>) -> Result<(), LoggingError> {
    let colours = io::stderr().is_terminal();
    subscriber(log, rust_log, colours, io::stderr)?.try_init().map_err(|_| LoggingError::AlreadyStarted)
}

pub(super) fn subscriber<W>(
    log: &LogConfig,
    rust_log: Option<&str>,
    colours: bool,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, LoggingError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = fmt().with_env_filter(filter(log, rust_log)?).with_writer(writer);
    Ok(match log.format {
        LogFormat::Console => Box::new(lines.with_ansi(colours).finish()),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).with_current_span(true).finish()),
    })
}

fn filter(log: &LogConfig, rust_log: Option<&str>) -> Result<EnvFilter, LoggingError> {
    let text = match rust_log.map(str::trim) {
        Some(text) if !text.is_empty() => text.to_string(),
        _ => format!("{},{DEPENDENCY_LOG_LEVELS}", log.level),
    };
    let bad = |why: String| LoggingError::BadFilter { text: text.clone(), why };
    EnvFilter::builder().parse(&text).map_err(|error| bad(error.to_string()))
}
