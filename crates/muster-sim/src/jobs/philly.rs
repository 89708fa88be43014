//! Jobs of Microsoft's Philly clusters (Jeon et al., ATC'19) in the filtered copy `submit_s,submit_utc,vc,num_gpus,
//! duration_s,gpu_time_s`. A virtual cluster is a tenant; who submitted is not in it, so each has one user.

use super::table::Row;
use super::{Gang, Line, LoggedJob};

/// The job of a line.
pub fn job(row: &Row) -> Result<Line, String> {
    let tenant = row.text("vc")?.to_string();
    let gang = Gang::Total(row.number("num_gpus")?);
    let plain = LoggedJob::new("", row.seconds("submit_s")?, row.seconds("duration_s")?, gang);
    Ok(LoggedJob { user: tenant.clone(), tenant, ..plain }.into())
}
