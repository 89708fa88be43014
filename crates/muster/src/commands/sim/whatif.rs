//! `muster sim whatif`: the history of the server under other rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_core::Timestamp;
use muster_protocol::whatif::{Setting, WhatIf, WhatIfAsk, WhatIfFigures, WhatIfJob, WhatIfTenant};
use muster_server::http::Fault;
use muster_server::whatif::{Oracle, Question};
use muster_sim::jobs;
use muster_sim::whatif::Historian;

use crate::commands::policy::folders;
use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::interpreter::Starlark;
use crate::options::Options;
use crate::output::{self, Cell, Column, ShowArgs, Tint};
use crate::units;

/// `muster sim whatif`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster sim whatif --since 7d --set tenants.vision.max_gpus=32\n  \
                         muster sim whatif --add-nodes 4x8xH100 --remove-nodes node-3\n  \
                         muster sim whatif --set scheduler.objective=fast -o json > fast.json")]
pub struct Args {
    /// From when on: a time before now, or a moment
    #[arg(long, value_name = "WHEN", default_value = "7d")]
    since: String,
    /// Until when [default: now]
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Another value: `tenants.NAME.FIELD=VALUE` or `scheduler.KEY=VALUE`; `none` lifts a limit
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, Setting)>,
    /// Nodes that would have been there too: nodes × GPUs of each × model
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    add_nodes: Vec<String>,
    /// Nodes that would have taken no more work
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    remove_nodes: Vec<String>,
    /// Policies that would have been in force, in place of all that were: a folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_policies")]
    policies: Option<PathBuf>,
    /// No policies would have been in force
    #[arg(long)]
    no_policies: bool,
    /// Show so many jobs that gain or lose most
    #[arg(long, value_name = "N", default_value_t = JOBS_SHOWN)]
    jobs: u32,
    /// Read this `muster.db`, or `postgres://…`, instead of asking a server
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
}

fn setting(text: &str) -> Result<(String, Setting), String> {
    let (key, value) = text.split_once('=').ok_or("write `KEY=VALUE`")?;
    Ok((key.trim().to_string(), value.into()))
}

/// Jobs that are shown where nobody says how many.
pub const JOBS_SHOWN: u32 = 10;

/// Ask, and print who would have won and lost.
pub fn run(args: &Args, options: &Options) -> Ending {
    let ask = WhatIfAsk {
        since: Some(args.since.clone()),
        until: args.until.clone(),
        set: args.set.iter().cloned().collect(),
        add_nodes: args.add_nodes.clone(),
        remove_nodes: args.remove_nodes.clone(),
        policies: policies(args)?,
        jobs: Some(args.jobs),
    };
    match &args.journal {
        Some(path) => told(&from_journal(path, &ask)?, &args.show, options),
        None => ask_server(&ask, &args.show, options),
    }
}

/// Let a server replay its history, and print what it says.
pub fn ask_server(ask: &WhatIfAsk, show: &ShowArgs, options: &Options) -> Ending {
    if options.terminal {
        output::talk("the server replays its history; a week of a busy cluster takes about a minute");
    }
    told(&options.client()?.ask_at_length("whatif", ask)?, show, options)
}

fn told(answer: &WhatIf, show: &ShowArgs, options: &Options) -> Ending {
    output::say(show, &text(answer, options.color), "whatif", answer)?;
    Ok(Code::DONE)
}

fn policies(args: &Args) -> Result<Option<BTreeMap<String, String>>, CliError> {
    match &args.policies {
        Some(folder) => folders::policies_of(folder).map(Some),
        None => Ok(args.no_policies.then(BTreeMap::new)),
    }
}

fn from_journal(path: &Path, ask: &WhatIfAsk) -> Result<WhatIf, CliError> {
    if !jobs::is_address(path) && !path.is_file() {
        return Err(CliError::usage(format!("there is no file `{}`", path.display())));
    }
    let store = jobs::store(path)
        .map_err(|error| CliError::failed(format!("the journal cannot be read: {error}")))?;
    let declined = |fault: Fault| {
        let problem = fault.problem();
        let error = CliError::failed(problem.detail);
        problem.hint.into_iter().fold(error, |error, hint| error.hint(hint))
    };
    let question = Question::of(ask, Timestamp(units::now_ms())).map_err(declined)?;
    let historian = Historian { interpreter: Some(Arc::new(Starlark::unhurried())) };
    historian.answer(&*store.tables, &question).map_err(declined)
}

fn text(answer: &WhatIf, color: bool) -> String {
    let mut parts = vec![headline(answer)];
    parts.push(output::table(&FIGURES, &measures(answer), color));
    if answer.differs_from.is_some() {
        parts.push(output::table(&TENANTS, &answer.tenants, color));
    }
    if !answer.jobs.is_empty() {
        parts.push(output::table(&JOBS, &answer.jobs, color));
    }
    if !answer.refused.is_empty() {
        let line = |refused: &muster_protocol::whatif::WhatIfRefused| {
            format!("{} would not have been accepted: {}\n", refused.job_id, refused.why)
        };
        parts.push(answer.refused.iter().map(line).collect());
    }
    parts.join("\n")
}

fn headline(answer: &WhatIf) -> String {
    let again = match (answer.decisions, answer.decisions_different) {
        (0, _) => "no decision was made in it".to_string(),
        (all, 0) => format!("{} made again, all as they were", units::count(all, "decision")),
        (all, other) => format!(
            "{} made again, {other} would be others today: another release of the planner made them",
            units::count(all, "decision")
        ),
    };
    let changes = match answer.changes.is_empty() {
        true => "nothing".to_string(),
        false => answer.changes.join("\n"),
    };
    let effect = match &answer.differs_from {
        Some(at) => format!(
            "from {} on; {} sooner, {} later",
            to_the_second(at),
            units::count(answer.sooner, "job"),
            units::count(answer.later, "job")
        ),
        None => "none: every decision would have been the same".to_string(),
    };
    let guessed = (answer.guessed > 0).then(|| {
        let jobs = units::count(answer.guessed, "job");
        format!("how long {jobs} would run is a guess: never started in that time")
    });
    output::Card::default()
        .field(
            "history",
            format!("{} to {}\n{again}", to_the_second(&answer.since), to_the_second(&answer.until)),
        )
        .field("change", changes)
        .field("effect", effect)
        .maybe("note", guessed)
        .text()
}

/// One line of the figures: what it is, and how it was, is replayed, and would have been.
struct Measure {
    name: &'static str,
    values: [String; 3],
}

const FIGURES: [Column<Measure>; 4] = [
    Column::new("FIGURE", |row| row.name.into()),
    Column::new("REALLY", |row| row.values[0].clone().into()),
    Column::new("REPLAYED", |row| row.values[1].clone().into()),
    Column::new("CHANGED", |row| row.values[2].clone().into()),
];

fn measures(answer: &WhatIf) -> Vec<Measure> {
    let all = [&answer.really, &answer.replayed, &answer.changed];
    super::compare::MEASURES.iter().map(|(name, shown)| Measure { name, values: all.map(shown) }).collect()
}

const TENANTS: [Column<WhatIfTenant>; 8] = [
    Column::new("TENANT", |row| row.tenant_id.as_str().into()),
    Column::new("JOBS", |row| row.really.jobs.into()),
    Column::new("SOONER", |row| row.sooner.into()),
    Column::new("LATER", |row| row.later.into()),
    Column::new("WAIT REALLY", |row| seconds(row.really.wait_mean_s).into()),
    Column::new("REPLAYED", |row| seconds(row.replayed.wait_mean_s).into()),
    Column::new("CHANGED", |row| against(row.replayed.wait_mean_s, row.changed.wait_mean_s)),
    Column::new("GPU-HOURS", |row| gpu_hours(&row.really, &row.changed).into()),
];

const JOBS: [Column<WhatIfJob>; 6] = [
    Column::new("JOB", |row| row.job_id.as_str().into()),
    Column::new("NAME", |row| row.name.as_str().into()),
    Column::new("TENANT", |row| row.tenant_id.as_str().into()),
    Column::new("GAINS", |row| gains(row.gained_s)),
    Column::new("REALLY STARTED", |row| Cell::or_dash(row.really.started_at.as_deref().map(to_the_second))),
    Column::new("WOULD HAVE", |row| Cell::or_dash(row.changed.started_at.as_deref().map(to_the_second))),
];

/// A moment without what nobody reads: `2026-03-01 09:00:00`.
fn to_the_second(moment: &str) -> String {
    let seconds = moment.split(['.', 'Z']).next().unwrap_or(moment);
    seconds.replace('T', " ")
}

fn seconds(seconds: f64) -> String {
    units::span((seconds * 1e3).round() as i64)
}

/// Green where it is less, red where it is more.
fn against(before: f64, after: f64) -> Cell {
    let tint = match after - before {
        less if less < -1.0 => Tint::Good,
        more if more > 1.0 => Tint::Bad,
        _ => Tint::Plain,
    };
    Cell::tinted(seconds(after), tint)
}

fn gains(gained_s: f64) -> Cell {
    match gained_s < 0.0 {
        true => Cell::tinted(format!("-{}", seconds(-gained_s)), Tint::Bad),
        false => Cell::tinted(format!("+{}", seconds(gained_s)), Tint::Good),
    }
}

fn gpu_hours(really: &WhatIfFigures, changed: &WhatIfFigures) -> String {
    format!("{:.1} -> {:.1}", really.gpu_hours, changed.gpu_hours)
}
