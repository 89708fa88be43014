//! `muster policy shadow`: where shadow policies would decide differently from the active ones.

use hyper::Method;
use muster_protocol::policy::{PolicyDifference, PolicyShadow};

use crate::client::RequestTarget;
use crate::commands::{CommandResult, ExitStatus};
use crate::options::Options;
use crate::output::{self, Column, ShowArgs};
use crate::units;

/// `muster policy shadow`.
#[derive(Debug, clap::Args)]
#[command(
    before_help = "Example:\n  muster policy apply policies/cookbook --shadow\n  muster policy shadow\n  muster policy shadow --end"
)]
pub struct Args {
    /// End the shadow evaluation and print its result
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    show: ShowArgs,
}

const COLUMNS: [Column<PolicyDifference>; 5] = [
    Column::new("JOB", |one| one.job_id.as_str().into()),
    Column::new("TIMES", |one| one.times.to_string().into()),
    Column::new("SEEN", |one| units::localize_timestamps(&one.seen_at).into()),
    Column::new("ACTIVE", |one| one.in_force.as_str().into()),
    Column::new("SHADOW", |one| one.shadow.as_str().into()),
];

pub fn run(args: &Args, options: &Options) -> CommandResult {
    let (client, target) = (options.client()?, RequestTarget::new("policies").segment("shadow"));
    let shadow: PolicyShadow = match args.end {
        true => client.send_without_body(Method::DELETE, target)?,
        false => client.get(target)?,
    };
    let mut text = shadow_summary(&shadow);
    if !shadow.jobs.is_empty() {
        text.push_str(&output::table(&COLUMNS, &shadow.jobs, options.color));
    }
    output::print_text(&args.show, &text, "shadow", &shadow)?;
    Ok(ExitStatus::SUCCESS)
}

fn shadow_summary(shadow: &PolicyShadow) -> String {
    let files = shadow.policies.files.join(", ");
    let missed = match shadow.missed {
        0 => String::new(),
        missed => format!(" ({missed} rounds were not evaluated)"),
    };
    let evaluations = units::count_text(shadow.looks, "evaluation");
    let identical = shadow.alike;
    let differences = match shadow.total {
        0 => "no decision differs".to_string(),
        total => format!("decisions differ for {}", units::count_text(total, "job")),
    };
    let since = units::localize_timestamps(&shadow.since);
    format!("shadow of {files} since {since}: {evaluations}{missed}, {identical} identical; {differences}\n")
}
