//! Source: the YAML file. The table of keys leads the reading, so every scalar keeps its text and its place.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_saphyr::{Error, Location, Spanned, UserMessageFormatter};

use super::nearest;
use super::problem::{Mark, Place, Problem, Wrong};
use super::value::{Kind, Raw};
use super::{RawConfig, keys};

/// Read a file. What is wrong with it is noted in the answer, beside what is right.
pub(super) fn read(path: &Path) -> RawConfig {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text),
        Err(error) => {
            let mut raw = RawConfig::default();
            let mark = Mark { path: path.to_path_buf(), line: 0, column: 0, text: String::new() };
            raw.problems.push(Problem {
                place: Place::File(mark),
                wrong: Wrong::Unreadable { why: error.to_string() },
            });
            raw
        }
    }
}

/// Read a text that came from `path`.
pub(super) fn parse(path: &Path, text: &str) -> RawConfig {
    let mut reading = Reading { path, text, raw: RawConfig::default() };
    let section = Section { prefix: "", reading: &mut reading };
    let read =
        serde_saphyr::with_deserializer_from_str(text, |deserializer| section.deserialize(deserializer));
    if let Err(error) = read {
        let error = error.without_snippet();
        reading.note(error.location().unwrap_or(Location::UNKNOWN), Wrong::Yaml(sentence(error)));
    }
    reading.raw
}

/// What the reader says, less its own account of the place, in words of the file rather than of the parser.
fn sentence(error: &Error) -> String {
    let said = error.render_with_formatter(&UserMessageFormatter);
    let end = said.find(" at line ").unwrap_or(said.len());
    let said = said[..end].trim();
    let twice =
        said.strip_prefix("duplicate mapping key: ").and_then(|rest| rest.strip_suffix(" not allowed here"));
    match (said, twice) {
        (_, Some(key)) => format!("the key `{key}` is written twice; keep one"),
        ("expected string scalar", _) => {
            "a single value is expected here, not a list or a section".to_string()
        }
        ("expected mapping start", _) => {
            "a section is expected here: indented lines of `key: value`".to_string()
        }
        (other, _) => other.to_string(),
    }
}

struct Reading<'a> {
    path: &'a Path,
    text: &'a str,
    raw: RawConfig,
}

impl Reading<'_> {
    fn place(&self, location: Location) -> Place {
        Place::File(Mark::new(self.path, self.text, location))
    }

    fn note(&mut self, location: Location, wrong: Wrong) {
        let place = self.place(location);
        self.raw.problems.push(Problem { place, wrong });
    }

    fn keep(&mut self, key: &'static str, value: Raw, location: Location) {
        let place = self.place(location);
        self.raw.say(key, value, place);
    }
}

/// The keys below one name.
struct Section<'r, 'a> {
    prefix: &'r str,
    reading: &'r mut Reading<'a>,
}

impl Section<'_, '_> {
    fn take<'de, A: MapAccess<'de>>(
        &mut self,
        written: Spanned<String>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let name = match self.prefix {
            "" => written.value,
            prefix => format!("{prefix}.{}", written.value),
        };
        if let Some((whole, why)) = keys::inert(&name) {
            self.reading.raw.warn_inert(whole, why);
            return map.next_value::<IgnoredAny>().map(drop);
        }
        if let Some(key) = keys::find(&name) {
            return self.take_value(key, map);
        }
        if keys::is_section(&name) {
            return map.next_value_seed(Section { prefix: &name, reading: self.reading });
        }
        let meant = nearest(&name, keys::names());
        self.reading.note(written.referenced, Wrong::UnknownKey { key: name, meant });
        map.next_value::<IgnoredAny>().map(drop)
    }

    /// A key without a value says nothing, as if its line were a comment.
    fn take_value<'de, A: MapAccess<'de>>(
        &mut self,
        key: &'static keys::Key,
        map: &mut A,
    ) -> Result<(), A::Error> {
        if key.kind == Kind::List {
            if let Some(list) = map.next_value::<Option<Spanned<Texts>>>()? {
                self.reading.keep(key.name, Raw::Many(list.value.0), list.referenced);
            }
        } else if let Some(text) = map.next_value::<Option<Spanned<String>>>()? {
            self.reading.keep(key.name, Raw::One(text.value), text.referenced);
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
            self.take(written, &mut map)?;
        }
        Ok(())
    }
}

/// One text, or a list of them.
struct Texts(Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        deserializer.deserialize_any(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Texts, E> {
        match Kind::List.read(&Raw::One(text.to_string())) {
            Some(super::value::Value::List(texts)) => Ok(Texts(texts)),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element::<Option<String>>()? {
            texts.push(text.ok_or_else(|| A::Error::custom("a text is missing in this list"))?);
        }
        Ok(Texts(texts))
    }
}
