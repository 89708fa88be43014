//! The keywords of a call, each taken once, with messages that say what was meant.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use muster_core::nearest::nearest;
use muster_core::rules::Fact;
use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::float::UnpackFloat;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;

/// Beyond this a number is a mistake, and thousandths of it would not fit.
const NUMBER_MAX: f64 = 1e12;

/// The keywords of a call.
pub struct Fields<'v> {
    call: &'static str,
    given: Vec<(String, Value<'v>)>,
}

impl<'v> Fields<'v> {
    /// Those of a call that knows some.
    pub fn new(call: &'static str, given: DictRef<'v>, known: &[&str]) -> Result<Fields<'v>> {
        let fields = Fields::any(call, given);
        let unknown = |(name, _): &&(String, Value)| !known.contains(&name.as_str());
        match fields.given.iter().find(unknown) {
            None => Ok(fields),
            Some((name, _)) => Err(anyhow!(match nearest(name, known.iter().copied()) {
                Some(meant) => format!("{call}: there is no field `{name}`; did you mean `{meant}`?"),
                None => format!("{call}: there is no field `{name}`; it has {}", known.join(", ")),
            })),
        }
    }

    /// Those of a call that takes any.
    pub fn any(call: &'static str, given: DictRef<'v>) -> Fields<'v> {
        let entry = |(name, value): (Value<'v>, Value<'v>)| (name.to_str(), value);
        Fields { call, given: given.iter().map(entry).collect() }
    }

    fn take(&mut self, name: &str) -> Option<Value<'v>> {
        let place = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.swap_remove(place).1)
    }

    fn wrong(&self, name: &str, value: Value, wanted: &str) -> anyhow::Error {
        let (call, kind) = (self.call, value.get_type());
        anyhow!("{call}: `{name}` is {} ({kind}); it must be {wanted}", value.to_repr())
    }

    /// A text; nothing where it was not given.
    pub fn text(&mut self, name: &str) -> Result<Option<String>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.unpack_str() {
            Some(text) if !text.is_empty() => Ok(Some(text.to_string())),
            _ => Err(self.wrong(name, value, "a text")),
        }
    }

    /// A text that must be there.
    pub fn required_text(&mut self, name: &str) -> Result<String> {
        self.text(name)?.ok_or_else(|| anyhow!("{}: `{name}` is missing", self.call))
    }

    /// A flag.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        value.unpack_bool().map(Some).ok_or_else(|| self.wrong(name, value, "True or False"))
    }

    /// A number between two bounds, in thousandths.
    pub fn milli(&mut self, name: &str, (least, most): (i64, i64)) -> Result<Option<i64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let wanted = format!("a number from {least} to {most}");
        let number = milli(value).filter(|milli| (least * 1_000..=most * 1_000).contains(milli));
        number.map(Some).ok_or_else(|| self.wrong(name, value, &wanted))
    }

    /// One of a few words.
    pub fn word<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Result<Option<T>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let said = value.unpack_str().unwrap_or_default();
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == said) {
            return Ok(Some(*meaning));
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let meant = nearest(said, known.iter().copied()).map(|word| format!("; did you mean `{word}`?"));
        let wanted = format!("one of {}{}", known.join(", "), meant.unwrap_or_default());
        Err(self.wrong(name, value, &wanted))
    }

    /// The same where it must be there.
    pub fn required_word<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Result<T> {
        self.word(name, words)?.ok_or_else(|| anyhow!("{}: `{name}` is missing", self.call))
    }

    /// Texts: a list of them, or a single one.
    pub fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let texts = match value.unpack_str() {
            Some(text) => Some(vec![text.to_string()]),
            None => items(value).and_then(|items| {
                items.into_iter().map(|item| item.unpack_str().map(str::to_string)).collect()
            }),
        };
        let full = texts.filter(|texts: &Vec<String>| texts.iter().all(|text| !text.is_empty()));
        full.map(Some).ok_or_else(|| self.wrong(name, value, "a text or a list of texts"))
    }

    /// Whatever is in a list.
    pub fn items(&mut self, name: &str) -> Result<Option<Vec<Value<'v>>>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        items(value).map(Some).ok_or_else(|| self.wrong(name, value, "a list"))
    }

    /// All that is left, as it is.
    pub fn rest(self) -> Result<BTreeMap<String, Fact>> {
        let call = self.call;
        let fact_of = |(name, value): (String, Value)| match fact(value) {
            Some(fact) => Ok((name, fact)),
            None => Err(anyhow!("{call}: `{name}` is a {}, which cannot be kept", value.get_type())),
        };
        self.given.into_iter().map(fact_of).collect()
    }
}

/// The items of a list or a tuple.
fn items(value: Value) -> Option<Vec<Value>> {
    let list = ListRef::from_value(value).map(|list| list.iter().collect());
    list.or_else(|| TupleRef::from_value(value).map(|tuple| tuple.content().to_vec()))
}

/// A number in thousandths, rounded; nothing if it is none, or far too large.
fn milli(value: Value) -> Option<i64> {
    use starlark::values::UnpackValue;
    if value.unpack_bool().is_some() {
        return None;
    }
    let UnpackFloat(number) = UnpackFloat::unpack_value(value).ok()??;
    (number.is_finite() && number.abs() <= NUMBER_MAX).then(|| (number * 1_000.0).round() as i64)
}

/// Something that can be kept as data.
fn fact(value: Value) -> Option<Fact> {
    if value.is_none() {
        return Some(Fact::Nothing);
    }
    if let Some(flag) = value.unpack_bool() {
        return Some(Fact::Flag(flag));
    }
    if let Some(text) = value.unpack_str() {
        return Some(Fact::Text(text.to_string()));
    }
    if let Some(milli) = milli(value) {
        return Some(Fact::Milli(milli));
    }
    items(value)?.into_iter().map(fact).collect::<Option<Vec<Fact>>>().map(Fact::List)
}
