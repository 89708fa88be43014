//! `muster sim compare`: two results side by side.

use std::collections::BTreeMap;
use std::path::Path;

use muster_protocol::whatif::{WhatIf, WhatIfFigures};
use serde::{Deserialize, Serialize};

use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::output::{self, Column, ShowArgs};
use crate::units;

/// `muster sim compare`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Examples:\n  muster sim compare small.json large.json\n  \
                         muster sim compare replay.json:fifo replay.json:muster\n  \
                         muster sim compare change.json:really change.json")]
pub struct Args {
    /// A file of `muster sim whatif -o json` or `muster sim replay -o json`; after a colon which of its results:
    /// `really`, `replayed` or `changed`, or a policy
    a: String,
    /// Another, or the same with another result
    b: String,
    #[command(flatten)]
    show: ShowArgs,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Side {
    name: String,
    figures: WhatIfFigures,
    tenants: BTreeMap<String, WhatIfFigures>,
}

/// A file, whichever wrote it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Written {
    WhatIf(Box<WhatIf>),
    Replay { policies: Vec<Policy> },
}

#[derive(Debug, Deserialize)]
struct Policy {
    policy: String,
    jobs: u64,
    done: u64,
    timed_out: u64,
    wait_s: Spread,
    completion_s: Spread,
    utilisation: f64,
    gpu_hours: f64,
    preemptions: u64,
    lost_gpu_s: f64,
    tenants: Vec<PolicyTenant>,
}

#[derive(Debug, Deserialize)]
struct Spread {
    mean: f64,
    p95: f64,
    max: f64,
}

#[derive(Debug, Deserialize)]
struct PolicyTenant {
    tenant: String,
    jobs: u64,
    gpu_hours: f64,
    wait_s_mean: f64,
    preemptions: u64,
}

/// How one figure is shown.
type Shown = fn(&WhatIfFigures) -> String;

/// The figures, and how each is shown.
pub const MEASURES: [(&str, Shown); 11] = [
    ("jobs", |figures| figures.jobs.to_string()),
    ("started", |figures| figures.started.to_string()),
    ("ended", |figures| figures.ended.to_string()),
    ("mean wait", |figures| seconds(figures.wait_mean_s)),
    ("p95 wait", |figures| seconds(figures.wait_p95_s)),
    ("longest wait", |figures| seconds(figures.wait_max_s)),
    ("mean time to the end", |figures| seconds(figures.time_mean_s)),
    ("GPU-hours", |figures| format!("{:.1}", figures.gpu_hours)),
    ("utilisation", |figures| match figures.utilisation {
        Some(part) => format!("{:.1} %", part * 100.0),
        None => String::new(),
    }),
    ("preemptions", |figures| figures.preemptions.to_string()),
    ("GPU-hours lost", |figures| format!("{:.2}", figures.lost_gpu_hours)),
];

fn seconds(seconds: f64) -> String {
    units::span((seconds * 1e3).round() as i64)
}

/// Print both, and each tenant.
pub fn run(args: &Args) -> Ending {
    let (a, b) = (side(&args.a)?, side(&args.b)?);
    let text = format!("{}\n{}", output::table(&FIGURES, &lines(&a, &b), false), by_tenant(&a, &b));
    output::say(&args.show, &text, "compare", &[&a, &b])?;
    Ok(Code::DONE)
}

/// A result by its file, and after a colon which of it.
fn side(said: &str) -> Result<Side, CliError> {
    let (path, which) = match said.rsplit_once(':') {
        Some((path, which)) if !Path::new(said).exists() => (path, Some(which)),
        _ => (said, None),
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::failed(format!("cannot read `{path}`: {error}")))?;
    let written = muster_json::from_str(&text).map_err(|_| {
        CliError::failed(format!("`{path}` holds no result of `muster sim`"))
            .hint("write one with `muster sim whatif -o json` or `muster sim replay -o json`")
    })?;
    match written {
        Written::WhatIf(answer) => of_whatif(&answer, said, which.unwrap_or("changed")),
        Written::Replay { policies } => of_replay(policies, said, which),
    }
}

fn of_whatif(answer: &WhatIf, said: &str, which: &str) -> Result<Side, CliError> {
    let figures = match which {
        "really" => &answer.really,
        "replayed" => &answer.replayed,
        "changed" => &answer.changed,
        other => {
            return Err(CliError::usage(format!("`{said}`: there is no `{other}`"))
                .hint("one of really, replayed, changed"));
        }
    };
    let tenants = answer.tenants.iter().map(|tenant| {
        let figures = match which {
            "really" => &tenant.really,
            "replayed" => &tenant.replayed,
            _ => &tenant.changed,
        };
        (tenant.tenant_id.clone(), figures.clone())
    });
    Ok(Side { name: said.to_string(), figures: figures.clone(), tenants: tenants.collect() })
}

fn of_replay(policies: Vec<Policy>, said: &str, which: Option<&str>) -> Result<Side, CliError> {
    let names: Vec<String> = policies.iter().map(|policy| policy.policy.clone()).collect();
    let mut found = policies.into_iter().filter(|policy| which.is_none_or(|which| which == policy.policy));
    match (found.next(), found.next()) {
        (Some(policy), None) => Ok(of_policy(said, policy)),
        (Some(_), Some(_)) => Err(CliError::usage(format!("`{said}` holds several results"))
            .hint(format!("add one of them, for example `{said}:{}`", names[0]))),
        (None, _) => Err(CliError::usage(format!("`{said}` is not in that file"))
            .hint(format!("it holds {}", names.join(", ")))),
    }
}

fn of_policy(said: &str, policy: Policy) -> Side {
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
    let tenant = |tenant: PolicyTenant| {
        let (jobs, wait_mean_s) = (tenant.jobs, tenant.wait_s_mean);
        let (gpu_hours, preemptions) = (tenant.gpu_hours, tenant.preemptions);
        (
            tenant.tenant,
            WhatIfFigures { jobs, wait_mean_s, gpu_hours, preemptions, ..WhatIfFigures::default() },
        )
    };
    Side { name: said.to_string(), figures, tenants: policy.tenants.into_iter().map(tenant).collect() }
}

/// One figure of both.
struct Line {
    name: String,
    values: [String; 2],
}

const FIGURES: [Column<Line>; 3] = [
    Column::new("FIGURE", |row| row.name.as_str().into()),
    Column::new("A", |row| row.values[0].as_str().into()),
    Column::new("B", |row| row.values[1].as_str().into()),
];

fn lines(a: &Side, b: &Side) -> Vec<Line> {
    let names = Line { name: "result".to_string(), values: [a.name.clone(), b.name.clone()] };
    let measure = |(name, shown): &(&str, Shown)| Line {
        name: name.to_string(),
        values: [shown(&a.figures), shown(&b.figures)],
    };
    std::iter::once(names).chain(MEASURES.iter().map(measure)).collect()
}

/// What one tenant has of both.
struct OfTenant {
    name: String,
    both: [WhatIfFigures; 2],
}

const TENANTS: [Column<OfTenant>; 6] = [
    Column::new("TENANT", |row| row.name.as_str().into()),
    Column::new("WAIT A", |row| seconds(row.both[0].wait_mean_s).into()),
    Column::new("WAIT B", |row| seconds(row.both[1].wait_mean_s).into()),
    Column::new("GPU-HOURS A", |row| format!("{:.1}", row.both[0].gpu_hours).into()),
    Column::new("GPU-HOURS B", |row| format!("{:.1}", row.both[1].gpu_hours).into()),
    Column::new("BETTER", |row| better(row).into()),
];

fn better(row: &OfTenant) -> &'static str {
    match row.both[1].wait_mean_s - row.both[0].wait_mean_s {
        more if more > 1.0 => "A",
        less if less < -1.0 => "B",
        _ => "alike",
    }
}

fn by_tenant(a: &Side, b: &Side) -> String {
    let names: std::collections::BTreeSet<&String> = a.tenants.keys().chain(b.tenants.keys()).collect();
    let of = |side: &Side, name: &String| side.tenants.get(name).cloned().unwrap_or_default();
    let row = |name: &String| OfTenant { name: name.clone(), both: [of(a, name), of(b, name)] };
    output::table(&TENANTS, &names.into_iter().map(row).collect::<Vec<_>>(), false)
}
