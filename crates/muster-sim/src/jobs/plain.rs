//! Our own CSV of jobs, documented in `docs/replay.md`: a line of titles, then a line for each job.

use muster_core::settings::PRIORITY_MAX;

use super::moments::moment_ms;
use super::table::Row;
use super::{Gang, Line, LoggedJob};

/// Columns that must be there.
pub const REQUIRED: &[&str] = &["submit", "duration_s", "gpus"];
/// Columns that may be there, and may be empty.
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

/// The job of a line.
pub fn job(row: &Row) -> Result<Line, String> {
    let submit = row.text("submit")?;
    let submit_ms = moment_ms(submit).ok_or_else(|| {
        format!("`{submit}` is no moment for `submit`: write seconds, or for example 2026-01-31T08:15:00Z")
    })?;
    let gpus = row.number("gpus")?;
    let gang = match row.maybe("tasks")? {
        Some(count) => Gang::Tasks { count, each: gpus },
        None => Gang::Total(gpus),
    };
    let said = |title: &str| row.said(title).map(str::to_string);
    let priority: Option<u32> = row.maybe("priority")?;
    if let Some(priority) = priority.filter(|priority| *priority > PRIORITY_MAX) {
        return Err(format!("`priority` is {priority}, the most is {PRIORITY_MAX}"));
    }
    let plain = LoggedJob::new(said("id").unwrap_or_default(), submit_ms, row.seconds("duration_s")?, gang);
    let tenant = said("tenant").unwrap_or_else(|| plain.tenant.clone());
    Ok(LoggedJob {
        name: said("name").unwrap_or_else(|| plain.name.clone()),
        user: said("user").unwrap_or_else(|| tenant.clone()),
        tenant,
        cpus: row.maybe("cpus")?,
        memory_mib: row.maybe("memory_mib")?,
        model: said("gpu_model"),
        time_limit_ms: row.maybe_seconds("time_limit_s")?,
        priority,
        saves_every_ms: row.maybe_seconds("saves_every_s")?,
        ..plain
    }
    .into())
}
