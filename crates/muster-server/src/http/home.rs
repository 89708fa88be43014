//! The first page: what this is, and where to go on.

use axum::response::{Html, IntoResponse, Response};

use crate::http::reference::STRICT_CSP;

const PAGE: &str = concat!(
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>muster</title>",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"></head><body>",
    "<h1>muster ",
    env!("CARGO_PKG_VERSION"),
    "</h1>",
    "<p>This server gathers GPUs and puts them to work.</p><ul>",
    "<li><a href=\"/api/v1/docs\">the API, route by route</a></li>",
    "<li><a href=\"/api/v1/openapi.json\">the same for programs</a></li>",
    "<li><a href=\"/api/v1/cluster/status\">the cluster now</a></li>",
    "<li><a href=\"/health\">whether it can serve</a></li>",
    "<li><a href=\"/metrics\">metrics</a></li>",
    "</ul><p>On the command line: <code>muster ps</code>, <code>muster run</code>, <code>muster why</code>.</p>",
    "</body></html>\n"
);

/// The page.
pub async fn page() -> Response {
    (STRICT_CSP, Html(PAGE)).into_response()
}
