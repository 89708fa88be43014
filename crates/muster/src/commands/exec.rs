//! `muster exec`, `muster attach` and `muster ssh`: programs inside a running job.

use muster_core::JobId;
use muster_protocol::exec::ExecRequest;

use super::CommandResult;
use crate::client::Client;
use crate::error::CliError;
use crate::exec_connection::{self, RawTerminal};
use crate::jobs::{self, JobRef};
use crate::options::Options;

/// The shell of `muster attach`, from the environment of the job.
const SHELL_COMMAND: [&str; 3] = ["/bin/sh", "-c", "exec \"${SHELL:-/bin/sh}\""];

/// `muster exec`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  muster exec job-42 -- nvidia-smi
  muster exec job-42 --rank 3 -it -- bash
  tar cz data | muster exec job-42 -i -- tar xz")]
pub struct Args {
    /// Job id; `-` is your newest job
    job: JobRef,
    #[command(flatten)]
    task: TaskArgs,
    /// Pass standard input to the program
    #[arg(short, long)]
    interactive: bool,
    /// Give the program a terminal; standard input must be one
    #[arg(short, long)]
    tty: bool,
    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND", required = true)]
    command: Vec<String>,
}

/// Which task of the job.
#[derive(Debug, clap::Args)]
pub struct TaskArgs {
    /// Inside the task of this rank [default: the lowest]
    #[arg(long, value_name = "RANK")]
    rank: Option<u32>,
    /// Inside the task on this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// `muster attach`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
The tasks of a job have no standard input, so this opens a shell beside them, as
`srun --pty --overlap` does. `muster logs -f` follows their output.")]
pub struct AttachArgs {
    /// Job id; `-` is your newest job
    job: JobRef,
    #[command(flatten)]
    task: TaskArgs,
}

/// `muster ssh`.
#[derive(Debug, clap::Args)]
pub struct SshArgs {
    /// Job id; `-` is your newest job
    job: JobRef,
    #[command(flatten)]
    task: TaskArgs,
    /// A program and its arguments instead of the login shell, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub fn run(args: Args, options: &Options) -> CommandResult {
    if args.tty && exec_connection::own_terminal().is_none() {
        return Err(CliError::usage("-t: standard input is not a terminal").hint("leave out `-t`"));
    }
    let wanted = Wanted { command: args.command, has_input: args.interactive, wants_terminal: args.tty };
    run_inside(args.job, args.task, wanted, options)
}

pub fn run_attach(args: AttachArgs, options: &Options) -> CommandResult {
    let command = SHELL_COMMAND.map(str::to_string).to_vec();
    run_inside(args.job, args.task, Wanted { command, has_input: true, wants_terminal: true }, options)
}

pub fn run_ssh(args: SshArgs, options: &Options) -> CommandResult {
    let wants_terminal = args.command.is_empty();
    run_inside(args.job, args.task, Wanted { command: args.command, has_input: true, wants_terminal }, options)
}

struct Wanted {
    /// Empty for the login shell.
    command: Vec<String>,
    has_input: bool,
    /// If standard input is one.
    wants_terminal: bool,
}

fn run_inside(job: JobRef, task: TaskArgs, wanted: Wanted, options: &Options) -> CommandResult {
    let client = options.client()?;
    let job = job.resolve(&client)?;
    let terminal = exec_connection::own_terminal().filter(|_| wanted.wants_terminal);
    let has_terminal = terminal.is_some();
    let request = ExecRequest { command: wanted.command, copy: None, rank: task.rank, node: task.node, terminal };
    let connection = open(&client, job, &request)?;
    let input = if wanted.has_input { exec_connection::read_stdin() } else { exec_connection::no_input() };
    let raw = has_terminal.then(RawTerminal::enter).transpose()?;
    let end = client.block_on(connection.converse(input, has_terminal, &mut exec_connection::print_output));
    drop(raw); // Before anything is printed about the end.
    exec_connection::status_of(end?)
}

/// Starts a program inside a job.
pub fn open(client: &Client, job: JobId, request: &ExecRequest) -> Result<exec_connection::ExecConnection, CliError> {
    client.open_exec(jobs::job_target(job).segment("exec"), request).map(exec_connection::ExecConnection::new)
}
