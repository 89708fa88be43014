//! Training queues of Muri (Zhao et al., SIGCOMM'22): times are milliseconds, and the work of a job is its iterations.
//! Nobody's name is in them: all belong to one tenant, and each model counts as a user.

use super::table::{Row, ms};
use super::{Gang, Line, LoggedJob};

/// What the published runs count for the work of a job, in times what was recorded.
const STRETCH: f64 = 1.015;

/// The job of a line.
pub fn job(row: &Row) -> Result<Line, String> {
    let iterations: f64 = row.number("iterations")?;
    let each_ms: f64 = row.number("iteration_time")?;
    let work_ms = ms("iterations", iterations * each_ms, STRETCH)?;
    let submit_ms = ms("submit_time", row.number("submit_time")?, 1.0)?;
    let gang = Gang::Total(row.number("num_gpu")?);
    let plain = LoggedJob::new(row.said("job_id").unwrap_or_default(), submit_ms, work_ms, gang);
    let name = row.said("model_name").unwrap_or(&plain.name).to_string();
    Ok(LoggedJob { user: name.clone(), name, ..plain }.into())
}
