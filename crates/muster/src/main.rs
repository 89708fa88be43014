//! One binary for all programs of muster; the name it is called by selects the program.

mod error;
mod gpu_share_display;
mod interpreter;
mod placement_display;
mod units;

mod confirm;
mod connection;
mod log_lines;
mod output;
mod policy_dirs;

mod client;
mod moments;
mod policy_dir_watcher;

mod exec_connection;
mod jobs;
mod options;

mod job_flags;
mod waiter;

mod log_tail;

mod commands;

mod args;
mod gpu_cli;
mod role;

use std::io::Write;
use std::process::ExitCode;

use error::{CliError, ExitStatus};
use role::Role;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "shim") {
        // Agents start the shim by the path of this binary, whatever its name is.
        return commands::dev::run_shim(words.into_iter().skip(2));
    }
    if words.get(1).is_some_and(|word| word == "shim-exec") {
        return ExitCode::from(u8::try_from(muster_agent::shim_exec_main()).unwrap_or(1));
    }
    if words.get(1).is_some_and(|word| word == "exec-keeper") {
        return ExitCode::from(u8::try_from(muster_agent::exec_keeper_main()).unwrap_or(1));
    }
    if words.get(1).is_some_and(|word| word == "policy-worker") {
        return ExitCode::from(u8::try_from(muster_policy::worker_main()).unwrap_or(1));
    }
    let outcome = match Role::from_program_name(&words) {
        Role::Muster => args::run(&words),
        Role::GpuCli => gpu_cli::run(&words),
        Role::Scheduler => commands::dev::run_as_scheduler(&words),
        Role::Agent => commands::agent::run_as_agent(&words),
        Role::Star => Ok(ExitStatus(muster_policy::star::run(&words))),
    };
    match outcome {
        Ok(code) => ExitCode::from(code.0),
        Err(error) => report_error(&error),
    }
}

fn report_error(error: &CliError) -> ExitCode {
    let (code, text) = error.report();
    // If standard error is closed, the exit code remains.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(code)
}
