//! `muster policy shadow`: what policies beside those in force would decide otherwise.

use hyper::Method;
use muster_protocol::policy::{PolicyOtherwise, PolicyShadow};

use crate::client::Target;
use crate::commands::{Code, Ending};
use crate::options::Options;
use crate::output::{self, Column, ShowArgs};
use crate::units;

/// `muster policy shadow`.
#[derive(Debug, clap::Args)]
#[command(
    before_help = "Example:\n  muster policy apply policies/cookbook --shadow\n  muster policy shadow\n  muster policy shadow --end"
)]
pub struct Args {
    /// End it, and say what it came to
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    show: ShowArgs,
}

const COLUMNS: [Column<PolicyOtherwise>; 5] = [
    Column::new("JOB", |one| one.job_id.as_str().into()),
    Column::new("TIMES", |one| one.times.to_string().into()),
    Column::new("SEEN", |one| units::localized(&one.seen_at).into()),
    Column::new("IN FORCE", |one| one.in_force.as_str().into()),
    Column::new("SHADOW", |one| one.shadow.as_str().into()),
];

/// Ask, and print.
pub fn run(args: &Args, options: &Options) -> Ending {
    let (client, target) = (options.client()?, Target::new("policies").at("shadow"));
    let shadow: PolicyShadow = match args.end {
        true => client.act(Method::DELETE, target)?,
        false => client.get(target)?,
    };
    let mut text = headline(&shadow);
    if !shadow.jobs.is_empty() {
        text.push_str(&output::table(&COLUMNS, &shadow.jobs, options.color));
    }
    output::say(&args.show, &text, "shadow", &shadow)?;
    Ok(Code::DONE)
}

fn headline(shadow: &PolicyShadow) -> String {
    let files = shadow.policies.files.join(", ");
    let missed = match shadow.missed {
        0 => String::new(),
        missed => format!(", {missed} more went by without"),
    };
    let looks = units::count(shadow.looks, "look");
    let alike = units::count(shadow.alike, "time");
    let otherwise = match shadow.total {
        0 => "nothing would be decided otherwise".to_string(),
        total => format!("{} would be treated otherwise", units::count(total, "job")),
    };
    let since = units::localized(&shadow.since);
    format!("shadow of {files} since {since}: {looks}{missed}; decided alike {alike}, {otherwise}\n")
}
