//! `muster doctor`: checks of the client, the server and the cluster, with what to do about each problem.

mod deep;
mod node;

use std::collections::BTreeSet;

use muster_protocol::cluster::{ClusterStatus, Health};
use muster_protocol::gpu::{Gpu, GpuList};
use muster_protocol::node::{Node, NodeList};
use muster_protocol::policy::{PolicyList, PolicyVersion};
use serde::Serialize;

use super::{CommandResult, ExitStatus};
use crate::client::{Client, RequestTarget};
use crate::error::{CliError, Exit};
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs, Tint};
use crate::units;

/// A larger clock skew makes durations and expiries wrong.
const SKEW_WARN_MS: i64 = 2_000;
const SKEW_FAIL_MS: i64 = 60_000;

/// `muster doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    deep: deep::DeepArgs,
    #[command(flatten)]
    node: node::NodeArgs,
    #[command(flatten)]
    list: ListArgs,
}

/// The result of one check.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    check: &'static str,
    result: CheckResult,
    found: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    to_do: String,
}

/// The output of `-o json`.
#[derive(Serialize)]
struct DoctorReport<'a> {
    checks: &'a [Finding],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckResult {
    Ok,
    Warn,
    Fail,
}

impl CheckResult {
    fn to_cell(self) -> Cell {
        match self {
            CheckResult::Ok => Cell::tinted("ok", Tint::Good),
            CheckResult::Warn => Cell::tinted("warn", Tint::Warn),
            CheckResult::Fail => Cell::tinted("fail", Tint::Bad),
        }
    }
}

const COLUMNS: [Column<Finding>; 4] = [
    Column::new("CHECK", |finding| finding.check.into()),
    Column::new("RESULT", |finding| finding.result.to_cell()),
    Column::new("FOUND", |finding| finding.found.as_str().into()),
    Column::new("TO DO", |finding| finding.to_do.as_str().into()),
];

/// Runs and prints the checks; exits with an error if one fails.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let findings = match (args.deep.deep, args.node.node) {
        (true, _) => deep::verify_database(&args.deep)?,
        (false, true) => node::check_node(&args.node)?,
        (false, false) => run_checks(&options.client()?),
    };
    output::list(&args.list, options.color, &COLUMNS, findings.clone(), &DoctorReport { checks: &findings })?;
    let failed =
        |check: &str| findings.iter().any(|finding| finding.check == check && finding.result == CheckResult::Fail);
    match () {
        () if !args.node.node && failed("server") => Ok(ExitStatus(Exit::Unreachable as u8)),
        () if findings.iter().any(|finding| finding.result == CheckResult::Fail) => Ok(ExitStatus(Exit::Failed as u8)),
        () => Ok(ExitStatus::SUCCESS),
    }
}

fn run_checks(client: &Client) -> Vec<Finding> {
    let health = client.get::<Health>(RequestTarget::absolute("/health"));
    if let Err(error) = &health
        && error.exit == Exit::Unreachable
    {
        return vec![server_check(error)];
    }
    let mut findings = vec![ok_finding("server", format!("{} answers", client.server())), database_check(&health)];
    match client.get::<ClusterStatus>("cluster/status") {
        Ok(status) => {
            findings.extend([version_check(&status), clock_check(&status), gpus_check(&status)]);
            findings.push(devices_check(client));
            findings.push(nodes_check(client));
            findings.extend(policies_check(client));
        }
        Err(error) => findings.push(access_check(&error)),
    }
    findings
}

fn server_check(error: &CliError) -> Finding {
    fail_finding("server", error.message.clone(), error.hint.clone().unwrap_or_default())
}

fn database_check(health: &Result<Health, CliError>) -> Finding {
    match health {
        Ok(health) if health.status == "healthy" => ok_finding(
            "database",
            health.role.clone().map_or("healthy".to_string(), |role| format!("healthy; this server is {role}")),
        ),
        Ok(health) => {
            fail_finding("database", health.why.clone().unwrap_or_else(|| health.status.clone()), DATABASE_HINT)
        }
        Err(error) => fail_finding("database", error.message.clone(), DATABASE_HINT),
    }
}

const DATABASE_HINT: &str = "check the log of the server and its database";

fn version_check(status: &ClusterStatus) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    match status.version == own {
        true => ok_finding("version", own.to_string()),
        false => warn_finding(
            "version",
            format!("this program is {own}, the server is {}", status.version),
            "install the same version of both",
        ),
    }
}

/// The skew includes the latency of the response, which is far below the threshold.
fn clock_check(status: &ClusterStatus) -> Finding {
    let skew_ms = (units::now_ms() - status.time_ms).abs();
    let found = format!("{skew_ms} ms apart from the server");
    match skew_ms {
        ..SKEW_WARN_MS => ok_finding("clock", "in sync with the server".to_string()),
        SKEW_WARN_MS..SKEW_FAIL_MS => warn_finding("clock", found, "enable time synchronisation"),
        _ => fail_finding("clock", found, "enable time synchronisation on both machines"),
    }
}

fn gpus_check(status: &ClusterStatus) -> Finding {
    let kind = if status.simulated { "simulated " } else { "" };
    let found = format!("{} {kind}GPUs, {} free", status.total_gpus, status.available_gpus);
    match status.total_gpus {
        0 => warn_finding("gpus", "none".to_string(), "`muster dev` starts a server with simulated GPUs"),
        _ => ok_finding("gpus", found),
    }
}

/// GPUs that are unhealthy, degraded or cooling, and the jobs on them.
fn devices_check(client: &Client) -> Finding {
    let gpus = match client.get::<GpuList>("gpus") {
        Ok(list) => list.gpus,
        Err(error) => return fail_finding("devices", error.message, ""),
    };
    let impaired: Vec<&Gpu> = gpus.iter().filter(|gpu| gpu.health != "healthy").collect();
    let cooling: Vec<&Gpu> = gpus.iter().filter(|gpu| gpu.cooling_until.is_some()).collect();
    let mut found: Vec<String> = impaired.iter().map(|gpu| unhealthy_gpu_text(gpu)).collect();
    found.extend(cooling.iter().filter(|gpu| gpu.health == "healthy").map(|gpu| format!("{} cools down", gpu.id)));
    match found.is_empty() {
        true => ok_finding("devices", format!("{} healthy", gpus.len())),
        false => warn_finding(
            "devices",
            format!("{} of {} not healthy: {}", found.len(), gpus.len(), found.join(", ")),
            "`muster gpu show GPU` says why; `muster gpu health GPU healthy` returns one to service",
        ),
    }
}

fn unhealthy_gpu_text(gpu: &Gpu) -> String {
    let jobs: BTreeSet<&str> = gpu.holders.iter().map(|holder| holder.job_id.as_str()).collect();
    let jobs: Vec<&str> = jobs.into_iter().collect();
    match jobs.is_empty() {
        true => format!("{} {}", gpu.id, gpu.health),
        false => format!("{} {} (held by {})", gpu.id, gpu.health, jobs.join(" ")),
    }
}

/// A node that is not ready, with the actor and the reason.
fn unready_node_text(node: &Node) -> String {
    let why = if node.state_why.is_empty() { String::new() } else { format!(": {}", node.state_why) };
    format!("{} {} by {}{why}", node.name, node.state, node.state_by)
}

fn nodes_check(client: &Client) -> Finding {
    let nodes = match client.get::<NodeList>("nodes") {
        Ok(list) => list.nodes,
        Err(error) => return fail_finding("nodes", error.message, ""),
    };
    let out: Vec<String> = nodes.iter().filter(|node| node.state != "Ready").map(unready_node_text).collect();
    match (nodes.len(), out.is_empty()) {
        (0, _) => {
            let found = "no node is registered, so all jobs wait".to_string();
            warn_finding("nodes", found, "`muster dev` starts a server with simulated nodes")
        }
        (count, true) => ok_finding("nodes", format!("{count} ready")),
        (count, false) => warn_finding(
            "nodes",
            format!("{} of {count} out of service: {}", out.len(), out.join(", ")),
            "`muster node show NODE` says why",
        ),
    }
}

/// Active bundles that are suspended, or that fail while jobs wait for their answer. `None` if no bundle is active.
fn policies_check(client: &Client) -> Option<Finding> {
    let list = match client.get::<PolicyList>("policies") {
        Ok(list) => list,
        Err(error) => return Some(fail_finding("policies", error.message, "")),
    };
    let active: Vec<&PolicyVersion> = list.policies.iter().filter(|version| version.active).collect();
    let suspended = active.iter().find_map(|version| Some((version, version.suspended.as_ref()?)));
    if let Some((version, why)) = suspended {
        let found = format!("version {} ({}): {why}", version.version, version.scope);
        return Some(fail_finding("policies", found, POLICY_HINT));
    }
    if let Some(failing) = list.failures.iter().max_by_key(|failing| failing.jobs) {
        let jobs = units::count_text(list.failures.iter().map(|failing| failing.jobs).sum::<u64>(), "job");
        return Some(match failing.blocks {
            true => fail_finding("policies", format!("a failing policy blocks {jobs}: {}", failing.error), POLICY_HINT),
            false => warn_finding("policies", format!("a policy fails for {jobs}: {}", failing.error), POLICY_HINT),
        });
    }
    (!active.is_empty()).then(|| ok_finding("policies", format!("{} active", active.len())))
}

const POLICY_HINT: &str = "fix the policy and apply it, or run `muster policy rollback`";

fn access_check(error: &CliError) -> Finding {
    fail_finding("access", error.message.clone(), error.hint.clone().unwrap_or_default())
}

fn ok_finding(check: &'static str, found: String) -> Finding {
    Finding { check, result: CheckResult::Ok, found, to_do: String::new() }
}

fn warn_finding(check: &'static str, found: String, to_do: &str) -> Finding {
    Finding { check, result: CheckResult::Warn, found, to_do: to_do.to_string() }
}

fn fail_finding(check: &'static str, found: String, to_do: impl Into<String>) -> Finding {
    Finding { check, result: CheckResult::Fail, found, to_do: to_do.into() }
}
