//! Tenants and their quotas.

mod terms;

use std::collections::BTreeMap;
use std::fmt::Display;

use clap::{Args, Subcommand};
use hyper::Method;
use muster_protocol::submit::Done;
use muster_protocol::tenant::{Tenant, TenantChange, TenantList, TenantSpec};

use super::{Code, Ending};
use crate::client::{Client, Target};
use crate::confirm::{self, Consent};
use crate::options::Options;
use crate::output::{self, Card, Cell, Column, ListArgs, ShowArgs};
use crate::{shares, units};
use terms::Terms;

/// `muster tenant …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List tenants
    Ls(LsArgs),
    /// Show all about one
    Show(OneArgs),
    /// Make one, and print its id
    Create(CreateArgs),
    /// Change one
    Set(SetArgs),
    /// Remove one that has no live jobs
    Rm(RmArgs),
}

/// `muster tenant ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// `muster tenant show`.
#[derive(Debug, Args)]
pub struct OneArgs {
    /// Which
    tenant: String,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster tenant create`.
#[derive(Debug, Args)]
#[command(before_help = "Example:\n  muster tenant create vision --max-gpus 16 --tier high")]
pub struct CreateArgs {
    /// Its name; the id is made from it
    #[arg(required_unless_present = "called")]
    name: Option<String>,
    /// The same as a flag
    #[arg(long = "name", id = "called", value_name = "NAME", conflicts_with = "name", hide = true)]
    called: Option<String>,
    #[command(flatten)]
    what: Terms,
    /// The tenant above it
    #[arg(long, value_name = "TENANT")]
    parent: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster tenant set`.
#[derive(Debug, Args)]
#[command(before_help = "Example:\n  muster tenant set vision --max-gpus none --price 2.5")]
pub struct SetArgs {
    /// Which
    tenant: String,
    #[command(flatten)]
    what: Terms,
    /// Whether it may submit
    #[arg(long, value_name = "BOOL")]
    active: Option<bool>,
}

/// `muster tenant rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// Which
    tenant: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

const COLUMNS: [Column<Tenant>; 19] = [
    Column::new("TENANT", |tenant| tenant.id.as_str().into()),
    Column::new("TIER", |tenant| tenant.priority_tier.as_str().into()),
    Column::new("GPUS", |tenant| of_limit(tenant.current_gpus, tenant.max_gpus)),
    Column::new("GUARANTEED", |tenant| Cell::or_dash(guaranteed_gpus(tenant))),
    Column::new("CPUS", |tenant| of_limit(tenant.current_cpu_cores, tenant.max_cpu_cores)),
    Column::new("RUNNING", |tenant| of_limit(tenant.current_jobs, tenant.max_concurrent_jobs)),
    Column::new("WAITING", |tenant| tenant.live_jobs.saturating_sub(tenant.current_jobs).into()),
    Column::new("GPU-HOURS", |tenant| format!("{:.2}", tenant.total_gpu_hours).into()),
    Column::new("SHARE", |tenant| percent(tenant.fair_share).into()),
    Column::new("USED", |tenant| percent(tenant.fair_share_used).into()),
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

/// Do one of them.
pub fn run(verb: Verb, options: &Options) -> Ending {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => {
            let tenants: TenantList = client.get("tenants")?;
            output::list(&args.list, options.color, &COLUMNS, tenants.tenants.clone(), &tenants)?;
        }
        Verb::Show(args) => {
            let tenant: Tenant = client.get(target(&args.tenant))?;
            output::show(&args.show, &card(&tenant), &tenant.id, &tenant)?;
        }
        Verb::Create(args) => create(&client, args)?,
        Verb::Set(args) => {
            let change = TenantChange { active: args.active, ..args.what.into_change() };
            let tenant: Tenant = client.send(Method::PATCH, target(&args.tenant), &change)?;
            output::talk(&format!("tenant `{}` was changed", tenant.id));
            warn(&tenant);
        }
        Verb::Rm(args) => {
            confirm::ask(Consent::from(args.yes), &format!("remove tenant {}", args.tenant))?;
            let done: Done = client.act(Method::DELETE, target(&args.tenant))?;
            output::talk(&done.message);
        }
    }
    Ok(Code::DONE)
}

fn create(client: &Client, args: CreateArgs) -> Result<(), crate::error::CliError> {
    let name = args.name.or(args.called);
    let spec = TenantSpec { name, parent: args.parent, ..args.what.into_spec() };
    let tenant: Tenant = client.send(Method::POST, Target::new("tenants"), &spec)?;
    warn(&tenant);
    output::say(&args.show, &format!("{}\n", tenant.id), &tenant.id, &tenant)
}

fn warn(tenant: &Tenant) {
    tenant.warnings.iter().for_each(|warning| output::talk(&format!("warning: {warning}")));
}

/// GPUs it can count on, of any model and of single ones.
fn guaranteed_gpus(tenant: &Tenant) -> Option<String> {
    let models = tenant.guaranteed_gpus_by_model.iter().map(|(model, gpus)| format!("{gpus} {model}"));
    let all: Vec<String> =
        tenant.guaranteed_gpus.map(|gpus| gpus.to_string()).into_iter().chain(models).collect();
    (!all.is_empty()).then(|| all.join(" + "))
}

fn budget(tenant: &Tenant) -> Option<String> {
    let part = |used: f64, limit: f64| format!("{} of {}", units::amount(used), units::amount(limit));
    let hours = tenant
        .budget_gpu_hours
        .map(|limit| format!("{} GPU-hours used", part(tenant.spent_gpu_hours, limit)));
    let energy = tenant.budget_kwh.map(|limit| format!("{} kWh used", part(tenant.spent_kwh, limit)));
    let cost = tenant.budget_cost.map(|limit| format!("{} spent", part(tenant.spent_cost, limit)));
    let lines: Vec<String> = hours.into_iter().chain(energy).chain(cost).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

fn power(watts: f64) -> String {
    format!("{:.2} kW at the limits of its GPUs", watts / 1_000.0)
}

fn damage(tenant: &Tenant) -> Option<String> {
    let (limit, lost) = (tenant.damage_gpu_hours_per_day?, tenant.damage_gpu_hours.unwrap_or_default());
    Some(format!("{} of {} GPU-hours a day lost to others", units::amount(lost), units::amount(limit)))
}

fn fair_share(tenant: &Tenant) -> String {
    format!(
        "factor {:.3}: uses {} of the cluster now and of late, its share is {}; {:.1} GPUs on average of late",
        tenant.fair_share_factor,
        percent(tenant.fair_share_used),
        percent(tenant.fair_share),
        tenant.recent_gpus
    )
}

fn past_usage(tenant: &Tenant) -> String {
    let half_life = units::span(tenant.usage_half_life_ms);
    match tenant.priority_decay {
        decay if decay >= 1.0 => "is forgotten at once".to_string(),
        decay if decay > 0.0 => {
            format!("counts half after {half_life}: {} of it is forgotten each day", percent(decay))
        }
        _ => format!("counts half after {half_life}, as usual in the cluster"),
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn target(tenant: &str) -> Target {
    Target::new("tenants").at(tenant)
}

fn card(tenant: &Tenant) -> Card {
    let memory = |mib: u64, limit: Option<u64>| match limit {
        Some(limit) => format!("{} of {}", units::memory(mib), units::memory(limit)),
        None => format!("{}, no limit", units::memory(mib)),
    };
    Card::default()
        .field("tenant", tenant.id.clone())
        .field("name", tenant.name.clone())
        .maybe("parent", tenant.parent.clone())
        .field("organization", tenant.organization.clone())
        .field("email", tenant.email.clone())
        .field("active", yes_no(tenant.active))
        .field("tier", tenant.priority_tier.clone())
        .maybe("max priority", tenant.max_priority)
        .field("weight", tenant.fair_share_weight.to_string())
        .field("fair share", fair_share(tenant))
        .field("past usage", past_usage(tenant))
        .field("gpus", counted(tenant.current_gpus, tenant.max_gpus))
        .maybe("by model", by_model(&tenant.max_gpus_by_model).map(|most| format!("at most {most}")))
        .maybe("guaranteed", guaranteed(tenant))
        .field("warning", tenant.warnings.join("\n"))
        .maybe("borrowed", tenant.borrowed_gpus.filter(|gpus| gpus.milli > 0).map(shares::gpus))
        .maybe("budget", budget(tenant))
        .field("gpu memory", memory(tenant.current_gpu_memory, tenant.max_gpu_memory_mb))
        .field("cpus", counted(tenant.current_cpu_cores, tenant.max_cpu_cores))
        .field("memory", memory(tenant.current_memory, tenant.max_memory_mb))
        .maybe("power", Some(tenant.current_power_w).filter(|watts| *watts > 0.0).map(power))
        .field("running", counted(tenant.current_jobs, tenant.max_concurrent_jobs))
        .maybe("each user", each_user(tenant))
        .field("live jobs", tenant.live_jobs.to_string())
        .field("preemption", preemption(tenant))
        .maybe("damage", damage(tenant))
        .field(
            "jobs",
            format!(
                "{} in all, {} good, {} failed, {} cancelled",
                tenant.total_jobs, tenant.successful_jobs, tenant.failed_jobs, tenant.cancelled_jobs
            ),
        )
        .field("gpu-hours", format!("{:.4}", tenant.total_gpu_hours))
        .field(
            "cost",
            if tenant.billing_enabled {
                format!("{:.2} at {} a GPU-hour", tenant.total_cost, tenant.cost_per_gpu_hour)
            } else {
                String::new()
            },
        )
}

/// What it can count on, where anything is said about it.
fn guaranteed(tenant: &Tenant) -> Option<String> {
    let amounts = [
        tenant.guaranteed_gpus.map(|gpus| units::count(gpus, "GPU")),
        by_model(&tenant.guaranteed_gpus_by_model),
        tenant.guaranteed_gpu_memory_mb.map(|mib| format!("{} of GPU memory", units::memory(mib))),
        tenant.guaranteed_cpu_cores.map(|cores| units::count(cores, "core")),
        tenant.guaranteed_memory_mb.map(|mib| format!("{} of memory", units::memory(mib))),
        tenant.guaranteed_concurrent_jobs.map(|jobs| units::count(jobs, "running job")),
    ];
    let all: Vec<String> = amounts.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn by_model(models: &BTreeMap<String, u64>) -> Option<String> {
    let models: Vec<String> = models.iter().map(|(model, gpus)| format!("{gpus} of model {model}")).collect();
    (!models.is_empty()).then(|| models.join(", "))
}

/// What each of its users may hold, where anything is said about it.
fn each_user(tenant: &Tenant) -> Option<String> {
    let limits = [
        tenant.max_gpus_per_user.map(|most| units::count(most, "GPU")),
        tenant.max_gpu_memory_mb_per_user.map(|most| format!("{} of GPU memory", units::memory(most))),
        tenant.max_cpu_cores_per_user.map(|most| units::count(most, "CPU core")),
        tenant.max_memory_mb_per_user.map(|most| format!("{} of memory", units::memory(most))),
        tenant.max_concurrent_jobs_per_user.map(|most| units::count(most, "running job")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    (!limits.is_empty()).then(|| format!("at most {}", limits.join(", ")))
}

fn preemption(tenant: &Tenant) -> String {
    let may = |yes: bool| if yes { "may" } else { "may not" };
    format!(
        "{} be displaced, {} displace others",
        may(tenant.allow_preemption),
        may(tenant.can_preempt_others)
    )
}

fn of_limit(used: impl Display, limit: Option<u64>) -> Cell {
    match limit {
        Some(limit) => format!("{used}/{limit}").into(),
        None => used.to_string().into(),
    }
}

fn counted(used: impl Display, limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => format!("{used}, no limit"),
    }
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
