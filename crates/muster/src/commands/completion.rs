//! Completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Code, Ending};
use crate::args;
use crate::output;

/// `muster completion`.
#[derive(Debug, clap::Args)]
#[command(
    before_help = "Example:\n  muster completion bash > ~/.local/share/bash-completion/completions/muster"
)]
pub struct Args {
    /// For which shell
    #[arg(value_parser = clap::builder::EnumValueParser::<Shell>::new())]
    shell: Shell,
}

/// Print the script.
pub fn run(args: Args) -> Ending {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::Args::command(), "muster", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Code::DONE)
}
