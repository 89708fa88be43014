//! How many values a function takes, and under which names.

use std::fmt;

use starlark::docs::{DocItem, DocMember, DocParam};
use starlark::values::Value;

/// What a function takes when it is called with values in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takes {
    /// So many at least.
    pub least: usize,
    /// So many at most; any number where there is none.
    pub most: Option<usize>,
    /// Their names, in order.
    pub names: Vec<String>,
    /// It must be given others by name.
    wants_names: bool,
}

impl Takes {
    /// Nothing if the value is no function.
    pub(crate) fn of(value: Value) -> Option<Takes> {
        let DocItem::Member(DocMember::Function(function)) = value.documentation() else { return None };
        let params = function.params;
        let in_a_row: Vec<&DocParam> = params.pos_only.iter().chain(&params.pos_or_named).collect();
        let is_needed = |param: &&DocParam| param.default_value.is_none();
        Some(Takes {
            least: in_a_row.iter().copied().filter(is_needed).count(),
            most: params.args.is_none().then_some(in_a_row.len()),
            names: in_a_row.iter().map(|param| param.name.clone()).collect(),
            wants_names: params.named_only.iter().any(|param| is_needed(&param)),
        })
    }

    /// Whether it can be called with so many.
    pub fn fits(&self, count: usize) -> bool {
        !self.wants_names && self.least <= count && self.most.is_none_or(|most| count <= most)
    }
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = |count| if count == 1 { "parameter" } else { "parameters" };
        match (self.wants_names, self.most) {
            (true, _) => write!(f, "parameters by name only"),
            (_, Some(most)) if most == self.least => write!(f, "{most} {}", parameters(most)),
            (_, Some(most)) => write!(f, "{} to {most} parameters", self.least),
            (_, None) => write!(f, "at least {} {}", self.least, parameters(self.least)),
        }
    }
}
