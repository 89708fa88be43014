//! Step 1, `muster submit`: submit a job and print its id.

use muster_protocol::submit::Submitted;

use super::{CommandResult, ExitStatus};
use crate::client::{Client, RequestTarget, new_idempotency_key};
use crate::error::{CliError, EXIT_CODES};
use crate::job_flags::JobArgs;
use crate::options::Options;
use crate::output::{self, Format, ShowArgs};

/// `muster submit`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, before_help = "\
Examples:
  muster submit --gpus 2 --time 2h -- python train.py
  muster submit --gpus 1 --array 0-99%8 --script sweep.sh
  muster submit --after job-41 --file job.yaml")]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Idempotency key: a repeated submission with the same key creates no second job [default: random]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    let submitted = submit_job(&client, args.job, args.idempotency_key, options)?;
    match args.show.output {
        Format::Json | Format::Yaml => output::print_text(&args.show, "", "", &submitted)?,
        _ => {
            output::print_stderr(&submitted.message);
            output::print_stdout(&format!("{}\n", submitted.job_id))?;
        }
    }
    Ok(ExitStatus::SUCCESS)
}

/// Submits the job exactly once, even if the connection breaks and the request is retried.
pub fn submit_job(
    client: &Client,
    job: JobArgs,
    key: Option<String>,
    options: &Options,
) -> Result<Submitted, CliError> {
    let job = job.into_job(options)?;
    client.post_idempotent(RequestTarget::new("jobs"), &job, key.unwrap_or_else(new_idempotency_key))
}
