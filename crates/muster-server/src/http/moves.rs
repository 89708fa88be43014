//! Moves of running jobs that would let waiting jobs fit (`muster moves`). The moves are proposed, not carried out.

use axum::extract::State;
use muster_core::objects::job::PlacedTask;
use muster_core::planner;
use muster_protocol::moves::{Move, MoveList};

use crate::conversions::ms_to_hours;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::json::Json;

/// List defragmentation moves that would let a waiting job start (dry run)
///
/// Nothing is moved. Listed are moves of checkpointing jobs that gain at least twice the GPU-hours they lose.
#[utoipa::path(get, path = "/api/v1/moves", tag = "cluster",
    responses((status = 200, description = "The moves that pay", body = MoveList)))]
pub async fn moves(State(app): State<AppState>) -> Result<Json<MoveList>, ApiError> {
    // A whole round is planned, which may take a while on a large cluster.
    let planning = tokio::task::spawn_blocking(move || {
        app.read_state(|state| {
            let now = app.cluster.now().max(state.clock);
            let moves = planner::moves(state, now).into_iter().map(api_move).collect();
            MoveList { enabled: state.settings.defragment, moves }
        })
    });
    Ok(Json(planning.await.map_err(|error| ApiError::internal(error.to_string()))??))
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
