//! Tenants and their quotas.

use clap::{Args, Subcommand};
use hyper::Method;
use muster_protocol::submit::Done;
use muster_protocol::tenant::{Tenant, TenantChange, TenantList, TenantSpec};

use super::{Code, Ending};
use crate::client::{Client, Target};
use crate::confirm::{self, Consent};
use crate::options::Options;
use crate::output::{self, Card, Cell, Column, ListArgs, ShowArgs};
use crate::units;

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
    what: WhatArgs,
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
    what: WhatArgs,
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

/// What may be said of a tenant.
#[derive(Debug, Clone, Default, Args)]
pub struct WhatArgs {
    /// Most GPUs at one time; `none` is without limit
    #[arg(long, value_name = "N")]
    max_gpus: Option<Limit>,
    /// Most GPU memory asked for at one time, in MiB
    #[arg(long, value_name = "MIB")]
    max_gpu_memory: Option<Limit>,
    /// Most CPU cores at one time
    #[arg(long, value_name = "N")]
    max_cpus: Option<Limit>,
    /// Most main memory at one time, in MiB
    #[arg(long, value_name = "MIB")]
    max_mem: Option<Limit>,
    /// Most jobs running at one time
    #[arg(long, value_name = "N")]
    max_jobs: Option<Limit>,
    /// GPUs it can count on
    #[arg(long, value_name = "N")]
    guaranteed_gpus: Option<Limit>,
    /// Default priority of its jobs
    #[arg(long, alias = "priority", value_parser = ["low", "medium", "high", "critical"])]
    tier: Option<String>,
    /// Share against other tenants; 1 is the usual one
    #[arg(long, value_name = "X")]
    weight: Option<f64>,
    /// Whether its running jobs may be displaced
    #[arg(long, value_name = "BOOL")]
    may_be_preempted: Option<bool>,
    /// Whether its jobs may displace others
    #[arg(long, value_name = "BOOL")]
    may_preempt: Option<bool>,
    /// Price of one GPU-hour; 0 ends billing
    #[arg(long, value_name = "X")]
    price: Option<f64>,
    /// Contact
    #[arg(long)]
    email: Option<String>,
    /// Where it belongs
    #[arg(long, value_name = "TEXT")]
    organization: Option<String>,
}

/// A number, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(Option<u64>);

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        match text {
            "none" | "unlimited" => Ok(Limit(None)),
            _ => text
                .parse()
                .map(|number| Limit(Some(number)))
                .map_err(|_| format!("`{text}` is neither a number nor `none`")),
        }
    }
}

const COLUMNS: [Column<Tenant>; 14] = [
    Column::new("TENANT", |tenant| tenant.id.as_str().into()),
    Column::new("TIER", |tenant| tenant.priority_tier.as_str().into()),
    Column::new("GPUS", |tenant| of_limit(tenant.current_gpus, tenant.max_gpus)),
    Column::new("CPUS", |tenant| of_limit(tenant.current_cpu_cores, tenant.max_cpu_cores)),
    Column::new("RUNNING", |tenant| of_limit(tenant.current_jobs, tenant.max_concurrent_jobs)),
    Column::new("WAITING", |tenant| tenant.live_jobs.saturating_sub(tenant.current_jobs).into()),
    Column::new("GPU-HOURS", |tenant| format!("{:.2}", tenant.total_gpu_hours).into()),
    Column::new("ACTIVE", |tenant| yes_no(tenant.active).into()),
    Column::wide("NAME", |tenant| tenant.name.as_str().into()),
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
            let tenant: Tenant = client.send(Method::PATCH, target(&args.tenant), &change(&args))?;
            output::talk(&format!("tenant `{}` was changed", tenant.id));
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
    let spec = spec(&args);
    let tenant: Tenant = client.send(Method::POST, Target::new("tenants"), &spec)?;
    output::say(&args.show, &format!("{}\n", tenant.id), &tenant.id, &tenant)
}

fn target(tenant: &str) -> Target {
    Target::new("tenants").at(tenant)
}

fn spec(args: &CreateArgs) -> TenantSpec {
    let what = args.what.clone();
    let number = |limit: Option<Limit>| limit.and_then(|limit| limit.0);
    TenantSpec {
        name: args.name.clone().or(args.called.clone()),
        parent: args.parent.clone(),
        max_gpus: number(what.max_gpus),
        max_gpu_memory_mb: number(what.max_gpu_memory),
        max_cpu_cores: number(what.max_cpus),
        max_memory_mb: number(what.max_mem),
        max_concurrent_jobs: number(what.max_jobs),
        guaranteed_gpus: number(what.guaranteed_gpus),
        priority_tier: what.tier,
        fair_share_weight: what.weight,
        allow_preemption: what.may_be_preempted,
        can_preempt_others: what.may_preempt,
        billing_enabled: what.price.map(|price| price > 0.0),
        cost_per_gpu_hour: what.price,
        email: what.email,
        organization: what.organization,
        ..TenantSpec::default()
    }
}

fn change(args: &SetArgs) -> TenantChange {
    let what = args.what.clone();
    let number = |limit: Option<Limit>| limit.map(|limit| limit.0);
    TenantChange {
        max_gpus: number(what.max_gpus),
        max_gpu_memory_mb: number(what.max_gpu_memory),
        max_cpu_cores: number(what.max_cpus),
        max_memory_mb: number(what.max_mem),
        max_concurrent_jobs: number(what.max_jobs),
        guaranteed_gpus: number(what.guaranteed_gpus),
        priority_tier: what.tier,
        fair_share_weight: what.weight,
        allow_preemption: what.may_be_preempted,
        can_preempt_others: what.may_preempt,
        billing_enabled: what.price.map(|price| price > 0.0),
        cost_per_gpu_hour: what.price,
        email: what.email,
        organization: what.organization,
        active: args.active,
        ..TenantChange::default()
    }
}

fn card(tenant: &Tenant) -> Card {
    let memory = |mib: u64, limit: Option<u64>| match limit {
        Some(limit) => format!("{} of {}", units::memory(mib), units::memory(limit)),
        None => format!("{}, no limit", units::memory(mib)),
    };
    let count = |used: u64, limit: Option<u64>| match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => format!("{used}, no limit"),
    };
    Card::default()
        .field("tenant", tenant.id.clone())
        .field("name", tenant.name.clone())
        .maybe("parent", tenant.parent.clone())
        .field("organization", tenant.organization.clone())
        .field("email", tenant.email.clone())
        .field("active", yes_no(tenant.active))
        .field("tier", tenant.priority_tier.clone())
        .field("weight", tenant.fair_share_weight.to_string())
        .field("gpus", count(tenant.current_gpus, tenant.max_gpus))
        .maybe("guaranteed", tenant.guaranteed_gpus)
        .field("gpu memory", memory(tenant.current_gpu_memory, tenant.max_gpu_memory_mb))
        .field("cpus", count(tenant.current_cpu_cores, tenant.max_cpu_cores))
        .field("memory", memory(tenant.current_memory, tenant.max_memory_mb))
        .field("running", count(tenant.current_jobs, tenant.max_concurrent_jobs))
        .field("live jobs", tenant.live_jobs.to_string())
        .field("preemption", preemption(tenant))
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

fn preemption(tenant: &Tenant) -> String {
    let may = |yes: bool| if yes { "may" } else { "may not" };
    format!(
        "{} be displaced, {} displace others",
        may(tenant.allow_preemption),
        may(tenant.can_preempt_others)
    )
}

fn of_limit(used: u64, limit: Option<u64>) -> Cell {
    match limit {
        Some(limit) => format!("{used}/{limit}").into(),
        None => used.into(),
    }
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
