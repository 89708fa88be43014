//! Other Starlark interpreters, in a Python process: the same functions with the same arguments.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::calls::BenchmarkCall;
use crate::commands::policy::JsonValue;
use crate::error::CliError;

/// Seconds of each measurement.
const ROUND_S: f64 = 0.2;

/// Another Starlark interpreter.
pub struct Peer {
    /// Its name on PyPI.
    pub package: &'static str,
    /// The package that it is compared with; `None` for muster itself.
    pub baseline: Option<&'static str>,
    /// The ratio that muster should reach; for muster's own package the ratio to `baseline`.
    pub goal: Option<&'static str>,
    install_command: &'static str,
}

const PYO3: &str = "starlark-pyo3";

/// The interpreters that are measured. The last is muster's Python package.
pub const ALL: &[Peer] = &[
    Peer { package: "starlark-go", baseline: None, goal: Some("300×"), install_command: "pip install starlark-go" },
    Peer { package: PYO3, baseline: None, goal: Some("50×"), install_command: "pip install starlark-pyo3" },
    Peer { package: "muster", baseline: Some(PYO3), goal: Some("5× starlark-pyo3"), install_command: "make python" },
];

/// The input of `peers.py`.
#[derive(Serialize)]
struct PeerRequest {
    seconds: f64,
    rules: Vec<PeerFunction>,
}

#[derive(Serialize)]
struct PeerFunction {
    function: &'static str,
    source: String,
    calls: Vec<Vec<JsonValue>>,
}

#[derive(Debug, Deserialize)]
struct PeerResult {
    version: String,
    rules: BTreeMap<String, PeerFunctionResult>,
}

#[derive(Debug, Deserialize)]
struct PeerFunctionResult {
    answers: Vec<JsonValue>,
    per_second: f64,
}

/// Results by package, or why Python did not run.
pub struct PeerResults(Result<BTreeMap<String, PeerResult>, String>);

/// Measure the installed interpreters. An answer that differs from muster's is an error.
pub fn measure_peers(python: &Path, calls: &[BenchmarkCall]) -> Result<PeerResults, CliError> {
    let json = |args: Vec<&muster_policy::PolicyValue>| args.into_iter().cloned().map(JsonValue).collect();
    let rule = |call: &BenchmarkCall| PeerFunction {
        function: call.function,
        source: call.source.clone(),
        calls: call.args().into_iter().map(json).collect(),
    };
    let request = PeerRequest { seconds: ROUND_S, rules: calls.iter().map(rule).collect() };
    let output = run_script(python, &muster_json::to_vec(&request));
    let read = |output: Vec<u8>| muster_json::from_slice(&output).map_err(|error| error.to_string());
    let found: Result<BTreeMap<String, PeerResult>, String> = output.and_then(read);
    for (package, theirs) in found.iter().flatten() {
        calls.iter().try_for_each(|call| check_same_answers(package, theirs, call))?;
    }
    Ok(PeerResults(found))
}

fn check_same_answers(package: &str, theirs: &PeerResult, call: &BenchmarkCall) -> Result<(), CliError> {
    let theirs = theirs.rules.get(call.function).map(|measured| &measured.answers[..]).unwrap_or_default();
    let ours: Vec<JsonValue> = call.answers()?.into_iter().map(JsonValue).collect();
    match ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs) {
        None if ours.len() == theirs.len() => Ok(()),
        None => Err(CliError::failed(format!("`{package}` did not answer every call"))),
        Some(index) => Err(CliError::failed(format!(
            "`{package}` answers {} where muster answers {} (call {index} of `{}`)",
            theirs[index].0, ours[index].0, call.function
        ))),
    }
}

impl PeerResults {
    /// Calls per second of a function; `None` if the package is not installed.
    pub fn rate(&self, package: &str, function: &str) -> Option<f64> {
        Some(self.0.as_ref().ok()?.get(package)?.rules.get(function)?.per_second)
    }

    pub fn version(&self, peer: &Peer) -> Option<&str> {
        self.result_of(peer).map(|found| found.version.as_str())
    }

    /// Why a package was not measured, with a hint.
    pub fn missing_reason(&self, peer: &Peer) -> String {
        match &self.0 {
            Err(why) => why.clone(),
            Ok(_) => format!("not installed: {}", peer.install_command),
        }
    }

    fn result_of(&self, peer: &Peer) -> Option<&PeerResult> {
        self.0.as_ref().ok()?.get(peer.package)
    }
}

/// The output of `peers.py`; an error has a hint.
fn run_script(python: &Path, request: &[u8]) -> Result<Vec<u8>, String> {
    let shown = python.display();
    let mut command = Command::new(python);
    command.args(["-c", include_str!("peers.py")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let start = |error| format!("`{shown}` does not start ({error}): name a Python with --python");
    let mut child = command.spawn().map_err(start)?;
    if let Some(mut input) = child.stdin.take() {
        // If Python exits early, its exit status is the error that counts.
        let _ = input.write_all(request);
    }
    let ended = child.wait_with_output().map_err(|error| error.to_string())?;
    match ended.status.success() {
        true => Ok(ended.stdout),
        false => Err(format!("`{shown}` failed ({})", ended.status)),
    }
}
