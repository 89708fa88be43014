//! The home page: links to the API reference, status, health and metrics.

use axum::response::{Html, IntoResponse, Response};

use crate::http::api_reference::STRICT_CSP;

const HOME_PAGE_HTML: &str = concat!(
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>muster</title>",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"></head><body>",
    "<h1>muster ",
    env!("CARGO_PKG_VERSION"),
    "</h1>",
    "<p>muster schedules GPU jobs on this cluster.</p><ul>",
    "<li><a href=\"/api/v1/docs\">API reference</a></li>",
    "<li><a href=\"/api/v1/openapi.json\">OpenAPI document</a></li>",
    "<li><a href=\"/api/v1/cluster/status\">cluster status</a></li>",
    "<li><a href=\"/health\">health</a></li>",
    "<li><a href=\"/metrics\">metrics</a></li>",
    "</ul><p>On the command line: <code>muster ps</code>, <code>muster run</code>, <code>muster why</code>.</p>",
    "</body></html>\n"
);

pub async fn page() -> Response {
    (STRICT_CSP, Html(HOME_PAGE_HTML)).into_response()
}
