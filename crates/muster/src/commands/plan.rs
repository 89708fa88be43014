//! What would become of a job, without submitting it.

use hyper::Method;
use muster_protocol::job::Reason;
use muster_protocol::explain::{DryRun, DryRunOutcome};
use muster_protocol::problem::Problem;

use super::{ExitStatus, CommandResult};
use crate::client::{RequestTarget, exit_for_status};
use crate::job_flags::JobArgs;
use crate::options::Options;
use crate::output::{self, Card, ShowArgs};
use crate::{placement_display, gpu_share_display, units};

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
pub fn run(args: Args, options: &Options) -> CommandResult {
    let job = args.job.into_job(options)?;
    let outlook: DryRun = options.client()?.send(Method::POST, RequestTarget::new("jobs/plan"), &job)?;
    let name = outcome_name(outlook.outcome);
    output::show(&args.show, &card(&outlook), name, &outlook)?;
    Ok(outlook.refusal.as_ref().map_or(ExitStatus::SUCCESS, refusal_exit_status))
}

fn card(outlook: &DryRun) -> Card {
    let place = outlook.queue_position.map(|place| match outlook.queue_length {
        Some(length) => format!("{place} of {length}"),
        None => place.to_string(),
    });
    Card::default()
        .field("outcome", outcome_name(outlook.outcome))
        .field("summary", outlook.summary.clone())
        .field_if_some("node", outlook.node_name.clone())
        .field("gpus", gpu_share_display::gpu_list_text(&outlook.gpus, &outlook.shares))
        .field_if_some("placed", placement_text(outlook))
        .field("displaces", outlook.victims.join(" "))
        .field_if_some("position", place)
        .field("blocked by", reasons_text(&outlook.reasons))
        .field_if_some(
            "expected",
            outlook
                .expected_start
                .as_ref()
                .map(|range| units::time_range_text(range.from_ms, range.to_ms, units::now_ms()))
                .or_else(|| Some(format!("no estimate yet: {}", outlook.no_estimate.as_ref()?))),
        )
        .field("sooner with", remedies_text(outlook))
        .field_if_some("try", outlook.refusal.as_ref().and_then(|refusal| refusal.hint.clone()))
}

/// Why there.
fn placement_text(outlook: &DryRun) -> Option<String> {
    let (node, score) = (outlook.node_name.as_ref()?, outlook.score.as_ref()?);
    placement_display::placement_summary(std::slice::from_ref(node), score)
}

/// What would start it now.
fn remedies_text(outlook: &DryRun) -> String {
    let words: Vec<&str> = outlook.sooner_with.iter().map(|change| change.words.as_str()).collect();
    words.join(", or with ")
}

fn outcome_name(outcome: DryRunOutcome) -> &'static str {
    match outcome {
        DryRunOutcome::Starts => "starts",
        DryRunOutcome::Preempts => "preempts",
        DryRunOutcome::Waits => "waits",
        DryRunOutcome::Refused => "refused",
    }
}

/// One line for each.
fn reasons_text(reasons: &[Reason]) -> String {
    let lines: Vec<String> = reasons
        .iter()
        .map(|reason| format!("{}: {}", reason.reason, units::localize_timestamps(&reason.sentence)))
        .collect();
    lines.join("\n")
}

/// The same as submitting it would give. The answer itself has been printed.
fn refusal_exit_status(refusal: &Problem) -> ExitStatus {
    ExitStatus(exit_for_status(refusal.status, &refusal.code) as u8)
}
