//! muster's own CSV of jobs, documented in `docs/replay.md`: a header, then a line for each job.

use muster_core::objects::settings::PRIORITY_MAX;

use super::table::LogRow;
use super::timestamps::parse_timestamp_ms;
use super::{GangShape, LoggedJob, ParsedLine};

/// The required columns.
pub const REQUIRED: &[&str] = &["submit", "duration_s", "gpus"];
/// The optional columns, which may be empty.
pub const OPTIONAL: &[&str] = &[
    "id",
    "name",
    "tenant",
    "user",
    "tasks",
    "cpus",
    "memory_mib",
    "gpu_model",
    "time_limit_s",
    "priority",
    "saves_every_s",
];

pub fn job(row: &LogRow) -> Result<ParsedLine, String> {
    let submit = row.required_text("submit")?;
    let submit_ms = parse_timestamp_ms(submit).ok_or_else(|| {
        format!("`{submit}` is not a timestamp for `submit`: write seconds since the epoch, or for example 2026-01-31T08:15:00Z")
    })?;
    let gpus = row.required_number("gpus")?;
    let gang = match row.optional_number("tasks")? {
        Some(count) => GangShape::Tasks { count, each: gpus },
        None => GangShape::Total(gpus),
    };
    let text_of = |title: &str| row.optional_text(title).map(str::to_string);
    let priority: Option<u32> = row.optional_number("priority")?;
    if let Some(priority) = priority.filter(|priority| *priority > PRIORITY_MAX) {
        return Err(format!("`priority` is {priority}, the most is {PRIORITY_MAX}"));
    }
    let logged =
        LoggedJob::new(text_of("id").unwrap_or_default(), submit_ms, row.required_seconds_as_ms("duration_s")?, gang);
    let tenant = text_of("tenant").unwrap_or_else(|| logged.tenant.clone());
    Ok(LoggedJob {
        name: text_of("name").unwrap_or_else(|| logged.name.clone()),
        user: text_of("user").unwrap_or_else(|| tenant.clone()),
        tenant,
        cpus: row.optional_number("cpus")?,
        memory_mib: row.optional_number("memory_mib")?,
        gpu_model: text_of("gpu_model"),
        time_limit_ms: row.optional_seconds_as_ms("time_limit_s")?,
        priority,
        checkpoint_every_ms: row.optional_seconds_as_ms("saves_every_s")?,
        ..logged
    }
    .into())
}
