//! Run a command on GPUs as if it were here: follow its state and output, return its exit code.

use std::time::Duration;

use muster_core::JobId;
use muster_protocol::job::Job;

use super::logs::all_ranks;
use super::submit::submit;
use super::{Code, Ending};
use crate::client::Client;
use crate::error::{CliError, EXIT_CODES, Exit};
use crate::follow::{Came, INTERRUPTED, Narrator, Patience};
use crate::job_flags::JobArgs;
use crate::jobs;
use crate::options::Options;
use crate::output;
use crate::tail::{Tail, Wanted};

/// Between the end of a stream and the next look at the job.
const BREATH: Duration = Duration::from_millis(50);

/// `muster run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, before_help = "\
Examples:
  muster run --gpus 1 -- python train.py
  muster run --gpus 4 --time 30m --script job.sh
Ctrl-C stops looking, not the job.")]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Do not say where the job stands
    #[arg(short, long)]
    quiet: bool,
}

/// Submit, follow, and return the job's own exit code.
pub fn run(args: Args, options: &Options) -> Ending {
    if args.job.array.is_some() {
        return Err(
            CliError::usage("`run` follows one job").hint("use `muster submit --array …` and `muster wait`")
        );
    }
    let client = options.client()?;
    let mut patience = Patience::new(&client, None)?;
    let submitted = submit(&client, args.job, None, options)?;
    let id = jobs::id_of(&submitted.job_id)?;
    if !args.quiet {
        output::talk(&submitted.message);
    }
    match follow(&client, id, args.quiet, &mut patience)? {
        Came::This(job) => Ok(jobs::code_of(&job)),
        Came::Interrupt | Came::Deadline => Ok(detach(id)),
    }
}

/// Attempt by attempt, until the job has ended. A stream may also end because the server restarts: then the job
/// is still active, and its output goes on where it stopped.
fn follow(
    client: &Client,
    id: JobId,
    quiet: bool,
    patience: &mut Patience,
) -> Result<Came<Box<Job>>, CliError> {
    let mut narrator = Narrator::default();
    let mut tail = Tail::default();
    loop {
        let look = |job: &Job| {
            if !quiet {
                narrator.look(job)
            }
        };
        let job =
            match patience.job(id, look, |job| jobs::has_ended(job) || is_active(job) || is_stuck(job))? {
                Came::This(job) => job,
                other => return Ok(other),
            };
        if is_stuck(&job) {
            return Err(stuck(&job));
        }
        let wanted = Wanted { job: id, attempt: job.summary.attempts, ranks: all_ranks(&job) };
        match tail.follow(client, &wanted, patience) {
            Ok(Came::This(())) if jobs::has_ended(&job) => return Ok(Came::This(job)),
            Ok(Came::This(())) => {}
            Ok(_) => return Ok(Came::Interrupt),
            Err(error) if error.may_pass => {}
            Err(error) => return Err(error),
        }
        patience.pause(BREATH);
    }
}

fn is_active(job: &Job) -> bool {
    matches!(job.summary.phase.as_str(), "Starting" | "Running" | "Stopping" | "LostNode")
}

/// Held by the system, because it cannot be started: nothing will happen by itself.
fn is_stuck(job: &Job) -> bool {
    job.summary.phase == "Held" && job.summary.attempts > 0
}

fn stuck(job: &Job) -> CliError {
    let id = &job.summary.id;
    CliError::new(Exit::Conflict, format!("{id} is held: {}", job.summary.message))
        .hint(format!("`muster release {id}` lets it try again, `muster cancel {id}` ends it"))
}

fn detach(id: JobId) -> Code {
    output::talk(&format!("\n{id} goes on without you"));
    output::talk(&format!("  look again:  muster logs -f {id}"));
    output::talk(&format!("  its code:    muster wait {id}"));
    output::talk(&format!("  end it:      muster cancel {id}"));
    Code(INTERRUPTED)
}
