//! `gpu-cli`: the command line of the specification, verb by verb and flag by flag.
//!
//! It sends the same requests as `muster`. Its outputs are fixed, because scripts parse them.

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use hyper::Method;
use muster_core::JobId;
use muster_protocol::cluster::ClusterStatus;
use muster_protocol::input::Priority;
use muster_protocol::job::{Job, JobList, JobSummary};
use muster_protocol::submit::{Acknowledgement, SubmitJob, Submitted};
use muster_protocol::tenant::{Tenant, TenantSpec};

use crate::client::{Client, RequestTarget, new_idempotency_key};
use crate::connection::{Connection, ConnectionArgs};
use crate::error::{CliError, CommandResult, Exit, ExitStatus};
use crate::jobs::{self, state_name};
use crate::output::{self, Card, Column, ListArgs};
use crate::{gpu_share_display, units};

/// Values that the client of the specification always sends.
const GPU_MEMORY_MB: u64 = 16_000;
const MEMORY_MB: u64 = 32_000;
const TENANT_CPU_CORES: u64 = 64;
const TENANT_MEMORY_MB: u64 = 256_000;
/// The tenant of a submission that names none.
const DEFAULT_TENANT: &str = "default";
const LIST_ROWS_MAX: usize = 1_000;

/// CLI tool for the GPU scheduler.
#[derive(Debug, Parser)]
#[command(name = "gpu-cli", version)]
struct Args {
    /// API server URL [default: http://localhost:8080]
    #[arg(long, global = true)]
    api_url: Option<String>,
    /// Tenant ID [default: default; `list`, `get` and `cancel` reach every tenant unless one is named]
    #[arg(long, global = true)]
    tenant_id: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Submit a job
    Submit(SubmitArgs),
    /// List jobs
    List {
        /// Filter by state
        #[arg(long)]
        state: Option<String>,
    },
    /// Get job status
    Get {
        /// Job ID
        job_id: JobId,
    },
    /// Cancel a job
    Cancel {
        /// Job ID
        job_id: JobId,
    },
    /// Get cluster status
    Status,
    /// Create a tenant
    CreateTenant(TenantArgs),
}

#[derive(Debug, clap::Args)]
struct SubmitArgs {
    /// Job name
    #[arg(long, default_value = "my-job")]
    name: String,
    /// Job priority
    #[arg(long, default_value_t = 100)]
    priority: u32,
    /// Number of GPUs
    #[arg(long, default_value_t = 1, value_parser = units::parse_gpu_count, allow_negative_numbers = true)]
    gpus: u32,
    /// Number of CPU cores
    #[arg(long, default_value_t = 4)]
    cpus: u32,
    /// Container image
    #[arg(long)]
    image: Option<String>,
    /// Script to run
    #[arg(long, default_value = "nvidia-smi")]
    script: String,
}

#[derive(Debug, clap::Args)]
struct TenantArgs {
    /// Tenant name
    #[arg(long)]
    name: String,
    /// Maximum GPUs
    #[arg(long, default_value_t = 10)]
    max_gpus: u64,
    /// Priority tier
    #[arg(long, default_value = "medium", value_parser = ["low", "medium", "high", "critical"])]
    priority: String,
}

const COLUMNS: [Column<JobSummary>; 6] = [
    Column::new("JOB ID", |job| job.id.as_str().into()),
    Column::new("NAME", |job| job.name.as_str().into()),
    Column::new("STATE", |job| state_name(job.state).into()),
    Column::new("GPUs", |job| gpu_share_display::job_gpus_text(job).into()),
    Column::new("PRIORITY", |job| job.priority.into()),
    Column::new("SUBMITTED", |job| units::local_time_text(job.submitted_at_ms).trim_end_matches('Z').into()),
];

pub fn run(words: &[OsString]) -> CommandResult {
    let args = Args::parse_from(words);
    let variables = std::env::vars().collect();
    let connection = ConnectionArgs { server: args.api_url, ..ConnectionArgs::default() };
    let client = Client::new(&Connection::resolve(connection, &variables)?)?;
    match args.verb {
        Verb::Submit(submitted) => submit(&client, args.tenant_id.as_deref(), submitted)?,
        Verb::List { state } => list(&client, args.tenant_id.as_deref(), state)?,
        Verb::Get { job_id } => get(&client, args.tenant_id.as_deref(), job_id)?,
        Verb::Cancel { job_id } => cancel(&client, args.tenant_id.as_deref(), job_id)?,
        Verb::Status => status(&client)?,
        Verb::CreateTenant(tenant) => create_tenant(&client, tenant)?,
    }
    Ok(ExitStatus::SUCCESS)
}

fn submit(client: &Client, tenant: Option<&str>, args: SubmitArgs) -> Result<(), CliError> {
    let job = SubmitJob {
        tenant_id: Some(tenant.unwrap_or(DEFAULT_TENANT).to_string()),
        name: Some(args.name),
        priority: Some(Priority::Number(args.priority)),
        gpu_count: Some(args.gpus),
        gpu_memory_mb: Some(GPU_MEMORY_MB),
        cpu_cores: Some(args.cpus),
        memory_mb: Some(MEMORY_MB),
        image: args.image,
        script: Some(args.script),
        ..SubmitJob::default()
    };
    let submitted: Submitted = client.post_idempotent(RequestTarget::new("jobs"), &job, new_idempotency_key())?;
    output::print_stdout(&format!(
        "✓ Job submitted successfully!\nJob ID: {}\nStatus: {}\n",
        submitted.job_id, submitted.status
    ))
}

/// Lists the jobs of all tenants, as the client of the specification does, or of the named tenant.
fn list(client: &Client, tenant: Option<&str>, state: Option<String>) -> Result<(), CliError> {
    let target = RequestTarget::new("jobs")
        .query("limit", LIST_ROWS_MAX)
        .query_if_some("state", state)
        .query_if_some("tenant_id", tenant);
    let page: JobList = client.get(target)?;
    output::list(&ListArgs::default(), false, &COLUMNS, page.jobs.clone(), &page)?;
    output::print_stdout(&format!("\nTotal: {} jobs\n", page.total))
}

/// Fetches a job; not found if the job is of another tenant than the named one.
fn fetch_job(client: &Client, tenant: Option<&str>, id: JobId) -> Result<Job, CliError> {
    let job = jobs::fetch_job(client, id)?;
    match tenant {
        Some(tenant) if tenant != job.summary.tenant_id => {
            Err(CliError::new(Exit::NotFound, format!("job `{id}` was not found in tenant `{tenant}`"))
                .hint(format!("`gpu-cli --tenant-id {tenant} list` lists the jobs of the tenant")))
        }
        _ => Ok(job),
    }
}

fn get(client: &Client, tenant: Option<&str>, id: JobId) -> Result<(), CliError> {
    let job = fetch_job(client, tenant, id)?;
    let message = job.reasons.first().map(|reason| reason.sentence.clone()).unwrap_or(job.summary.message.clone());
    let card = Card::default()
        .field("Job ID:", job.summary.id.clone())
        .field("Name:", job.summary.name.clone())
        .field("State:", state_name(job.summary.state))
        .field("Message:", message)
        .field_if_some("Node:", job.summary.node_name.clone())
        .field("GPUs:", job.allocated_gpus.join(" "))
        .field_if_some("Queue Position:", job.queue_position);
    output::print_stdout(&card.text())
}

fn cancel(client: &Client, tenant: Option<&str>, id: JobId) -> Result<(), CliError> {
    if tenant.is_some() {
        fetch_job(client, tenant, id)?;
    }
    let _: Acknowledgement = client.send_without_body(Method::DELETE, jobs::job_target(id))?;
    output::print_stdout(&format!("✓ Job {id} cancelled successfully\n"))
}

fn status(client: &Client) -> Result<(), CliError> {
    let status: ClusterStatus = client.get("cluster/status")?;
    output::print_stdout(&format!(
        "Cluster Status:\n  GPUs:  {} available / {} total\n  Nodes: {} online / {} total\n  Jobs:  {} running, {} pending, {} total\n",
        status.available_gpus,
        status.total_gpus,
        status.online_nodes,
        status.total_nodes,
        status.running_jobs,
        status.pending_jobs,
        status.total_jobs,
    ))
}

fn create_tenant(client: &Client, args: TenantArgs) -> Result<(), CliError> {
    let spec = TenantSpec {
        name: Some(args.name),
        max_gpus: Some(args.max_gpus),
        max_cpu_cores: Some(TENANT_CPU_CORES),
        max_memory_mb: Some(TENANT_MEMORY_MB),
        priority_tier: Some(args.priority),
        ..TenantSpec::default()
    };
    let tenant: Tenant = client.send(Method::POST, RequestTarget::new("tenants"), &spec)?;
    output::print_stdout(&format!("✓ Tenant created successfully!\nTenant ID: {}\nName: {}\n", tenant.id, tenant.name))
}
