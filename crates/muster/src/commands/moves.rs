//! Which running jobs could go on elsewhere so that others fit: a dry run, always.

use muster_protocol::moves::{Move, MoveList};

use super::{Code, Ending};
use crate::client::Target;
use crate::options::Options;
use crate::output::{self, ShowArgs};
use crate::units;

/// `muster moves`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    show: ShowArgs,
}

/// Print what would be moved, for whom, what it gains and what it loses.
pub fn run(args: Args, options: &Options) -> Ending {
    let moves: MoveList = options.client()?.get(Target::new("moves"))?;
    let names: Vec<&str> = moves.moves.iter().map(|one| one.moved_job_id.as_str()).collect();
    output::say(&args.show, &text(&moves), &names.join("\n"), &moves)?;
    Ok(Code::DONE)
}

fn text(moves: &MoveList) -> String {
    if moves.moves.is_empty() {
        return "no move would pay: nobody waits for room that a running job could give by going on elsewhere\n"
            .to_string();
    }
    let word = match moves.enabled {
        true => "is moved by the planner",
        false => "could be moved (`scheduler.defragment: true` would do it)",
    };
    let line = |one: &Move| {
        format!(
            "{} {word} from {} to {}: {} starts, gains {} GPU-hours and costs {}\n",
            one.moved_job_id,
            one.gpus.join(" "),
            one.to.join(" "),
            one.job_id,
            units::amount(one.gained_gpu_hours),
            units::amount(one.lost_gpu_hours)
        )
    };
    moves.moves.iter().map(line).collect()
}
