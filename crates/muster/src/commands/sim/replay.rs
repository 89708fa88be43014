//! `muster sim replay`: replay the jobs of a log under the planner or a published policy, in simulated time.

mod policies;
mod progress_bar;
mod report;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use muster_agent::Cluster;
use muster_sim::figures::{figures, job_outcomes};
use muster_sim::job_log::{self, BadLinePolicy, JobLog, LogFormat, LoggedJob};
use muster_sim::plots;
use muster_sim::run_history::RunHistory;
use muster_sim::trace_replay::{ReplayAssumptions, ReplayCluster};

use crate::commands::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::output::{self, ListArgs};
use crate::units;
use policies::SimPolicyName;
use progress_bar::ProgressBar;
use report::{ReplayClusterReport, ReplayReport};

/// `muster sim replay`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  sacct -a -P -S 2026-01-01 -o ALL > jobs.txt; muster sim replay jobs.txt\n  \
                         muster sim replay data/muster.db --nodes 4x8xH100 --policy muster,fifo,easy\n  \
                         muster sim replay jobs.csv --cluster cluster.yaml --plots plots -o json")]
pub struct Args {
    /// The log: CSV, `sacct -P`, `muster.db` or `postgres://…` of a server, or a public trace; may be gzipped
    trace: PathBuf,
    /// Format of the log [default: detected from its first line]
    #[arg(long, value_name = "NAME")]
    format: Option<FormatName>,
    /// Skip and count lines that cannot be parsed
    #[arg(long)]
    skip_bad: bool,
    /// Only jobs submitted at or after this: a moment, or a span after the first job such as `7d`
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only jobs submitted before this
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Cluster file, as for `muster dev` [default: a cluster sized for the log]
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    cluster: Option<PathBuf>,
    /// Cluster as nodes × GPUs per node × model, for example `16x8xV100,4x4xA100`
    #[arg(long, value_name = "SPEC")]
    nodes: Option<String>,
    /// Scheduling policies, separated by commas for comparison
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1.., default_value = "muster")]
    policy: Vec<SimPolicyName>,
    /// Give the planner the real runtime of each job as its time limit
    #[arg(long)]
    told: bool,
    /// Assume a checkpoint at this interval; without it a preempted job restarts from zero, unless the log says otherwise
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_ms)]
    saves_every: Option<i64>,
    /// Write plots to this folder: utilisation over time, waits, and a Gantt chart per policy
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Print a row per tenant instead of one per policy
    #[arg(long)]
    tenants: bool,
    /// Print a digest of every decision of muster, to compare two builds
    #[arg(long)]
    digest: bool,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// CSV as documented in docs/replay.md
    Csv,
    /// Philly trace of Microsoft, traces/philly/jobs.csv.gz
    Philly,
    /// Philly trace in the format of Chronus, traces/philly/chronus_*.csv.gz
    Chronus,
    /// Traces of Muri, traces/muri
    Muri,
    /// `sacct -P` of Slurm
    Sacct,
    /// The journal of a server
    Journal,
}

impl FormatName {
    fn format(self) -> LogFormat {
        match self {
            FormatName::Csv => LogFormat::Plain,
            FormatName::Philly => LogFormat::Philly,
            FormatName::Chronus => LogFormat::Chronus,
            FormatName::Muri => LogFormat::Muri,
            FormatName::Sacct => LogFormat::Sacct,
            FormatName::Journal => LogFormat::Journal,
        }
    }
}

/// Replays the log and prints a row per policy.
pub fn run(args: Args) -> CommandResult {
    let log = read_log(&args)?;
    let (cluster, sized_for_log) = replay_cluster(&args, &log.jobs)?;
    let assumptions = ReplayAssumptions {
        are_durations_known: args.told,
        checkpoint_every_ms: args.saves_every,
        ..ReplayAssumptions::default()
    };
    let report = ReplayReport::new(&log, ReplayClusterReport::of(&cluster, sized_for_log), &assumptions);
    report.notes().iter().for_each(|note| output::print_stderr(note));
    let histories = replay_policies(&args.policy, &log.jobs, &cluster, assumptions)?;
    for (name, history) in histories.iter().filter(|(_, history)| args.digest && history.digest.decisions() > 0) {
        let digest = &history.digest;
        output::print_stderr(&format!("{}: {} decisions, digest {digest}", name.as_str(), digest.decisions()));
    }
    let figures = histories.iter().map(|(name, history)| figures(name.as_str(), &log.jobs, history)).collect();
    let report = report.with_figures(figures);
    if let Some(dir) = &args.plots {
        write_plots(dir, &log.jobs, &histories, &report)?;
    }
    report.print(&args.list, args.tenants)?;
    Ok(ExitStatus::SUCCESS)
}

fn read_log(args: &Args) -> Result<JobLog, CliError> {
    let bad = if args.skip_bad { BadLinePolicy::Skip } else { BadLinePolicy::Stop };
    let mut log = job_log::read(&args.trace, args.format.map(FormatName::format), bad)
        .map_err(|error| CliError::failed(error.to_string()).hint(error.hint()))?;
    let first_ms = log.jobs.first().map_or(0, |job| job.submit_ms);
    let when = |text: &Option<String>| text.as_deref().map(|text| parse_moment(text, first_ms)).transpose();
    log.retain_submitted_between(when(&args.since)?, when(&args.until)?);
    if log.jobs.is_empty() {
        let (path, left_out) = (args.trace.display(), report::left_out_text(&log.left_out));
        return Err(CliError::failed(format!("`{path}` has no job to replay; {left_out}"))
            .hint("change `--since` and `--until`, or use another log"));
    }
    Ok(log)
}

/// A moment, or a span after the first job.
fn parse_moment(text: &str, first_ms: i64) -> Result<i64, CliError> {
    let after = units::parse_duration_ms(text).ok().map(|ms| first_ms + ms);
    after.or_else(|| job_log::parse_timestamp_ms(text)).ok_or_else(|| {
        CliError::usage(format!("`{text}` is neither a moment nor a span"))
            .hint("for example `2026-01-31T08:00:00Z`, or `7d` after the first job")
    })
}

/// The cluster, and its specification if it was sized for the log.
fn replay_cluster(args: &Args, jobs: &[LoggedJob]) -> Result<(ReplayCluster, Option<String>), CliError> {
    if let Some(file) = &args.cluster {
        let cluster = Cluster::load(file).map_err(|error| CliError::usage(format!("{}: {error}", file.display())))?;
        return Ok((ReplayCluster::from_cluster(&cluster), None));
    }
    let sized_for_log = args.nodes.is_none().then(|| ReplayCluster::spec_for_jobs(jobs));
    let spec = args.nodes.as_ref().or(sized_for_log.as_ref()).map(String::as_str).unwrap_or_default();
    let cluster = ReplayCluster::parse(spec).map_err(|error| {
        CliError::usage(error.to_string()).hint("for example `--nodes 16x8xV100`, or `--cluster FILE`")
    })?;
    Ok((cluster, sized_for_log))
}

fn replay_policies(
    policies: &[SimPolicyName],
    jobs: &[LoggedJob],
    cluster: &ReplayCluster,
    assumptions: ReplayAssumptions,
) -> Result<Vec<(SimPolicyName, RunHistory)>, CliError> {
    let mut histories = Vec::new();
    for name in policies {
        let mut bar = ProgressBar::new(name.as_str(), jobs);
        let history = name.replay(jobs, cluster, assumptions, &mut |progress| bar.draw(progress))?;
        output::print_stderr(&bar.finish(history.rounds));
        histories.push((*name, history));
    }
    Ok(histories)
}

fn write_plots(
    dir: &Path,
    jobs: &[LoggedJob],
    histories: &[(SimPolicyName, RunHistory)],
    report: &ReplayReport,
) -> Result<(), CliError> {
    let cannot = |error: std::io::Error| CliError::failed(format!("cannot write to `{}`: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(cannot)?;
    let write = |name: String, svg: String| std::fs::write(dir.join(name), svg).map_err(cannot);
    let over_time: Vec<_> =
        report.policies.iter().map(|row| (row.policy.as_str(), &row.utilisation_over_time[..])).collect();
    write("utilisation.svg".to_string(), plots::utilisation(&over_time))?;
    let waits: Vec<(&str, Vec<f64>)> =
        histories.iter().map(|(name, history)| (name.as_str(), waits_s(jobs, history))).collect();
    let waits: Vec<(&str, &[f64])> = waits.iter().map(|(name, waits)| (*name, &waits[..])).collect();
    write("waits.svg".to_string(), plots::waits(&waits))?;
    for (name, history) in histories {
        write(format!("gantt-{}.svg", name.as_str()), plots::gantt(name.as_str(), jobs, history))?;
    }
    output::print_stderr(&format!("plots are in `{}`", dir.display()));
    Ok(())
}

fn waits_s(jobs: &[LoggedJob], history: &RunHistory) -> Vec<f64> {
    job_outcomes(jobs, history).into_iter().flatten().map(|outcome| outcome.wait_ms as f64 / 1e3).collect()
}
