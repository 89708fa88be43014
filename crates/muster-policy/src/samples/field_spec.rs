//! What fields of samples may be.

use muster_core::gpu::model;

use crate::policy_value::PolicyValue;

const ISOLATIONS: [&str; 3] = ["none", "memory", "full"];
const TOPOLOGIES: [&str; 4] = ["any", "same-numa", "nvlink", "same-rack"];

/// What a field may be.
pub struct FieldSpec {
    /// Which values.
    pub kind: FieldType,
    /// Or nothing.
    pub nullable: bool,
}

/// Kinds of values.
pub enum FieldType {
    /// From 0 to this.
    Integer(i64),
    /// From 0 to this, with a fraction.
    Number(f64),
    /// Any.
    Text,
    /// Yes or no.
    Bool,
    /// One of these.
    Choice(&'static [&'static str]),
    /// A list of them.
    TextList,
    /// The same, spelt as nodes spell their models.
    ModelList,
    /// Texts by texts.
    TextMap,
    /// Whole numbers by texts.
    CountMap,
}

impl FieldSpec {
    /// That of a name, by what it usually is.
    pub fn of_default(name: &str, usual: &PolicyValue) -> FieldSpec {
        let kind = match (name, usual) {
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
        FieldSpec { kind, nullable: *usual == PolicyValue::None || name == "exit_code" }
    }

    /// The value as a policy sees it, if it may be that.
    pub fn accept(&self, value: &PolicyValue) -> Option<PolicyValue> {
        match (&self.kind, value) {
            (_, PolicyValue::None) => self.nullable.then_some(PolicyValue::None),
            (FieldType::Integer(most), PolicyValue::Int(number)) => (0..=*most).contains(number).then(|| value.clone()),
            (FieldType::Number(most), PolicyValue::Int(number)) => in_range(*number as f64, *most),
            (FieldType::Number(most), PolicyValue::Float(number)) => in_range(*number, *most),
            (FieldType::Text, PolicyValue::Text(_)) | (FieldType::Bool, PolicyValue::Bool(_)) => Some(value.clone()),
            (FieldType::Choice(words), PolicyValue::Text(text)) => words.contains(&text.as_str()).then(|| value.clone()),
            (FieldType::TextList | FieldType::ModelList, PolicyValue::List(items) | PolicyValue::Tuple(items)) => {
                items.iter().map(|item| self.accept_item(item)).collect::<Option<Vec<PolicyValue>>>().map(PolicyValue::List)
            }
            (FieldType::TextMap, PolicyValue::Dict(entries)) => {
                entries.iter().all(|(key, value)| is_text(key) && is_text(value)).then(|| value.clone())
            }
            (FieldType::CountMap, PolicyValue::Dict(entries)) => {
                let counts = |(key, count): &(PolicyValue, PolicyValue)| is_text(key) && matches!(count, PolicyValue::Int(0..));
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

    /// The value that a text stands for.
    pub fn parse(&self, text: &str) -> Option<PolicyValue> {
        match &self.kind {
            _ if self.nullable && matches!(text, "none" | "None") => Some(PolicyValue::None),
            FieldType::Integer(_) => text.parse().ok().map(PolicyValue::Int),
            FieldType::Number(_) => text.parse().ok().map(PolicyValue::Float),
            FieldType::Bool if matches!(text, "true" | "True") => Some(PolicyValue::Bool(true)),
            FieldType::Bool if matches!(text, "false" | "False") => Some(PolicyValue::Bool(false)),
            FieldType::Text | FieldType::Choice(_) => Some(PolicyValue::text(text)),
            FieldType::TextList | FieldType::ModelList => Some(PolicyValue::List(text.split('+').map(PolicyValue::text).collect())),
            FieldType::Bool | FieldType::TextMap | FieldType::CountMap => None,
        }
    }

    /// For messages.
    pub fn expected_text(&self) -> String {
        let wanted = match &self.kind {
            FieldType::Integer(i64::MAX) => "a whole number from 0".to_string(),
            FieldType::Integer(most) => format!("a whole number from 0 to {most}"),
            FieldType::Number(f64::MAX) => "a number from 0".to_string(),
            FieldType::Number(most) => format!("a number from 0 to {most}"),
            FieldType::Text => "a text".to_string(),
            FieldType::Bool => "True or False".to_string(),
            FieldType::Choice(words) => format!("one of {}", words.join(", ")),
            FieldType::TextList | FieldType::ModelList => "a list of texts".to_string(),
            FieldType::TextMap => "a dict of texts".to_string(),
            FieldType::CountMap => "a dict of whole numbers from 0".to_string(),
        };
        if self.nullable { format!("{wanted}, or None") } else { wanted }
    }
}

fn in_range(number: f64, most: f64) -> Option<PolicyValue> {
    (0.0..=most).contains(&number).then_some(PolicyValue::Float(number))
}

fn is_text(value: &PolicyValue) -> bool {
    matches!(value, PolicyValue::Text(_))
}
