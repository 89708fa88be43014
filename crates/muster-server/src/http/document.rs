//! The OpenAPI document: what the routes say of themselves, completed from the table of access.

mod constraints;

use std::sync::Arc;

use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use muster_protocol::event::Lagged;
use muster_protocol::problem::Problem;
use muster_protocol::submit::Reasoned;
use utoipa::PartialSchema;
use utoipa::ToSchema;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, Content, Info, License, OpenApi, Ref, RefOr, Required, ResponseBuilder, Schema,
};

use crate::http::access::{Need, need};
use crate::http::fault::PROBLEM_JSON;

/// The name of the only security scheme.
const BEARER: &str = "token";

const DESCRIPTION: &str = "\
Every error is `application/problem+json` with a stable `code`. Sizes named `_mb` are MiB. Moments are RFC 3339 \
text, and Unix milliseconds where the name ends in `_ms`. Lists answer `total`, and `next_cursor` when there is more; \
`offset` works as well. Unknown fields and parameters are refused.";

/// Serve the document.
pub async fn serve(json: Arc<String>) -> Response {
    ([(CONTENT_TYPE, "application/json")], json.to_string()).into_response()
}

/// Complete what the routes have said.
pub fn finished(mut document: OpenApi) -> OpenApi {
    let mut info = Info::new("muster", env!("CARGO_PKG_VERSION"));
    info.description = Some(DESCRIPTION.to_string());
    info.license = Some(License::new("MIT"));
    document.info = info;
    let components = document.components.get_or_insert_with(Components::new);
    components.add_security_scheme(BEARER, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    add_schema::<Problem>(components);
    add_schema::<Lagged>(components);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            finish(operation, need(&method, path));
        }
    }
    constraints::tighten(document)
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

fn finish(operation: &mut Operation, need: Option<Need>) {
    // Handlers are named inside their module; programs need a name that is unique in the document.
    let tag = operation.tags.iter().flatten().next().cloned().unwrap_or_default();
    let name = operation.operation_id.take().unwrap_or_default();
    operation.operation_id = Some(format!("{tag}_{name}"));
    if let Some(Need::To(verb)) = need {
        operation.security = Some(vec![SecurityRequirement::new(BEARER, Vec::<String>::new())]);
        let needs = format!("Needs role `{}`.", verb.needs().word());
        operation.description = Some(match operation.description.take() {
            Some(said) if !said.is_empty() => format!("{said}\n\n{needs}"),
            _ => needs,
        });
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body
        && body.content.values().any(is_optional)
    {
        body.required = Some(Required::False);
    }
    let problem = Content::new(Some(Ref::from_schema_name(Problem::name())));
    let refused =
        ResponseBuilder::new().description("Why it was not done").content(PROBLEM_JSON, problem).build();
    operation.responses.responses.insert("default".to_string(), RefOr::T(refused));
}

/// Whether a request may come without its body: one that only says why.
fn is_optional(content: &RefOr<Content>) -> bool {
    let optional = Ref::from_schema_name(Reasoned::name()).ref_location;
    let RefOr::T(content) = content else { return false };
    matches!(&content.schema, Some(RefOr::Ref(found)) if found.ref_location == optional)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::access::RULES;

    /// Routes that serve pages and the document itself.
    const PAGES: [&str; 3] = ["/", "/api/v1/docs", "/api/v1/openapi.json"];

    #[test]
    fn every_route_has_a_rule_and_every_rule_a_route() {
        let mut document = crate::http::openapi();
        let mut routes = BTreeSet::new();
        for (path, item) in &mut document.paths.paths {
            routes.extend(operations(item).map(|(method, _)| (method.to_string(), path.clone())));
        }
        let rules: BTreeSet<(String, String)> = RULES
            .iter()
            .filter(|rule| !PAGES.contains(&rule.1))
            .map(|rule| (rule.0.to_string(), rule.1.to_string()))
            .collect();
        assert_eq!(routes, rules);
    }

    #[test]
    fn names_of_operations_are_unique() {
        let mut document = crate::http::openapi();
        let mut seen = BTreeSet::new();
        for item in document.paths.paths.values_mut() {
            for (_, operation) in operations(item) {
                let name = operation.operation_id.clone().unwrap_or_default();
                assert!(seen.insert(name.clone()), "{name} is there twice");
            }
        }
    }
}
