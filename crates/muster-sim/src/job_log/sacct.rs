//! The output of Slurm's accounting: `sacct -a -P -o
//! JobID,JobName,User,Account,Submit,Start,End,Elapsed,State,NNodes, Timelimit,AllocTRES,ReqTRES`. Further columns
//! are ignored; only JobID and Submit are required.
//!
//! Job steps (`123.batch`) are skipped. The account is the tenant. Times without a zone are UTC.

use muster_core::time::{self, SlurmSource};

use super::table::LogRow;
use super::timestamps::parse_timestamp_ms;
use super::{GangShape, LoggedJob, ParsedLine};

pub fn job(row: &LogRow) -> Result<ParsedLine, String> {
    let id = row.required_text("JobID")?;
    if id.contains('.') {
        return Ok(ParsedLine::NotAJob);
    }
    if let Some(why) = unfinished_reason(row.optional_text("State").unwrap_or_default()) {
        return Ok(ParsedLine::LeftOut(why));
    }
    let submit_ms = timestamp_ms(row, "Submit")?.ok_or_else(|| "`Submit` is empty".to_string())?;
    let tres = Tres::from_row(row)?;
    let nodes =
        row.optional_number("NNodes")?.or_else(|| row.optional_number("AllocNodes").ok().flatten()).unwrap_or(1);
    let logged = LoggedJob::new(id, submit_ms, work_ms(row)?, gang_shape(tres.gpus, nodes));
    let text_of = |title: &str| row.optional_text(title).map(str::to_string);
    let tenant = text_of("Account").unwrap_or_else(|| logged.tenant.clone());
    Ok(LoggedJob {
        name: text_of("JobName").unwrap_or_else(|| logged.name.clone()),
        user: text_of("User").unwrap_or_else(|| tenant.clone()),
        tenant,
        cpus: tres.cpus,
        memory_mib: tres.memory_mib,
        gpu_model: tres.model,
        time_limit_ms: time_limit_ms(row)?,
        ..logged
    }
    .into())
}

/// Why a job in this state cannot be replayed; `None` if it has ended.
fn unfinished_reason(state: &str) -> Option<&'static str> {
    match state.split_whitespace().next().unwrap_or_default() {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "SUSPENDED" | "CONFIGURING" => Some("had not started"),
        "RUNNING" | "COMPLETING" | "RESIZING" => Some("had not ended"),
        _ => None,
    }
}

/// The time from start to end, or the recorded elapsed time; 0 if the job never started.
fn work_ms(row: &LogRow) -> Result<i64, String> {
    if let (Some(start), Some(end)) = (timestamp_ms(row, "Start")?, timestamp_ms(row, "End")?) {
        return Ok(end - start);
    }
    if let Some(ms) = row.optional_seconds_as_ms("ElapsedRaw")? {
        return Ok(ms);
    }
    row.optional_text("Elapsed").map_or(Ok(0), |text| duration_ms(text, "Elapsed"))
}

/// A timestamp; `None` if Slurm wrote `Unknown` or `None`.
fn timestamp_ms(row: &LogRow, title: &str) -> Result<Option<i64>, String> {
    match row.optional_text(title) {
        None | Some("Unknown" | "None" | "N/A") => Ok(None),
        Some(text) => match parse_timestamp_ms(text) {
            Some(ms) => Ok(Some(ms)),
            None => Err(format!("`{text}` is not a timestamp for `{title}`")),
        },
    }
}

fn duration_ms(text: &str, title: &str) -> Result<i64, String> {
    time::parse_slurm_duration_ms(text, SlurmSource::AccountingLog)
        .ok_or_else(|| format!("`{text}` is not a Slurm duration for `{title}`"))
}

/// The time limit; `None` if the job has none or that of its partition, which the log does not record.
fn time_limit_ms(row: &LogRow) -> Result<Option<i64>, String> {
    if let Some(minutes) = row.optional_text("TimelimitRaw").and_then(|text| text.parse::<i64>().ok()) {
        return Ok(Some(minutes * 60_000).filter(|ms| *ms > 0));
    }
    match row.optional_text("Timelimit") {
        None | Some("UNLIMITED" | "Partition_Limit" | "INVALID") => Ok(None),
        Some(text) => duration_ms(text, "Timelimit").map(Some),
    }
}

/// A task per node, if the GPUs divide evenly.
fn gang_shape(gpus: u32, nodes: u32) -> GangShape {
    match nodes {
        2.. if gpus.is_multiple_of(nodes) => GangShape::Tasks { count: nodes, each: gpus / nodes },
        _ => GangShape::Total(gpus),
    }
}

/// The allocated trackable resources of a job, or the requested ones if the allocated ones are not recorded.
#[derive(Debug, Default)]
struct Tres {
    gpus: u32,
    model: Option<String>,
    cpus: Option<u32>,
    memory_mib: Option<u64>,
}

impl Tres {
    fn from_row(row: &LogRow) -> Result<Tres, String> {
        let allocated = row.optional_text("AllocTRES").map(Tres::parse).transpose()?.unwrap_or_default();
        let requested = row.optional_text("ReqTRES").map(Tres::parse).transpose()?.unwrap_or_default();
        Ok(Tres {
            gpus: if allocated.gpus > 0 { allocated.gpus } else { requested.gpus },
            // The allocated model only shows where the job ran; the requested one is a constraint.
            model: requested.model,
            cpus: allocated.cpus.or(requested.cpus),
            memory_mib: allocated.memory_mib.or(requested.memory_mib),
        })
    }

    /// `billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1`
    fn parse(text: &str) -> Result<Tres, String> {
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
                _ if key == "mem" => tres.memory_mib = Some(parse_memory_mib(value)?),
                _ => {}
            }
        }
        tres.gpus = tres.gpus.max(typed);
        Ok(tres)
    }
}

/// Parses `64G`, `512M`, `1.50T` or `4096K`; a number without a unit is MiB.
fn parse_memory_mib(text: &str) -> Result<u64, String> {
    let (number, unit_mib) = match text.strip_suffix(|letter: char| letter.is_ascii_alphabetic()) {
        None => (text, 1.0),
        Some(number) => match text.as_bytes().last().map(u8::to_ascii_uppercase) {
            Some(b'K') => (number, 1.0 / 1_024.0),
            Some(b'G') => (number, 1_024.0),
            Some(b'T') => (number, 1_048_576.0),
            _ => (number, 1.0),
        },
    };
    let mib = number.parse::<f64>().map_err(|_| format!("`{text}` is not a memory size"))? * unit_mib;
    Ok(mib.max(0.0).round() as u64)
}
