//! `muster node power` and `muster node fence`: the power program of the site.

use clap::{Args, ValueEnum};
use hyper::Method;
use muster_protocol::node::{FenceSpec, PowerDone, PowerSpec};
use muster_protocol::submit::Acknowledgement;

use super::node_target;
use crate::client::Client;
use crate::commands::{CommandResult, ExitStatus};
use crate::confirm::{self, Consent};
use crate::error::CliError;
use crate::output;

/// What the power program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Print the power state
    Status,
    On,
    Off,
    /// Reset at once
    Reset,
    /// Reboot in order, if the program can
    Reboot,
}

/// `muster node power`.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  muster node power gpu01 status\n  muster node power gpu01 reset --force",
    after_help = "Runs the program `nodes.power_program` on the server. `muster node reboot --when-idle` waits for the jobs of the node."
)]
pub struct PowerArgs {
    /// Node name
    node: String,
    /// What to do
    #[arg(value_enum)]
    action: Action,
    /// Also if jobs run on the node: they end
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// `muster node fence`.
#[derive(Debug, Args)]
#[command(
    after_help = "The power program of the site (`nodes.power_program`) fences the node first, if there is one; only its exit code 0 \
                  counts. Without a program, or with --skip-program, this is your declaration: jobs of the node start elsewhere, and if \
                  the node still runs, two copies of them run."
)]
pub struct FenceArgs {
    /// Node names
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Reason, shown by `muster node show`
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    /// Do not run the power program: you know that the node is off
    #[arg(long)]
    skip_program: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub fn control(client: &Client, args: &PowerArgs) -> CommandResult {
    let (action, question) = match args.action {
        Action::Status => ("status", None),
        Action::On => ("on", None),
        Action::Off => ("off", Some("switch off")),
        Action::Reset => ("reset", Some("reset")),
        Action::Reboot => ("reboot", Some("reboot")),
    };
    if let Some(question) = question {
        confirm::require_confirmation(Consent::from(args.yes), &format!("{question} {}", args.node))?;
    }
    let spec = PowerSpec { action: action.to_string(), force: args.force };
    let done = client.send::<PowerDone>(Method::POST, node_target(&args.node).segment("power"), &spec);
    let done = done.map_err(|error| if args.force { error } else { with_force_hint(error) })?;
    output::print_stderr(&done.message);
    if !done.output.is_empty() {
        output::print_stdout(&format!("{}\n", done.output))?;
    }
    Ok(ExitStatus::SUCCESS)
}

fn with_force_hint(error: CliError) -> CliError {
    match error.message.contains("still runs") {
        true => error.hint("drain the node first, or end its jobs with --force"),
        false => error,
    }
}

pub fn fence(client: &Client, args: &FenceArgs) -> CommandResult {
    let names = args.nodes.join(", ");
    let action = match args.skip_program {
        true => format!("fence {names} without the power program (if jobs still run there, two copies may run)"),
        false => format!("fence {names} (its jobs end there and may start elsewhere)"),
    };
    confirm::require_confirmation(Consent::from(args.yes), &action)?;
    let spec = FenceSpec { why: args.why.clone(), skip_program: args.skip_program };
    for node in &args.nodes {
        let done: Acknowledgement = client.send(Method::POST, node_target(node).segment("fence"), &spec)?;
        output::print_stderr(&done.message);
    }
    Ok(ExitStatus::SUCCESS)
}
