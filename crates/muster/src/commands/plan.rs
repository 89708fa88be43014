//! `muster plan`: a dry run of a submission, computed by the planner of the server.

use hyper::Method;
use muster_protocol::explain::{DryRun, DryRunOutcome};
use muster_protocol::job::Reason;
use muster_protocol::problem::Problem;

use super::{CommandResult, ExitStatus};
use crate::client::{RequestTarget, exit_for_status};
use crate::job_flags::JobArgs;
use crate::options::Options;
use crate::output::{self, Card, ShowArgs};
use crate::{gpu_share_display, placement_display, units};

/// `muster plan`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example:\n  muster plan --gpus 8 --gpu-model H100 -- python train.py")]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// Prints the dry run. The exit code for a job that would be refused is that of the refusal.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let job = args.job.into_job(options)?;
    let dry_run: DryRun = options.client()?.send(Method::POST, RequestTarget::new("jobs/plan"), &job)?;
    let name = outcome_name(dry_run.outcome);
    output::show(&args.show, &card(&dry_run), name, &dry_run)?;
    Ok(dry_run.refusal.as_ref().map_or(ExitStatus::SUCCESS, refusal_exit_status))
}

fn card(dry_run: &DryRun) -> Card {
    let position = dry_run.queue_position.map(|position| match dry_run.queue_length {
        Some(length) => format!("{position} of {length}"),
        None => position.to_string(),
    });
    Card::default()
        .field("outcome", outcome_name(dry_run.outcome))
        .field("summary", dry_run.summary.clone())
        .field_if_some("node", dry_run.node_name.clone())
        .field("gpus", gpu_share_display::gpu_list_text(&dry_run.gpus, &dry_run.shares))
        .field_if_some("placed", placement_text(dry_run))
        .field("preempts", dry_run.victims.join(" "))
        .field_if_some("position", position)
        .field("blocked by", reasons_text(&dry_run.reasons))
        .field_if_some(
            "expected",
            dry_run
                .expected_start
                .as_ref()
                .map(|range| units::time_range_text(range.from_ms, range.to_ms, units::now_ms()))
                .or_else(|| Some(format!("no estimate yet: {}", dry_run.no_estimate.as_ref()?))),
        )
        .field("sooner with", remedies_text(dry_run))
        .field_if_some("try", dry_run.refusal.as_ref().and_then(|refusal| refusal.hint.clone()))
}

fn placement_text(dry_run: &DryRun) -> Option<String> {
    let (node, score) = (dry_run.node_name.as_ref()?, dry_run.score.as_ref()?);
    placement_display::placement_summary(std::slice::from_ref(node), score)
}

/// Changes to the job that would start it now.
fn remedies_text(dry_run: &DryRun) -> String {
    let remedies: Vec<&str> = dry_run.sooner_with.iter().map(|remedy| remedy.words.as_str()).collect();
    remedies.join(", or with ")
}

fn outcome_name(outcome: DryRunOutcome) -> &'static str {
    match outcome {
        DryRunOutcome::Starts => "starts",
        DryRunOutcome::Preempts => "preempts",
        DryRunOutcome::Waits => "waits",
        DryRunOutcome::Refused => "refused",
    }
}

/// One line per reason.
fn reasons_text(reasons: &[Reason]) -> String {
    let lines: Vec<String> = reasons
        .iter()
        .map(|reason| format!("{}: {}", reason.reason, units::localize_timestamps(&reason.sentence)))
        .collect();
    lines.join("\n")
}

/// The exit code that a submission of the job would have.
fn refusal_exit_status(refusal: &Problem) -> ExitStatus {
    ExitStatus(exit_for_status(refusal.status, &refusal.code) as u8)
}
