//! The API reference for people, generated from the OpenAPI document as HTML and as Markdown.

mod html;
mod markdown;
mod schema_text;

use std::sync::Arc;

use axum::http::HeaderName;
use axum::http::header::{CONTENT_SECURITY_POLICY, X_FRAME_OPTIONS};
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Map, Value};

use schema_text::{schema_fields, type_text};

/// Pages load nothing, run no scripts, and cannot be framed by another page.
pub const STRICT_CSP: [(HeaderName, &str); 2] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_FRAME_OPTIONS, "DENY"),
];

pub async fn serve(page: Arc<String>) -> Response {
    (STRICT_CSP, Html(page.to_string())).into_response()
}

/// The reference as one HTML page, without scripts and without external resources.
pub fn reference_html(document: &Value) -> String {
    html::page(&ApiReference::from_openapi(document))
}

/// The reference as Markdown, for `docs/API_REFERENCE.md`.
pub fn api_reference_markdown() -> String {
    markdown::page(&ApiReference::from_openapi(&crate::http::openapi()))
}

struct ApiReference {
    version: String,
    description: String,
    chapters: Vec<TagChapter>,
    objects: Vec<SchemaDoc>,
}

/// The routes of one tag.
struct TagChapter {
    tag: String,
    routes: Vec<RouteDoc>,
}

struct RouteDoc {
    method: String,
    path: String,
    summary: String,
    description: String,
    params: Vec<FieldDoc>,
    body: Option<String>,
    responses: Vec<ResponseDoc>,
}

/// One response of a route.
struct ResponseDoc {
    status: String,
    description: String,
    body: Option<String>,
}

/// One schema.
struct SchemaDoc {
    name: String,
    description: String,
    fields: Vec<FieldDoc>,
}

/// One field or parameter.
struct FieldDoc {
    name: String,
    type_text: String,
    required: bool,
    description: String,
}

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

impl ApiReference {
    fn from_openapi(document: &Value) -> ApiReference {
        let schemas = object_or_empty(&document["components"]["schemas"]);
        ApiReference {
            version: str_or_empty(&document["info"]["version"]),
            description: str_or_empty(&document["info"]["description"]),
            chapters: chapters_by_tag(&object_or_empty(&document["paths"])),
            objects: schemas.iter().map(|(name, schema)| schema_doc(name, schema, &schemas)).collect(),
        }
    }
}

fn schema_doc(name: &str, schema: &Value, all: &Map<String, Value>) -> SchemaDoc {
    let fields = schema_fields(schema, all);
    let description = str_or_empty(&schema["description"]);
    // A schema without fields is an enumeration or a choice of types.
    let description = match fields.is_empty() {
        true => format!("{description}\n\nOne of: {}", type_text(schema)),
        false => description,
    };
    SchemaDoc { name: name.to_string(), description, fields }
}

/// Routes by tag, in the order of their paths.
fn chapters_by_tag(paths: &Map<String, Value>) -> Vec<TagChapter> {
    let mut chapters: Vec<TagChapter> = Vec::new();
    for (path, item) in paths {
        for method in METHODS {
            let operation = &item[method];
            if operation.is_null() {
                continue;
            }
            let tag = str_or_empty(&operation["tags"][0]);
            let route = route_doc(method, path, operation);
            match chapters.iter_mut().find(|chapter| chapter.tag == tag) {
                Some(chapter) => chapter.routes.push(route),
                None => chapters.push(TagChapter { tag, routes: vec![route] }),
            }
        }
    }
    chapters.sort_by(|a, b| a.tag.cmp(&b.tag));
    chapters
}

fn route_doc(method: &str, path: &str, operation: &Value) -> RouteDoc {
    let params = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let param_doc = |param: &Value| FieldDoc {
        name: str_or_empty(&param["name"]),
        type_text: format!("{}, {}", type_text(&param["schema"]), str_or_empty(&param["in"])),
        required: param["required"].as_bool().unwrap_or(false),
        description: str_or_empty(&param["description"]),
    };
    let response_doc = |(status, response): (&String, &Value)| ResponseDoc {
        status: status.clone(),
        description: str_or_empty(&response["description"]),
        body: body_type(&response["content"]),
    };
    RouteDoc {
        method: method.to_uppercase(),
        path: path.to_string(),
        summary: str_or_empty(&operation["summary"]),
        description: str_or_empty(&operation["description"]),
        params: params.iter().map(param_doc).collect(),
        body: body_type(&operation["requestBody"]["content"]),
        responses: object_or_empty(&operation["responses"]).iter().map(response_doc).collect(),
    }
}

/// The type of a body, with its media type if that is not JSON.
fn body_type(content: &Value) -> Option<String> {
    let (media, schema) = content.as_object()?.iter().next()?;
    let kind = type_text(&schema["schema"]);
    Some(if media == "application/json" { kind } else { format!("{kind} as {media}") })
}

fn object_or_empty(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn str_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_and_markdown_name_every_route_and_html_loads_nothing_external() {
        let document = crate::http::openapi();
        let (page, markdown) = (reference_html(&document), api_reference_markdown());
        for path in document["paths"].as_object().unwrap().keys() {
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
    fn every_route_parameter_and_field_is_described() {
        let reference = ApiReference::from_openapi(&crate::http::openapi());
        for route in reference.chapters.iter().flat_map(|chapter| &chapter.routes) {
            assert!(!route.summary.is_empty(), "{} {}", route.method, route.path);
            assert!(route.params.iter().all(|row| !row.description.is_empty()), "{} {}", route.method, route.path);
        }
        for object in &reference.objects {
            let bare = object.fields.iter().find(|row| row.description.is_empty());
            assert!(bare.is_none(), "{}.{}", object.name, bare.map(|row| row.name.as_str()).unwrap_or_default());
        }
    }
}
