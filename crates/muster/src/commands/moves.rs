//! `muster moves`: moves of running jobs that would let waiting jobs fit. The moves are proposed, not carried out.

use muster_protocol::moves::{Move, MoveList};

use super::{CommandResult, ExitStatus};
use crate::client::RequestTarget;
use crate::options::Options;
use crate::output::{self, ShowArgs};
use crate::units;

/// `muster moves`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    show: ShowArgs,
}

/// Prints each move: the moved job, the job that would start, the gain and the loss.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let moves: MoveList = options.client()?.get(RequestTarget::new("moves"))?;
    let names: Vec<&str> = moves.moves.iter().map(|one| one.moved_job_id.as_str()).collect();
    output::print_text(&args.show, &moves_text(&moves), &names.join("\n"), &moves)?;
    Ok(ExitStatus::SUCCESS)
}

fn moves_text(moves: &MoveList) -> String {
    if moves.moves.is_empty() {
        return "no move would pay: no waiting job would start if a running job moved\n".to_string();
    }
    let status = match moves.enabled {
        true => "is moved by the planner",
        false => "could be moved (set `scheduler.defragment: true`)",
    };
    let line = |one: &Move| {
        format!(
            "{} {status} from {} to {}: {} starts; gains {} GPU-hours, loses {}\n",
            one.moved_job_id,
            one.gpus.join(" "),
            one.to.join(" "),
            one.job_id,
            units::amount_text(one.gained_gpu_hours),
            units::amount_text(one.lost_gpu_hours)
        )
    };
    moves.moves.iter().map(line).collect()
}
