//! Philly jobs with deadlines, from the Chronus artifact. Times are minutes. The deadlines are not used.

use super::table::{LogRow, scaled_ms};
use super::{GangShape, LoggedJob, ParsedLine};

const MINUTE_MS: f64 = 60_000.0;

pub fn job(row: &LogRow) -> Result<ParsedLine, String> {
    let minutes = |title: &str| scaled_ms(title, row.required_number(title)?, MINUTE_MS);
    let gang = GangShape::Total(row.required_number("num_gpu")?);
    let logged = LoggedJob::new(row.required_text("job_id")?, minutes("submit_time")?, minutes("duration")?, gang);
    let tenant = row.required_text("user")?.to_string();
    let name = row.optional_text("model_name").unwrap_or(&logged.name).to_string();
    Ok(LoggedJob { user: tenant.clone(), tenant, name, ..logged }.into())
}
