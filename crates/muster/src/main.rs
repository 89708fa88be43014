//! One binary for all roles. Which one it plays follows from the name it is called by.

mod args;
mod client;
mod commands;
mod confirm;
mod error;
mod waiter;
mod gpu_cli;
mod interpreter;
mod job_flags;
mod jobs;
mod options;
mod output;
mod placement_display;
mod policy_dir_watcher;
mod role;
mod gpu_share_display;
mod log_tail;
mod units;
mod moments;

use std::io::Write;
use std::process::ExitCode;

use commands::ExitStatus;
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
    let outcome = match Role::from_program_name(&words) {
        Role::Muster => commands::run(&words),
        Role::GpuCli => gpu_cli::run(&words),
        Role::Scheduler => commands::serve::run_as_scheduler(&words),
        Role::Agent => role::agent_unavailable(),
        Role::Star => Ok(ExitStatus(muster_policy::star::run(&words))),
    };
    match outcome {
        Ok(code) => ExitCode::from(code.0),
        Err(error) => report_error(&error),
    }
}

fn report_error(error: &CliError) -> ExitCode {
    let (code, text) = error.report();
    // If nobody can hear it, the code still says it.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(code)
}
