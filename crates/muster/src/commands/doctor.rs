//! Whether everything is in order, and what to do where it is not.

mod deep;

use std::collections::BTreeSet;

use muster_protocol::cluster::{ClusterStatus, Health};
use muster_protocol::gpu::{Gpu, GpuList};
use muster_protocol::node::{Node, NodeList};
use muster_protocol::policy::{PolicyList, PolicyVersion};
use serde::Serialize;

use super::{Code, Ending};
use crate::client::{Client, Target};
use crate::error::{CliError, Exit};
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs, Tint};
use crate::units;

/// Clocks further apart than this make spans and expiries wrong.
const SKEW_WARN_MS: i64 = 2_000;
const SKEW_BAD_MS: i64 = 60_000;

/// `muster doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    deep: deep::DeepArgs,
    #[command(flatten)]
    list: ListArgs,
}

/// What was looked at, and what was found.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    check: &'static str,
    result: Verdict,
    found: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    to_do: String,
}

/// All of them, as machines read it.
#[derive(Serialize)]
struct Whole<'a> {
    checks: &'a [Finding],
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

impl Verdict {
    fn cell(self) -> Cell {
        match self {
            Verdict::Ok => Cell::tinted("ok", Tint::Good),
            Verdict::Warn => Cell::tinted("warn", Tint::Warn),
            Verdict::Fail => Cell::tinted("fail", Tint::Bad),
        }
    }
}

const COLUMNS: [Column<Finding>; 4] = [
    Column::new("CHECK", |finding| finding.check.into()),
    Column::new("RESULT", |finding| finding.result.cell()),
    Column::new("FOUND", |finding| finding.found.as_str().into()),
    Column::new("TO DO", |finding| finding.to_do.as_str().into()),
];

/// Check, print, and fail when something is broken.
pub fn run(args: Args, options: &Options) -> Ending {
    let findings = match args.deep.deep {
        true => deep::examine(&args.deep)?,
        false => examine(&options.client()?),
    };
    output::list(&args.list, options.color, &COLUMNS, findings.clone(), &Whole { checks: &findings })?;
    let worst = |check: &str| {
        findings.iter().any(|finding| finding.check == check && finding.result == Verdict::Fail)
    };
    match () {
        () if worst("server") => Ok(Code(Exit::Unreachable as u8)),
        () if findings.iter().any(|finding| finding.result == Verdict::Fail) => Ok(Code(Exit::Failed as u8)),
        () => Ok(Code::DONE),
    }
}

fn examine(client: &Client) -> Vec<Finding> {
    let health = client.get::<Health>(Target::outside("/health"));
    if let Err(error) = &health
        && error.exit == Exit::Unreachable
    {
        return vec![server_away(error)];
    }
    let mut findings = vec![good("server", format!("{} answers", client.server())), database(&health)];
    match client.get::<ClusterStatus>("cluster/status") {
        Ok(status) => {
            findings.extend([version(&status), clock(&status), gpus(&status)]);
            findings.push(devices(client));
            findings.push(nodes(client));
            findings.extend(policies(client));
        }
        Err(error) => findings.push(no_status(&error)),
    }
    findings
}

fn server_away(error: &CliError) -> Finding {
    bad("server", error.what.clone(), error.hint.clone().unwrap_or_default())
}

fn database(health: &Result<Health, CliError>) -> Finding {
    match health {
        Ok(health) if health.status == "healthy" => good(
            "database",
            health
                .role
                .clone()
                .map_or("in order".to_string(), |role| format!("in order, this server is {role}")),
        ),
        Ok(health) => {
            bad("database", health.why.clone().unwrap_or_else(|| health.status.clone()), LOOK_AT_LOG)
        }
        Err(error) => bad("database", error.what.clone(), LOOK_AT_LOG),
    }
}

const LOOK_AT_LOG: &str = "look at the server's log and at its database";

fn version(status: &ClusterStatus) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    match status.version == own {
        true => good("version", own.to_string()),
        false => warn(
            "version",
            format!("this is {own}, the server is {}", status.version),
            "install the same version on both",
        ),
    }
}

/// The answer was on its way for a moment; nobody minds that.
fn clock(status: &ClusterStatus) -> Finding {
    let skew_ms = (units::now_ms() - status.time_ms).abs();
    let found = format!("{skew_ms} ms apart from the server");
    match skew_ms {
        ..SKEW_WARN_MS => good("clock", "together with the server".to_string()),
        SKEW_WARN_MS..SKEW_BAD_MS => warn("clock", found, "switch on time synchronisation"),
        _ => bad("clock", found, "switch on time synchronisation on both machines"),
    }
}

fn gpus(status: &ClusterStatus) -> Finding {
    let kind = if status.simulated { "simulated " } else { "" };
    let found = format!("{} {kind}GPUs, {} free", status.total_gpus, status.available_gpus);
    match status.total_gpus {
        0 => warn("gpus", "none".to_string(), "`muster dev` brings simulated ones"),
        _ => good("gpus", found),
    }
}

/// Devices that are not given out, or are given out with doubts, and the jobs on them.
fn devices(client: &Client) -> Finding {
    let gpus = match client.get::<GpuList>("gpus") {
        Ok(list) => list.gpus,
        Err(error) => return bad("devices", error.what, ""),
    };
    let sick: Vec<&Gpu> = gpus.iter().filter(|gpu| gpu.health != "healthy").collect();
    let cooling: Vec<&Gpu> = gpus.iter().filter(|gpu| gpu.cooling_until.is_some()).collect();
    let mut found: Vec<String> = sick.iter().map(|gpu| sick_gpu(gpu)).collect();
    found.extend(
        cooling.iter().filter(|gpu| gpu.health == "healthy").map(|gpu| format!("{} cools down", gpu.id)),
    );
    match found.is_empty() {
        true => good("devices", format!("{} healthy", gpus.len())),
        false => warn(
            "devices",
            format!("{} of {} not healthy: {}", found.len(), gpus.len(), found.join(", ")),
            "`muster gpu show GPU` says why; `muster gpu health GPU healthy` puts one back",
        ),
    }
}

fn sick_gpu(gpu: &Gpu) -> String {
    let jobs: BTreeSet<&str> = gpu.holders.iter().map(|holder| holder.job_id.as_str()).collect();
    let jobs: Vec<&str> = jobs.into_iter().collect();
    match jobs.is_empty() {
        true => format!("{} {}", gpu.id, gpu.health),
        false => format!("{} {} under {}", gpu.id, gpu.health, jobs.join(" ")),
    }
}

/// A node that is not ready, with who said so and why.
fn node_out(node: &Node) -> String {
    let why = if node.state_why.is_empty() { String::new() } else { format!(": {}", node.state_why) };
    format!("{} {} by {}{why}", node.name, node.state, node.state_by)
}

fn nodes(client: &Client) -> Finding {
    let nodes = match client.get::<NodeList>("nodes") {
        Ok(list) => list.nodes,
        Err(error) => return bad("nodes", error.what, ""),
    };
    let out: Vec<String> = nodes.iter().filter(|node| node.state != "Ready").map(node_out).collect();
    match (nodes.len(), out.is_empty()) {
        (0, _) => warn("nodes", "none is registered: jobs wait".to_string(), "start one with `muster dev`"),
        (count, true) => good("nodes", format!("{count} ready")),
        (count, false) => warn(
            "nodes",
            format!("{} of {count} out of service: {}", out.len(), out.join(", ")),
            "`muster node show NODE` says why",
        ),
    }
}

/// Policies in force that are suspended, or fail while jobs wait for their answer. Nothing where none is in force.
fn policies(client: &Client) -> Option<Finding> {
    let list = match client.get::<PolicyList>("policies") {
        Ok(list) => list,
        Err(error) => return Some(bad("policies", error.what, "")),
    };
    let in_force: Vec<&PolicyVersion> = list.policies.iter().filter(|version| version.active).collect();
    let suspended = in_force.iter().find_map(|version| Some((version, version.suspended.as_ref()?)));
    if let Some((version, why)) = suspended {
        let found = format!("version {} ({}): {why}", version.version, version.scope);
        return Some(bad("policies", found, ROLL_BACK));
    }
    if let Some(failing) = list.failures.iter().max_by_key(|failing| failing.jobs) {
        let jobs = units::count(list.failures.iter().map(|failing| failing.jobs).sum::<u64>(), "job");
        return Some(match failing.blocks {
            true => bad("policies", format!("a failing policy blocks {jobs}: {}", failing.error), ROLL_BACK),
            false => warn("policies", format!("a policy fails for {jobs}: {}", failing.error), ROLL_BACK),
        });
    }
    (!in_force.is_empty()).then(|| good("policies", format!("{} in force", in_force.len())))
}

const ROLL_BACK: &str = "mend the policy and apply it, or `muster policy rollback`";

fn no_status(error: &CliError) -> Finding {
    bad("access", error.what.clone(), error.hint.clone().unwrap_or_default())
}

fn good(check: &'static str, found: String) -> Finding {
    Finding { check, result: Verdict::Ok, found, to_do: String::new() }
}

fn warn(check: &'static str, found: String, to_do: &str) -> Finding {
    Finding { check, result: Verdict::Warn, found, to_do: to_do.to_string() }
}

fn bad(check: &'static str, found: String, to_do: impl Into<String>) -> Finding {
    Finding { check, result: Verdict::Fail, found, to_do: to_do.into() }
}
