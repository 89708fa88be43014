//! The commands of README and GETTING_STARTED succeed and print what these documents show.

use std::path::{Path, PathBuf};

use super::console::Console;
use super::{expect, markdown};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs every command of a document against a fresh `muster dev`. A command must succeed, or return the exit code of
/// `? N`; its output is compared if the document shows one. A document that does not exist is skipped.
fn run_document(path: &str) {
    let Ok(text) = std::fs::read_to_string(root().join(path)) else { return };
    let mut console = Console::open(&path.replace(['/', '.'], "-"));
    console.serve(&["muster", "dev"]);
    for step in markdown::steps(&text) {
        let (output, code) = console.run_command(&step.command);
        let line = step.line + 1;
        assert_eq!(code, step.code, "{path}:{line}: $ {}\n{output}", step.command);
        if let Some(expected) = &step.output {
            assert!(
                expect::matches(expected, &output),
                "{path}:{line}: $ {}\n--- expected\n{expected}--- seen\n{output}",
                step.command
            );
        }
    }
}

#[test]
fn getting_started() {
    run_document("docs/GETTING_STARTED.md");
}

#[test]
fn readme() {
    run_document("README.md");
}

/// Runs the demo script.
pub fn run_demo() {
    let mut demo = std::process::Command::new(root().join("scripts/demo.sh"));
    let output = demo.env("MUSTER_BIN", env!("CARGO_BIN_EXE_muster")).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{shown}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    for word in ["QuotaTenant", "urgent", "tenant.create", "Done. `make run`"] {
        assert!(shown.contains(word), "the demo does not print `{word}`:\n{shown}");
    }
}
