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
    /// How many times as often the product is to call a function.
    pub goal: Option<&'static str>,
    how: &'static str,
}

/// All that are asked. The last is ours, for Python.
pub const ALL: &[Peer] = &[
    Peer { package: "starlark-go", goal: Some("300×"), how: "pip install starlark-go" },
    Peer { package: "starlark-pyo3", goal: Some("50×"), how: "pip install starlark-pyo3" },
    Peer { package: "muster", goal: None, how: "make python" },
];

/// What they are asked.
#[derive(Serialize)]
struct Wish {
    rounds: usize,
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

/// Measure those who are there.
pub fn measured(python: &Path, calls: &[Call], rounds: usize) -> Outcome {
    let json = |args: Vec<&muster_policy::Plain>| args.into_iter().cloned().map(Json).collect();
    let rule = |call: &Call| Rule {
        function: call.function,
        source: call.source.clone(),
        calls: call.args().into_iter().map(json).collect(),
    };
    let wish = Wish { rounds, seconds: SECONDS, rules: calls.iter().map(rule).collect() };
    let said = ask(python, &muster_json::to_vec(&wish));
    let read = |said: Vec<u8>| muster_json::from_slice(&said).map_err(|error| error.to_string());
    Outcome(said.and_then(read))
}

impl Outcome {
    /// How often one calls a function in a second; nothing where it is not there. Whoever answers something else than we
    /// do is not worth measuring.
    pub fn rate(&self, peer: &Peer, call: &Call) -> Result<Option<f64>, CliError> {
        let Some(theirs) = self.found(peer).and_then(|found| found.rules.get(call.function)) else {
            return Ok(None);
        };
        let ours: Vec<Json> = call.answers()?.into_iter().map(Json).collect();
        match ours.iter().zip(&theirs.answers).position(|(ours, theirs)| ours != theirs) {
            None if ours.len() == theirs.answers.len() => Ok(Some(theirs.per_second)),
            None => Err(CliError::failed(format!("`{}` left calls out", peer.package))),
            Some(place) => Err(CliError::failed(format!(
                "`{}` answers {} where we answer {} (call {place} of `{}`)",
                peer.package, theirs.answers[place].0, ours[place].0, call.function
            ))),
        }
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
