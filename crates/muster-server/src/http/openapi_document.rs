//! The OpenAPI document: the annotations of the routes, completed with roles, errors and constraints.

mod constraints;

use std::sync::Arc;

use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use muster_protocol::event::Lagged;
use muster_protocol::node::{DrainSpec, FenceSpec, JoinTokenSpec};
use muster_protocol::problem::Problem;
use muster_protocol::submit::ActionReason;
use serde_json::Value;
use utoipa::PartialSchema;
use utoipa::ToSchema;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, Content, Info, License, OpenApi, Ref, RefOr, Required, ResponseBuilder, Schema};

use crate::http::access::{AccessRule, access_rule};
use crate::http::api_error::PROBLEM_JSON;

/// The only security scheme.
const SECURITY_SCHEME: &str = "token";

const DESCRIPTION: &str = "\
Every error is `application/problem+json` with a stable `code`. Sizes named `_mb` are MiB. Timestamps are RFC 3339 \
text, and Unix milliseconds if the name ends in `_ms`. Lists return `total`, and `next_cursor` if there are more rows; \
`offset` works as well. Unknown fields and parameters are refused.";

pub async fn serve(json: Arc<String>) -> Response {
    ([(CONTENT_TYPE, "application/json")], json.to_string()).into_response()
}

/// The document as JSON, from what utoipa collects from the routes.
pub fn complete_document(mut document: OpenApi) -> Value {
    let mut info = Info::new("muster", env!("CARGO_PKG_VERSION"));
    info.description = Some(DESCRIPTION.to_string());
    info.license = Some(License::new("MIT"));
    document.info = info;
    let components = document.components.get_or_insert_with(Components::new);
    components.add_security_scheme(SECURITY_SCHEME, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    add_schema::<Problem>(components);
    add_schema::<Lagged>(components);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            complete_operation(operation, access_rule(&method, path));
        }
    }
    constraints::add_constraints(serde_json::to_value(&document).unwrap_or_default())
}

fn add_schema<T: ToSchema + PartialSchema>(components: &mut Components) {
    let schema: RefOr<Schema> = T::schema();
    components.schemas.insert(T::name().to_string(), schema);
}

/// The operations of a path, with their methods.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let all = [
        (Method::GET, item.get.as_mut()),
        (Method::POST, item.post.as_mut()),
        (Method::PUT, item.put.as_mut()),
        (Method::PATCH, item.patch.as_mut()),
        (Method::DELETE, item.delete.as_mut()),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation?)))
}

fn complete_operation(operation: &mut Operation, rule: Option<AccessRule>) {
    // Names of handlers are unique only in their module; an operation id must be unique in the document.
    let tag = operation.tags.iter().flatten().next().cloned().unwrap_or_default();
    let name = operation.operation_id.take().unwrap_or_default();
    operation.operation_id = Some(format!("{tag}_{name}"));
    if let Some(AccessRule::NeedsRoleFor(permission)) = rule {
        operation.security = Some(vec![SecurityRequirement::new(SECURITY_SCHEME, Vec::<String>::new())]);
        let needs = format!("Needs role `{}`.", permission.minimum_role().as_str());
        operation.description = Some(match operation.description.take() {
            Some(text) if !text.is_empty() => format!("{text}\n\n{needs}"),
            _ => needs,
        });
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body
        && body.content.values().any(is_optional_body)
    {
        body.required = Some(Required::False);
    }
    let problem = Content::new(Some(Ref::from_schema_name(Problem::name())));
    let error = ResponseBuilder::new()
        .description("The problem document of a refused or failed request")
        .content(PROBLEM_JSON, problem)
        .build();
    operation.responses.responses.insert("default".to_string(), RefOr::T(error));
}

/// Whether the body of a request is optional: all fields of these bodies are.
fn is_optional_body(content: &RefOr<Content>) -> bool {
    let optional = [ActionReason::name(), DrainSpec::name(), FenceSpec::name(), JoinTokenSpec::name()]
        .map(|name| Ref::from_schema_name(name).ref_location);
    let RefOr::T(content) = content else { return false };
    matches!(&content.schema, Some(RefOr::Ref(found)) if optional.contains(&found.ref_location))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::access::ACCESS_RULES;

    /// Routes that serve pages and the document itself.
    const UNDOCUMENTED_PATHS: [&str; 3] = ["/", "/api/v1/docs", "/api/v1/openapi.json"];

    /// Method, path and description of every operation of the document.
    fn documented_operations() -> Vec<(String, String, Value)> {
        let document = crate::http::openapi();
        let paths = document["paths"].as_object().unwrap();
        let operations = paths.iter().flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(|(method, operation)| (method.to_uppercase(), path.clone(), operation.clone()))
        });
        operations.collect()
    }

    #[test]
    fn every_route_has_an_access_rule_and_every_rule_a_route() {
        let routes: BTreeSet<(String, String)> =
            documented_operations().into_iter().map(|(method, path, _)| (method, path)).collect();
        let rules: BTreeSet<(String, String)> = ACCESS_RULES
            .iter()
            .filter(|rule| !UNDOCUMENTED_PATHS.contains(&rule.1))
            .map(|rule| (rule.0.to_string(), rule.1.to_string()))
            .collect();
        assert_eq!(routes, rules);
    }

    #[test]
    fn operation_ids_are_unique() {
        let mut seen = BTreeSet::new();
        for (_, path, operation) in documented_operations() {
            let id = operation["operationId"].as_str().unwrap_or_default().to_string();
            assert!(!id.is_empty() && seen.insert(id.clone()), "{path}: duplicate operation id `{id}`");
        }
    }
}
