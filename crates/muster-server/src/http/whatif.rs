//! What-if: replay the server's history with other quotas, settings, policies or nodes.

use std::sync::TryLockError;

use axum::extract::State;
use axum::http::StatusCode;
use muster_protocol::whatif::{WhatIf, WhatIfRequest};

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::json::Json;
use crate::whatif::WhatIfQuery;

/// Seconds after which a client may retry while another replay runs.
const BUSY_RETRY_SECONDS: u64 = 5;

/// What-if: replay this server's history with other quotas, settings, policies or nodes
///
/// Submissions, administrative acts, node health and the runtime of each job are as recorded; the planner decides again
/// under the change. The cluster itself is not changed.
#[utoipa::path(post, path = "/api/v1/whatif", tag = "cluster", operation_id = "ask", request_body = WhatIfRequest,
    responses((status = 200, description = "The jobs that would have gained and lost", body = WhatIf)))]
pub async fn run_whatif(
    State(app): State<AppState>,
    Json(request): Json<WhatIfRequest>,
) -> Result<Json<WhatIf>, ApiError> {
    let query = WhatIfQuery::from_request(&request, app.cluster.now())?;
    let Some(replay) = app.whatif_replay.clone() else {
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "no-oracle", "this server cannot replay its history"));
    };
    let answer = move |tables: &dyn muster_store::Tables| match replay.try_lock() {
        Ok(replay) => Ok(replay.answer(tables, &query)?),
        // A replay keeps nothing between two requests, so one that panicked has left no broken state.
        Err(TryLockError::Poisoned(replay)) => Ok(replay.into_inner().answer(tables, &query)?),
        Err(TryLockError::WouldBlock) => {
            let busy = "another what-if replay is running";
            Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "busy", busy).retry_after(BUSY_RETRY_SECONDS))
        }
    };
    Ok(Json(app.read_tables(answer).await?))
}
