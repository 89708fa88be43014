//! Flag values from the names that `muster-sim` lists: clap's `ValueEnum` for types of a crate that does not know clap.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A parser of one of these values, with the name and the line of help of each.
pub fn named<T: Copy + Send + Sync + 'static>(
    values: &'static [T],
    name: fn(T) -> &'static str,
    about: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let possible = values.iter().map(move |value| PossibleValue::new(name(*value)).help(about(*value)));
    PossibleValuesParser::new(possible).map(move |text| {
        let known = values.iter().copied().find(|value| name(*value) == text);
        known.unwrap_or_else(|| unreachable!("clap accepts the listed names only"))
    })
}
