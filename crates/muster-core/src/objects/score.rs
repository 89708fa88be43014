//! Why a placement was chosen: its score, term by term.

use serde::{Deserialize, Serialize};

/// Why a place was chosen: its terms, weighed, each in thousandths of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Score {
    /// Each by name; those that cost nothing are left out.
    pub terms: Vec<Term>,
    /// How many kinds of free space were compared.
    pub compared: u32,
}

/// One term of a score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// What it is about.
    pub name: TermName,
    /// What it costs, weighed, in thousandths of a device.
    pub milli: i64,
}

/// What a term of a score is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TermName {
    /// GPU that is going to be left over: holes, devices without cores or memory, places lost for large tasks, and what
    /// of an instance is not used.
    Fragmentation,
    /// Links between the devices of a task that are slower than they could be.
    Locality,
    /// Devices that are warm or have had errors.
    Health,
    Policy,
}

impl TermName {
    /// As people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            TermName::Fragmentation => "waste",
            TermName::Locality => "locality",
            TermName::Health => "health",
            TermName::Policy => "policy",
        }
    }
}
