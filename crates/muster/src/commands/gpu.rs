//! Devices, one a line, or all about one.

use hyper::Method;
use muster_core::GpuId;
use muster_protocol::amount::Amount;
use muster_protocol::gpu::{Gpu, GpuHealthChange, GpuHealthDeclared, GpuList, GpuPartition};

use super::{Code, Ending};
use crate::client::Target;
use crate::options::Options;
use crate::output::{self, Card, Cell, Column, ListArgs, ShowArgs, Tint};
use crate::{shares, units};

/// `muster gpu …`.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// List GPUs
    Ls(LsArgs),
    /// Show all about one
    Show(OneArgs),
    /// Say how a GPU is doing: an unhealthy one is not given out
    Health(HealthArgs),
    /// Partition a GPU that nobody uses, or make it whole again
    Partition(PartitionArgs),
}

/// `muster gpu ls`.
#[derive(Debug, clap::Args)]
pub struct LsArgs {
    /// Only GPUs of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// `muster gpu show`.
#[derive(Debug, clap::Args)]
pub struct OneArgs {
    /// Which, as `gpu01/gpu-3`
    gpu: GpuId,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster gpu health`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// Which, as `gpu01/gpu-3`
    gpu: GpuId,
    /// How it is doing
    #[arg(value_parser = ["healthy", "warning", "degraded", "unhealthy"])]
    health: String,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    /// What happens to the jobs on it: keep them running, requeue them, or stop them
    #[arg(long, value_name = "RULE", default_value = "keep", value_parser = ["keep", "requeue", "stop"])]
    jobs: String,
}

/// `muster gpu partition`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example:\n  muster gpu partition gpu01/gpu-3 3g.71gb 4g.71gb")]
pub struct PartitionArgs {
    /// Which, as `gpu01/gpu-3`
    gpu: GpuId,
    /// Into instances of these profiles; `muster gpu show` lists what there is
    #[arg(value_name = "PROFILE", required_unless_present = "whole", conflicts_with = "whole")]
    profiles: Vec<String>,
    /// Make it whole again
    #[arg(long)]
    whole: bool,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

const COLUMNS: [Column<Gpu>; 14] = [
    Column::new("GPU", |gpu| gpu.id.as_str().into()),
    Column::new("MODEL", |gpu| gpu.model.as_str().into()),
    Column::new("MEMORY", |gpu| units::memory(gpu.memory_total_mb).into()),
    Column::new("STATE", |gpu| Cell::tinted(gpu.state.clone(), state_tint(&gpu.state))),
    Column::new("HEALTH", |gpu| Cell::tinted(gpu.health.clone(), health_tint(&gpu.health))),
    Column::new("TEMP", |gpu| Cell::or_dash(gpu.temperature.map(|celsius| format!("{celsius:.0}°C")))),
    Column::new("USED", |gpu| Amount::of_milli(gpu.used_milli.into()).to_string().into()),
    Column::new("JOB", |gpu| shares::names(gpu, |holder| &holder.job_id).into()),
    Column::wide("TENANT", |gpu| shares::names(gpu, |holder| &holder.tenant_id).into()),
    Column::wide("POWER", |gpu| Cell::or_dash(gpu.power_usage.map(|watts| format!("{watts:.0} W")))),
    Column::wide("INSTANCES", |gpu| Cell::or_dash(instances(gpu))),
    Column::wide("NUMA", |gpu| Cell::or_dash(gpu.numa_node)),
    Column::wide("UUID", |gpu| gpu.uuid.as_str().into()),
    Column::wide("WHY", |gpu| gpu.health_why.as_str().into()),
];

/// Do one of them.
pub fn run(verb: Verb, options: &Options) -> Ending {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => {
            let gpus: GpuList = client.get(Target::new("gpus").with_some("node", args.node))?;
            output::list(&args.list, options.color, &COLUMNS, gpus.gpus.clone(), &gpus)?;
        }
        Verb::Show(args) => {
            let gpu: Gpu = client.get(target(&args.gpu))?;
            output::show(&args.show, &card(&gpu), &gpu.id, &gpu)?;
        }
        Verb::Health(args) => {
            let change = GpuHealthChange { health: args.health, why: args.why, jobs: Some(args.jobs) };
            let said: GpuHealthDeclared =
                client.send(Method::POST, target(&args.gpu).at("health"), &change)?;
            output::talk(&declared(&said));
        }
        Verb::Partition(args) => {
            let partition = GpuPartition { profiles: args.profiles, why: args.why };
            let gpu: Gpu = client.send(Method::POST, target(&args.gpu).at("partition"), &partition)?;
            let parts = instances(&gpu).map_or("whole".to_string(), |parts| format!("partitioned: {parts}"));
            output::talk(&format!("`{}` is {parts}", gpu.id));
        }
    }
    Ok(Code::DONE)
}

/// How the GPU is, and what becomes of the jobs on it.
fn declared(said: &GpuHealthDeclared) -> String {
    let head = format!("`{}` is {}", said.gpu.id, said.gpu.health);
    if said.jobs.is_empty() || said.gpu.health == "healthy" && said.jobs_rule == "keep" {
        return head;
    }
    let jobs = said.jobs.join(" ");
    let (one, gpu) = (said.jobs.len() == 1, &said.gpu.id);
    let fate = match said.jobs_rule.as_str() {
        "requeue" if one => "is requeued",
        "requeue" => "are requeued",
        "stop" if one => "is stopped",
        "stop" => "are stopped",
        _ if one => "runs on",
        _ => "run on",
    };
    let hint = match said.jobs_rule.as_str() {
        "keep" => format!("; `muster gpu health {gpu} {} --jobs requeue` moves it away", said.gpu.health),
        _ => String::new(),
    };
    format!("{head}; on it {jobs} {fate}{hint}")
}

fn target(gpu: &GpuId) -> Target {
    Target::new("gpus").at(gpu.node.as_str()).at(&gpu.index.to_string())
}

fn card(gpu: &Gpu) -> Card {
    let nvlink: Vec<String> = gpu.nvlink.iter().map(|peer| format!("gpu-{peer}")).collect();
    Card::default()
        .field("gpu", gpu.id.clone())
        .field("uuid", gpu.uuid.clone())
        .field("model", gpu.model.clone())
        .field("memory", units::memory(gpu.memory_total_mb))
        .field("state", gpu.state.clone())
        .maybe("job", gpu.job_id.clone())
        .maybe("tenant", gpu.tenant_id.clone())
        .field("shared by", shared_by(gpu))
        .maybe("instances", instances(gpu))
        .field("health", gpu.health.clone())
        .field("why", gpu.health_why.clone())
        .maybe("declared by", gpu.health_declared_by.clone())
        .field("since", units::localized(&gpu.health_since))
        .maybe("cooling until", gpu.cooling_until.as_deref().map(units::localized))
        .maybe("temperature", gpu.temperature.map(|celsius| format!("{celsius:.0} °C")))
        .maybe("power", gpu.power_usage.map(|watts| format!("{watts:.0} W")))
        .maybe("power limit", gpu.power_limit_w.map(|watts| format!("{watts:.0} W")))
        .maybe("numa node", gpu.numa_node)
        .maybe("socket", gpu.socket)
        .maybe("pcie switch", gpu.pcie_switch)
        .field("nvlink", nvlink.join(" "))
        .field("profiles", gpu.mig_profiles.join(" "))
}

/// What it is partitioned into, if it is.
fn instances(gpu: &Gpu) -> Option<String> {
    (!gpu.mig.is_empty()).then(|| shares::instances(&shares::by_kind(&gpu.mig)))
}

/// One line for each, where nobody has all of it.
fn shared_by(gpu: &Gpu) -> String {
    let parts = gpu.holders.iter().filter(|holder| holder.mode != "whole");
    parts.map(shares::holder).collect::<Vec<String>>().join("\n")
}

fn state_tint(state: &str) -> Tint {
    match state {
        "free" | "partitioned" => Tint::Good,
        "held" | "shared" | "claimed" => Tint::Plain,
        "cooling" => Tint::Warn,
        _ => Tint::Bad,
    }
}

fn health_tint(health: &str) -> Tint {
    match health {
        "healthy" => Tint::Plain,
        "unhealthy" => Tint::Bad,
        _ => Tint::Warn,
    }
}
