//! How soon files are loaded.

use std::collections::BTreeMap;

use muster_policy::compile;

use super::Measure;
use crate::commands::bench::cpu::median;
use crate::error::CliError;
use crate::interpreter::limits;

/// Files of one bundle.
const FILES: usize = 100;

/// The cookbook, as it is.
const RECIPES: [&str; 10] = [
    include_str!("../../../../../../policies/cookbook/01-night-quota.gsky"),
    include_str!("../../../../../../policies/cookbook/02-interactive-first.gsky"),
    include_str!("../../../../../../policies/cookbook/03-no-shared-memory.gsky"),
    include_str!("../../../../../../policies/cookbook/04-thermal-spread.gsky"),
    include_str!("../../../../../../policies/cookbook/05-cheapest-model.gsky"),
    include_str!("../../../../../../policies/cookbook/06-protect-long-jobs.gsky"),
    include_str!("../../../../../../policies/cookbook/07-retry-by-cause.gsky"),
    include_str!("../../../../../../policies/cookbook/08-background-power.gsky"),
    include_str!("../../../../../../policies/cookbook/09-image-allow-list.gsky"),
    include_str!("../../../../../../policies/cookbook/10-fair-start.gsky"),
];

/// The cookbook ten times, every file under a name of its own: read, checked, run and frozen.
pub fn hundred_files(rounds: usize) -> Result<Measure, CliError> {
    let file = |index: usize| (format!("p{index:03}.gsky"), RECIPES[index % RECIPES.len()].to_string());
    let files: BTreeMap<String, String> = (0..FILES).map(file).collect();
    let (ms, compiled) = median(rounds, || compile(files.clone(), limits()).map(|(bundle, _)| bundle));
    compiled.map_err(|error| CliError::failed(error.to_string()))?;
    Ok(Measure::of(format!("{FILES} files compiled anew"), ms, "ms"))
}
