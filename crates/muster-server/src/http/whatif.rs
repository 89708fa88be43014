//! What if: the history of the cluster under other rules.

use std::sync::TryLockError;

use axum::extract::State;
use axum::http::StatusCode;
use muster_protocol::whatif::{WhatIf, WhatIfAsk};

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::whatif::Question;

/// Seconds after which another question may have been answered.
const RETRY_SECONDS: u64 = 5;

/// What would have been under other rules
///
/// Replays the journal of this server: submissions, people's acts and the health of nodes as they were, each job with
/// the length it had, and the planner decides anew under the change. Nothing is changed by asking.
#[utoipa::path(post, path = "/api/v1/whatif", tag = "cluster", request_body = WhatIfAsk,
    responses((status = 200, description = "Who would have won and lost", body = WhatIf)))]
pub async fn ask(State(door): State<Door>, Json(ask): Json<WhatIfAsk>) -> Result<Json<WhatIf>, Fault> {
    let question = Question::of(&ask, door.cluster.now())?;
    let Some(oracle) = door.oracle.clone() else {
        return Err(Fault::new(
            StatusCode::NOT_IMPLEMENTED,
            "no-oracle",
            "this server cannot replay its history",
        ));
    };
    let answer = move |tables: &dyn muster_store::Tables| match oracle.try_lock() {
        Ok(oracle) => oracle.answer(tables, &question),
        // Nothing is kept between two questions, so one that panicked has spoilt nothing.
        Err(TryLockError::Poisoned(oracle)) => oracle.into_inner().answer(tables, &question),
        Err(TryLockError::WouldBlock) => {
            let busy = "another what-if question is being answered";
            Err(Fault::new(StatusCode::TOO_MANY_REQUESTS, "busy", busy).retry_after(RETRY_SECONDS))
        }
    };
    Ok(Json(door.tables(answer).await?))
}
