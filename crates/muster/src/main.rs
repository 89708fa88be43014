//! One binary for all roles. Which one it plays follows from the name it is called by.

mod args;
mod client;
mod commands;
mod confirm;
mod error;
mod follow;
mod gpu_cli;
mod interpreter;
mod job_flags;
mod jobs;
mod options;
mod output;
mod places;
mod policy_folder;
mod role;
mod shares;
mod tail;
mod units;
mod when;

use std::io::Write;
use std::process::ExitCode;

use commands::Code;
use error::CliError;
use role::Role;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "shim") {
        // Agents start it under whatever name this binary has.
        return commands::dev::run_shim(words.into_iter().skip(2));
    }
    if words.get(1).is_some_and(|word| word == "policy-worker") {
        return ExitCode::from(u8::try_from(muster_policy::worker_main()).unwrap_or(1));
    }
    let outcome = match Role::of(&words) {
        Role::Muster => commands::run(&words),
        Role::GpuCli => gpu_cli::run(&words),
        Role::Scheduler => commands::serve::run_as_scheduler(&words),
        Role::Agent => role::explain_agent(),
        Role::Star => Ok(Code(muster_policy::star::run(&words))),
    };
    match outcome {
        Ok(code) => ExitCode::from(code.0),
        Err(error) => complain(&error),
    }
}

fn complain(error: &CliError) -> ExitCode {
    let (code, text) = error.report();
    // If nobody can hear it, the code still says it.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(code)
}
