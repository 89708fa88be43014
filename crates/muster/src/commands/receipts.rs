//! `muster receipts`: the preemption receipts of a job.

use muster_protocol::receipt::{Receipt, ReceiptList};

use super::{CommandResult, ExitStatus};
use crate::jobs::{self, JobRef};
use crate::options::Options;
use crate::output::{self, ShowArgs};
use crate::units;

/// `muster receipts`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Job id; `-` is your newest job
    job: JobRef,
    #[command(flatten)]
    show: ShowArgs,
}

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
    lines.extend(receipts.lost.iter().map(|one| format!("preempted by {}: {}", one.by_job_id, receipt_text(one))));
    lines.extend(
        receipts.caused.iter().map(|one| format!("{} was preempted by this job: {}", one.job_id, receipt_text(one))),
    );
    if lines.is_empty() {
        return format!("{job} was neither victim nor preemptor\n");
    }
    lines.join("\n") + "\n"
}

fn receipt_text(receipt: &Receipt) -> String {
    let checkpoint = match &receipt.saved_at {
        Some(at) => format!("last checkpoint {}", units::localize_timestamps(at)),
        None => "no checkpoint reported".to_string(),
    };
    format!(
        "stop requested {}, stopped {}, ran {} s, {checkpoint}, lost {:.4} GPU-hours",
        units::localize_timestamps(&receipt.asked_at),
        units::localize_timestamps(&receipt.gone_at),
        receipt.ran_seconds,
        receipt.lost_gpu_hours
    )
}
