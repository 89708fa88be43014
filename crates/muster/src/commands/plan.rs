//! What would become of a job, without submitting it.

use hyper::Method;
use muster_protocol::job::Reason;
use muster_protocol::outlook::{Outlook, Prospect};
use muster_protocol::problem::Problem;

use super::{Code, Ending};
use crate::client::{Target, exit_of};
use crate::job_flags::JobArgs;
use crate::options::Options;
use crate::output::{self, Card, ShowArgs};
use crate::{places, shares, units};

/// `muster plan`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example:\n  muster plan --gpus 8 --gpu-model H100 -- python train.py")]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// Ask, and print the answer. A job that would be refused gives the exit code of the refusal.
pub fn run(args: Args, options: &Options) -> Ending {
    let job = args.job.into_job(options)?;
    let outlook: Outlook = options.client()?.send(Method::POST, Target::new("jobs/plan"), &job)?;
    let name = prospect_word(outlook.outcome);
    output::show(&args.show, &card(&outlook), name, &outlook)?;
    Ok(outlook.refusal.as_ref().map_or(Code::DONE, code_of))
}

fn card(outlook: &Outlook) -> Card {
    let place = outlook.queue_position.map(|place| match outlook.queue_length {
        Some(length) => format!("{place} of {length}"),
        None => place.to_string(),
    });
    Card::default()
        .field("outcome", prospect_word(outlook.outcome))
        .field("summary", outlook.summary.clone())
        .maybe("node", outlook.node_name.clone())
        .field("gpus", shares::placed(&outlook.gpus, &outlook.shares))
        .maybe("placed", placed(outlook))
        .field("displaces", outlook.victims.join(" "))
        .maybe("position", place)
        .field("blocked by", reasons(&outlook.reasons))
        .maybe(
            "expected",
            outlook
                .expected_start
                .as_ref()
                .map(|range| units::range(range.from_ms, range.to_ms, units::now_ms()))
                .or_else(|| Some(format!("no estimate yet: {}", outlook.no_estimate.as_ref()?))),
        )
        .field("sooner with", sooner(outlook))
        .maybe("try", outlook.refusal.as_ref().and_then(|refusal| refusal.hint.clone()))
}

/// Why there.
fn placed(outlook: &Outlook) -> Option<String> {
    let (node, score) = (outlook.node_name.as_ref()?, outlook.score.as_ref()?);
    places::placed(std::slice::from_ref(node), score)
}

/// What would start it now.
fn sooner(outlook: &Outlook) -> String {
    let words: Vec<&str> = outlook.sooner_with.iter().map(|change| change.words.as_str()).collect();
    words.join(", or with ")
}

fn prospect_word(outcome: Prospect) -> &'static str {
    match outcome {
        Prospect::Starts => "starts",
        Prospect::Preempts => "preempts",
        Prospect::Waits => "waits",
        Prospect::Refused => "refused",
    }
}

/// One line for each.
fn reasons(reasons: &[Reason]) -> String {
    let lines: Vec<String> = reasons
        .iter()
        .map(|reason| format!("{}: {}", reason.reason, units::localized(&reason.sentence)))
        .collect();
    lines.join("\n")
}

/// The same as submitting it would give. The answer itself has been printed.
fn code_of(refusal: &Problem) -> Code {
    Code(exit_of(refusal.status, &refusal.code) as u8)
}
