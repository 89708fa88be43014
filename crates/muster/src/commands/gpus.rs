//! `muster gpus`: free and used GPUs by model.

use std::collections::BTreeMap;

use muster_protocol::cluster::CallerIdentity;
use muster_protocol::gpu::{Gpu, GpuList};
use muster_protocol::gpu_amount::GpuAmount;
use muster_protocol::tenant::Tenant;
use serde::Serialize;

use super::{CommandResult, ExitStatus};
use crate::client::{Client, RequestTarget};
use crate::error::CliError;
use crate::gpu_share_display::{self, InstanceCount};
use crate::options::Options;
use crate::output::{self, Column, Format, ListArgs};

/// The tenant for callers whose role applies to all tenants.
const DEFAULT_TENANT: &str = "default";

/// `muster gpus`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tenant whose quota limits the free GPUs [default: yours]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// GPUs of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
struct GpuModelRow {
    model: String,
    free: u64,
    free_in_quota: u64,
    largest_block: u64,
    busy: u64,
    used: GpuAmount,
    out: u64,
    total: u64,
    /// MIG instances of partitioned GPUs, by profile.
    instances: Vec<InstanceCount>,
}

/// The output of `-o json`.
#[derive(Serialize)]
struct GpuModelReport<'a> {
    models: &'a [GpuModelRow],
}

const COLUMNS: [Column<GpuModelRow>; 9] = [
    Column::new("MODEL", |row| row.model.as_str().into()),
    Column::new("FREE", |row| row.free.into()),
    Column::new("FREE≤QUOTA", |row| row.free_in_quota.into()),
    Column::new("LARGEST-BLOCK", |row| row.largest_block.into()),
    Column::new("BUSY", |row| row.busy.into()),
    Column::new("USED", |row| row.used.to_string().into()),
    Column::new("OUT", |row| row.out.into()),
    Column::new("TOTAL", |row| row.total.into()),
    Column::new("INSTANCES", |row| gpu_share_display::instance_counts_text(&row.instances).into()),
];

pub fn run(args: Args, options: &Options) -> CommandResult {
    let client = options.client()?;
    let gpus: GpuList = client.get("gpus")?;
    let left_in_quota = gpus_left_in_quota(&client, args.tenant)?;
    let rows = rows_by_model(&gpus.gpus, left_in_quota);
    output::list(
        &args.list,
        options.color,
        columns_for(&args.list, &rows),
        rows.clone(),
        &GpuModelReport { models: &rows },
    )?;
    Ok(ExitStatus::SUCCESS)
}

/// Tables omit the column INSTANCES if it is empty; the other formats always have every column.
fn columns_for(args: &ListArgs, rows: &[GpuModelRow]) -> &'static [Column<GpuModelRow>] {
    let is_table = matches!(args.show.output, Format::Table) && args.columns.is_empty();
    let no_instances = rows.iter().all(|row| row.instances.is_empty());
    if is_table && no_instances { &COLUMNS[..COLUMNS.len() - 1] } else { &COLUMNS }
}

/// GPUs that the tenant may still hold within its quota.
fn gpus_left_in_quota(client: &Client, tenant: Option<String>) -> Result<u64, CliError> {
    let tenant = match tenant {
        Some(tenant) => tenant,
        None => client.get::<CallerIdentity>("whoami")?.tenant_id.unwrap_or_else(|| DEFAULT_TENANT.to_string()),
    };
    let tenant: Tenant = client.get(RequestTarget::new("tenants").segment(&tenant))?;
    let left = |quota: u64| quota.saturating_mul(1_000).saturating_sub(tenant.current_gpus.milli) / 1_000;
    Ok(tenant.max_gpus.map_or(u64::MAX, left))
}

fn rows_by_model(gpus: &[Gpu], left_in_quota: u64) -> Vec<GpuModelRow> {
    let mut models: BTreeMap<&str, GpuModelRow> = BTreeMap::new();
    let mut blocks: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for gpu in gpus {
        let row = models
            .entry(&gpu.model)
            .or_insert_with(|| GpuModelRow { model: gpu.model.clone(), ..GpuModelRow::default() });
        row.total += 1;
        row.used.milli += u64::from(gpu.used_milli);
        match gpu.state.as_str() {
            "free" => {
                row.free += 1;
                let block = blocks.entry((&gpu.model, &gpu.node_id)).or_default();
                *block += 1;
                row.largest_block = row.largest_block.max(*block);
            }
            // A partitioned GPU is not free as a whole, even if its instances are.
            "held" | "shared" | "partitioned" | "claimed" => row.busy += 1,
            _ => row.out += 1,
        }
    }
    let row = |row: GpuModelRow| {
        let parts = gpus.iter().filter(|gpu| gpu.model == row.model).flat_map(|gpu| &gpu.mig);
        GpuModelRow {
            free_in_quota: row.free.min(left_in_quota),
            instances: gpu_share_display::count_by_profile(parts),
            ..row
        }
    };
    models.into_values().map(row).collect()
}
