//! Source: the YAML file. The table of keys drives the parsing, so every scalar keeps its text and its position.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_saphyr::{Error, Location, Spanned, UserMessageFormatter};

use super::nearest;
use super::problem::{FilePosition, Problem, ProblemKind, ValueSource};
use super::value::{RawValue, ValueKind};
use super::{RawConfig, keys};

/// Read a file. The result holds its values and its problems.
pub(super) fn read(path: &Path) -> RawConfig {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text),
        Err(error) => {
            let mut raw = RawConfig::default();
            let position = FilePosition { path: path.to_path_buf(), line: 0, column: 0, text: String::new() };
            raw.problems.push(Problem {
                source: ValueSource::File(position),
                kind: ProblemKind::Unreadable { why: error.to_string() },
            });
            raw
        }
    }
}

/// Parse a text that was read from `path`.
pub(super) fn parse(path: &Path, text: &str) -> RawConfig {
    let mut reader = FileReader { path, text, raw: RawConfig::default() };
    let section = Section { prefix: "", reader: &mut reader };
    let read = serde_saphyr::with_deserializer_from_str(text, |deserializer| section.deserialize(deserializer));
    if let Err(error) = read {
        let error = error.without_snippet();
        let kind = ProblemKind::Yaml(yaml_error_message(error));
        reader.push_problem(error.location().unwrap_or(Location::UNKNOWN), kind);
    }
    reader.raw
}

/// The message of the YAML parser without its position, in terms of the file rather than of the parser.
fn yaml_error_message(error: &Error) -> String {
    let message = error.render_with_formatter(&UserMessageFormatter);
    let end = message.find(" at line ").unwrap_or(message.len());
    let message = message[..end].trim();
    let duplicate =
        message.strip_prefix("duplicate mapping key: ").and_then(|rest| rest.strip_suffix(" not allowed here"));
    match (message, duplicate) {
        (_, Some(key)) => format!("the key `{key}` is written twice; keep one"),
        ("expected string scalar", _) => "a single value is expected here, not a list or a section".to_string(),
        ("expected mapping start", _) => "a section is expected here: indented lines of `key: value`".to_string(),
        (other, _) => other.to_string(),
    }
}

struct FileReader<'a> {
    path: &'a Path,
    text: &'a str,
    raw: RawConfig,
}

impl FileReader<'_> {
    fn source_at(&self, location: Location) -> ValueSource {
        ValueSource::File(FilePosition::new(self.path, self.text, location))
    }

    fn push_problem(&mut self, location: Location, kind: ProblemKind) {
        let source = self.source_at(location);
        self.raw.problems.push(Problem { source, kind });
    }

    fn push_value(&mut self, key: &'static str, value: RawValue, location: Location) {
        let source = self.source_at(location);
        self.raw.set(key, value, source);
    }
}

/// The keys below one name; the prefix of the root is empty.
struct Section<'r, 'a> {
    prefix: &'r str,
    reader: &'r mut FileReader<'a>,
}

impl Section<'_, '_> {
    fn read_key<'de, A: MapAccess<'de>>(&mut self, written: Spanned<String>, map: &mut A) -> Result<(), A::Error> {
        let name = match self.prefix {
            "" => written.value,
            prefix => format!("{prefix}.{}", written.value),
        };
        if let Some((whole, why)) = keys::find_inert(&name) {
            self.reader.raw.warn_inert(whole, why);
            return map.next_value::<IgnoredAny>().map(drop);
        }
        if let (Some(key), Some(spelling)) = (keys::find(&name), keys::spelling(&name)) {
            return self.read_value(spelling, key.kind, map);
        }
        if keys::is_section(&name) {
            return map.next_value_seed(Section { prefix: &name, reader: self.reader });
        }
        let meant = nearest(&name, keys::names());
        self.reader.push_problem(written.referenced, ProblemKind::UnknownKey { key: name, meant });
        map.next_value::<IgnoredAny>().map(drop)
    }

    /// A key without a value sets nothing.
    fn read_value<'de, A: MapAccess<'de>>(
        &mut self,
        key: &'static str,
        kind: ValueKind,
        map: &mut A,
    ) -> Result<(), A::Error> {
        if kind == ValueKind::List {
            if let Some(list) = map.next_value::<Option<Spanned<StringList>>>()? {
                self.reader.push_value(key, RawValue::Many(list.value.0), list.referenced);
            }
        } else if let Some(text) = map.next_value::<Option<Spanned<String>>>()? {
            self.reader.push_value(key, RawValue::One(text.value), text.referenced);
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Section<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Section<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("keys and values")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(written) = map.next_key::<Spanned<String>>()? {
            self.read_key(written, &mut map)?;
        }
        Ok(())
    }
}

/// One text, or a list of them.
struct StringList(Vec<String>);

impl<'de> Deserialize<'de> for StringList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StringList, D::Error> {
        deserializer.deserialize_any(StringListVisitor)
    }
}

struct StringListVisitor;

impl<'de> Visitor<'de> for StringListVisitor {
    type Value = StringList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<StringList, E> {
        match ValueKind::List.parse(&RawValue::One(text.to_string())) {
            Some(super::value::Value::List(texts)) => Ok(StringList(texts)),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<StringList, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element::<Option<String>>()? {
            texts.push(text.ok_or_else(|| A::Error::custom("a text is missing in this list"))?);
        }
        Ok(StringList(texts))
    }
}
