//! The keywords of a call, each taken once, with messages that say what was meant.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use muster_core::nearest::nearest;
use muster_core::objects::policy::rules::Fact;
use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::float::UnpackFloat;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;

/// Beyond this a number is a mistake, and thousandths of it would not fit.
const NUMBER_MAX: f64 = 1e12;

/// The keywords of a call.
pub struct KeywordArgs<'v> {
    call: &'static str,
    args: Vec<(String, Value<'v>)>,
}

impl<'v> KeywordArgs<'v> {
    /// Those of a call that knows some.
    pub fn new(call: &'static str, given: DictRef<'v>, known: &[&str]) -> Result<KeywordArgs<'v>> {
        let fields = KeywordArgs::accepting_any(call, given);
        let unknown = |(name, _): &&(String, Value)| !known.contains(&name.as_str());
        match fields.args.iter().find(unknown) {
            None => Ok(fields),
            Some((name, _)) => Err(anyhow!(match nearest(name, known.iter().copied()) {
                Some(meant) => format!("{call}: there is no field `{name}`; did you mean `{meant}`?"),
                None => format!("{call}: there is no field `{name}`; it has {}", known.join(", ")),
            })),
        }
    }

    /// Those of a call that takes any.
    pub fn accepting_any(call: &'static str, given: DictRef<'v>) -> KeywordArgs<'v> {
        let entry = |(name, value): (Value<'v>, Value<'v>)| (name.to_str(), value);
        KeywordArgs { call, args: given.iter().map(entry).collect() }
    }

    fn take_arg(&mut self, name: &str) -> Option<Value<'v>> {
        let place = self.args.iter().position(|(given, _)| given == name)?;
        Some(self.args.swap_remove(place).1)
    }

    fn type_error(&self, name: &str, value: Value, wanted: &str) -> anyhow::Error {
        let (call, kind) = (self.call, value.get_type());
        anyhow!("{call}: `{name}` is {} ({kind}); it must be {wanted}", value.to_repr())
    }

    /// A text; nothing where it was not given.
    pub fn text(&mut self, name: &str) -> Result<Option<String>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        match value.unpack_str() {
            Some(text) if !text.is_empty() => Ok(Some(text.to_string())),
            _ => Err(self.type_error(name, value, "a text")),
        }
    }

    /// A text that must be there.
    pub fn required_text(&mut self, name: &str) -> Result<String> {
        self.text(name)?.ok_or_else(|| anyhow!("{}: `{name}` is missing", self.call))
    }

    /// A flag.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        value.unpack_bool().map(Some).ok_or_else(|| self.type_error(name, value, "True or False"))
    }

    /// A number between two bounds, in thousandths.
    pub fn milli(&mut self, name: &str, (least, most): (i64, i64)) -> Result<Option<i64>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        let wanted = format!("a number from {least} to {most}");
        let number = value_to_milli(value).filter(|milli| (least * 1_000..=most * 1_000).contains(milli));
        number.map(Some).ok_or_else(|| self.type_error(name, value, &wanted))
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Result<Option<T>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        let said = value.unpack_str().unwrap_or_default();
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == said) {
            return Ok(Some(*meaning));
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let meant = nearest(said, known.iter().copied()).map(|word| format!("; did you mean `{word}`?"));
        let wanted = format!("one of {}{}", known.join(", "), meant.unwrap_or_default());
        Err(self.type_error(name, value, &wanted))
    }

    /// The same where it must be there.
    pub fn required_choice<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Result<T> {
        self.choice(name, words)?.ok_or_else(|| anyhow!("{}: `{name}` is missing", self.call))
    }

    /// Texts: a list of them, or a single one.
    pub fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        let texts = match value.unpack_str() {
            Some(text) => Some(vec![text.to_string()]),
            None => sequence_items(value).and_then(|items| {
                items.into_iter().map(|item| item.unpack_str().map(str::to_string)).collect()
            }),
        };
        let full = texts.filter(|texts: &Vec<String>| texts.iter().all(|text| !text.is_empty()));
        full.map(Some).ok_or_else(|| self.type_error(name, value, "a text or a list of texts"))
    }

    /// Whatever is in a list.
    pub fn items(&mut self, name: &str) -> Result<Option<Vec<Value<'v>>>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        sequence_items(value).map(Some).ok_or_else(|| self.type_error(name, value, "a list"))
    }

    /// All that is left, as it is.
    pub fn remaining_facts(self) -> Result<BTreeMap<String, Fact>> {
        let call = self.call;
        let fact_of = |(name, value): (String, Value)| match value_to_fact(value) {
            Some(fact) => Ok((name, fact)),
            None => Err(anyhow!("{call}: `{name}` is a {}, which cannot be kept", value.get_type())),
        };
        self.args.into_iter().map(fact_of).collect()
    }
}

/// The items of a list or a tuple.
fn sequence_items(value: Value) -> Option<Vec<Value>> {
    let list = ListRef::from_value(value).map(|list| list.iter().collect());
    list.or_else(|| TupleRef::from_value(value).map(|tuple| tuple.content().to_vec()))
}

/// A number in thousandths, rounded; nothing if it is none, or far too large.
fn value_to_milli(value: Value) -> Option<i64> {
    use starlark::values::UnpackValue;
    if value.unpack_bool().is_some() {
        return None;
    }
    let UnpackFloat(number) = UnpackFloat::unpack_value(value).ok()??;
    (number.is_finite() && number.abs() <= NUMBER_MAX).then(|| (number * 1_000.0).round() as i64)
}

/// Something that can be kept as data.
fn value_to_fact(value: Value) -> Option<Fact> {
    if value.is_none() {
        return Some(Fact::Nothing);
    }
    if let Some(flag) = value.unpack_bool() {
        return Some(Fact::Flag(flag));
    }
    if let Some(text) = value.unpack_str() {
        return Some(Fact::Text(text.to_string()));
    }
    if let Some(milli) = value_to_milli(value) {
        return Some(Fact::Milli(milli));
    }
    sequence_items(value)?.into_iter().map(value_to_fact).collect::<Option<Vec<Fact>>>().map(Fact::List)
}
