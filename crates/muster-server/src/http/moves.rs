//! What would be moved so that others fit: a dry run that anyone who operates the cluster may ask for.

use axum::extract::State;
use muster_core::objects::job::PlacedTask;
use muster_core::planner;
use muster_protocol::moves::{Move, MoveList};

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::json::Json;
use crate::http::conversions::ms_to_hours;

/// Which running jobs could go on elsewhere so that others fit
///
/// A dry run: nothing is moved by asking. Only moves that gain at least twice what they lose are told, and only jobs
/// that save their work are moved.
#[utoipa::path(get, path = "/api/v1/moves", tag = "cluster",
    responses((status = 200, description = "The moves that pay", body = MoveList)))]
pub async fn moves(State(app): State<AppState>) -> Result<Json<MoveList>, ApiError> {
    // A whole round is drawn up, which may take a while in a large cluster.
    let looking = tokio::task::spawn_blocking(move || {
        app.read_state(|state| {
            let now = app.cluster.now().max(state.clock);
            let moves = planner::moves(state, now).into_iter().map(api_move).collect();
            MoveList { enabled: state.settings.defragment, moves }
        })
    });
    Ok(Json(looking.await.map_err(|error| ApiError::internal(error.to_string()))??))
}

fn api_move(found: planner::Move) -> Move {
    Move {
        job_id: found.job.to_string(),
        gpus: gpu_names(&found.tasks),
        moved_job_id: found.victim.to_string(),
        to: gpu_names(&found.to),
        gained_gpu_hours: ms_to_hours(found.gained_gpu_ms),
        lost_gpu_hours: ms_to_hours(found.lost_gpu_ms),
    }
}

fn gpu_names(tasks: &[PlacedTask]) -> Vec<String> {
    let devices = tasks.iter().flat_map(PlacedTask::devices);
    devices.map(|(node, gpu)| format!("{node}/gpu-{gpu}")).collect()
}
