//! The tables and plots of simulations in docs/results.md, written anew from what the commands print.
//!
//! What stands between `<!-- results:NAME -->` and `<!-- end -->` is replaced, and nothing else. All of it comes from seeds
//! and recorded traces, so that the same build writes the same digits on every machine; what takes time is not in it.

mod bench;
mod mixed;
mod month;
mod page;
mod placement;
mod queues;

use anyhow::{Context, Result, bail};

use bench::Bench;
use page::Page;

/// What one run comes to.
pub struct Outcome {
    /// The table, in Markdown.
    pub table: String,
    /// What stands below it.
    pub plots: Vec<Plot>,
}

/// A file in docs/plots.
pub struct Plot {
    /// Its name there.
    pub file: &'static str,
    /// What it shows, for those who do not see it.
    pub says: &'static str,
    /// What it holds.
    pub svg: String,
}

type Measure = fn(&Bench) -> Result<Outcome>;

/// By name, the quick ones first. Placement takes some ten minutes, the others one to four.
const ALL: [(&str, Measure); 4] = [
    ("mixed", mixed::measure),
    ("month", month::measure),
    ("queues", queues::measure),
    ("placement", placement::measure),
];

/// Measure what is named, or everything, and write it down.
pub fn write(names: &[&str]) -> Result<()> {
    if let Some(name) = names.iter().find(|name| !ALL.iter().any(|(known, _)| known == *name)) {
        let known = ALL.map(|(known, _)| known).join(", ");
        bail!("there are no results called `{name}`; one of {known}");
    }
    let Some(bench) = Bench::build()? else { return Ok(()) };
    for (name, measure) in ALL.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        eprintln!("measuring {name}");
        let outcome = measure(&bench).with_context(|| format!("measuring {name}"))?;
        keep(name, &outcome)?;
    }
    Ok(())
}

fn keep(name: &str, outcome: &Outcome) -> Result<()> {
    let folder = crate::root().join("docs/plots");
    std::fs::create_dir_all(&folder)?;
    let mut text = outcome.table.clone();
    for Plot { file, says, svg } in &outcome.plots {
        std::fs::write(folder.join(file), svg).with_context(|| format!("writing docs/plots/{file}"))?;
        text += &format!("\n![{says}](plots/{file})\n");
    }
    let path = crate::root().join("docs/results.md");
    let mut page = Page(std::fs::read_to_string(&path).context("reading docs/results.md")?);
    page.replace(name, &text)?;
    std::fs::write(&path, page.0).context("writing docs/results.md")
}
