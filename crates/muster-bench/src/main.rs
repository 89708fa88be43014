//! `make bench`: what the corridor costs, each figure beside an anchor measured in the same run.
//!
//! Machines are noisy, so every figure is a median of several runs and the ratios are what counts. The server
//! under measurement is the release binary in a process of its own; the load comes from this one. The planner
//! is measured by itself, by the example `plan_bench` of `muster-core`.

mod http;
mod raw;
mod rest;
mod server;
mod size;
mod table;

use anyhow::{Result, bail};

/// A measurement that prints its table.
type Part = (&'static str, fn() -> Result<()>);

/// What can be measured, by name.
const PARTS: [Part; 2] = [("submit", rest::submissions), ("size", size::growth)];

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.iter().any(|(part, _)| part == name)) {
        bail!("there is no benchmark `{unknown}`; there are submit and size");
    }
    for (name, measure) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|wish| wish == name) {
            measure()?;
        }
    }
    Ok(())
}
