//! What can be wrong with a configuration, where, and what to do about it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_saphyr::Location;

/// Everything that is wrong, so that it can be put right in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// In the order in which it was found; never empty.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Who said it.
    pub place: Place,
    /// What is wrong.
    pub wrong: Wrong,
}

/// Where a value comes from. Later ones win over earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Nobody said anything.
    Default,
    /// The configuration file.
    File(Mark),
    /// A variable that one of the seeds documented.
    SeedVariable(String),
    /// A `MUSTER_*` variable.
    Variable(String),
    /// The command line.
    Flag(String),
}

/// A spot in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// As it was named on the command line.
    pub path: PathBuf,
    /// Counted from one; 0 when the whole file is meant.
    pub line: u64,
    /// Counted from one.
    pub column: u64,
    /// What stands in that line.
    pub text: String,
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The file could not be read.
    #[error("cannot read the configuration: {why}; check the path and its permissions")]
    Unreadable {
        /// What the system says.
        why: String,
    },
    /// It is not the YAML we expect.
    #[error("{0}")]
    Yaml(String),
    /// A key nobody knows, most often a typing error.
    #[error("there is no key `{key}`; {}", suggestion(.meant))]
    UnknownKey {
        /// As written, with the sections it is in.
        key: String,
        /// What was probably meant.
        meant: Option<&'static str>,
    },
    /// A value that does not fit its key.
    #[error("`{key}` is `{said}`; it must be {wanted}")]
    Unfit {
        /// Which key.
        key: &'static str,
        /// As written; hidden for secrets.
        said: String,
        /// What would be right.
        wanted: String,
    },
    /// Two keys of the same source say different things about the same thing.
    #[error("`{key}` and `{other}` disagree about {what}; keep one of them")]
    Conflict {
        /// One.
        key: &'static str,
        /// The other.
        other: &'static str,
        /// About what.
        what: &'static str,
    },
    /// Others could reach the server without proving who they are.
    #[error(
        "`listen` is `{listen}`, which other machines can reach, but {missing}: anyone there could run jobs here; \
         set `auth.mode: tokens` and `api.enable_tls: true`, or listen on 127.0.0.1"
    )]
    Exposed {
        /// Where.
        listen: SocketAddr,
        /// What is off.
        missing: &'static str,
    },
    /// Any web page could drive the server.
    #[error(
        "`api.cors_origins` has `*` while tokens are off: any web page that you visit could run jobs here; \
         name the origins, or set `auth.mode: tokens`"
    )]
    OpenCors,
    /// Not an origin.
    #[error(
        "`api.cors_origins` has `{origin}`; write an origin such as `https://grafana.example.org`, without a path"
    )]
    BadOrigin {
        /// As written.
        origin: String,
    },
    /// Half of a key pair.
    #[error(
        "`{present}` is set and `{missing}` is not; name both files, or neither to have a certificate made"
    )]
    HalfKeyPair {
        /// The one that is named.
        present: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
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
        match &self.place {
            Place::Default => write!(f, "{}", self.wrong),
            Place::File(mark) => write!(f, "{mark}: {}{}", self.wrong, mark.snippet()),
            place => write!(f, "{place}: {}", self.wrong),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Default => f.write_str("default"),
            Place::File(mark) => write!(f, "{mark}"),
            Place::SeedVariable(name) | Place::Variable(name) | Place::Flag(name) => f.write_str(name),
        }
    }
}

impl Place {
    /// How strong it is. Two places of one strength do not beat each other.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Place::Default => 0,
            Place::File(_) => 1,
            Place::SeedVariable(_) => 2,
            Place::Variable(_) => 3,
            Place::Flag(_) => 4,
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.path.display()),
            line => write!(f, "{}:{line}:{}", self.path.display(), self.column),
        }
    }
}

impl Mark {
    /// A spot in a text that was read from `path`.
    pub(super) fn new(path: &std::path::Path, text: &str, location: Location) -> Mark {
        let line = location.line();
        let nth = usize::try_from(line).unwrap_or(0).saturating_sub(1);
        let text = text.lines().nth(nth).unwrap_or_default().to_string();
        Mark { path: path.to_path_buf(), line, column: location.column(), text }
    }

    /// The line with a caret below the spot.
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
