//! `muster policy apply|rollback|ls|show|diff`: the policies of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use hyper::Method;
use muster_protocol::policy::{PolicyApply, PolicyList, PolicyRollback, PolicyVersion};
use muster_protocol::whatif::WhatIfRequest;

use crate::client::{Client, RequestTarget};
use crate::commands::sim::whatif;
use crate::commands::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs, ShowArgs, Tint};
use crate::policy_dirs;
use crate::units;

/// `muster policy apply`.
#[derive(Debug, clap::Args)]
#[command(
    before_help = "Examples:\n  muster policy apply policies/cookbook --why \"large jobs at night\"\n  muster policy apply mine --tenant red\n  muster policy apply --none\n  muster policy apply mine --shadow --since 7d"
)]
pub struct PolicyApplyArgs {
    /// Folder whose policies are applied as one bundle [default: policies]
    folder: Option<PathBuf>,
    /// Deactivate all policies
    #[arg(long, conflicts_with = "folder")]
    none: bool,
    /// Apply to the jobs of this tenant only
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Reason, for the history
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    /// Only check whether the server would accept the policies
    #[arg(long)]
    dry_run: bool,
    /// Apply the policies although tests in the folder fail
    #[arg(long, conflicts_with = "none")]
    force: bool,
    /// Evaluate the policies beside the active ones, without effect; `muster policy shadow` reports the differences
    #[arg(long, conflicts_with = "tenant")]
    shadow: bool,
    /// With `--shadow`: evaluate the recorded history since then instead of future rounds
    #[arg(long, value_name = "WHEN", requires = "shadow", conflicts_with = "dry_run")]
    since: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster policy rollback`.
#[derive(Debug, clap::Args)]
pub struct PolicyRollbackArgs {
    /// Version to apply again [default: the one before the active version]
    version: Option<u64>,
    /// Roll back the policies of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Reason, for the history
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster policy ls`.
#[derive(Debug, clap::Args)]
pub struct PolicyLsArgs {
    /// Only the policies of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// `muster policy show`.
#[derive(Debug, clap::Args)]
pub struct PolicyShowArgs {
    /// Version [default: the active one]
    version: Option<u64>,
    /// Show the active version of this tenant
    #[arg(long, value_name = "NAME", conflicts_with = "version")]
    tenant: Option<String>,
    /// Print the contents of the files too
    #[arg(long)]
    sources: bool,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster policy diff`.
#[derive(Debug, clap::Args)]
pub struct PolicyDiffArgs {
    /// Folder to compare with the active policies [default: policies]
    folder: Option<PathBuf>,
    /// Compare with the active policies of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

const COLUMNS: [Column<PolicyVersion>; 7] = [
    Column::new("VERSION", |one| one.version.to_string().into()),
    Column::new("SCOPE", |one| one.scope.as_str().into()),
    Column::new("ACTIVE", active_cell),
    Column::new("HASH", |one| short_hash(&one.hash).into()),
    Column::new("BY", |one| one.applied_by.as_str().into()),
    Column::new("APPLIED", |one| units::localize_timestamps(&one.applied_at).into()),
    Column::new("WHY", |one| Cell::or_dash(Some(one.why.clone()).filter(|why| !why.is_empty()))),
];

fn active_cell(version: &PolicyVersion) -> Cell {
    match (version.active, &version.suspended) {
        (true, Some(_)) => Cell::tinted("suspended", Tint::Bad),
        (true, None) => "yes".into(),
        (false, _) => "-".into(),
    }
}

const SHADOW_NOTE: &str =
    "the active policies stay; `muster policy shadow` reports where these would decide differently";

pub fn apply(args: &PolicyApplyArgs, options: &Options) -> CommandResult {
    let files = if args.none { BTreeMap::new() } else { read_policy_files(args.folder.as_ref())? };
    if let Some(since) = &args.since {
        let (since, policies, jobs) = (Some(since.clone()), Some(files), Some(whatif::JOBS_SHOWN_DEFAULT));
        let request = WhatIfRequest { since, policies, jobs, ..WhatIfRequest::default() };
        return whatif::query_server(&request, &args.show, options);
    }
    let (tenant_id, why) = (args.tenant.clone(), args.why.clone());
    let (dry_run, shadow, force) = (args.dry_run, args.shadow, args.force);
    let request = PolicyApply { files, tenant_id, why, dry_run, shadow, force };
    let applied: PolicyVersion = options.client()?.send(Method::POST, RequestTarget::new("policies"), &request)?;
    let suffix = tenant_suffix(&applied);
    let text = match (applied.files.is_empty(), args.dry_run) {
        (_, false) if args.shadow => format!("{SHADOW_NOTE}: {}\n", version_summary(&applied)),
        (true, false) => format!("no policies are active{suffix} (version {})\n", applied.version),
        (true, true) => format!("no policies would be active{suffix} (version {})\n", applied.version),
        (false, false) => {
            format!("version {} is active{suffix}: {}\n", applied.version, version_summary(&applied))
        }
        (false, true) => {
            format!("version {} would be active{suffix}: {}\n", applied.version, version_summary(&applied))
        }
    };
    output::print_text(&args.show, &text, &applied.version.to_string(), &applied)?;
    Ok(ExitStatus::SUCCESS)
}

pub fn rollback(args: &PolicyRollbackArgs, options: &Options) -> CommandResult {
    let request = PolicyRollback { version: args.version, tenant_id: args.tenant.clone(), why: args.why.clone() };
    let target = RequestTarget::new("policies").segment("rollback");
    let applied: PolicyVersion = options.client()?.send(Method::POST, target, &request)?;
    let (number, suffix) = (applied.version, tenant_suffix(&applied));
    let text = format!("version {number} is active{suffix}: {}\n", version_summary(&applied));
    output::print_text(&args.show, &text, &applied.version.to_string(), &applied)?;
    Ok(ExitStatus::SUCCESS)
}

pub fn list(args: &PolicyLsArgs, options: &Options) -> CommandResult {
    let policies = fetch_versions(&options.client()?, args.tenant.as_deref())?;
    output::list(&args.list, options.color, &COLUMNS, policies.policies.clone(), &policies)?;
    Ok(ExitStatus::SUCCESS)
}

pub fn show(args: &PolicyShowArgs, options: &Options) -> CommandResult {
    let client = options.client()?;
    let version = match args.version {
        Some(number) => fetch_version(&client, number)?,
        None => match active_version(&client, args.tenant.as_deref())? {
            Some(number) => fetch_version(&client, number)?,
            None => return Err(CliError::failed("no policies are active")),
        },
    };
    let mut text = version_text(&version);
    for (name, source) in version.sources.iter().filter(|_| args.sources) {
        text.push_str(&format!("\n--- {name}\n{source}"));
    }
    output::print_text(&args.show, &text, &version.version.to_string(), &version)?;
    Ok(ExitStatus::SUCCESS)
}

/// Prints what would change if the folder were applied; exits with 1 if something would.
pub fn diff(args: &PolicyDiffArgs, options: &Options) -> CommandResult {
    let client = options.client()?;
    let folder_files = read_policy_files(args.folder.as_ref())?;
    let active_files = match active_version(&client, args.tenant.as_deref())? {
        Some(number) => fetch_version(&client, number)?.sources,
        None => BTreeMap::new(),
    };
    let names: BTreeSet<&String> = folder_files.keys().chain(active_files.keys()).collect();
    let mut text = String::new();
    for name in names {
        let (before, after) = (active_files.get(name), folder_files.get(name));
        if before != after {
            text.push_str(&format!("--- {name}\n"));
            text.push_str(&line_diff(lines_of(before), lines_of(after)));
        }
    }
    if text.is_empty() {
        output::print_stderr("nothing would change");
        return Ok(ExitStatus::SUCCESS);
    }
    output::print_stdout(&text)?;
    Ok(ExitStatus(1))
}

fn lines_of(text: Option<&String>) -> Vec<&str> {
    text.map(|text| text.lines().collect()).unwrap_or_default()
}

fn read_policy_files(folder: Option<&PathBuf>) -> Result<BTreeMap<String, String>, CliError> {
    let default = PathBuf::from(policy_dirs::DEFAULT_POLICY_DIR);
    policy_dirs::read_policies(folder.unwrap_or(&default))
}

/// The versions of a tenant, or all versions that the caller may see.
fn fetch_versions(client: &Client, tenant: Option<&str>) -> Result<PolicyList, CliError> {
    client.get(RequestTarget::new("policies").query_if_some("tenant_id", tenant))
}

/// The active version of a tenant, or of the cluster.
fn active_version(client: &Client, tenant: Option<&str>) -> Result<Option<u64>, CliError> {
    let policies = fetch_versions(client, tenant)?.policies;
    let active = policies.iter().find(|one| one.active && one.tenant_id.as_deref() == tenant);
    Ok(active.map(|one| one.version))
}

fn fetch_version(client: &Client, number: u64) -> Result<PolicyVersion, CliError> {
    client.get(RequestTarget::new("policies").segment(&number.to_string()))
}

fn tenant_suffix(version: &PolicyVersion) -> String {
    version.tenant_id.as_ref().map(|tenant| format!(" for tenant {tenant}")).unwrap_or_default()
}

fn short_hash(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn version_summary(version: &PolicyVersion) -> String {
    let count = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let mut parts = vec![count(version.files.len(), "file", "files")];
    // Policies of a tenant register neither pools nor rulesets.
    if version.tenant_id.is_none() {
        parts.push(count(version.pools.len(), "pool", "pools"));
        parts.push(count(version.rulesets.len(), "ruleset", "rulesets"));
    }
    if !version.hooks.is_empty() {
        parts.push(format!("hooks {}", version.hooks.join(", ")));
    }
    if version.rulesets.len() > 1 && !version.rulesets.iter().any(|ruleset| ruleset.active) {
        parts.push("no ruleset is active: select one with `scheduler.ruleset`".to_string());
    }
    parts.join("; ")
}

fn version_text(version: &PolicyVersion) -> String {
    let state = if version.active { "active" } else { "inactive" };
    let mut text = format!(
        "version {}, {state}{}, applied by {} at {}\n",
        version.version,
        tenant_suffix(version),
        version.applied_by,
        units::localize_timestamps(&version.applied_at)
    );
    if let Some(why) = &version.suspended {
        text.push_str(&format!("suspended: {why}\n"));
    }
    if !version.why.is_empty() {
        text.push_str(&format!("why      {}\n", version.why));
    }
    text.push_str(&format!("hash     {}\nfiles    {}\n", version.hash, version.files.join(", ")));
    if !version.hooks.is_empty() {
        text.push_str(&format!("hooks    {}\n", version.hooks.join(", ")));
    }
    for pool in &version.pools {
        let types = if pool.gpu_types.is_empty() { "any model".to_string() } else { pool.gpu_types.join(", ") };
        text.push_str(&format!(
            "pool     {}: {types}; at least {} GB, at most {} °C, health {}; power {}; {}, {} available now\n",
            pool.name,
            pool.min_memory_gb,
            pool.max_temp_c,
            pool.health_threshold,
            pool.power_policy,
            units::count_text(pool.gpus, "GPU"),
            pool.gpus_open
        ));
        for option in pool.opt_strategies.iter().chain(&pool.health_checks) {
            text.push_str(&format!("           {option}\n"));
        }
    }
    for ruleset in &version.rulesets {
        let state = if ruleset.active { "active" } else { "inactive" };
        text.push_str(&format!("ruleset  {} ({state})\n", ruleset.name));
        ruleset.rules.iter().for_each(|rule| text.push_str(&format!("           {rule}\n")));
    }
    text
}

/// Removed and added lines, without the unchanged ones. O(lines²): policy files are small.
fn line_diff(before: Vec<&str>, after: Vec<&str>) -> String {
    // `common[i][j]` is the length of the longest common subsequence of `before[i..]` and `after[j..]`.
    let mut common = vec![vec![0usize; after.len() + 1]; before.len() + 1];
    for (i, old) in before.iter().enumerate().rev() {
        for (j, new) in after.iter().enumerate().rev() {
            let longer = common[i + 1][j].max(common[i][j + 1]);
            common[i][j] = if old == new { common[i + 1][j + 1] + 1 } else { longer };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == after.len() || (i < before.len() && common[i + 1][j] >= common[i][j + 1]) {
            text.push_str(&format!("-{}\n", before[i]));
            i += 1;
        } else {
            text.push_str(&format!("+{}\n", after[j]));
            j += 1;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::line_diff;

    #[test]
    fn diff_shows_only_removed_and_added_lines() {
        let cases: [(&[&str], &[&str], &str); 4] = [
            (&["a", "b"], &["a", "b"], ""),
            (&["a", "b", "c"], &["a", "x", "c"], "-b\n+x\n"),
            (&[], &["a"], "+a\n"),
            (&["a", "b"], &["b"], "-a\n"),
        ];
        for (before, after, expected) in cases {
            assert_eq!(line_diff(before.to_vec(), after.to_vec()), expected);
        }
    }
}
