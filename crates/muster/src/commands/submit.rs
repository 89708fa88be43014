//! Step 1, ask: queue a job and print its id.

use muster_protocol::submit::Submitted;

use super::{Code, Ending};
use crate::client::{Client, Target, new_key};
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
    /// The same key never makes a second job, however often it is sent [default: a random one]
    #[arg(long, value_name = "WORD")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// Queue a job and print its id.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let submitted = submit(&client, args.job, args.idempotency_key, options)?;
    match args.show.output {
        Format::Json | Format::Yaml => output::say(&args.show, "", "", &submitted)?,
        _ => {
            output::talk(&submitted.message);
            output::print(&format!("{}\n", submitted.job_id))?;
        }
    }
    Ok(Code::DONE)
}

/// Send it, once, however often the connection breaks.
pub fn submit(
    client: &Client,
    job: JobArgs,
    key: Option<String>,
    options: &Options,
) -> Result<Submitted, CliError> {
    let job = job.into_job(options)?;
    client.send_once(Target::new("jobs"), &job, key.unwrap_or_else(new_key))
}
