//! `KEY=VALUE`, as in `--label team=vision`.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::error::CliError;

/// One `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    key: String,
    value: String,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Pair, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                Ok(Pair { key: key.to_string(), value: value.to_string() })
            }
            _ => Err(format!("`{text}` is not KEY=VALUE")),
        }
    }
}

/// All of them; a later one wins.
pub fn map(pairs: &[Pair]) -> BTreeMap<String, String> {
    pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect()
}

/// `KEY=VALUE`, or `KEY` alone for what this process has.
pub fn environment(words: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    words.iter().map(|word| variable(word)).collect()
}

fn variable(word: &str) -> Result<(String, String), CliError> {
    if let Some((key, value)) = word.split_once('=') {
        return Ok((key.to_string(), value.to_string()));
    }
    let own = std::env::var(word);
    own.map(|value| (word.to_string(), value)).map_err(|_| {
        CliError::usage(format!("`--env {word}`: there is no such variable here"))
            .hint(format!("write `--env {word}=VALUE`"))
    })
}
