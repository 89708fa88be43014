//! Let the jobs of a log meet the planner, or a published policy, in simulated time.

mod bar;
mod policies;
mod report;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use muster_agent::Cluster;
use muster_sim::figures::{fates, figures};
use muster_sim::history::History;
use muster_sim::jobs::{self, BadLines, Format, Log, LoggedJob};
use muster_sim::plots;
use muster_sim::rehearsal::{Assumptions, Site};

use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::output::{self, ListArgs};
use crate::units;
use bar::Bar;
use policies::Name;
use report::{ClusterReport, Report};

/// `muster sim replay`.
#[derive(Debug, clap::Args)]
#[command(
    before_help = "Examples:\n  sacct -a -P -S 2026-01-01 -o ALL > jobs.txt; muster sim replay jobs.txt\n  \
                         muster sim replay data/muster.db --nodes 4x8xH100 --policy muster,fifo,easy\n  \
                         muster sim replay jobs.csv --cluster cluster.yaml --plots plots -o json"
)]
pub struct Args {
    /// The log: our CSV, `sacct -P`, `muster.db` or `postgres://…` of a server, or a file of traces; packed with gzip or not
    trace: PathBuf,
    /// What it is, where its first line does not tell
    #[arg(long, value_name = "NAME")]
    format: Option<FormatName>,
    /// Leave out lines that cannot be read, and count them
    #[arg(long)]
    skip_bad: bool,
    /// Only jobs that came at or after this: a moment, or a time after the first job such as `7d`
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only jobs that came before this
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// The cluster, as for `muster dev`; without it one that is large enough for the log
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    cluster: Option<PathBuf>,
    /// The cluster in words: nodes × GPUs of each × model, for example `16x8xV100,4x4xA100`
    #[arg(long, value_name = "WORDS")]
    nodes: Option<String>,
    /// Who decides; several for comparison
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1.., default_value = "muster")]
    policy: Vec<Name>,
    /// Tell the planner how long each job runs, as its time limit
    #[arg(long)]
    told: bool,
    /// Assume that jobs save their work this often; otherwise they begin anew when displaced, unless the log says more
    #[arg(long, value_name = "DURATION", value_parser = units::duration_ms)]
    saves_every: Option<i64>,
    /// Write plots to this folder: utilisation over time, waits, and a Gantt chart for each policy
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// A line for each tenant instead of one for each policy
    #[arg(long)]
    tenants: bool,
    /// Print a digest of every decision of muster, to compare two builds
    #[arg(long)]
    digest: bool,
    #[command(flatten)]
    list: ListArgs,
}

/// A format by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// Our own, documented in docs/replay.md
    Csv,
    /// traces/philly/jobs.csv.gz
    Philly,
    /// traces/philly/chronus_*.csv.gz
    Chronus,
    /// traces/muri
    Muri,
    /// `sacct -P` of Slurm
    Sacct,
    /// The journal of a server
    Journal,
}

impl FormatName {
    fn format(self) -> Format {
        match self {
            FormatName::Csv => Format::Plain,
            FormatName::Philly => Format::Philly,
            FormatName::Chronus => Format::Chronus,
            FormatName::Muri => Format::Muri,
            FormatName::Sacct => Format::Sacct,
            FormatName::Journal => Format::Journal,
        }
    }
}

/// Replay, and print a line for each policy.
pub fn run(args: Args) -> Ending {
    let log = read(&args)?;
    let (site, words) = site(&args, &log.jobs)?;
    let assumptions =
        Assumptions { told: args.told, saves_every_ms: args.saves_every, ..Assumptions::default() };
    let report = Report::new(&log, ClusterReport::of(&site, words), &assumptions);
    report.notes().iter().for_each(|note| output::talk(note));
    let histories = play(&args.policy, &log.jobs, &site, assumptions)?;
    for (name, history) in
        histories.iter().filter(|(_, history)| args.digest && history.digest.decisions() > 0)
    {
        let digest = &history.digest;
        output::talk(&format!("{}: {} decisions, digest {digest}", name.text(), digest.decisions()));
    }
    let figures = histories.iter().map(|(name, history)| figures(name.text(), &log.jobs, history)).collect();
    let report = report.with(figures);
    if let Some(dir) = &args.plots {
        draw(dir, &log.jobs, &histories, &report)?;
    }
    report.print(&args.list, args.tenants)?;
    Ok(Code::DONE)
}

fn read(args: &Args) -> Result<Log, CliError> {
    let bad = if args.skip_bad { BadLines::Skip } else { BadLines::Stop };
    let mut log = jobs::read(&args.trace, args.format.map(FormatName::format), bad)
        .map_err(|error| CliError::failed(error.to_string()).hint(error.hint()))?;
    let first_ms = log.jobs.first().map_or(0, |job| job.submit_ms);
    let when = |text: &Option<String>| text.as_deref().map(|text| moment(text, first_ms)).transpose();
    log.between(when(&args.since)?, when(&args.until)?);
    if log.jobs.is_empty() {
        let (path, left_out) = (args.trace.display(), report::left_out(&log.left_out));
        return Err(CliError::failed(format!("`{path}` has no job to replay; {left_out}"))
            .hint("other moments with `--since` and `--until`, or another log"));
    }
    Ok(log)
}

/// A moment as it is written, or a time after the first job.
fn moment(text: &str, first_ms: i64) -> Result<i64, CliError> {
    let after = units::duration_ms(text).ok().map(|ms| first_ms + ms);
    after.or_else(|| jobs::moment_ms(text)).ok_or_else(|| {
        CliError::usage(format!("`{text}` is neither a moment nor a time"))
            .hint("for example `2026-01-31T08:00:00Z`, or `7d` after the first job")
    })
}

/// The cluster, and its words if it was made for the log.
fn site(args: &Args, jobs: &[LoggedJob]) -> Result<(Site, Option<String>), CliError> {
    if let Some(file) = &args.cluster {
        let cluster =
            Cluster::load(file).map_err(|error| CliError::usage(format!("{}: {error}", file.display())))?;
        return Ok((Site::of_cluster(&cluster), None));
    }
    let made = args.nodes.is_none().then(|| Site::words_for(jobs));
    let words = args.nodes.as_ref().or(made.as_ref()).map(String::as_str).unwrap_or_default();
    let site = Site::of_words(words).map_err(|error| {
        CliError::usage(error.to_string()).hint("for example `--nodes 16x8xV100`, or `--cluster FILE`")
    })?;
    Ok((site, made))
}

fn play(
    policies: &[Name],
    jobs: &[LoggedJob],
    site: &Site,
    assumptions: Assumptions,
) -> Result<Vec<(Name, History)>, CliError> {
    let mut histories = Vec::new();
    for name in policies {
        let mut bar = Bar::new(name.text(), jobs);
        let history = name.play(jobs, site, assumptions, &mut |progress| bar.show(progress))?;
        output::talk(&bar.done(history.rounds));
        histories.push((*name, history));
    }
    Ok(histories)
}

fn draw(
    dir: &Path,
    jobs: &[LoggedJob],
    histories: &[(Name, History)],
    report: &Report,
) -> Result<(), CliError> {
    let cannot =
        |error: std::io::Error| CliError::failed(format!("cannot write to `{}`: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(cannot)?;
    let write = |name: String, svg: String| std::fs::write(dir.join(name), svg).map_err(cannot);
    let over_time: Vec<_> =
        report.policies.iter().map(|row| (row.policy.as_str(), &row.utilisation_over_time[..])).collect();
    write("utilisation.svg".to_string(), plots::utilisation(&over_time))?;
    let waits: Vec<(&str, Vec<f64>)> =
        histories.iter().map(|(name, history)| (name.text(), waits_s(jobs, history))).collect();
    let waits: Vec<(&str, &[f64])> = waits.iter().map(|(name, waits)| (*name, &waits[..])).collect();
    write("waits.svg".to_string(), plots::waits(&waits))?;
    for (name, history) in histories {
        write(format!("gantt-{}.svg", name.text()), plots::gantt(name.text(), jobs, history))?;
    }
    output::talk(&format!("plots are in `{}`", dir.display()));
    Ok(())
}

fn waits_s(jobs: &[LoggedJob], history: &History) -> Vec<f64> {
    fates(jobs, history).into_iter().flatten().map(|fate| fate.wait_ms as f64 / 1e3).collect()
}
