//! Chores: what is generated from the code, what was measured, the module graph, and the longest files and functions.

mod modules;
mod results;
mod search_terms;
mod sizes;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["ci"] => run(Command::new("bash").arg(".ci/run")),
        ["bless"] => bless(),
        ["docs"] => docs(Mode::Write),
        ["docs", "--check"] => docs(Mode::Check),
        ["modules"] => modules::print(&root()),
        ["modules", "--check"] => modules::check(&root()).and_then(|()| search_terms::check(&root())),
        ["results", names @ ..] => results::write(names),
        ["sizes"] => sizes::print(&root().join("crates")),
        _ => Err(anyhow::anyhow!(
            "usage: cargo xtask ci | bless | docs [--check] | modules [--check] | results [NAME…] | sizes"
        )),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether generated files are written or only compared.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Write,
    Check,
}

/// Files that are generated from the code: the API reference, and the module graphs of `ARCHITECTURE.md`.
fn docs(mode: Mode) -> Result<()> {
    let reference = root().join("docs/API_REFERENCE.md");
    let generated = [(reference, muster_server::http::api_reference_markdown()), modules::drawn(&root())?];
    for (path, fresh) in generated {
        match mode {
            Mode::Write => std::fs::write(&path, fresh).with_context(|| format!("writing {}", path.display()))?,
            Mode::Check => {
                let kept = std::fs::read_to_string(&path).unwrap_or_default();
                if kept != fresh {
                    bail!("{} differs from the code; run `make docs` and commit the change", path.display());
                }
            }
        }
    }
    Ok(())
}

/// Rewrite the expected outputs of scenarios and transcripts; read the diff afterwards.
fn bless() -> Result<()> {
    run(Command::new("cargo").args(["test", "--workspace", "--locked"]).env("BLESS", "1"))
}

/// Run a command without the variables that `cargo run` sets for this crate: build scripts of dependencies read them,
/// so cargo would repeat those scripts and rebuild all crates that depend on them.
fn run(command: &mut Command) -> Result<()> {
    let ours = std::env::vars_os().map(|(name, _)| name).filter(|name| is_of_this_crate(&name.to_string_lossy()));
    for name in ours {
        command.env_remove(name);
    }
    let status = command.current_dir(root()).status().with_context(|| format!("starting {command:?}"))?;
    if status.success() { Ok(()) } else { bail!("{command:?} failed: {status}") }
}

fn is_of_this_crate(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"].iter().any(|begin| variable.starts_with(begin))
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
