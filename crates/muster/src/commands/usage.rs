//! Who used how much.

use clap::ValueEnum;
use muster_protocol::usage::{Usage, UsageReport};

use super::{Code, Ending};
use crate::client::Target;
use crate::options::Options;
use crate::output::{self, Column, ListArgs};
use crate::units;

/// `muster usage`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example:\n  muster usage --since 30d --by user -o csv")]
pub struct Args {
    /// How far back
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = units::duration_ms)]
    since: i64,
    /// Add up by tenant, user or job
    #[arg(long, value_name = "WHAT", default_value = "tenant", hide_possible_values = true)]
    by: By,
    /// Only this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// What usage is added up by.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    /// Who pays
    Tenant,
    /// Who asked
    User,
    /// What ran
    Job,
}

impl By {
    fn word(self) -> &'static str {
        match self {
            By::Tenant => "tenant",
            By::User => "user",
            By::Job => "job",
        }
    }

    fn columns(self) -> [Column<Usage>; 8] {
        let title = match self {
            By::Tenant => "TENANT",
            By::User => "USER",
            By::Job => "JOB",
        };
        [
            Column::new(title, |usage| usage.key.as_str().into()),
            Column::new("ATTEMPTS", |usage| usage.attempts.into()),
            Column::new("RUNNING", |usage| usage.running_attempts.into()),
            Column::new("GPU-HOURS", |usage| format!("{:.4}", usage.gpu_hours).into()),
            Column::new("CPU-HOURS", |usage| format!("{:.4}", usage.cpu_hours).into()),
            Column::new("GIB-HOURS", |usage| format!("{:.4}", usage.memory_gib_hours).into()),
            Column::new("KWH", |usage| format!("{:.4}", usage.energy_kwh).into()),
            Column::new("COST", |usage| format!("{:.2}", usage.cost).into()),
        ]
    }
}

/// Print the report.
pub fn run(args: Args, options: &Options) -> Ending {
    let from_ms = units::now_ms().saturating_sub(args.since).max(0);
    let target = Target::new("usage")
        .with("from", from_ms)
        .with("by", args.by.word())
        .with_some("tenant_id", args.tenant);
    let report: UsageReport = options.client()?.get(target)?;
    let columns = args.by.columns();
    let rows = (report.rows.clone(), Some(report.total.clone()));
    output::list_with_total(&args.list, options.color, &columns, rows, &report)?;
    if !report.includes_running {
        output::talk("a standby answers: what runs now is not in it");
    }
    Ok(Code::DONE)
}
