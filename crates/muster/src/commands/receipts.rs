//! What preemption has cost a job, and others for it.

use muster_protocol::receipt::{Receipt, ReceiptList};

use super::{Code, Ending};
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
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let id = args.job.resolve(&client)?;
    let receipts: ReceiptList = client.get(jobs::target(id).at("receipts"))?;
    output::say(&args.show, &text(&receipts), &receipts.job_id, &receipts)?;
    Ok(Code::DONE)
}

fn text(receipts: &ReceiptList) -> String {
    let job = &receipts.job_id;
    let mut lines = Vec::new();
    lines.extend(receipts.lost.iter().map(|one| format!("displaced for {}: {}", one.by_job_id, cost(one))));
    lines.extend(
        receipts.caused.iter().map(|one| format!("{} was displaced for it: {}", one.job_id, cost(one))),
    );
    if lines.is_empty() {
        return format!("{job} has neither lost nor cost any work\n");
    }
    lines.join("\n") + "\n"
}

fn cost(receipt: &Receipt) -> String {
    let saved = match &receipt.saved_at {
        Some(at) => format!("saved its work at {}", units::localized(at)),
        None => "never said that its work was saved".to_string(),
    };
    format!(
        "asked at {}, gone at {}, ran {} s, {saved}, lost {:.4} GPU-hours",
        units::localized(&receipt.asked_at),
        units::localized(&receipt.gone_at),
        receipt.ran_seconds,
        receipt.lost_gpu_hours
    )
}
