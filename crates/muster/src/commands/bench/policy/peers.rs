//! Other interpreters of Starlark, in a Python of their own: the same functions with the same arguments.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::calls::Call;
use crate::commands::policy::Json;
use crate::error::CliError;

/// Seconds of each of their rounds.
const SECONDS: f64 = 0.2;

/// Another interpreter.
pub struct Peer {
    /// What it is called where Python packages come from.
    pub package: &'static str,
    /// Whom it is measured against, where that is not the product.
    pub against: Option<&'static str>,
    /// How many times as often the product is to call a function, or it itself.
    pub goal: Option<&'static str>,
    how: &'static str,
}

const PYO3: &str = "starlark-pyo3";

/// All that are asked. The last is ours, for Python.
pub const ALL: &[Peer] = &[
    Peer { package: "starlark-go", against: None, goal: Some("300×"), how: "pip install starlark-go" },
    Peer { package: PYO3, against: None, goal: Some("50×"), how: "pip install starlark-pyo3" },
    Peer { package: "muster", against: Some(PYO3), goal: Some("5× starlark-pyo3"), how: "make python" },
];

/// What they are asked.
#[derive(Serialize)]
struct Wish {
    seconds: f64,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
struct Rule {
    function: &'static str,
    source: String,
    calls: Vec<Vec<Json>>,
}

#[derive(Debug, Deserialize)]
struct Found {
    version: String,
    rules: BTreeMap<String, Measured>,
}

#[derive(Debug, Deserialize)]
struct Measured {
    answers: Vec<Json>,
    per_second: f64,
}

/// What became of them: those who were there, or why nobody was.
pub struct Outcome(Result<BTreeMap<String, Found>, String>);

/// Measure those who are there. Whoever answers something else than we do is not worth measuring.
pub fn measured(python: &Path, calls: &[Call]) -> Result<Outcome, CliError> {
    let json = |args: Vec<&muster_policy::Plain>| args.into_iter().cloned().map(Json).collect();
    let rule = |call: &Call| Rule {
        function: call.function,
        source: call.source.clone(),
        calls: call.args().into_iter().map(json).collect(),
    };
    let wish = Wish { seconds: SECONDS, rules: calls.iter().map(rule).collect() };
    let said = ask(python, &muster_json::to_vec(&wish));
    let read = |said: Vec<u8>| muster_json::from_slice(&said).map_err(|error| error.to_string());
    let found: Result<BTreeMap<String, Found>, String> = said.and_then(read);
    for (package, theirs) in found.iter().flatten() {
        calls.iter().try_for_each(|call| same_answers(package, theirs, call))?;
    }
    Ok(Outcome(found))
}

fn same_answers(package: &str, theirs: &Found, call: &Call) -> Result<(), CliError> {
    let theirs = theirs.rules.get(call.function).map(|measured| &measured.answers[..]).unwrap_or_default();
    let ours: Vec<Json> = call.answers()?.into_iter().map(Json).collect();
    match ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs) {
        None if ours.len() == theirs.len() => Ok(()),
        None => Err(CliError::failed(format!("`{package}` left calls out"))),
        Some(place) => Err(CliError::failed(format!(
            "`{package}` answers {} where we answer {} (call {place} of `{}`)",
            theirs[place].0, ours[place].0, call.function
        ))),
    }
}

impl Outcome {
    /// How often one calls a function in a second; nothing where it is not there.
    pub fn rate(&self, package: &str, function: &str) -> Option<f64> {
        Some(self.0.as_ref().ok()?.get(package)?.rules.get(function)?.per_second)
    }

    /// Its version.
    pub fn version(&self, peer: &Peer) -> Option<&str> {
        self.found(peer).map(|found| found.version.as_str())
    }

    /// Why one was not measured, and what to do.
    pub fn missing(&self, peer: &Peer) -> String {
        match &self.0 {
            Err(why) => why.clone(),
            Ok(_) => format!("not installed: {}", peer.how),
        }
    }

    fn found(&self, peer: &Peer) -> Option<&Found> {
        self.0.as_ref().ok()?.get(peer.package)
    }
}

/// Run the script. An error says what is wrong, and what to do.
fn ask(python: &Path, wish: &[u8]) -> Result<Vec<u8>, String> {
    let shown = python.display();
    let mut command = Command::new(python);
    command.args(["-c", include_str!("peers.py")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let start = |error| format!("`{shown}` does not start ({error}): name a Python with --python");
    let mut child = command.spawn().map_err(start)?;
    if let Some(mut input) = child.stdin.take() {
        // One that ends early says why by itself.
        let _ = input.write_all(wish);
    }
    let ended = child.wait_with_output().map_err(|error| error.to_string())?;
    match ended.status.success() {
        true => Ok(ended.stdout),
        false => Err(format!("`{shown}` failed ({})", ended.status)),
    }
}
