//! The simulation tables and plots of docs/results.md, generated from the output of `muster bench` and `muster sim`.
//!
//! Only the text between `<!-- results:NAME -->` and `<!-- end -->` is replaced. The results depend only on seeds and
//! recorded traces, so the same build writes the same digits on every machine; measured run times are not included.

mod bench;
mod mixed;
mod month;
mod page;
mod placement;
mod queues;

use anyhow::{Context, Result, bail};

use bench::Bench;
use page::Page;

/// The generated parts of one section.
pub struct Outcome {
    /// In Markdown.
    pub table: String,
    /// Shown below the table.
    pub plots: Vec<Plot>,
}

/// A file in docs/plots.
pub struct Plot {
    /// The file name inside the folder.
    pub file: &'static str,
    /// The alternative text of the image.
    pub alt_text: &'static str,
    pub svg: String,
}

type Measure = fn(&Bench) -> Result<Outcome>;

/// By name, the fastest first: placement takes about ten minutes, the others one to four.
const ALL: [(&str, Measure); 4] = [
    ("mixed", mixed::measure),
    ("month", month::measure),
    ("queues", queues::measure),
    ("placement", placement::measure),
];

/// Generates the named results, or all of them, and writes them to docs/results.md and docs/plots.
pub fn write(names: &[&str]) -> Result<()> {
    if let Some(name) = names.iter().find(|name| !ALL.iter().any(|(known, _)| known == *name)) {
        let known = ALL.map(|(known, _)| known).join(", ");
        bail!("unknown results `{name}`; the names are {known}");
    }
    let Some(bench) = Bench::build()? else { return Ok(()) };
    for (name, measure) in ALL.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        eprintln!("measuring {name}");
        let outcome = measure(&bench).with_context(|| format!("measuring {name}"))?;
        write_outcome(name, &outcome)?;
    }
    Ok(())
}

fn write_outcome(name: &str, outcome: &Outcome) -> Result<()> {
    let folder = crate::root().join("docs/plots");
    std::fs::create_dir_all(&folder)?;
    let mut text = outcome.table.clone();
    for Plot { file, alt_text, svg } in &outcome.plots {
        std::fs::write(folder.join(file), svg).with_context(|| format!("writing docs/plots/{file}"))?;
        text += &format!("\n![{alt_text}](plots/{file})\n");
    }
    let path = crate::root().join("docs/results.md");
    let mut page = Page(std::fs::read_to_string(&path).context("reading docs/results.md")?);
    page.replace(name, &text)?;
    std::fs::write(&path, page.0).context("writing docs/results.md")
}
