//! The reference of the API, for people: read from the OpenAPI document, written as HTML and as Markdown.

mod html;
mod markdown;
mod words;

use std::sync::Arc;

use axum::http::HeaderName;
use axum::http::header::{CONTENT_SECURITY_POLICY, X_FRAME_OPTIONS};
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Map, Value};
use utoipa::openapi::OpenApi;

use words::{kind, rows};

/// Pages load nothing, run nothing, and are shown in no frame of another page.
pub const STRICT_CSP: [(HeaderName, &str); 2] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_FRAME_OPTIONS, "DENY"),
];

/// Serve the page.
pub async fn serve(page: Arc<String>) -> Response {
    (STRICT_CSP, Html(page.to_string())).into_response()
}

/// The reference as one page without scripts and without a request to anyone.
pub fn html(document: &OpenApi) -> String {
    html::page(&Reference::of(document))
}

/// The reference as Markdown, for `docs/API_REFERENCE.md`.
pub fn api_reference_markdown() -> String {
    markdown::text(&Reference::of(&crate::http::openapi()))
}

/// What there is to say.
struct Reference {
    version: String,
    about: String,
    chapters: Vec<Chapter>,
    objects: Vec<Object>,
}

/// Routes about one noun.
struct Chapter {
    noun: String,
    routes: Vec<Route>,
}

/// One route.
struct Route {
    method: String,
    path: String,
    summary: String,
    about: String,
    params: Vec<Row>,
    body: Option<String>,
    answers: Vec<Answer>,
}

/// One answer of a route.
struct Answer {
    status: String,
    about: String,
    body: Option<String>,
}

/// One kind of object.
struct Object {
    name: String,
    about: String,
    rows: Vec<Row>,
}

/// One field or parameter.
struct Row {
    name: String,
    kind: String,
    required: bool,
    about: String,
}

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

impl Reference {
    fn of(document: &OpenApi) -> Reference {
        let document = serde_json::to_value(document).unwrap_or_default();
        let schemas = object(&document["components"]["schemas"]);
        Reference {
            version: text(&document["info"]["version"]),
            about: text(&document["info"]["description"]),
            chapters: chapters(&object(&document["paths"])),
            objects: schemas.iter().map(|(name, schema)| one_object(name, schema, &schemas)).collect(),
        }
    }
}

fn one_object(name: &str, schema: &Value, all: &Map<String, Value>) -> Object {
    let rows = rows(schema, all);
    let about = text(&schema["description"]);
    // What has no fields is one of a few words or kinds.
    let about = if rows.is_empty() { format!("{about}\n\nOne of: {}", kind(schema)) } else { about };
    Object { name: name.to_string(), about, rows }
}

/// Routes by noun, in the order of their paths.
fn chapters(paths: &Map<String, Value>) -> Vec<Chapter> {
    let mut chapters: Vec<Chapter> = Vec::new();
    for (path, item) in paths {
        for method in METHODS {
            let operation = &item[method];
            if operation.is_null() {
                continue;
            }
            let noun = text(&operation["tags"][0]);
            let route = route(method, path, operation);
            match chapters.iter_mut().find(|chapter| chapter.noun == noun) {
                Some(chapter) => chapter.routes.push(route),
                None => chapters.push(Chapter { noun, routes: vec![route] }),
            }
        }
    }
    chapters.sort_by(|a, b| a.noun.cmp(&b.noun));
    chapters
}

fn route(method: &str, path: &str, operation: &Value) -> Route {
    let params = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let param = |param: &Value| Row {
        name: text(&param["name"]),
        kind: format!("{}, {}", kind(&param["schema"]), text(&param["in"])),
        required: param["required"].as_bool().unwrap_or(false),
        about: text(&param["description"]),
    };
    let answer = |(status, answer): (&String, &Value)| Answer {
        status: status.clone(),
        about: text(&answer["description"]),
        body: body(&answer["content"]),
    };
    Route {
        method: method.to_uppercase(),
        path: path.to_string(),
        summary: text(&operation["summary"]),
        about: text(&operation["description"]),
        params: params.iter().map(param).collect(),
        body: body(&operation["requestBody"]["content"]),
        answers: object(&operation["responses"]).iter().map(answer).collect(),
    }
}

/// What a body holds.
fn body(content: &Value) -> Option<String> {
    let (media, schema) = content.as_object()?.iter().next()?;
    let kind = kind(&schema["schema"]);
    Some(if media == "application/json" { kind } else { format!("{kind} as {media}") })
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_every_route_and_field_and_load_nothing() {
        let document = crate::http::openapi();
        let (page, markdown) = (html(&document), api_reference_markdown());
        for path in document.paths.paths.keys() {
            assert!(page.contains(path) && markdown.contains(path), "{path}");
        }
        for field in ["gpu_memory_mb", "allocated_gpus", "fair_share_weight", "Idempotency-Key"] {
            assert!(page.contains(field) && markdown.contains(field), "{field}");
        }
        for foreign in ["<script", "http://", "https://", "src="] {
            assert!(!page.contains(foreign), "the page contains {foreign}");
        }
    }

    #[test]
    fn everything_is_described() {
        let reference = Reference::of(&crate::http::openapi());
        for route in reference.chapters.iter().flat_map(|chapter| &chapter.routes) {
            assert!(!route.summary.is_empty(), "{} {}", route.method, route.path);
            assert!(route.params.iter().all(|row| !row.about.is_empty()), "{} {}", route.method, route.path);
        }
        for object in &reference.objects {
            let bare = object.rows.iter().find(|row| row.about.is_empty());
            assert!(
                bare.is_none(),
                "{}.{}",
                object.name,
                bare.map(|row| row.name.as_str()).unwrap_or_default()
            );
        }
    }
}
