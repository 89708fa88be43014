//! The reference as one page.

use std::fmt::Write;

use super::{Object, Reference, Route, Row};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
code{background:#8881;padding:0 .2em}table{border-collapse:collapse;width:100%;margin:.5rem 0}\
td,th{border-bottom:1px solid #8886;text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0}\
h3{margin-top:2rem}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8cf}}";

/// The whole page.
pub fn page(reference: &Reference) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>muster API</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>{STYLE}</style></head><body>\
         <h1>muster API {}</h1><p>{}</p><nav><ul>",
        escaped(&reference.version),
        prose(&reference.about)
    );
    for chapter in &reference.chapters {
        let _ = write!(page, "<li><a href=\"#{0}\">{0}</a></li>", escaped(&chapter.noun));
    }
    page.push_str("<li><a href=\"#objects\">objects</a></li></ul></nav>");
    for chapter in &reference.chapters {
        let _ = write!(page, "<h2 id=\"{0}\">{0}</h2>", escaped(&chapter.noun));
        chapter.routes.iter().for_each(|each| route(&mut page, each));
    }
    page.push_str("<h2 id=\"objects\">objects</h2>");
    reference.objects.iter().for_each(|each| object(&mut page, each));
    page.push_str("</body></html>\n");
    page
}

fn route(page: &mut String, route: &Route) {
    let (method, path) = (escaped(&route.method), escaped(&route.path));
    let _ = write!(page, "<h3><code>{method} {path}</code></h3><p>{}</p>", prose(&route.summary));
    paragraphs(page, &route.about);
    table(page, &route.params);
    if let Some(body) = &route.body {
        let _ = write!(page, "<p>Body: {}</p>", prose(body));
    }
    page.push_str("<ul>");
    for answer in &route.answers {
        let body = answer.body.as_deref().map(|body| format!(": {}", prose(body))).unwrap_or_default();
        let _ =
            write!(page, "<li><code>{}</code> {}{body}</li>", escaped(&answer.status), prose(&answer.about));
    }
    page.push_str("</ul>");
}

fn paragraphs(page: &mut String, text: &str) {
    for paragraph in text.split("\n\n").filter(|text| !text.is_empty()) {
        let _ = write!(page, "<p>{}</p>", prose(paragraph));
    }
}

fn object(page: &mut String, object: &Object) {
    let _ = write!(page, "<h3 id=\"{0}\">{0}</h3>", escaped(&object.name));
    paragraphs(page, &object.about);
    table(page, &object.rows);
}

fn table(page: &mut String, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    page.push_str("<table>");
    for row in rows {
        let must = if row.required { ", always" } else { "" };
        let _ = write!(
            page,
            "<tr><td><code>{}</code></td><td>{}{must}</td><td>{}</td></tr>",
            escaped(&row.name),
            prose(&row.kind),
            prose(&row.about)
        );
    }
    page.push_str("</table>");
}

/// Text with its `code` marked.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let marked = parts.map(|(place, part)| match place % 2 {
        1 => format!("<code>{}</code>", escaped(part)),
        _ => escaped(part),
    });
    marked.collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
