//! Philly jobs with deadlines, as they come with Chronus: times are minutes. The deadlines are not used.

use super::table::{Row, ms};
use super::{Gang, Line, LoggedJob};

const MINUTE_MS: f64 = 60_000.0;

/// The job of a line.
pub fn job(row: &Row) -> Result<Line, String> {
    let minutes = |title: &str| ms(title, row.number(title)?, MINUTE_MS);
    let gang = Gang::Total(row.number("num_gpu")?);
    let plain = LoggedJob::new(row.text("job_id")?, minutes("submit_time")?, minutes("duration")?, gang);
    let tenant = row.text("user")?.to_string();
    let name = row.said("model_name").unwrap_or(&plain.name).to_string();
    Ok(LoggedJob { user: tenant.clone(), tenant, name, ..plain }.into())
}
