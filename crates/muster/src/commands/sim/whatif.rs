//! `muster sim whatif`: the history of the server under other quotas, settings, policies or nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_core::Timestamp;
use muster_protocol::whatif::{Setting, WhatIf, WhatIfFigures, WhatIfJob, WhatIfRequest, WhatIfTenant};
use muster_server::whatif::{WhatIfError, WhatIfQuery, WhatIfReplay};
use muster_sim::job_log;
use muster_sim::whatif::WhatIfSimulator;

use crate::commands::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::interpreter::StarlarkInterpreter;
use crate::options::Options;
use crate::output::{self, Cell, Column, ShowArgs, Tint};
use crate::policy_dirs;
use crate::units;

/// `muster sim whatif`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster sim whatif --since 7d --set tenants.vision.max_gpus=32\n  \
                         muster sim whatif --add-nodes 4x8xH100 --remove-nodes node-3\n  \
                         muster sim whatif --set scheduler.objective=fast -o json > fast.json")]
pub struct Args {
    /// Begin of the period: a span before now, or a moment
    #[arg(long, value_name = "WHEN", default_value = "7d")]
    since: String,
    /// End of the period [default: now]
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Changed setting: `tenants.NAME.FIELD=VALUE` or `scheduler.KEY=VALUE`; `none` removes a limit
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    set: Vec<(String, Setting)>,
    /// Additional nodes: nodes × GPUs per node × model
    #[arg(long, value_name = "SPEC", value_delimiter = ',')]
    add_nodes: Vec<String>,
    /// Nodes that take no work from the begin of the period on
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    remove_nodes: Vec<String>,
    /// Folder of policies that replace all policies of the period
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_policies")]
    policies: Option<PathBuf>,
    /// Replay without policies
    #[arg(long)]
    no_policies: bool,
    /// Number of jobs to list, those that gain or lose most
    #[arg(long, value_name = "N", default_value_t = JOBS_SHOWN_DEFAULT)]
    jobs: u32,
    /// Read the journal of this `muster.db` or `postgres://…` instead of asking a server
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
}

fn parse_setting(text: &str) -> Result<(String, Setting), String> {
    let (key, value) = text.split_once('=').ok_or("write `KEY=VALUE`")?;
    Ok((key.trim().to_string(), value.into()))
}

/// Default of `--jobs`.
pub const JOBS_SHOWN_DEFAULT: u32 = 10;

/// Prints the figures of the period, and the tenants and jobs that gain and lose.
pub fn run(args: &Args, options: &Options) -> CommandResult {
    let request = WhatIfRequest {
        since: Some(args.since.clone()),
        until: args.until.clone(),
        set: args.set.iter().cloned().collect(),
        add_nodes: args.add_nodes.clone(),
        remove_nodes: args.remove_nodes.clone(),
        policies: changed_policies(args)?,
        jobs: Some(args.jobs),
    };
    match &args.journal {
        Some(path) => print_answer(&answer_from_journal(path, &request)?, &args.show, options),
        None => query_server(&request, &args.show, options),
    }
}

/// Lets a server replay its history, and prints the result.
pub fn query_server(request: &WhatIfRequest, show: &ShowArgs, options: &Options) -> CommandResult {
    if options.terminal {
        output::print_stderr("the server replays its history; a week of a busy cluster takes about a minute");
    }
    print_answer(&options.client()?.post_long_running("whatif", request)?, show, options)
}

fn print_answer(answer: &WhatIf, show: &ShowArgs, options: &Options) -> CommandResult {
    output::print_text(show, &answer_text(answer, options.color), "whatif", answer)?;
    Ok(ExitStatus::SUCCESS)
}

fn changed_policies(args: &Args) -> Result<Option<BTreeMap<String, String>>, CliError> {
    match &args.policies {
        Some(folder) => policy_dirs::read_policies(folder).map(Some),
        None => Ok(args.no_policies.then(BTreeMap::new)),
    }
}

fn answer_from_journal(path: &Path, request: &WhatIfRequest) -> Result<WhatIf, CliError> {
    if !job_log::is_database_url(path) && !path.is_file() {
        return Err(CliError::usage(format!("there is no file `{}`", path.display())));
    }
    let store =
        job_log::open_store(path).map_err(|error| CliError::failed(format!("cannot read the journal: {error}")))?;
    let refused = |error: WhatIfError| {
        let failed = CliError::failed(error.to_string());
        error.hint().into_iter().fold(failed, |failed, hint| failed.hint(hint))
    };
    let query = WhatIfQuery::from_request(request, Timestamp(units::now_ms())).map_err(refused)?;
    let simulator = WhatIfSimulator { interpreter: Some(Arc::new(StarlarkInterpreter::for_simulation())) };
    simulator.answer(&*store.tables, &query).map_err(refused)
}

fn answer_text(answer: &WhatIf, color: bool) -> String {
    let mut parts = vec![answer_summary(answer)];
    parts.push(output::table(&FIGURE_COLUMNS, &figure_rows(answer), color));
    if answer.differs_from.is_some() {
        parts.push(output::table(&TENANT_COLUMNS, &answer.tenants, color));
    }
    if !answer.jobs.is_empty() {
        parts.push(output::table(&JOB_COLUMNS, &answer.jobs, color));
    }
    if !answer.refused.is_empty() {
        let line = |refused: &muster_protocol::whatif::WhatIfRefusal| {
            format!("{} would have been refused: {}\n", refused.job_id, refused.why)
        };
        parts.push(answer.refused.iter().map(line).collect());
    }
    parts.join("\n")
}

fn answer_summary(answer: &WhatIf) -> String {
    let replayed = match (answer.decisions, answer.decisions_different) {
        (0, _) => "no decisions in this period".to_string(),
        (all, 0) => format!("{} replayed, all identical", units::count_text(all, "decision")),
        (all, other) => format!(
            "{} replayed, {other} differ: they were made by another release of the planner",
            units::count_text(all, "decision")
        ),
    };
    let changes = match answer.changes.is_empty() {
        true => "none".to_string(),
        false => answer.changes.join("\n"),
    };
    let effect = match &answer.differs_from {
        Some(at) => format!(
            "from {} on; {} sooner, {} later",
            to_the_second(at),
            units::count_text(answer.sooner, "job"),
            units::count_text(answer.later, "job")
        ),
        None => "none: every decision would have been the same".to_string(),
    };
    let guessed = (answer.guessed > 0).then(|| {
        let jobs = units::count_text(answer.guessed, "job");
        format!("the runtime of {jobs} is estimated: they never started in that period")
    });
    output::Card::default()
        .field("history", format!("{} to {}\n{replayed}", to_the_second(&answer.since), to_the_second(&answer.until)))
        .field("change", changes)
        .field("effect", effect)
        .field_if_some("note", guessed)
        .text()
}

/// One figure: as recorded, as replayed, and with the change.
struct WhatIfFigureRow {
    name: &'static str,
    values: [String; 3],
}

const FIGURE_COLUMNS: [Column<WhatIfFigureRow>; 4] = [
    Column::new("FIGURE", |row| row.name.into()),
    Column::new("REALLY", |row| row.values[0].clone().into()),
    Column::new("REPLAYED", |row| row.values[1].clone().into()),
    Column::new("CHANGED", |row| row.values[2].clone().into()),
];

fn figure_rows(answer: &WhatIf) -> Vec<WhatIfFigureRow> {
    let all = [&answer.really, &answer.replayed, &answer.changed];
    super::compare::FIGURE_FORMATS
        .iter()
        .map(|(name, shown)| WhatIfFigureRow { name, values: all.map(shown) })
        .collect()
}

const TENANT_COLUMNS: [Column<WhatIfTenant>; 8] = [
    Column::new("TENANT", |row| row.tenant_id.as_str().into()),
    Column::new("JOBS", |row| row.really.jobs.into()),
    Column::new("SOONER", |row| row.sooner.into()),
    Column::new("LATER", |row| row.later.into()),
    Column::new("WAIT REALLY", |row| seconds_text(row.really.wait_mean_s).into()),
    Column::new("REPLAYED", |row| seconds_text(row.replayed.wait_mean_s).into()),
    Column::new("CHANGED", |row| compared_cell(row.replayed.wait_mean_s, row.changed.wait_mean_s)),
    Column::new("GPU-HOURS", |row| gpu_hours_text(&row.really, &row.changed).into()),
];

const JOB_COLUMNS: [Column<WhatIfJob>; 6] = [
    Column::new("JOB", |row| row.job_id.as_str().into()),
    Column::new("NAME", |row| row.name.as_str().into()),
    Column::new("TENANT", |row| row.tenant_id.as_str().into()),
    Column::new("GAINS", |row| gain_cell(row.gained_s)),
    Column::new("STARTED", |row| Cell::or_dash(row.really.started_at.as_deref().map(to_the_second))),
    Column::new("WOULD START", |row| Cell::or_dash(row.changed.started_at.as_deref().map(to_the_second))),
];

/// A moment without fractions of a second: `2026-03-01 09:00:00`.
fn to_the_second(moment: &str) -> String {
    let seconds = moment.split(['.', 'Z']).next().unwrap_or(moment);
    seconds.replace('T', " ")
}

fn seconds_text(seconds: f64) -> String {
    units::duration_text((seconds * 1e3).round() as i64)
}

/// Green if it is less, red if it is more.
fn compared_cell(before: f64, after: f64) -> Cell {
    let tint = match after - before {
        less if less < -1.0 => Tint::Good,
        more if more > 1.0 => Tint::Bad,
        _ => Tint::Plain,
    };
    Cell::tinted(seconds_text(after), tint)
}

fn gain_cell(gained_s: f64) -> Cell {
    match gained_s < 0.0 {
        true => Cell::tinted(format!("-{}", seconds_text(-gained_s)), Tint::Bad),
        false => Cell::tinted(format!("+{}", seconds_text(gained_s)), Tint::Good),
    }
}

fn gpu_hours_text(really: &WhatIfFigures, changed: &WhatIfFigures) -> String {
    format!("{:.1} -> {:.1}", really.gpu_hours, changed.gpu_hours)
}
