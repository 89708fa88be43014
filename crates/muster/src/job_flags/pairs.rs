//! `KEY=VALUE`, as in `--label team=vision`.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::error::CliError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    key: String,
    value: String,
}

impl FromStr for KeyValue {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyValue, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(KeyValue { key: key.to_string(), value: value.to_string() }),
            _ => Err(format!("`{text}` is not KEY=VALUE")),
        }
    }
}

/// The pairs as a map; a later value overrides an earlier one.
pub fn pairs_to_map(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect()
}

/// Parses `KEY=VALUE`, or `KEY` alone for the value in the environment of this process.
pub fn environment(words: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    words.iter().map(|word| environment_variable(word)).collect()
}

fn environment_variable(word: &str) -> Result<(String, String), CliError> {
    if let Some((key, value)) = word.split_once('=') {
        return Ok((key.to_string(), value.to_string()));
    }
    let own = std::env::var(word);
    own.map(|value| (word.to_string(), value)).map_err(|_| {
        CliError::usage(format!("`--env {word}`: the variable is not set in this environment"))
            .hint(format!("write `--env {word}=VALUE`"))
    })
}
