//! `muster sim compare`: two results of what-if or trace replay side by side.

use std::collections::BTreeMap;
use std::path::Path;

use muster_protocol::whatif::{WhatIf, WhatIfFigures};
use serde::{Deserialize, Serialize};

use crate::commands::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::output::{self, Column, ShowArgs};
use crate::units;

/// `muster sim compare`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster sim compare small.json large.json\n  \
                         muster sim compare replay.json:fifo replay.json:muster\n  \
                         muster sim compare change.json:really change.json")]
pub struct Args {
    /// File of `muster sim whatif -o json` or `muster sim replay -o json`, and after a colon one of its results:
    /// `really`, `replayed`, `changed`, or a policy
    a: String,
    /// The file to compare with, or the same file with another result
    b: String,
    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ComparedResult {
    name: String,
    figures: WhatIfFigures,
    tenants: BTreeMap<String, WhatIfFigures>,
}

/// A file written by either command.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ResultFile {
    WhatIf(Box<WhatIf>),
    Replay { policies: Vec<ReplayedPolicy> },
}

#[derive(Debug, Deserialize)]
struct ReplayedPolicy {
    policy: String,
    jobs: u64,
    done: u64,
    timed_out: u64,
    wait_s: ReplayedSpread,
    completion_s: ReplayedSpread,
    utilisation: f64,
    gpu_hours: f64,
    preemptions: u64,
    lost_gpu_s: f64,
    tenants: Vec<ReplayedTenant>,
}

#[derive(Debug, Deserialize)]
struct ReplayedSpread {
    mean: f64,
    p95: f64,
    max: f64,
}

#[derive(Debug, Deserialize)]
struct ReplayedTenant {
    tenant: String,
    jobs: u64,
    gpu_hours: f64,
    wait_s_mean: f64,
    preemptions: u64,
}

type FigureFormat = fn(&WhatIfFigures) -> String;

/// The name and format of each figure.
pub const FIGURE_FORMATS: [(&str, FigureFormat); 11] = [
    ("jobs", |figures| figures.jobs.to_string()),
    ("started", |figures| figures.started.to_string()),
    ("ended", |figures| figures.ended.to_string()),
    ("mean wait", |figures| seconds_text(figures.wait_mean_s)),
    ("p95 wait", |figures| seconds_text(figures.wait_p95_s)),
    ("longest wait", |figures| seconds_text(figures.wait_max_s)),
    ("mean completion time", |figures| seconds_text(figures.time_mean_s)),
    ("GPU-hours", |figures| format!("{:.1}", figures.gpu_hours)),
    ("utilisation", |figures| match figures.utilisation {
        Some(part) => format!("{:.1} %", part * 100.0),
        None => String::new(),
    }),
    ("preemptions", |figures| figures.preemptions.to_string()),
    ("GPU-hours lost", |figures| format!("{:.2}", figures.lost_gpu_hours)),
];

fn seconds_text(seconds: f64) -> String {
    units::duration_text((seconds * 1e3).round() as i64)
}

pub fn run(args: &Args) -> CommandResult {
    let (a, b) = (read_result(&args.a)?, read_result(&args.b)?);
    let text = format!("{}\n{}", output::table(&FIGURE_COLUMNS, &figure_rows(&a, &b), false), tenant_table(&a, &b));
    output::print_text(&args.show, &text, "compare", &[&a, &b])?;
    Ok(ExitStatus::SUCCESS)
}

/// Reads `FILE` or `FILE:RESULT`.
fn read_result(argument: &str) -> Result<ComparedResult, CliError> {
    let (path, name) = match argument.rsplit_once(':') {
        Some((path, name)) if !Path::new(argument).exists() => (path, Some(name)),
        _ => (argument, None),
    };
    let text =
        std::fs::read_to_string(path).map_err(|error| CliError::failed(format!("cannot read `{path}`: {error}")))?;
    let file = muster_json::from_str(&text).map_err(|_| {
        CliError::failed(format!("`{path}` is not a result of `muster sim`"))
            .hint("write one with `muster sim whatif -o json` or `muster sim replay -o json`")
    })?;
    match file {
        ResultFile::WhatIf(answer) => whatif_result(&answer, argument, name.unwrap_or("changed")),
        ResultFile::Replay { policies } => replay_result(policies, argument, name),
    }
}

fn whatif_result(answer: &WhatIf, argument: &str, name: &str) -> Result<ComparedResult, CliError> {
    let figures = match name {
        "really" => &answer.really,
        "replayed" => &answer.replayed,
        "changed" => &answer.changed,
        other => {
            return Err(CliError::usage(format!("`{argument}`: there is no result `{other}`"))
                .hint("one of really, replayed, changed"));
        }
    };
    let tenants = answer.tenants.iter().map(|tenant| {
        let figures = match name {
            "really" => &tenant.really,
            "replayed" => &tenant.replayed,
            _ => &tenant.changed,
        };
        (tenant.tenant_id.clone(), figures.clone())
    });
    Ok(ComparedResult { name: argument.to_string(), figures: figures.clone(), tenants: tenants.collect() })
}

fn replay_result(
    policies: Vec<ReplayedPolicy>,
    argument: &str,
    name: Option<&str>,
) -> Result<ComparedResult, CliError> {
    let names: Vec<String> = policies.iter().map(|policy| policy.policy.clone()).collect();
    let mut found = policies.into_iter().filter(|policy| name.is_none_or(|name| name == policy.policy));
    match (found.next(), found.next()) {
        (Some(policy), None) => Ok(policy_result(argument, policy)),
        (Some(_), Some(_)) => Err(CliError::usage(format!("`{argument}` has several results"))
            .hint(format!("add one of them, for example `{argument}:{}`", names[0]))),
        (None, _) => Err(CliError::usage(format!("`{argument}`: the file has no such result"))
            .hint(format!("one of {}", names.join(", ")))),
    }
}

fn policy_result(argument: &str, policy: ReplayedPolicy) -> ComparedResult {
    let figures = WhatIfFigures {
        jobs: policy.jobs,
        started: policy.done + policy.timed_out,
        ended: policy.done + policy.timed_out,
        wait_mean_s: policy.wait_s.mean,
        wait_p95_s: policy.wait_s.p95,
        wait_max_s: policy.wait_s.max,
        time_mean_s: policy.completion_s.mean,
        gpu_hours: policy.gpu_hours,
        utilisation: Some(policy.utilisation),
        preemptions: policy.preemptions,
        lost_gpu_hours: policy.lost_gpu_s / 3_600.0,
    };
    let tenant = |tenant: ReplayedTenant| {
        let (jobs, wait_mean_s) = (tenant.jobs, tenant.wait_s_mean);
        let (gpu_hours, preemptions) = (tenant.gpu_hours, tenant.preemptions);
        (tenant.tenant, WhatIfFigures { jobs, wait_mean_s, gpu_hours, preemptions, ..WhatIfFigures::default() })
    };
    ComparedResult { name: argument.to_string(), figures, tenants: policy.tenants.into_iter().map(tenant).collect() }
}

/// One figure of both results.
struct FigureRow {
    name: String,
    values: [String; 2],
}

const FIGURE_COLUMNS: [Column<FigureRow>; 3] = [
    Column::new("FIGURE", |row| row.name.as_str().into()),
    Column::new("A", |row| row.values[0].as_str().into()),
    Column::new("B", |row| row.values[1].as_str().into()),
];

fn figure_rows(a: &ComparedResult, b: &ComparedResult) -> Vec<FigureRow> {
    let names = FigureRow { name: "result".to_string(), values: [a.name.clone(), b.name.clone()] };
    let measure = |(name, shown): &(&str, FigureFormat)| FigureRow {
        name: name.to_string(),
        values: [shown(&a.figures), shown(&b.figures)],
    };
    std::iter::once(names).chain(FIGURE_FORMATS.iter().map(measure)).collect()
}

/// The figures of one tenant in both results.
struct TenantComparison {
    name: String,
    both: [WhatIfFigures; 2],
}

const TENANT_COLUMNS: [Column<TenantComparison>; 6] = [
    Column::new("TENANT", |row| row.name.as_str().into()),
    Column::new("WAIT A", |row| seconds_text(row.both[0].wait_mean_s).into()),
    Column::new("WAIT B", |row| seconds_text(row.both[1].wait_mean_s).into()),
    Column::new("GPU-HOURS A", |row| format!("{:.1}", row.both[0].gpu_hours).into()),
    Column::new("GPU-HOURS B", |row| format!("{:.1}", row.both[1].gpu_hours).into()),
    Column::new("BETTER", |row| better_side(row).into()),
];

fn better_side(row: &TenantComparison) -> &'static str {
    match row.both[1].wait_mean_s - row.both[0].wait_mean_s {
        more if more > 1.0 => "A",
        less if less < -1.0 => "B",
        _ => "equal",
    }
}

fn tenant_table(a: &ComparedResult, b: &ComparedResult) -> String {
    let names: std::collections::BTreeSet<&String> = a.tenants.keys().chain(b.tenants.keys()).collect();
    let of = |side: &ComparedResult, name: &String| side.tenants.get(name).cloned().unwrap_or_default();
    let row = |name: &String| TenantComparison { name: name.clone(), both: [of(a, name), of(b, name)] };
    output::table(&TENANT_COLUMNS, &names.into_iter().map(row).collect::<Vec<_>>(), false)
}
