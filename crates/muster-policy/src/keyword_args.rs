//! Keyword arguments of a builtin: each is taken once, and errors name the expected type or the nearest known name.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use muster_core::nearest::nearest;
use muster_core::objects::policy::rules::Fact;
use starlark::values::Value;
use starlark::values::dict::DictRef;
use starlark::values::float::UnpackFloat;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;

/// The largest number accepted. Its thousandths fit in an `i64`.
const NUMBER_MAX: f64 = 1e12;

/// The keyword arguments of one call.
pub struct KeywordArgs<'v> {
    call: &'static str,
    args: Vec<(String, Value<'v>)>,
}

impl<'v> KeywordArgs<'v> {
    /// Arguments of a builtin that accepts only the known names.
    pub fn new(call: &'static str, kwargs: DictRef<'v>, known: &[&str]) -> Result<KeywordArgs<'v>> {
        let fields = KeywordArgs::accepting_any(call, kwargs);
        let unknown = |(name, _): &&(String, Value)| !known.contains(&name.as_str());
        match fields.args.iter().find(unknown) {
            None => Ok(fields),
            Some((name, _)) => Err(anyhow!(match nearest(name, known.iter().copied()) {
                Some(meant) => format!("{call} has no field `{name}`; did you mean `{meant}`?"),
                None => format!("{call} has no field `{name}`; its fields are {}", known.join(", ")),
            })),
        }
    }

    /// Arguments of a builtin that accepts any names.
    pub fn accepting_any(call: &'static str, kwargs: DictRef<'v>) -> KeywordArgs<'v> {
        let entry = |(name, value): (Value<'v>, Value<'v>)| (name.to_str(), value);
        KeywordArgs { call, args: kwargs.iter().map(entry).collect() }
    }

    fn take_arg(&mut self, name: &str) -> Option<Value<'v>> {
        let index = self.args.iter().position(|(arg, _)| arg == name)?;
        Some(self.args.swap_remove(index).1)
    }

    fn type_error(&self, name: &str, value: Value, expected: &str) -> anyhow::Error {
        let (call, kind) = (self.call, value.get_type());
        anyhow!("{call}: `{name}` is {} ({kind}); it must be {expected}", value.to_repr())
    }

    /// A string that is not empty; `None` if the argument is absent.
    pub fn text(&mut self, name: &str) -> Result<Option<String>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        match value.unpack_str() {
            Some(text) if !text.is_empty() => Ok(Some(text.to_string())),
            _ => Err(self.type_error(name, value, "a string that is not empty")),
        }
    }

    pub fn required_text(&mut self, name: &str) -> Result<String> {
        self.text(name)?.ok_or_else(|| anyhow!("{}: `{name}` is missing", self.call))
    }

    pub fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        value.unpack_bool().map(Some).ok_or_else(|| self.type_error(name, value, "True or False"))
    }

    /// A number of an inclusive range, in thousandths.
    pub fn milli(&mut self, name: &str, (min, max): (i64, i64)) -> Result<Option<i64>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        let expected = format!("a number from {min} to {max}");
        let number = value_to_milli(value).filter(|milli| (min * 1_000..=max * 1_000).contains(milli));
        number.map(Some).ok_or_else(|| self.type_error(name, value, &expected))
    }

    /// One of these spellings, as the value it stands for.
    pub fn choice<T: Copy>(&mut self, name: &str, choices: &[(&'static str, T)]) -> Result<Option<T>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        let text = value.unpack_str().unwrap_or_default();
        if let Some((_, choice)) = choices.iter().find(|(spelling, _)| *spelling == text) {
            return Ok(Some(*choice));
        }
        let known: Vec<&str> = choices.iter().map(|(spelling, _)| *spelling).collect();
        let meant = nearest(text, known.iter().copied()).map(|meant| format!("; did you mean `{meant}`?"));
        let expected = format!("one of {}{}", known.join(", "), meant.unwrap_or_default());
        Err(self.type_error(name, value, &expected))
    }

    pub fn required_choice<T: Copy>(&mut self, name: &str, choices: &[(&'static str, T)]) -> Result<T> {
        self.choice(name, choices)?.ok_or_else(|| anyhow!("{}: `{name}` is missing", self.call))
    }

    /// A list of strings that are not empty. A single string counts as a list of one.
    pub fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        let texts = match value.unpack_str() {
            Some(text) => Some(vec![text.to_string()]),
            None => sequence_items(value)
                .and_then(|items| items.into_iter().map(|item| item.unpack_str().map(str::to_string)).collect()),
        };
        let texts = texts.filter(|texts: &Vec<String>| texts.iter().all(|text| !text.is_empty()));
        let expected = "a string or a list of strings, none of them empty";
        texts.map(Some).ok_or_else(|| self.type_error(name, value, expected))
    }

    /// The items of a list or tuple.
    pub fn items(&mut self, name: &str) -> Result<Option<Vec<Value<'v>>>> {
        let Some(value) = self.take_arg(name) else { return Ok(None) };
        sequence_items(value).map(Some).ok_or_else(|| self.type_error(name, value, "a list"))
    }

    /// All arguments that were not taken, as data.
    pub fn remaining_facts(self) -> Result<BTreeMap<String, Fact>> {
        let call = self.call;
        let to_fact = |(name, value): (String, Value)| match value_to_fact(value) {
            Some(fact) => Ok((name, fact)),
            None => Err(anyhow!(
                "{call}: `{name}` is a {}; only None, booleans, numbers, strings and lists are allowed",
                value.get_type()
            )),
        };
        self.args.into_iter().map(to_fact).collect()
    }
}

fn sequence_items(value: Value) -> Option<Vec<Value>> {
    let list = ListRef::from_value(value).map(|list| list.iter().collect());
    list.or_else(|| TupleRef::from_value(value).map(|tuple| tuple.content().to_vec()))
}

/// A number in thousandths, rounded; `None` if the value is not a number or exceeds [`NUMBER_MAX`].
fn value_to_milli(value: Value) -> Option<i64> {
    use starlark::values::UnpackValue;
    if value.unpack_bool().is_some() {
        return None;
    }
    let UnpackFloat(number) = UnpackFloat::unpack_value(value).ok()??;
    (number.is_finite() && number.abs() <= NUMBER_MAX).then(|| (number * 1_000.0).round() as i64)
}

/// A value as data; `None` if its type cannot be stored.
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
