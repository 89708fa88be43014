//! `muster usage`: GPU-hours, core-hours, memory, energy and cost by tenant, user or job.

use clap::ValueEnum;
use muster_protocol::usage::{Usage, UsageReport};

use super::{CommandResult, ExitStatus};
use crate::client::RequestTarget;
use crate::options::Options;
use crate::output::{self, Column, ListArgs};
use crate::units;

/// `muster usage`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example:\n  muster usage --since 30d --by user -o csv")]
pub struct Args {
    /// Start of the period, before now
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = units::parse_duration_ms)]
    since: i64,
    /// Group by tenant, user or job
    #[arg(long, value_name = "WHAT", default_value = "tenant", hide_possible_values = true)]
    by: UsageGrouping,
    /// Only this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UsageGrouping {
    Tenant,
    User,
    Job,
}

impl UsageGrouping {
    fn as_str(self) -> &'static str {
        match self {
            UsageGrouping::Tenant => "tenant",
            UsageGrouping::User => "user",
            UsageGrouping::Job => "job",
        }
    }

    fn columns(self) -> [Column<Usage>; 8] {
        let title = match self {
            UsageGrouping::Tenant => "TENANT",
            UsageGrouping::User => "USER",
            UsageGrouping::Job => "JOB",
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

pub fn run(args: Args, options: &Options) -> CommandResult {
    let from_ms = units::now_ms().saturating_sub(args.since).max(0);
    let target = RequestTarget::new("usage")
        .query("from", from_ms)
        .query("by", args.by.as_str())
        .query_if_some("tenant_id", args.tenant);
    let report: UsageReport = options.client()?.get(target)?;
    let columns = args.by.columns();
    let rows = (report.rows.clone(), Some(report.total.clone()));
    output::list_with_total(&args.list, options.color, &columns, rows, &report)?;
    if !report.includes_running {
        output::print_stderr("answered by a standby: running attempts are not included");
    }
    Ok(ExitStatus::SUCCESS)
}
