//! Runs a release build of muster on the recorded traces.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

/// A release build and the folder of traces.
pub struct Bench {
    muster: PathBuf,
    /// The folder of traces.
    pub traces: PathBuf,
}

impl Bench {
    /// Builds muster. Without traces it prints a message and returns `None`.
    pub fn build() -> Result<Option<Bench>> {
        let traces = std::env::var_os("MUSTER_TRACES").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let traces = traces.unwrap_or_else(|| crate::root().join("../shared/traces"));
        if !traces.is_dir() {
            eprintln!("no traces at `{}`: set MUSTER_TRACES to their folder; nothing is measured", traces.display());
            return Ok(None);
        }
        crate::run(Command::new("cargo").args(["build", "--release", "--locked", "--package", "muster"]))?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| crate::root().join("target"));
        Ok(Some(Bench { muster: target.join("release/muster"), traces }))
    }

    /// The parsed JSON output of a command.
    pub fn json<T: DeserializeOwned>(&self, arguments: &[&str]) -> Result<T> {
        let mut command = Command::new(&self.muster);
        command.args(arguments).args(["-o", "json"]).env("MUSTER_TRACES", &self.traces).stderr(Stdio::inherit());
        let output = command.output().with_context(|| format!("starting {command:?}"))?;
        if !output.status.success() {
            bail!("{command:?} failed: {}", output.status);
        }
        muster_json::from_slice(&output.stdout).with_context(|| format!("parsing the output of {command:?}"))
    }

    /// The fields of a CSV file in the traces, without its header line.
    pub fn csv(&self, path: &str) -> Result<Vec<Vec<String>>> {
        let path = self.traces.join(Path::new(path));
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(text.lines().skip(1).map(|line| line.split(',').map(str::to_string).collect()).collect())
    }
}
