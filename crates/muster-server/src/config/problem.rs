//! Problems of a configuration, each with its source and a message that says how to correct it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_saphyr::Location;

/// All problems of a configuration, so that they can be corrected together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// In the order in which they were found; never empty.
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub source: ValueSource,
    pub kind: ProblemKind,
}

/// The source of a value, lowest precedence first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueSource {
    Default,
    /// The configuration file.
    File(FilePosition),
    /// A variable with a compatibility name, such as `GPU_SCHEDULER_*`.
    CompatVariable(String),
    /// A `MUSTER_*` variable.
    Variable(String),
    /// The command line.
    Flag(String),
}

/// A position in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePosition {
    /// As named on the command line.
    pub path: PathBuf,
    /// Counted from one; 0 for the whole file.
    pub line: u64,
    /// Counted from one.
    pub column: u64,
    /// Text of the line.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemKind {
    /// The file could not be read.
    #[error("cannot read the configuration: {why}; check the path and its permissions")]
    Unreadable {
        /// The error of the operating system.
        why: String,
    },
    /// The file is not valid YAML, or not a mapping of keys.
    #[error("{0}")]
    Yaml(String),
    /// An unknown key, most often a typing error.
    #[error("there is no key `{key}`; {}", suggestion(.meant))]
    UnknownKey {
        /// As written, with its sections.
        key: String,
        /// The nearest known key.
        meant: Option<&'static str>,
    },
    /// The value does not fit the key.
    #[error("`{key}` is `{value}`; it must be {expected}")]
    InvalidValue {
        key: &'static str,
        /// As written; hidden for secrets.
        value: String,
        /// Description of valid values.
        expected: String,
    },
    /// Two keys of one source contradict each other.
    #[error("`{key}` and `{other}` disagree about {what}; keep one of them")]
    Conflict { key: &'static str, other: &'static str, what: &'static str },
    /// Other machines could reach the server without authentication or encryption.
    #[error(
        "`listen` is `{listen}`, which other machines can reach, but {missing}: anyone there could run jobs here; \
         set `auth.mode: tokens` and `api.enable_tls: true`, or listen on 127.0.0.1"
    )]
    Exposed {
        listen: SocketAddr,
        /// The missing protection, as a clause.
        missing: &'static str,
    },
    /// Any web page could call the server with the rights of the local user.
    #[error(
        "`api.cors_origins` has `*` while tokens are off: any web page that you visit could run jobs here; \
         name the origins, or set `auth.mode: tokens`"
    )]
    OpenCors,
    #[error("`api.cors_origins` has `{origin}`; write an origin such as `https://grafana.example.org`, without a path")]
    BadOrigin { origin: String },
    /// Certificate without key, or key without certificate.
    #[error("`{present}` is set and `{missing}` is not; name both files, or neither to have a certificate generated")]
    HalfKeyPair { present: &'static str, missing: &'static str },
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let between = if index == 0 { "" } else { "\n" };
            write!(f, "{between}{problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            ValueSource::Default => write!(f, "{}", self.kind),
            ValueSource::File(position) => write!(f, "{position}: {}{}", self.kind, position.snippet()),
            source => write!(f, "{source}: {}", self.kind),
        }
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Default => f.write_str("default"),
            ValueSource::File(position) => write!(f, "{position}"),
            ValueSource::CompatVariable(name) | ValueSource::Variable(name) | ValueSource::Flag(name) => {
                f.write_str(name)
            }
        }
    }
}

impl ValueSource {
    /// The precedence of this kind of source; higher takes precedence.
    pub(super) fn precedence(&self) -> u8 {
        match self {
            ValueSource::Default => 0,
            ValueSource::File(_) => 1,
            ValueSource::CompatVariable(_) => 2,
            ValueSource::Variable(_) => 3,
            ValueSource::Flag(_) => 4,
        }
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.path.display()),
            line => write!(f, "{}:{line}:{}", self.path.display(), self.column),
        }
    }
}

impl FilePosition {
    /// A position in a text that was read from `path`.
    pub(super) fn new(path: &std::path::Path, text: &str, location: Location) -> FilePosition {
        let line = location.line();
        let nth = usize::try_from(line).unwrap_or(0).saturating_sub(1);
        let text = text.lines().nth(nth).unwrap_or_default().to_string();
        FilePosition { path: path.to_path_buf(), line, column: location.column(), text }
    }

    /// The line with a caret below the position.
    fn snippet(&self) -> String {
        if self.line == 0 {
            return String::new();
        }
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let before = " ".repeat(usize::try_from(self.column).unwrap_or(1).saturating_sub(1));
        format!("\n{margin} |\n{number} | {}\n{margin} | {before}^", self.text)
    }
}

fn suggestion(meant: &Option<&'static str>) -> String {
    match meant {
        Some(name) => format!("did you mean `{name}`?"),
        None => "`muster config show` lists the keys".to_string(),
    }
}
