//! What is free now, by model.

use std::collections::BTreeMap;

use muster_protocol::amount::Amount;
use muster_protocol::cluster::Myself;
use muster_protocol::gpu::{Gpu, GpuList};
use muster_protocol::tenant::Tenant;
use serde::Serialize;

use super::{Code, Ending};
use crate::client::{Client, Target};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Column, Format, ListArgs};
use crate::shares::{self, InstanceKind};

/// The tenant of callers who reach all of them.
const DEFAULT_TENANT: &str = "default";

/// `muster gpus`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whose quota counts [default: yours]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// GPUs of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
struct Row {
    model: String,
    free: u64,
    free_in_quota: u64,
    largest_block: u64,
    busy: u64,
    used: Amount,
    out: u64,
    total: u64,
    /// Of GPUs that are partitioned, by kind.
    instances: Vec<InstanceKind>,
}

/// All of them, as machines read it.
#[derive(Serialize)]
struct Whole<'a> {
    models: &'a [Row],
}

const COLUMNS: [Column<Row>; 9] = [
    Column::new("MODEL", |row| row.model.as_str().into()),
    Column::new("FREE", |row| row.free.into()),
    Column::new("FREE≤QUOTA", |row| row.free_in_quota.into()),
    Column::new("LARGEST-BLOCK", |row| row.largest_block.into()),
    Column::new("BUSY", |row| row.busy.into()),
    Column::new("USED", |row| row.used.to_string().into()),
    Column::new("OUT", |row| row.out.into()),
    Column::new("TOTAL", |row| row.total.into()),
    Column::new("INSTANCES", |row| shares::instances(&row.instances).into()),
];

/// Print what is free.
pub fn run(args: Args, options: &Options) -> Ending {
    let client = options.client()?;
    let gpus: GpuList = client.get("gpus")?;
    let room = room_in_quota(&client, args.tenant)?;
    let rows = by_model(&gpus.gpus, room);
    output::list(
        &args.list,
        options.color,
        columns(&args.list, &rows),
        rows.clone(),
        &Whole { models: &rows },
    )?;
    Ok(Code::DONE)
}

/// People need no column that says nothing; programs have always all of them.
fn columns(args: &ListArgs, rows: &[Row]) -> &'static [Column<Row>] {
    let for_people = matches!(args.show.output, Format::Table) && args.columns.is_empty();
    let nothing = rows.iter().all(|row| row.instances.is_empty());
    if for_people && nothing { &COLUMNS[..COLUMNS.len() - 1] } else { &COLUMNS }
}

/// GPUs that the tenant may still take.
fn room_in_quota(client: &Client, tenant: Option<String>) -> Result<u64, CliError> {
    let tenant = match tenant {
        Some(tenant) => tenant,
        None => client.get::<Myself>("whoami")?.tenant_id.unwrap_or_else(|| DEFAULT_TENANT.to_string()),
    };
    let tenant: Tenant = client.get(Target::new("tenants").at(&tenant))?;
    let left = |most: u64| most.saturating_mul(1_000).saturating_sub(tenant.current_gpus.milli) / 1_000;
    Ok(tenant.max_gpus.map_or(u64::MAX, left))
}

fn by_model(gpus: &[Gpu], room: u64) -> Vec<Row> {
    let mut models: BTreeMap<&str, Row> = BTreeMap::new();
    let mut blocks: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for gpu in gpus {
        let row =
            models.entry(&gpu.model).or_insert_with(|| Row { model: gpu.model.clone(), ..Row::default() });
        row.total += 1;
        row.used.milli += u64::from(gpu.used_milli);
        match gpu.state.as_str() {
            "free" => {
                row.free += 1;
                let block = blocks.entry((&gpu.model, &gpu.node_id)).or_default();
                *block += 1;
                row.largest_block = row.largest_block.max(*block);
            }
            // One of which instances are free is not free for who wants all of it.
            "held" | "shared" | "partitioned" | "claimed" => row.busy += 1,
            _ => row.out += 1,
        }
    }
    let row = |row: Row| {
        let parts = gpus.iter().filter(|gpu| gpu.model == row.model).flat_map(|gpu| &gpu.mig);
        Row { free_in_quota: row.free.min(room), instances: shares::by_kind(parts), ..row }
    };
    models.into_values().map(row).collect()
}
