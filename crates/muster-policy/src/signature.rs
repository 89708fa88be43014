//! How many values a function takes, and under which names.

use std::fmt;

use starlark::docs::{DocItem, DocMember, DocParam};
use starlark::values::Value;

/// What a function takes when it is called with values in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// So many at least.
    pub args_min: usize,
    /// So many at most; any number where there is none.
    pub args_max: Option<usize>,
    /// Their names, in order.
    pub names: Vec<String>,
    /// It must be given others by name.
    has_required_keywords: bool,
}

impl Signature {
    /// Nothing if the value is no function.
    pub(crate) fn of_value(value: Value) -> Option<Signature> {
        let DocItem::Member(DocMember::Function(function)) = value.documentation() else { return None };
        let params = function.params;
        let in_a_row: Vec<&DocParam> = params.pos_only.iter().chain(&params.pos_or_named).collect();
        let is_needed = |param: &&DocParam| param.default_value.is_none();
        Some(Signature {
            args_min: in_a_row.iter().copied().filter(is_needed).count(),
            args_max: params.args.is_none().then_some(in_a_row.len()),
            names: in_a_row.iter().map(|param| param.name.clone()).collect(),
            has_required_keywords: params.named_only.iter().any(|param| is_needed(&param)),
        })
    }

    /// Whether it can be called with so many.
    pub fn accepts(&self, count: usize) -> bool {
        !self.has_required_keywords && self.args_min <= count && self.args_max.is_none_or(|most| count <= most)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = |count| if count == 1 { "parameter" } else { "parameters" };
        match (self.has_required_keywords, self.args_max) {
            (true, _) => write!(f, "parameters by name only"),
            (_, Some(most)) if most == self.args_min => write!(f, "{most} {}", parameters(most)),
            (_, Some(most)) => write!(f, "{} to {most} parameters", self.args_min),
            (_, None) => write!(f, "at least {} {}", self.args_min, parameters(self.args_min)),
        }
    }
}
