//! `muster tenant`: list, show, create, change and remove tenants and their quotas.

mod tenant_flags;

use std::collections::BTreeMap;
use std::fmt::Display;

use clap::{Args, Subcommand};
use hyper::Method;
use muster_protocol::submit::Acknowledgement;
use muster_protocol::tenant::{Tenant, TenantChange, TenantList, TenantSpec};

use super::{CommandResult, ExitStatus};
use crate::client::{Client, RequestTarget};
use crate::confirm::{self, Consent};
use crate::options::Options;
use crate::output::{self, Card, Cell, Column, ListArgs, ShowArgs};
use crate::{gpu_share_display, units};
use tenant_flags::TenantFlags;

/// `muster tenant …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List tenants
    Ls(TenantLsArgs),
    /// Show the details of a tenant
    Show(TenantShowArgs),
    /// Create a tenant and print its id
    Create(TenantCreateArgs),
    /// Change a tenant
    Set(TenantSetArgs),
    /// Remove a tenant that has no live jobs
    Rm(TenantRmArgs),
}

/// `muster tenant ls`.
#[derive(Debug, Args)]
pub struct TenantLsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// `muster tenant show`.
#[derive(Debug, Args)]
pub struct TenantShowArgs {
    /// Tenant id
    tenant: String,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster tenant create`.
#[derive(Debug, Args)]
#[command(before_help = "Example:\n  muster tenant create vision --max-gpus 16 --tier high")]
pub struct TenantCreateArgs {
    /// Name; the id is derived from it
    #[arg(required_unless_present = "called")]
    name: Option<String>,
    /// The name, as a flag
    #[arg(long = "name", id = "called", value_name = "NAME", conflicts_with = "name", hide = true)]
    called: Option<String>,
    #[command(flatten)]
    flags: TenantFlags,
    /// Parent tenant
    #[arg(long, value_name = "TENANT")]
    parent: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster tenant set`.
#[derive(Debug, Args)]
#[command(before_help = "Example:\n  muster tenant set vision --max-gpus none --price 2.5")]
pub struct TenantSetArgs {
    /// Tenant id
    tenant: String,
    #[command(flatten)]
    flags: TenantFlags,
    /// Whether its members may submit jobs
    #[arg(long, value_name = "BOOL")]
    active: Option<bool>,
}

/// `muster tenant rm`.
#[derive(Debug, Args)]
pub struct TenantRmArgs {
    /// Tenant id
    tenant: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

const COLUMNS: [Column<Tenant>; 19] = [
    Column::new("TENANT", |tenant| tenant.id.as_str().into()),
    Column::new("TIER", |tenant| tenant.priority_tier.as_str().into()),
    Column::new("GPUS", |tenant| usage_cell(tenant.current_gpus, tenant.max_gpus)),
    Column::new("GUARANTEED", |tenant| Cell::or_dash(guaranteed_gpus_text(tenant))),
    Column::new("CPUS", |tenant| usage_cell(tenant.current_cpu_cores, tenant.max_cpu_cores)),
    Column::new("RUNNING", |tenant| usage_cell(tenant.current_jobs, tenant.max_concurrent_jobs)),
    Column::new("WAITING", |tenant| tenant.live_jobs.saturating_sub(tenant.current_jobs).into()),
    Column::new("GPU-HOURS", |tenant| format!("{:.2}", tenant.total_gpu_hours).into()),
    Column::new("SHARE", |tenant| percent_text(tenant.fair_share).into()),
    Column::new("USED", |tenant| percent_text(tenant.fair_share_used).into()),
    Column::new("FACTOR", |tenant| format!("{:.3}", tenant.fair_share_factor).into()),
    Column::new("ACTIVE", |tenant| yes_no(tenant.active).into()),
    Column::wide("NAME", |tenant| tenant.name.as_str().into()),
    Column::wide("PARENT", |tenant| tenant.parent.as_deref().unwrap_or("-").into()),
    Column::wide("WEIGHT", |tenant| tenant.fair_share_weight.to_string().into()),
    Column::wide("JOBS", |tenant| tenant.total_jobs.into()),
    Column::wide("FAILED", |tenant| tenant.failed_jobs.into()),
    Column::wide("COST", |tenant| format!("{:.2}", tenant.total_cost).into()),
    Column::wide("EMAIL", |tenant| tenant.email.as_str().into()),
];

pub fn run(verb: Verb, options: &Options) -> CommandResult {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => {
            let tenants: TenantList = client.get("tenants")?;
            output::list(&args.list, options.color, &COLUMNS, tenants.tenants.clone(), &tenants)?;
        }
        Verb::Show(args) => {
            let tenant: Tenant = client.get(tenant_target(&args.tenant))?;
            output::show(&args.show, &tenant_card(&tenant), &tenant.id, &tenant)?;
        }
        Verb::Create(args) => create(&client, args)?,
        Verb::Set(args) => {
            let change = TenantChange { active: args.active, ..args.flags.into_change() };
            let tenant: Tenant = client.send(Method::PATCH, tenant_target(&args.tenant), &change)?;
            output::print_stderr(&format!("tenant `{}` was changed", tenant.id));
            print_warnings(&tenant);
        }
        Verb::Rm(args) => {
            confirm::require_confirmation(Consent::from(args.yes), &format!("remove tenant {}", args.tenant))?;
            let done: Acknowledgement = client.send_without_body(Method::DELETE, tenant_target(&args.tenant))?;
            output::print_stderr(&done.message);
        }
    }
    Ok(ExitStatus::SUCCESS)
}

fn create(client: &Client, args: TenantCreateArgs) -> Result<(), crate::error::CliError> {
    let name = args.name.or(args.called);
    let spec = TenantSpec { name, parent: args.parent, ..args.flags.into_spec() };
    let tenant: Tenant = client.send(Method::POST, RequestTarget::new("tenants"), &spec)?;
    print_warnings(&tenant);
    output::print_text(&args.show, &format!("{}\n", tenant.id), &tenant.id, &tenant)
}

fn print_warnings(tenant: &Tenant) {
    tenant.warnings.iter().for_each(|warning| output::print_stderr(&format!("warning: {warning}")));
}

/// Guaranteed GPUs, of any model and of single models.
fn guaranteed_gpus_text(tenant: &Tenant) -> Option<String> {
    let models = tenant.guaranteed_gpus_by_model.iter().map(|(model, gpus)| format!("{gpus} {model}"));
    let all: Vec<String> = tenant.guaranteed_gpus.map(|gpus| gpus.to_string()).into_iter().chain(models).collect();
    (!all.is_empty()).then(|| all.join(" + "))
}

fn budget_text(tenant: &Tenant) -> Option<String> {
    let part = |used: f64, limit: f64| format!("{} of {}", units::amount_text(used), units::amount_text(limit));
    let hours = tenant.budget_gpu_hours.map(|limit| format!("{} GPU-hours used", part(tenant.spent_gpu_hours, limit)));
    let energy = tenant.budget_kwh.map(|limit| format!("{} kWh used", part(tenant.spent_kwh, limit)));
    let cost = tenant.budget_cost.map(|limit| format!("{} spent", part(tenant.spent_cost, limit)));
    let lines: Vec<String> = hours.into_iter().chain(energy).chain(cost).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

fn power_text(watts: f64) -> String {
    format!("{:.2} kW at the power limits of its GPUs", watts / 1_000.0)
}

fn preemption_loss_text(tenant: &Tenant) -> Option<String> {
    let (limit, lost) = (tenant.damage_gpu_hours_per_day?, tenant.damage_gpu_hours.unwrap_or_default());
    Some(format!(
        "{} of {} GPU-hours of preemption loss allowed per day",
        units::amount_text(lost),
        units::amount_text(limit)
    ))
}

fn fair_share_text(tenant: &Tenant) -> String {
    format!(
        "factor {:.3}: current and decayed usage is {} of the cluster, fair share {}; decayed usage {:.1} GPUs",
        tenant.fair_share_factor,
        percent_text(tenant.fair_share_used),
        percent_text(tenant.fair_share),
        tenant.recent_gpus
    )
}

fn decayed_usage_text(tenant: &Tenant) -> String {
    let half_life = units::duration_text(tenant.usage_half_life_ms);
    match tenant.priority_decay {
        decay if decay >= 1.0 => "not counted".to_string(),
        decay if decay > 0.0 => format!("half-life {half_life}: {} decays each day", percent_text(decay)),
        _ => format!("half-life {half_life}, the default of the cluster"),
    }
}

fn percent_text(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn tenant_target(tenant: &str) -> RequestTarget {
    RequestTarget::new("tenants").segment(tenant)
}

fn tenant_card(tenant: &Tenant) -> Card {
    let memory = |mib: u64, limit: Option<u64>| match limit {
        Some(limit) => format!("{} of {}", units::memory_text(mib), units::memory_text(limit)),
        None => format!("{}, no limit", units::memory_text(mib)),
    };
    Card::default()
        .field("tenant", tenant.id.clone())
        .field("name", tenant.name.clone())
        .field_if_some("parent", tenant.parent.clone())
        .field("organization", tenant.organization.clone())
        .field("email", tenant.email.clone())
        .field("active", yes_no(tenant.active))
        .field("tier", tenant.priority_tier.clone())
        .field_if_some("max priority", tenant.max_priority)
        .field("weight", tenant.fair_share_weight.to_string())
        .field("fair share", fair_share_text(tenant))
        .field("past usage", decayed_usage_text(tenant))
        .field("gpus", usage_text(tenant.current_gpus, tenant.max_gpus))
        .field_if_some("by model", by_model_text(&tenant.max_gpus_by_model).map(|quota| format!("at most {quota}")))
        .field_if_some("guaranteed", guarantees_text(tenant))
        .field("warning", tenant.warnings.join("\n"))
        .field_if_some(
            "borrowed",
            tenant.borrowed_gpus.filter(|gpus| gpus.milli > 0).map(gpu_share_display::gpu_amount_text),
        )
        .field_if_some("budget", budget_text(tenant))
        .field("gpu memory", memory(tenant.current_gpu_memory, tenant.max_gpu_memory_mb))
        .field("cpus", usage_text(tenant.current_cpu_cores, tenant.max_cpu_cores))
        .field("memory", memory(tenant.current_memory, tenant.max_memory_mb))
        .field_if_some("power", Some(tenant.current_power_w).filter(|watts| *watts > 0.0).map(power_text))
        .field("running", usage_text(tenant.current_jobs, tenant.max_concurrent_jobs))
        .field_if_some("per user", user_limits_text(tenant))
        .field("live jobs", tenant.live_jobs.to_string())
        .field("preemption", preemption_text(tenant))
        .field_if_some("preemption loss", preemption_loss_text(tenant))
        .field(
            "jobs",
            format!(
                "{} in total, {} completed, {} failed, {} cancelled",
                tenant.total_jobs, tenant.successful_jobs, tenant.failed_jobs, tenant.cancelled_jobs
            ),
        )
        .field("gpu-hours", format!("{:.4}", tenant.total_gpu_hours))
        .field(
            "cost",
            if tenant.billing_enabled {
                format!("{:.2} at {} per GPU-hour", tenant.total_cost, tenant.cost_per_gpu_hour)
            } else {
                String::new()
            },
        )
}

/// The guarantees of the tenant; `None` if it has none.
fn guarantees_text(tenant: &Tenant) -> Option<String> {
    let amounts = [
        tenant.guaranteed_gpus.map(|gpus| units::count_text(gpus, "GPU")),
        by_model_text(&tenant.guaranteed_gpus_by_model),
        tenant.guaranteed_gpu_memory_mb.map(|mib| format!("{} of GPU memory", units::memory_text(mib))),
        tenant.guaranteed_cpu_cores.map(|cores| units::count_text(cores, "core")),
        tenant.guaranteed_memory_mb.map(|mib| format!("{} of memory", units::memory_text(mib))),
        tenant.guaranteed_concurrent_jobs.map(|jobs| units::count_text(jobs, "running job")),
    ];
    let all: Vec<String> = amounts.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn by_model_text(models: &BTreeMap<String, u64>) -> Option<String> {
    let models: Vec<String> = models.iter().map(|(model, gpus)| format!("{gpus} of model {model}")).collect();
    (!models.is_empty()).then(|| models.join(", "))
}

/// The limits per user; `None` if there are none.
fn user_limits_text(tenant: &Tenant) -> Option<String> {
    let limits = [
        tenant.max_gpus_per_user.map(|gpus| units::count_text(gpus, "GPU")),
        tenant.max_gpu_memory_mb_per_user.map(|mib| format!("{} of GPU memory", units::memory_text(mib))),
        tenant.max_cpu_cores_per_user.map(|cores| units::count_text(cores, "CPU core")),
        tenant.max_memory_mb_per_user.map(|mib| format!("{} of memory", units::memory_text(mib))),
        tenant.max_concurrent_jobs_per_user.map(|jobs| units::count_text(jobs, "running job")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    (!limits.is_empty()).then(|| format!("at most {}", limits.join(", ")))
}

fn preemption_text(tenant: &Tenant) -> String {
    let may = |yes: bool| if yes { "may" } else { "may not" };
    format!("{} be preempted, {} preempt others", may(tenant.allow_preemption), may(tenant.can_preempt_others))
}

fn usage_cell(used: impl Display, limit: Option<u64>) -> Cell {
    match limit {
        Some(limit) => format!("{used}/{limit}").into(),
        None => used.to_string().into(),
    }
}

fn usage_text(used: impl Display, limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => format!("{used}, no limit"),
    }
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
