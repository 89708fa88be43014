//! What fields of samples may be.

use muster_core::model;

use crate::plain::Plain;

const ISOLATIONS: [&str; 3] = ["none", "memory", "full"];
const TOPOLOGIES: [&str; 4] = ["any", "same-numa", "nvlink", "same-rack"];

/// What a field may be.
pub struct Field {
    /// Which values.
    pub kind: Kind,
    /// Or nothing.
    pub or_none: bool,
}

/// Kinds of values.
pub enum Kind {
    /// From 0 to this.
    Whole(i64),
    /// From 0 to this, with a fraction.
    Number(f64),
    /// Any.
    Text,
    /// Yes or no.
    Flag,
    /// One of these.
    Words(&'static [&'static str]),
    /// A list of them.
    Texts,
    /// The same, spelt as nodes spell their models.
    Models,
    /// Texts by texts.
    Labels,
    /// Whole numbers by texts.
    Counts,
}

impl Field {
    /// That of a name, by what it usually is.
    pub fn of(name: &str, usual: &Plain) -> Field {
        let kind = match (name, usual) {
            ("gpu_share", _) => Kind::Number(1.0),
            ("pools", Plain::Dict(_)) => Kind::Counts,
            ("isolation", _) => Kind::Words(&ISOLATIONS),
            ("topology", _) => Kind::Words(&TOPOLOGIES),
            ("models" | "gpu_models", _) => Kind::Models,
            ("time_limit_s" | "gpus_max" | "signal", _) | (_, Plain::Int(_)) => Kind::Whole(i64::MAX),
            (_, Plain::Float(_)) => Kind::Number(f64::MAX),
            (_, Plain::Bool(_)) => Kind::Flag,
            (_, Plain::List(_)) => Kind::Texts,
            (_, Plain::Dict(_)) => Kind::Labels,
            _ => Kind::Text,
        };
        Field { kind, or_none: *usual == Plain::None || name == "exit_code" }
    }

    /// The value as a policy sees it, if it may be that.
    pub fn taken(&self, value: &Plain) -> Option<Plain> {
        match (&self.kind, value) {
            (_, Plain::None) => self.or_none.then_some(Plain::None),
            (Kind::Whole(most), Plain::Int(number)) => (0..=*most).contains(number).then(|| value.clone()),
            (Kind::Number(most), Plain::Int(number)) => in_range(*number as f64, *most),
            (Kind::Number(most), Plain::Float(number)) => in_range(*number, *most),
            (Kind::Text, Plain::Text(_)) | (Kind::Flag, Plain::Bool(_)) => Some(value.clone()),
            (Kind::Words(words), Plain::Text(text)) => words.contains(&text.as_str()).then(|| value.clone()),
            (Kind::Texts | Kind::Models, Plain::List(items) | Plain::Tuple(items)) => {
                items.iter().map(|item| self.item(item)).collect::<Option<Vec<Plain>>>().map(Plain::List)
            }
            (Kind::Labels, Plain::Dict(entries)) => {
                entries.iter().all(|(key, value)| is_text(key) && is_text(value)).then(|| value.clone())
            }
            (Kind::Counts, Plain::Dict(entries)) => {
                let counts = |(key, count): &(Plain, Plain)| is_text(key) && matches!(count, Plain::Int(0..));
                entries.iter().all(counts).then(|| value.clone())
            }
            _ => None,
        }
    }

    fn item(&self, item: &Plain) -> Option<Plain> {
        match (&self.kind, item) {
            (Kind::Models, Plain::Text(model)) => Some(model::canonical(model).into()),
            (_, Plain::Text(_)) => Some(item.clone()),
            _ => None,
        }
    }

    /// The value that a text stands for.
    pub fn read(&self, text: &str) -> Option<Plain> {
        match &self.kind {
            _ if self.or_none && matches!(text, "none" | "None") => Some(Plain::None),
            Kind::Whole(_) => text.parse().ok().map(Plain::Int),
            Kind::Number(_) => text.parse().ok().map(Plain::Float),
            Kind::Flag if matches!(text, "true" | "True") => Some(Plain::Bool(true)),
            Kind::Flag if matches!(text, "false" | "False") => Some(Plain::Bool(false)),
            Kind::Text | Kind::Words(_) => Some(Plain::text(text)),
            Kind::Texts | Kind::Models => Some(Plain::List(text.split('+').map(Plain::text).collect())),
            Kind::Flag | Kind::Labels | Kind::Counts => None,
        }
    }

    /// For messages.
    pub fn wanted(&self) -> String {
        let wanted = match &self.kind {
            Kind::Whole(i64::MAX) => "a whole number from 0".to_string(),
            Kind::Whole(most) => format!("a whole number from 0 to {most}"),
            Kind::Number(f64::MAX) => "a number from 0".to_string(),
            Kind::Number(most) => format!("a number from 0 to {most}"),
            Kind::Text => "a text".to_string(),
            Kind::Flag => "True or False".to_string(),
            Kind::Words(words) => format!("one of {}", words.join(", ")),
            Kind::Texts | Kind::Models => "a list of texts".to_string(),
            Kind::Labels => "a dict of texts".to_string(),
            Kind::Counts => "a dict of whole numbers from 0".to_string(),
        };
        if self.or_none { format!("{wanted}, or None") } else { wanted }
    }
}

fn in_range(number: f64, most: f64) -> Option<Plain> {
    (0.0..=most).contains(&number).then_some(Plain::Float(number))
}

fn is_text(value: &Plain) -> bool {
    matches!(value, Plain::Text(_))
}
