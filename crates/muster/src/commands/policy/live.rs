//! `muster policy apply|rollback|ls|show|diff`: the policies of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use hyper::Method;
use muster_protocol::policy::{PolicyApply, PolicyList, PolicyRollback, PolicyVersion};
use muster_protocol::whatif::WhatIfAsk;

use super::folders;
use crate::client::{Client, Target};
use crate::commands::sim::whatif;
use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs, ShowArgs, Tint};
use crate::units;

/// `muster policy apply`.
#[derive(Debug, clap::Args)]
#[command(
    before_help = "Examples:\n  muster policy apply policies/cookbook --why \"nights are for large jobs\"\n  muster policy apply mine --tenant red\n  muster policy apply --none\n  muster policy apply mine --shadow --since 7d"
)]
pub struct ApplyArgs {
    /// The folder whose policies are put into force, all at once; `policies` where none is named
    folder: Option<PathBuf>,
    /// Put no policies into force
    #[arg(long, conflicts_with = "folder")]
    none: bool,
    /// For the jobs of this tenant, and not for everyone
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Why, for the history
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    /// Only say whether the server would take them
    #[arg(long)]
    dry_run: bool,
    /// Apply them although tests in the folder fail
    #[arg(long, conflicts_with = "none")]
    force: bool,
    /// Run them beside those in force, and decide nothing: `muster policy shadow` says what they would
    #[arg(long, conflicts_with = "tenant")]
    shadow: bool,
    /// With `--shadow`: over the history from then on, at once, and not from now on
    #[arg(long, value_name = "WHEN", requires = "shadow", conflicts_with = "dry_run")]
    since: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster policy rollback`.
#[derive(Debug, clap::Args)]
pub struct RollbackArgs {
    /// The version to go back to; the one before the one in force where none is named
    version: Option<u64>,
    /// Of the policies of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Why, for the history
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster policy ls`.
#[derive(Debug, clap::Args)]
pub struct LsArgs {
    /// Only the policies of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// `muster policy show`.
#[derive(Debug, clap::Args)]
pub struct ShowOneArgs {
    /// Which version; the one in force where none is named
    version: Option<u64>,
    /// The one in force for this tenant
    #[arg(long, value_name = "NAME", conflicts_with = "version")]
    tenant: Option<String>,
    /// With the contents of its files
    #[arg(long)]
    sources: bool,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster policy diff`.
#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// The folder to compare with what is in force; `policies` where none is named
    folder: Option<PathBuf>,
    /// With what is in force for this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

const COLUMNS: [Column<PolicyVersion>; 7] = [
    Column::new("VERSION", |one| one.version.to_string().into()),
    Column::new("SCOPE", |one| one.scope.as_str().into()),
    Column::new("IN FORCE", in_force_cell),
    Column::new("HASH", |one| short(&one.hash).into()),
    Column::new("BY", |one| one.applied_by.as_str().into()),
    Column::new("APPLIED", |one| units::localized(&one.applied_at).into()),
    Column::new("WHY", |one| Cell::or_dash(Some(one.why.clone()).filter(|why| !why.is_empty()))),
];

fn in_force_cell(version: &PolicyVersion) -> Cell {
    match (version.active, &version.suspended) {
        (true, Some(_)) => Cell::tinted("suspended", Tint::Bad),
        (true, None) => "yes".into(),
        (false, _) => "-".into(),
    }
}

const SHADOWED: &str =
    "what is in force stays; `muster policy shadow` says what these would decide otherwise";

/// Put policies into force.
pub fn apply(args: &ApplyArgs, options: &Options) -> Ending {
    let files = if args.none { BTreeMap::new() } else { files_of(args.folder.as_ref())? };
    if let Some(since) = &args.since {
        let (since, policies, jobs) = (Some(since.clone()), Some(files), Some(whatif::JOBS_SHOWN));
        let ask = WhatIfAsk { since, policies, jobs, ..WhatIfAsk::default() };
        return whatif::ask_server(&ask, &args.show, options);
    }
    let (tenant_id, why) = (args.tenant.clone(), args.why.clone());
    let (dry_run, shadow, force) = (args.dry_run, args.shadow, args.force);
    let ask = PolicyApply { files, tenant_id, why, dry_run, shadow, force };
    let applied: PolicyVersion = options.client()?.send(Method::POST, Target::new("policies"), &ask)?;
    let whose = whose(&applied);
    let text = match (applied.files.is_empty(), args.dry_run) {
        (_, false) if args.shadow => format!("{SHADOWED}: {}\n", summary(&applied)),
        (true, false) => format!("no policies are in force{whose} (version {})\n", applied.version),
        (true, true) => format!("no policies would be in force{whose} (version {})\n", applied.version),
        (false, false) => format!("version {} is in force{whose}: {}\n", applied.version, summary(&applied)),
        (false, true) => {
            format!("version {} would be in force{whose}: {}\n", applied.version, summary(&applied))
        }
    };
    output::say(&args.show, &text, &applied.version.to_string(), &applied)?;
    Ok(Code::DONE)
}

/// Go back to an earlier version.
pub fn roll_back(args: &RollbackArgs, options: &Options) -> Ending {
    let ask = PolicyRollback { version: args.version, tenant_id: args.tenant.clone(), why: args.why.clone() };
    let target = Target::new("policies").at("rollback");
    let applied: PolicyVersion = options.client()?.send(Method::POST, target, &ask)?;
    let (number, whose) = (applied.version, whose(&applied));
    let text = format!("version {number} is in force{whose}: {}\n", summary(&applied));
    output::say(&args.show, &text, &applied.version.to_string(), &applied)?;
    Ok(Code::DONE)
}

/// List the versions.
pub fn list(args: &LsArgs, options: &Options) -> Ending {
    let policies = versions(&options.client()?, args.tenant.as_deref())?;
    output::list(&args.list, options.color, &COLUMNS, policies.policies.clone(), &policies)?;
    Ok(Code::DONE)
}

/// Look at one version.
pub fn show(args: &ShowOneArgs, options: &Options) -> Ending {
    let client = options.client()?;
    let version = match args.version {
        Some(number) => version(&client, number)?,
        None => match in_force(&client, args.tenant.as_deref())? {
            Some(number) => version(&client, number)?,
            None => return Err(CliError::failed("no policies are in force")),
        },
    };
    let mut text = told(&version);
    for (name, source) in version.sources.iter().filter(|_| args.sources) {
        text.push_str(&format!("\n--- {name}\n{source}"));
    }
    output::say(&args.show, &text, &version.version.to_string(), &version)?;
    Ok(Code::DONE)
}

/// What would change if a folder were applied. Ends with 1 where something would.
pub fn diff(args: &DiffArgs, options: &Options) -> Ending {
    let client = options.client()?;
    let ours = files_of(args.folder.as_ref())?;
    let theirs = match in_force(&client, args.tenant.as_deref())? {
        Some(number) => version(&client, number)?.sources,
        None => BTreeMap::new(),
    };
    let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut text = String::new();
    for name in names {
        let (before, after) = (theirs.get(name), ours.get(name));
        if before != after {
            text.push_str(&format!("--- {name}\n"));
            text.push_str(&changed(lines(before), lines(after)));
        }
    }
    if text.is_empty() {
        output::talk("nothing would change");
        return Ok(Code::DONE);
    }
    output::print(&text)?;
    Ok(Code(1))
}

fn lines(text: Option<&String>) -> Vec<&str> {
    text.map(|text| text.lines().collect()).unwrap_or_default()
}

fn files_of(folder: Option<&PathBuf>) -> Result<BTreeMap<String, String>, CliError> {
    let usual = PathBuf::from(folders::USUAL);
    let folder = folder.unwrap_or(&usual);
    folders::policies_of(folder)
}

/// Those of a tenant, or all that can be seen.
fn versions(client: &Client, tenant: Option<&str>) -> Result<PolicyList, CliError> {
    client.get(Target::new("policies").with_some("tenant_id", tenant))
}

/// What is in force for a tenant, or for everyone.
fn in_force(client: &Client, tenant: Option<&str>) -> Result<Option<u64>, CliError> {
    let policies = versions(client, tenant)?.policies;
    let active = policies.iter().find(|one| one.active && one.tenant_id.as_deref() == tenant);
    Ok(active.map(|one| one.version))
}

fn version(client: &Client, number: u64) -> Result<PolicyVersion, CliError> {
    client.get(Target::new("policies").at(&number.to_string()))
}

fn whose(version: &PolicyVersion) -> String {
    version.tenant_id.as_ref().map(|tenant| format!(" for tenant {tenant}")).unwrap_or_default()
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn summary(version: &PolicyVersion) -> String {
    let count = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let mut parts = vec![count(version.files.len(), "file", "files")];
    // A tenant's register nothing.
    if version.tenant_id.is_none() {
        parts.push(count(version.pools.len(), "pool", "pools"));
        parts.push(count(version.rulesets.len(), "ruleset", "rulesets"));
    }
    if !version.hooks.is_empty() {
        parts.push(format!("answers {}", version.hooks.join(", ")));
    }
    if version.rulesets.len() > 1 && !version.rulesets.iter().any(|ruleset| ruleset.active) {
        parts.push("no ruleset counts: name one by `scheduler.ruleset`".to_string());
    }
    parts.join("; ")
}

fn told(version: &PolicyVersion) -> String {
    let state = if version.active { "in force" } else { "not in force" };
    let mut text = format!(
        "version {}, {state}{}, applied by {} at {}\n",
        version.version,
        whose(version),
        version.applied_by,
        units::localized(&version.applied_at)
    );
    if let Some(why) = &version.suspended {
        text.push_str(&format!("suspended: {why}\n"));
    }
    if !version.why.is_empty() {
        text.push_str(&format!("why      {}\n", version.why));
    }
    text.push_str(&format!("hash     {}\nfiles    {}\n", version.hash, version.files.join(", ")));
    if !version.hooks.is_empty() {
        text.push_str(&format!("answers  {}\n", version.hooks.join(", ")));
    }
    for pool in &version.pools {
        let types =
            if pool.gpu_types.is_empty() { "any model".to_string() } else { pool.gpu_types.join(", ") };
        text.push_str(&format!(
            "pool     {}: {types}; at least {} GB, at most {} °C, health {}; power {}; {}, {} given out as they are\n",
            pool.name,
            pool.min_memory_gb,
            pool.max_temp_c,
            pool.health_threshold,
            pool.power_policy,
            units::count(pool.gpus, "GPU"),
            pool.gpus_open
        ));
        for tuned in pool.opt_strategies.iter().chain(&pool.health_checks) {
            text.push_str(&format!("           {tuned}\n"));
        }
    }
    for ruleset in &version.rulesets {
        let counts = if ruleset.active { "counts" } else { "does not count" };
        text.push_str(&format!("ruleset  {} ({counts})\n", ruleset.name));
        ruleset.rules.iter().for_each(|rule| text.push_str(&format!("           {rule}\n")));
    }
    text
}

/// The lines that go and come, with nothing of what stays. Files of policies are small: O(lines²).
fn changed(before: Vec<&str>, after: Vec<&str>) -> String {
    // The longest row of lines that both have from each place on.
    let mut both = vec![vec![0usize; after.len() + 1]; before.len() + 1];
    for (i, old) in before.iter().enumerate().rev() {
        for (j, new) in after.iter().enumerate().rev() {
            let longer = both[i + 1][j].max(both[i][j + 1]);
            both[i][j] = if old == new { both[i + 1][j + 1] + 1 } else { longer };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == after.len() || (i < before.len() && both[i + 1][j] >= both[i][j + 1]) {
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
    use super::changed;

    #[test]
    fn only_lines_that_go_and_come_are_told() {
        let cases: [(&[&str], &[&str], &str); 4] = [
            (&["a", "b"], &["a", "b"], ""),
            (&["a", "b", "c"], &["a", "x", "c"], "-b\n+x\n"),
            (&[], &["a"], "+a\n"),
            (&["a", "b"], &["b"], "-a\n"),
        ];
        for (before, after, expected) in cases {
            assert_eq!(changed(before.to_vec(), after.to_vec()), expected);
        }
    }
}
