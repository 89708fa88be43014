//! `muster completion`: completion scripts for shells.

use clap_complete::Shell;

use super::{CommandResult, ExitStatus};
use crate::output;

/// `muster completion`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example:\n  muster completion bash > ~/.local/share/bash-completion/completions/muster")]
pub struct Args {
    /// The shell to complete in
    #[arg(value_parser = clap::builder::EnumValueParser::<Shell>::new())]
    shell: Shell,
}

/// Print the script for `command_line`, the whole command line of `muster`.
pub fn run(args: Args, mut command_line: clap::Command) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command_line, "muster", &mut script);
    output::print_stdout(&String::from_utf8_lossy(&script))?;
    Ok(ExitStatus::SUCCESS)
}
