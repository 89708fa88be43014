//! Compilation time of policy files.

use std::collections::BTreeMap;

use muster_policy::compile;

use super::PolicyMeasure;
use crate::commands::bench::timing::median_cpu_ms;
use crate::error::CliError;
use crate::interpreter::call_limits;

const FILES: usize = 100;

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

/// Compile the cookbook ten times over, every file under its own name: parse, check, run and freeze.
pub fn measure_compilation(rounds: usize) -> Result<PolicyMeasure, CliError> {
    let file = |index: usize| (format!("p{index:03}.gsky"), RECIPES[index % RECIPES.len()].to_string());
    let files: BTreeMap<String, String> = (0..FILES).map(file).collect();
    let (ms, compiled) = median_cpu_ms(rounds, || compile(files.clone(), call_limits()).map(|(bundle, _)| bundle));
    compiled.map_err(|error| CliError::failed(error.to_string()))?;
    Ok(PolicyMeasure::of(format!("{FILES} files compiled"), ms, "ms"))
}
