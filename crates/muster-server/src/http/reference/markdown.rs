//! The reference as Markdown.

use std::fmt::Write;

use super::{Object, Reference, Route, Row};

/// The whole text.
pub fn text(reference: &Reference) -> String {
    let mut text = String::from("# API reference\n\n");
    let _ = writeln!(
        text,
        "Written by `cargo xtask docs` from the OpenAPI document that the server serves at `/api/v1/openapi.json`; \
         the same as a page is at `/api/v1/docs`.\n\n{}\n",
        reference.about
    );
    for chapter in &reference.chapters {
        let _ = writeln!(text, "## {}\n", chapter.noun);
        chapter.routes.iter().for_each(|each| route(&mut text, each));
    }
    text.push_str("## objects\n\n");
    reference.objects.iter().for_each(|each| object(&mut text, each));
    text
}

fn route(text: &mut String, route: &Route) {
    let _ = writeln!(text, "### `{} {}`\n\n{}\n", route.method, route.path, route.summary);
    if !route.about.is_empty() {
        let _ = writeln!(text, "{}\n", route.about);
    }
    table(text, "parameter", &route.params);
    if let Some(body) = &route.body {
        let _ = writeln!(text, "Body: {body}\n");
    }
    for answer in &route.answers {
        let body = answer.body.as_deref().map(|body| format!(": {body}")).unwrap_or_default();
        let _ = writeln!(text, "* `{}` {}{body}", answer.status, answer.about);
    }
    text.push('\n');
}

fn object(text: &mut String, object: &Object) {
    let _ = writeln!(text, "### {}\n\n{}\n", object.name, object.about);
    table(text, "field", &object.rows);
}

fn table(text: &mut String, noun: &str, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "| {noun} | kind | meaning |\n|---|---|---|");
    for row in rows {
        let must = if row.required { ", always" } else { "" };
        let _ = writeln!(text, "| `{}` | {}{must} | {} |", row.name, cell(&row.kind), cell(&row.about));
    }
    text.push('\n');
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
