//! Jobs of Microsoft's Philly clusters (Jeon et al., ATC'19) in the filtered copy `submit_s,submit_utc,vc,num_gpus,
//! duration_s,gpu_time_s`. A virtual cluster is a tenant. Users are not recorded, so each tenant has one user.

use super::table::LogRow;
use super::{GangShape, LoggedJob, ParsedLine};

pub fn job(row: &LogRow) -> Result<ParsedLine, String> {
    let tenant = row.required_text("vc")?.to_string();
    let gang = GangShape::Total(row.required_number("num_gpus")?);
    let logged =
        LoggedJob::new("", row.required_seconds_as_ms("submit_s")?, row.required_seconds_as_ms("duration_s")?, gang);
    Ok(LoggedJob { user: tenant.clone(), tenant, ..logged }.into())
}
