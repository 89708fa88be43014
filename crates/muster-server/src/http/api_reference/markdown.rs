//! The API reference as Markdown.

use std::fmt::Write;

use super::{ApiReference, FieldDoc, RouteDoc, SchemaDoc};

pub fn page(reference: &ApiReference) -> String {
    let mut text = String::from("# API reference\n\n");
    let _ = writeln!(
        text,
        "Written by `cargo xtask docs` from the OpenAPI document that the server serves at `/api/v1/openapi.json`; \
         the same reference as an HTML page is at `/api/v1/docs`. The [glossary](GLOSSARY.md) defines \
         the terms.\n\n{}\n",
        reference.description
    );
    for chapter in &reference.chapters {
        let _ = writeln!(text, "## {}\n", chapter.tag);
        chapter.routes.iter().for_each(|each| write_route(&mut text, each));
    }
    text.push_str("## objects\n\n");
    reference.objects.iter().for_each(|each| write_schema(&mut text, each));
    text
}

fn write_route(text: &mut String, route: &RouteDoc) {
    let _ = writeln!(text, "### `{} {}`\n\n{}\n", route.method, route.path, route.summary);
    if !route.description.is_empty() {
        let _ = writeln!(text, "{}\n", route.description);
    }
    write_table(text, "parameter", &route.params);
    if let Some(body) = &route.body {
        let _ = writeln!(text, "Body: {body}\n");
    }
    for response in &route.responses {
        let body = response.body.as_deref().map(|body| format!(": {body}")).unwrap_or_default();
        let _ = writeln!(text, "* `{}` {}{body}", response.status, response.description);
    }
    text.push('\n');
}

fn write_schema(text: &mut String, object: &SchemaDoc) {
    let _ = writeln!(text, "### {}\n\n{}\n", object.name, object.description);
    write_table(text, "field", &object.fields);
}

fn write_table(text: &mut String, noun: &str, rows: &[FieldDoc]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "| {noun} | kind | meaning |\n|---|---|---|");
    for row in rows {
        let must = if row.required { ", always" } else { "" };
        let _ = writeln!(
            text,
            "| `{}` | {}{must} | {} |",
            row.name,
            escape_cell(&row.type_text),
            escape_cell(&row.description)
        );
    }
    text.push('\n');
}

fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
