//! Training traces of Muri (Zhao et al., SIGCOMM'22). Times are milliseconds, and the work of a job is its
//! iterations. Users are not recorded: all jobs belong to one tenant, and each model counts as a user.

use super::table::{LogRow, scaled_ms};
use super::{GangShape, LoggedJob, ParsedLine};

/// The factor by which the published runs scale the recorded work.
const WORK_SCALE: f64 = 1.015;

pub fn job(row: &LogRow) -> Result<ParsedLine, String> {
    let iterations: f64 = row.required_number("iterations")?;
    let each_ms: f64 = row.required_number("iteration_time")?;
    let work_ms = scaled_ms("iterations", iterations * each_ms, WORK_SCALE)?;
    let submit_ms = scaled_ms("submit_time", row.required_number("submit_time")?, 1.0)?;
    let gang = GangShape::Total(row.required_number("num_gpu")?);
    let logged = LoggedJob::new(row.optional_text("job_id").unwrap_or_default(), submit_ms, work_ms, gang);
    let name = row.optional_text("model_name").unwrap_or(&logged.name).to_string();
    Ok(LoggedJob { user: name.clone(), name, ..logged }.into())
}
