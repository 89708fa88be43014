//! What Slurm's accounting prints: `sacct -a -P -o JobID,JobName,User,Account,Submit,Start,End,Elapsed,State,NNodes,
//! Timelimit,AllocTRES,ReqTRES`; more columns do no harm, and of these only JobID and Submit must be there.
//!
//! Steps of jobs (`123.batch`) are no jobs. The account is the tenant. Times without a zone are taken for UTC.

use super::moments::{moment_ms, span_ms};
use super::table::Row;
use super::{Gang, Line, LoggedJob};

/// The job of a line.
pub fn job(row: &Row) -> Result<Line, String> {
    let id = row.text("JobID")?;
    if id.contains('.') {
        return Ok(Line::Nothing);
    }
    if let Some(why) = not_over(row.said("State").unwrap_or_default()) {
        return Ok(Line::LeftOut(why));
    }
    let submit_ms = moment(row, "Submit")?.ok_or_else(|| "`Submit` is empty".to_string())?;
    let tres = Tres::of(row)?;
    let nodes = row.maybe("NNodes")?.or_else(|| row.maybe("AllocNodes").ok().flatten()).unwrap_or(1);
    let plain = LoggedJob::new(id, submit_ms, work_ms(row)?, gang(tres.gpus, nodes));
    let said = |title: &str| row.said(title).map(str::to_string);
    let tenant = said("Account").unwrap_or_else(|| plain.tenant.clone());
    Ok(LoggedJob {
        name: said("JobName").unwrap_or_else(|| plain.name.clone()),
        user: said("User").unwrap_or_else(|| tenant.clone()),
        tenant,
        cpus: tres.cpus,
        memory_mib: tres.memory_mib,
        model: tres.model,
        time_limit_ms: limit_ms(row)?,
        ..plain
    }
    .into())
}

/// Why a job of a state has no end to replay.
fn not_over(state: &str) -> Option<&'static str> {
    match state.split_whitespace().next().unwrap_or_default() {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "SUSPENDED" | "CONFIGURING" => Some("had not started"),
        "RUNNING" | "COMPLETING" | "RESIZING" => Some("had not ended"),
        _ => None,
    }
}

/// From its start to its end, or as long as it says; nothing if it never started.
fn work_ms(row: &Row) -> Result<i64, String> {
    if let (Some(start), Some(end)) = (moment(row, "Start")?, moment(row, "End")?) {
        return Ok(end - start);
    }
    if let Some(ms) = row.maybe_seconds("ElapsedRaw")? {
        return Ok(ms);
    }
    row.said("Elapsed").map_or(Ok(0), |text| span(text, "Elapsed"))
}

/// A moment, if there is one: Slurm writes `Unknown` or `None` where there is none.
fn moment(row: &Row, title: &str) -> Result<Option<i64>, String> {
    match row.said(title) {
        None | Some("Unknown" | "None" | "N/A") => Ok(None),
        Some(text) => match moment_ms(text) {
            Some(ms) => Ok(Some(ms)),
            None => Err(format!("`{text}` is no moment for `{title}`")),
        },
    }
}

fn span(text: &str, title: &str) -> Result<i64, String> {
    span_ms(text).ok_or_else(|| format!("`{text}` is no span of time for `{title}`"))
}

/// The limit; none if there is none, or that of the partition, which the log does not tell.
fn limit_ms(row: &Row) -> Result<Option<i64>, String> {
    if let Some(minutes) = row.said("TimelimitRaw").and_then(|text| text.parse::<i64>().ok()) {
        return Ok(Some(minutes * 60_000).filter(|ms| *ms > 0));
    }
    match row.said("Timelimit") {
        None | Some("UNLIMITED" | "Partition_Limit" | "INVALID") => Ok(None),
        Some(text) => span(text, "Timelimit").map(Some),
    }
}

/// A task for each node where the GPUs divide evenly.
fn gang(gpus: u32, nodes: u32) -> Gang {
    match nodes {
        2.. if gpus.is_multiple_of(nodes) => Gang::Tasks { count: nodes, each: gpus / nodes },
        _ => Gang::Total(gpus),
    }
}

/// What a job had, or asked for where it is not said what it had.
#[derive(Debug, Default)]
struct Tres {
    gpus: u32,
    model: Option<String>,
    cpus: Option<u32>,
    memory_mib: Option<u64>,
}

impl Tres {
    fn of(row: &Row) -> Result<Tres, String> {
        let had = row.said("AllocTRES").map(Tres::read).transpose()?.unwrap_or_default();
        let asked = row.said("ReqTRES").map(Tres::read).transpose()?.unwrap_or_default();
        Ok(Tres {
            gpus: if had.gpus > 0 { had.gpus } else { asked.gpus },
            // What it had tells where it came to be, what it asked for tells what it wished.
            model: asked.model,
            cpus: had.cpus.or(asked.cpus),
            memory_mib: had.memory_mib.or(asked.memory_mib),
        })
    }

    /// `billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1`
    fn read(text: &str) -> Result<Tres, String> {
        let (mut tres, mut typed) = (Tres::default(), 0);
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else { continue };
            let number = || value.parse::<u32>().map_err(|_| format!("`{part}` has no number"));
            match key.split_once(':') {
                Some(("gres/gpu", model)) => {
                    typed += number()?;
                    tres.model = Some(model.to_string());
                }
                _ if key == "gres/gpu" => tres.gpus = number()?,
                _ if key == "cpu" => tres.cpus = Some(number()?),
                _ if key == "mem" => tres.memory_mib = Some(memory_mib(value)?),
                _ => {}
            }
        }
        tres.gpus = tres.gpus.max(typed);
        Ok(tres)
    }
}

/// `64G`, `512M`, `1.50T`, `4096K`; without a letter MiB.
fn memory_mib(text: &str) -> Result<u64, String> {
    let (number, unit_mib) = match text.strip_suffix(|letter: char| letter.is_ascii_alphabetic()) {
        None => (text, 1.0),
        Some(number) => match text.as_bytes().last().map(u8::to_ascii_uppercase) {
            Some(b'K') => (number, 1.0 / 1_024.0),
            Some(b'G') => (number, 1_024.0),
            Some(b'T') => (number, 1_048_576.0),
            _ => (number, 1.0),
        },
    };
    let mib = number.parse::<f64>().map_err(|_| format!("`{text}` is no amount of memory"))? * unit_mib;
    Ok(mib.max(0.0).round() as u64)
}
