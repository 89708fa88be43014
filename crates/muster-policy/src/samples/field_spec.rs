//! The accepted values of the fields of sample views.

use muster_core::gpu::model;

use crate::policy_value::PolicyValue;

const ISOLATIONS: [&str; 3] = ["none", "memory", "full"];
const TOPOLOGIES: [&str; 4] = ["any", "same-numa", "nvlink", "same-rack"];

/// The accepted values of a field.
pub struct FieldSpec {
    pub kind: FieldType,
    /// `None` is accepted too.
    pub nullable: bool,
}

pub enum FieldType {
    /// An int from 0 to this maximum.
    Integer(i64),
    /// An int or float from 0 to this maximum.
    Number(f64),
    Text,
    Bool,
    /// One of these strings.
    Choice(&'static [&'static str]),
    TextList,
    /// A list of GPU models, converted to the canonical spelling of nodes.
    ModelList,
    /// Strings by string.
    TextMap,
    /// Ints from 0 by string.
    CountMap,
}

impl FieldSpec {
    /// The spec of a field, from its name and the type of its default.
    pub fn of_default(name: &str, default: &PolicyValue) -> FieldSpec {
        let kind = match (name, default) {
            ("gpu_share", _) => FieldType::Number(1.0),
            ("pools", PolicyValue::Dict(_)) => FieldType::CountMap,
            ("isolation", _) => FieldType::Choice(&ISOLATIONS),
            ("topology", _) => FieldType::Choice(&TOPOLOGIES),
            ("models" | "gpu_models", _) => FieldType::ModelList,
            ("time_limit_s" | "gpus_max" | "signal", _) | (_, PolicyValue::Int(_)) => FieldType::Integer(i64::MAX),
            (_, PolicyValue::Float(_)) => FieldType::Number(f64::MAX),
            (_, PolicyValue::Bool(_)) => FieldType::Bool,
            (_, PolicyValue::List(_)) => FieldType::TextList,
            (_, PolicyValue::Dict(_)) => FieldType::TextMap,
            _ => FieldType::Text,
        };
        FieldSpec { kind, nullable: *default == PolicyValue::None || name == "exit_code" }
    }

    /// The value as a policy sees it; `None` if the field does not accept it.
    pub fn accept(&self, value: &PolicyValue) -> Option<PolicyValue> {
        match (&self.kind, value) {
            (_, PolicyValue::None) => self.nullable.then_some(PolicyValue::None),
            (FieldType::Integer(max), PolicyValue::Int(number)) => (0..=*max).contains(number).then(|| value.clone()),
            (FieldType::Number(max), PolicyValue::Int(number)) => in_range(*number as f64, *max),
            (FieldType::Number(max), PolicyValue::Float(number)) => in_range(*number, *max),
            (FieldType::Text, PolicyValue::Text(_)) | (FieldType::Bool, PolicyValue::Bool(_)) => Some(value.clone()),
            (FieldType::Choice(choices), PolicyValue::Text(text)) => {
                choices.contains(&text.as_str()).then(|| value.clone())
            }
            (FieldType::TextList | FieldType::ModelList, PolicyValue::List(items) | PolicyValue::Tuple(items)) => items
                .iter()
                .map(|item| self.accept_item(item))
                .collect::<Option<Vec<PolicyValue>>>()
                .map(PolicyValue::List),
            (FieldType::TextMap, PolicyValue::Dict(entries)) => {
                entries.iter().all(|(key, value)| is_text(key) && is_text(value)).then(|| value.clone())
            }
            (FieldType::CountMap, PolicyValue::Dict(entries)) => {
                let counts =
                    |(key, count): &(PolicyValue, PolicyValue)| is_text(key) && matches!(count, PolicyValue::Int(0..));
                entries.iter().all(counts).then(|| value.clone())
            }
            _ => None,
        }
    }

    fn accept_item(&self, item: &PolicyValue) -> Option<PolicyValue> {
        match (&self.kind, item) {
            (FieldType::ModelList, PolicyValue::Text(model)) => Some(model::canonical(model).into()),
            (_, PolicyValue::Text(_)) => Some(item.clone()),
            _ => None,
        }
    }

    /// Parse a value from the command line.
    pub fn parse(&self, text: &str) -> Option<PolicyValue> {
        match &self.kind {
            _ if self.nullable && matches!(text, "none" | "None") => Some(PolicyValue::None),
            FieldType::Integer(_) => text.parse().ok().map(PolicyValue::Int),
            FieldType::Number(_) => text.parse().ok().map(PolicyValue::Float),
            FieldType::Bool if matches!(text, "true" | "True") => Some(PolicyValue::Bool(true)),
            FieldType::Bool if matches!(text, "false" | "False") => Some(PolicyValue::Bool(false)),
            FieldType::Text | FieldType::Choice(_) => Some(PolicyValue::text(text)),
            FieldType::TextList | FieldType::ModelList => {
                Some(PolicyValue::List(text.split('+').map(PolicyValue::text).collect()))
            }
            FieldType::Bool | FieldType::TextMap | FieldType::CountMap => None,
        }
    }

    /// The accepted values, for messages.
    pub fn expected_text(&self) -> String {
        let expected = match &self.kind {
            FieldType::Integer(i64::MAX) => "a whole number from 0".to_string(),
            FieldType::Integer(max) => format!("a whole number from 0 to {max}"),
            FieldType::Number(f64::MAX) => "a number from 0".to_string(),
            FieldType::Number(max) => format!("a number from 0 to {max}"),
            FieldType::Text => "a string".to_string(),
            FieldType::Bool => "True or False".to_string(),
            FieldType::Choice(choices) => format!("one of {}", choices.join(", ")),
            FieldType::TextList | FieldType::ModelList => "a list of strings".to_string(),
            FieldType::TextMap => "a dict of strings".to_string(),
            FieldType::CountMap => "a dict of whole numbers from 0".to_string(),
        };
        if self.nullable { format!("{expected}, or None") } else { expected }
    }
}

fn in_range(number: f64, max: f64) -> Option<PolicyValue> {
    (0.0..=max).contains(&number).then_some(PolicyValue::Float(number))
}

fn is_text(value: &PolicyValue) -> bool {
    matches!(value, PolicyValue::Text(_))
}
