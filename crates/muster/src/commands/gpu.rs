//! `muster gpu`: list and show GPUs, declare their health, repartition them.

use hyper::Method;
use muster_core::GpuId;
use muster_protocol::gpu::{Gpu, GpuHealthChange, GpuHealthDeclared, GpuList, GpuPartition};
use muster_protocol::gpu_amount::GpuAmount;

use super::{CommandResult, ExitStatus};
use crate::client::RequestTarget;
use crate::options::Options;
use crate::output::{self, Card, Cell, Column, ListArgs, ShowArgs, Tint};
use crate::{gpu_share_display, units};

/// `muster gpu …`.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// List GPUs
    Ls(GpuLsArgs),
    /// Show the details of a GPU
    Show(GpuShowArgs),
    /// Declare the health of a GPU; jobs are not placed on an unhealthy one
    Health(GpuHealthArgs),
    /// Partition an idle GPU into MIG instances, or remove its instances
    Partition(GpuPartitionArgs),
}

/// `muster gpu ls`.
#[derive(Debug, clap::Args)]
pub struct GpuLsArgs {
    /// Only GPUs of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// `muster gpu show`.
#[derive(Debug, clap::Args)]
pub struct GpuShowArgs {
    /// GPU id, for example `gpu01/gpu-3`
    gpu: GpuId,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster gpu health`.
#[derive(Debug, clap::Args)]
pub struct GpuHealthArgs {
    /// GPU id, for example `gpu01/gpu-3`
    gpu: GpuId,
    /// Health to declare
    #[arg(value_parser = ["healthy", "warning", "degraded", "unhealthy"])]
    health: String,
    /// Reason
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    /// What to do with the jobs on the GPU: keep them running, requeue them, or stop them
    #[arg(long, value_name = "RULE", default_value = "keep", value_parser = ["keep", "requeue", "stop"])]
    jobs: String,
}

/// `muster gpu partition`.
#[derive(Debug, clap::Args)]
#[command(before_help = "Example:\n  muster gpu partition gpu01/gpu-3 3g.71gb 4g.71gb")]
pub struct GpuPartitionArgs {
    /// GPU id, for example `gpu01/gpu-3`
    gpu: GpuId,
    /// Profiles of the instances; `muster gpu show` lists those of the GPU
    #[arg(value_name = "PROFILE", required_unless_present = "whole", conflicts_with = "whole")]
    profiles: Vec<String>,
    /// Remove all instances
    #[arg(long)]
    whole: bool,
    /// Reason
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

const COLUMNS: [Column<Gpu>; 14] = [
    Column::new("GPU", |gpu| gpu.id.as_str().into()),
    Column::new("MODEL", |gpu| gpu.model.as_str().into()),
    Column::new("MEMORY", |gpu| units::memory_text(gpu.memory_total_mb).into()),
    Column::new("STATE", |gpu| Cell::tinted(gpu.state.clone(), state_tint(&gpu.state))),
    Column::new("HEALTH", |gpu| Cell::tinted(gpu.health.clone(), health_tint(&gpu.health))),
    Column::new("TEMP", |gpu| Cell::or_dash(gpu.temperature.map(|celsius| format!("{celsius:.0}°C")))),
    Column::new("USED", |gpu| GpuAmount::from_milli(gpu.used_milli.into()).to_string().into()),
    Column::new("JOB", |gpu| gpu_share_display::holder_names(gpu, |holder| &holder.job_id).into()),
    Column::wide("TENANT", |gpu| gpu_share_display::holder_names(gpu, |holder| &holder.tenant_id).into()),
    Column::wide("POWER", |gpu| Cell::or_dash(gpu.power_usage.map(|watts| format!("{watts:.0} W")))),
    Column::wide("INSTANCES", |gpu| Cell::or_dash(instances_text(gpu))),
    Column::wide("NUMA", |gpu| Cell::or_dash(gpu.numa_node)),
    Column::wide("UUID", |gpu| gpu.uuid.as_str().into()),
    Column::wide("WHY", |gpu| gpu.health_why.as_str().into()),
];

pub fn run(verb: Verb, options: &Options) -> CommandResult {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => {
            let gpus: GpuList = client.get(RequestTarget::new("gpus").query_if_some("node", args.node))?;
            output::list(&args.list, options.color, &COLUMNS, gpus.gpus.clone(), &gpus)?;
        }
        Verb::Show(args) => {
            let gpu: Gpu = client.get(gpu_target(&args.gpu))?;
            output::show(&args.show, &card(&gpu), &gpu.id, &gpu)?;
        }
        Verb::Health(args) => {
            let change = GpuHealthChange { health: args.health, why: args.why, jobs: Some(args.jobs) };
            let declared: GpuHealthDeclared =
                client.send(Method::POST, gpu_target(&args.gpu).segment("health"), &change)?;
            output::print_stderr(&health_declared_text(&declared));
        }
        Verb::Partition(args) => {
            let partition = GpuPartition { profiles: args.profiles, why: args.why };
            let gpu: Gpu = client.send(Method::POST, gpu_target(&args.gpu).segment("partition"), &partition)?;
            let parts = instances_text(&gpu).map_or("whole".to_string(), |parts| format!("partitioned: {parts}"));
            output::print_stderr(&format!("`{}` is {parts}", gpu.id));
        }
    }
    Ok(ExitStatus::SUCCESS)
}

/// The health of the GPU, and what happens to the jobs on it.
fn health_declared_text(declared: &GpuHealthDeclared) -> String {
    let head = format!("`{}` is {}", declared.gpu.id, declared.gpu.health);
    if declared.jobs.is_empty() || declared.gpu.health == "healthy" && declared.jobs_rule == "keep" {
        return head;
    }
    let jobs = declared.jobs.join(" ");
    let (one, gpu) = (declared.jobs.len() == 1, &declared.gpu.id);
    let effect = match declared.jobs_rule.as_str() {
        "requeue" if one => "is requeued",
        "requeue" => "are requeued",
        "stop" if one => "is stopped",
        "stop" => "are stopped",
        _ if one => "keeps running",
        _ => "keep running",
    };
    let hint = match declared.jobs_rule.as_str() {
        "keep" => {
            let them = if one { "it" } else { "them" };
            format!("; `muster gpu health {gpu} {} --jobs requeue` requeues {them}", declared.gpu.health)
        }
        _ => String::new(),
    };
    format!("{head}; {jobs} {effect}{hint}")
}

fn gpu_target(gpu: &GpuId) -> RequestTarget {
    RequestTarget::new("gpus").segment(gpu.node.as_str()).segment(&gpu.index.to_string())
}

fn card(gpu: &Gpu) -> Card {
    let nvlink: Vec<String> = gpu.nvlink.iter().map(|peer| format!("gpu-{peer}")).collect();
    Card::default()
        .field("gpu", gpu.id.clone())
        .field("uuid", gpu.uuid.clone())
        .field("model", gpu.model.clone())
        .field("memory", units::memory_text(gpu.memory_total_mb))
        .field("state", gpu.state.clone())
        .field_if_some("job", gpu.job_id.clone())
        .field_if_some("tenant", gpu.tenant_id.clone())
        .field("shared by", holders_text(gpu))
        .field_if_some("instances", instances_text(gpu))
        .field("health", gpu.health.clone())
        .field("why", gpu.health_why.clone())
        .field_if_some("declared by", gpu.health_declared_by.clone())
        .field("since", units::localize_timestamps(&gpu.health_since))
        .field_if_some("cooling until", gpu.cooling_until.as_deref().map(units::localize_timestamps))
        .field_if_some("temperature", gpu.temperature.map(|celsius| format!("{celsius:.0} °C")))
        .field_if_some("power", gpu.power_usage.map(|watts| format!("{watts:.0} W")))
        .field_if_some("power limit", gpu.power_limit_w.map(|watts| format!("{watts:.0} W")))
        .field_if_some("numa node", gpu.numa_node)
        .field_if_some("socket", gpu.socket)
        .field_if_some("pcie switch", gpu.pcie_switch)
        .field("nvlink", nvlink.join(" "))
        .field("profiles", gpu.mig_profiles.join(" "))
}

/// The MIG instances by profile; `None` if the GPU is not partitioned.
fn instances_text(gpu: &Gpu) -> Option<String> {
    (!gpu.mig.is_empty())
        .then(|| gpu_share_display::instance_counts_text(&gpu_share_display::count_by_profile(&gpu.mig)))
}

/// One line per job that holds a part of the GPU.
fn holders_text(gpu: &Gpu) -> String {
    let parts = gpu.holders.iter().filter(|holder| holder.mode != "whole");
    parts.map(gpu_share_display::holder_text).collect::<Vec<String>>().join("\n")
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
