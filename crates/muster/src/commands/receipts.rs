//! What preemption has cost a job, and others for it.

use muster_protocol::receipt::{Receipt, ReceiptList};

use super::{ExitStatus, CommandResult};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output::{self, ShowArgs};
use crate::units;

/// `muster receipts`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which job; `-` is your newest
    job: JobRef,
    #[command(flatten)]
    show: ShowArgs,
}

/// Print what was lost, item by item.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let receipts: ReceiptList = client.get(jobs::job_target(id).segment("receipts"))?;
    output::print_text(&args.show, &receipts_text(&receipts), &receipts.job_id, &receipts)?;
    Ok(ExitStatus::SUCCESS)
}

fn receipts_text(receipts: &ReceiptList) -> String {
    let job = &receipts.job_id;
    let mut lines = Vec::new();
    lines.extend(receipts.lost.iter().map(|one| format!("displaced for {}: {}", one.by_job_id, receipt_text(one))));
    lines.extend(
        receipts.caused.iter().map(|one| format!("{} was displaced for it: {}", one.job_id, receipt_text(one))),
    );
    if lines.is_empty() {
        return format!("{job} has neither lost nor cost any work\n");
    }
    lines.join("\n") + "\n"
}

fn receipt_text(receipt: &Receipt) -> String {
    let saved = match &receipt.saved_at {
        Some(at) => format!("saved its work at {}", units::localize_timestamps(at)),
        None => "never said that its work was saved".to_string(),
    };
    format!(
        "asked at {}, gone at {}, ran {} s, {saved}, lost {:.4} GPU-hours",
        units::localize_timestamps(&receipt.asked_at),
        units::localize_timestamps(&receipt.gone_at),
        receipt.ran_seconds,
        receipt.lost_gpu_hours
    )
}
