//! Signatures of policy functions.

use std::fmt;

use starlark::docs::{DocItem, DocMember, DocParam};
use starlark::values::Value;

/// The positional parameters of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The parameters without a default.
    pub args_min: usize,
    /// `None` if the function takes `*args`.
    pub args_max: Option<usize>,
    /// Parameter names, in order.
    pub names: Vec<String>,
    /// The function has keyword-only parameters without a default.
    has_required_keywords: bool,
}

impl Signature {
    /// `None` if the value is not a function.
    pub(crate) fn of_value(value: Value) -> Option<Signature> {
        let DocItem::Member(DocMember::Function(function)) = value.documentation() else { return None };
        let params = function.params;
        let positional: Vec<&DocParam> = params.pos_only.iter().chain(&params.pos_or_named).collect();
        let is_required = |param: &&DocParam| param.default_value.is_none();
        Some(Signature {
            args_min: positional.iter().copied().filter(is_required).count(),
            args_max: params.args.is_none().then_some(positional.len()),
            names: positional.iter().map(|param| param.name.clone()).collect(),
            has_required_keywords: params.named_only.iter().any(|param| is_required(&param)),
        })
    }

    /// True if the function can be called with this number of positional arguments.
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
