//! The API reference as one HTML page.

use std::fmt::Write;

use super::{ApiReference, FieldDoc, RouteDoc, SchemaDoc};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
code{background:#8881;padding:0 .2em}table{border-collapse:collapse;width:100%;margin:.5rem 0}\
td,th{border-bottom:1px solid #8886;text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0}\
h3{margin-top:2rem}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8cf}}";

pub fn page(reference: &ApiReference) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>muster API</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>{STYLE}</style></head><body>\
         <h1>muster API {}</h1><p>{}</p><nav><ul>",
        escape_html(&reference.version),
        html_with_code(&reference.description)
    );
    for chapter in &reference.chapters {
        let _ = write!(page, "<li><a href=\"#{0}\">{0}</a></li>", escape_html(&chapter.tag));
    }
    page.push_str("<li><a href=\"#objects\">objects</a></li></ul></nav>");
    for chapter in &reference.chapters {
        let _ = write!(page, "<h2 id=\"{0}\">{0}</h2>", escape_html(&chapter.tag));
        chapter.routes.iter().for_each(|each| write_route(&mut page, each));
    }
    page.push_str("<h2 id=\"objects\">objects</h2>");
    reference.objects.iter().for_each(|each| write_schema(&mut page, each));
    page.push_str("</body></html>\n");
    page
}

fn write_route(page: &mut String, route: &RouteDoc) {
    let (method, path) = (escape_html(&route.method), escape_html(&route.path));
    let _ = write!(page, "<h3><code>{method} {path}</code></h3><p>{}</p>", html_with_code(&route.summary));
    write_paragraphs(page, &route.description);
    write_table(page, &route.params);
    if let Some(body) = &route.body {
        let _ = write!(page, "<p>Body: {}</p>", html_with_code(body));
    }
    page.push_str("<ul>");
    for response in &route.responses {
        let body = response.body.as_deref().map(|body| format!(": {}", html_with_code(body))).unwrap_or_default();
        let _ = write!(
            page,
            "<li><code>{}</code> {}{body}</li>",
            escape_html(&response.status),
            html_with_code(&response.description)
        );
    }
    page.push_str("</ul>");
}

fn write_paragraphs(page: &mut String, text: &str) {
    for paragraph in text.split("\n\n").filter(|text| !text.is_empty()) {
        let _ = write!(page, "<p>{}</p>", html_with_code(paragraph));
    }
}

fn write_schema(page: &mut String, object: &SchemaDoc) {
    let _ = write!(page, "<h3 id=\"{0}\">{0}</h3>", escape_html(&object.name));
    write_paragraphs(page, &object.description);
    write_table(page, &object.fields);
}

fn write_table(page: &mut String, rows: &[FieldDoc]) {
    if rows.is_empty() {
        return;
    }
    page.push_str("<table>");
    for row in rows {
        let must = if row.required { ", always" } else { "" };
        let _ = write!(
            page,
            "<tr><td><code>{}</code></td><td>{}{must}</td><td>{}</td></tr>",
            escape_html(&row.name),
            html_with_code(&row.type_text),
            html_with_code(&row.description)
        );
    }
    page.push_str("</table>");
}

/// Text with backticks turned into `<code>`.
fn html_with_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let marked = parts.map(|(index, part)| match index % 2 {
        1 => format!("<code>{}</code>", escape_html(part)),
        _ => escape_html(part),
    });
    marked.collect()
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
