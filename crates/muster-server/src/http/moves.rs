//! What would be moved so that others fit: a dry run that anyone who operates the cluster may ask for.

use axum::extract::State;
use muster_core::job::PlacedTask;
use muster_core::plan;
use muster_protocol::moves::{Move, MoveList};

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::written::hours;

/// Which running jobs could go on elsewhere so that others fit
///
/// A dry run: nothing is moved by asking. Only moves that gain at least twice what they lose are told, and only jobs
/// that save their work are moved.
#[utoipa::path(get, path = "/api/v1/moves", tag = "cluster",
    responses((status = 200, description = "The moves that pay", body = MoveList)))]
pub async fn moves(State(door): State<Door>) -> Result<Json<MoveList>, Fault> {
    // A whole round is drawn up, which may take a while in a large cluster.
    let looking = tokio::task::spawn_blocking(move || {
        door.state(|state| {
            let now = door.cluster.now().max(state.clock);
            let moves = plan::moves(state, now).into_iter().map(shown).collect();
            MoveList { enabled: state.settings.defragment, moves }
        })
    });
    Ok(Json(looking.await.map_err(|error| Fault::internal(error.to_string()))??))
}

fn shown(found: plan::Move) -> Move {
    Move {
        job_id: found.job.to_string(),
        gpus: gpus(&found.tasks),
        moved_job_id: found.victim.to_string(),
        to: gpus(&found.to),
        gained_gpu_hours: hours(found.gained_gpu_ms),
        lost_gpu_hours: hours(found.lost_gpu_ms),
    }
}

fn gpus(tasks: &[PlacedTask]) -> Vec<String> {
    let devices = tasks.iter().flat_map(PlacedTask::devices);
    devices.map(|(node, gpu)| format!("{node}/gpu-{gpu}")).collect()
}
