//! `gpu-cli`: the command line of the commissioning document, verb by verb and flag by flag.
//!
//! It translates into the same calls as `muster`. Its outputs are fixed, because scripts search them.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Parser, Subcommand};
use hyper::Method;
use muster_core::JobId;
use muster_protocol::cluster::ClusterStatus;
use muster_protocol::job::{Job, JobList, JobState, JobSummary};
use muster_protocol::submit::{Done, SubmitJob, Submitted};
use muster_protocol::tenant::{Tenant, TenantSpec};
use muster_protocol::written::Priority;

use crate::client::{Client, Target, new_key};
use crate::commands::{Code, Ending};
use crate::error::{CliError, Exit};
use crate::jobs;
use crate::options::{Connection, GlobalArgs};
use crate::output::{self, Card, Column, ListArgs};
use crate::{shares, units};

/// What the seed's client always sends.
const GPU_MEMORY_MB: u64 = 16_000;
const MEMORY_MB: u64 = 32_000;
const TENANT_CPU_CORES: u64 = 64;
const TENANT_MEMORY_MB: u64 = 256_000;
/// The tenant of a job whose command line names none.
const DEFAULT_TENANT: &str = "default";
/// Jobs in a list.
const LIST_LIMIT: usize = 1_000;

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
    #[arg(long, default_value_t = 1, value_parser = units::gpus, allow_negative_numbers = true)]
    gpus: u32,
    /// Number of CPU cores
    #[arg(long, default_value_t = 4)]
    cpus: u32,
    /// Container image
    #[arg(long, default_value = "nvidia/cuda:12.0-base")]
    image: String,
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
    Column::new("STATE", |job| state_word(job.state).into()),
    Column::new("GPUs", |job| shares::of_job(job).into()),
    Column::new("PRIORITY", |job| job.priority.into()),
    Column::new("SUBMITTED", |job| units::moment(job.submitted_at_ms).trim_end_matches('Z').into()),
];

/// Do what the command line says.
pub fn run(words: &[OsString]) -> Ending {
    let args = Args::parse_from(words);
    let variables: BTreeMap<String, String> = std::env::vars().collect();
    let global = GlobalArgs { server: args.api_url, ..GlobalArgs::default() };
    let client = Client::new(&Connection::resolve(global, &variables)?)?;
    match args.verb {
        Verb::Submit(submitted) => submit(&client, args.tenant_id.as_deref(), submitted)?,
        Verb::List { state } => list(&client, args.tenant_id.as_deref(), state)?,
        Verb::Get { job_id } => get(&client, args.tenant_id.as_deref(), job_id)?,
        Verb::Cancel { job_id } => cancel(&client, args.tenant_id.as_deref(), job_id)?,
        Verb::Status => status(&client)?,
        Verb::CreateTenant(tenant) => create_tenant(&client, tenant)?,
    }
    Ok(Code::DONE)
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
        image: Some(args.image),
        script: Some(args.script),
        ..SubmitJob::default()
    };
    let submitted: Submitted = client.send_once(Target::new("jobs"), &job, new_key())?;
    output::print(&format!(
        "✓ Job submitted successfully!\nJob ID: {}\nStatus: {}\n",
        submitted.job_id, submitted.status
    ))
}

/// The jobs of every tenant, as the seed's list shows them, or of the tenant that the command line names.
fn list(client: &Client, tenant: Option<&str>, state: Option<String>) -> Result<(), CliError> {
    let target = Target::new("jobs")
        .with("limit", LIST_LIMIT)
        .with_some("state", state)
        .with_some("tenant_id", tenant);
    let page: JobList = client.get(target)?;
    output::list(&ListArgs::default(), false, &COLUMNS, page.jobs.clone(), &page)?;
    output::print(&format!("\nTotal: {} jobs\n", page.total))
}

/// A job, if it is of the tenant that the command line names.
fn fetch(client: &Client, tenant: Option<&str>, id: JobId) -> Result<Job, CliError> {
    let job = jobs::fetch(client, id)?;
    match tenant {
        Some(tenant) if tenant != job.summary.tenant_id => {
            Err(CliError::new(Exit::NotFound, format!("job `{id}` was not found in tenant `{tenant}`"))
                .hint(format!("`gpu-cli --tenant-id {tenant} list` lists the jobs of the tenant")))
        }
        _ => Ok(job),
    }
}

fn get(client: &Client, tenant: Option<&str>, id: JobId) -> Result<(), CliError> {
    let job = fetch(client, tenant, id)?;
    let message =
        job.reasons.first().map(|reason| reason.sentence.clone()).unwrap_or(job.summary.message.clone());
    let card = Card::default()
        .field("Job ID:", job.summary.id.clone())
        .field("Name:", job.summary.name.clone())
        .field("State:", state_word(job.summary.state))
        .field("Message:", message)
        .maybe("Node:", job.summary.node_name.clone())
        .field("GPUs:", job.allocated_gpus.join(" "))
        .maybe("Queue Position:", job.queue_position);
    output::print(&card.text())
}

fn cancel(client: &Client, tenant: Option<&str>, id: JobId) -> Result<(), CliError> {
    if tenant.is_some() {
        fetch(client, tenant, id)?;
    }
    let _: Done = client.act(Method::DELETE, jobs::target(id))?;
    output::print(&format!("✓ Job {id} cancelled successfully\n"))
}

fn status(client: &Client) -> Result<(), CliError> {
    let status: ClusterStatus = client.get("cluster/status")?;
    output::print(&format!(
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
    let tenant: Tenant = client.send(Method::POST, Target::new("tenants"), &spec)?;
    output::print(&format!(
        "✓ Tenant created successfully!\nTenant ID: {}\nName: {}\n",
        tenant.id, tenant.name
    ))
}

fn state_word(state: JobState) -> &'static str {
    match state {
        JobState::Pending => "pending",
        JobState::Running => "running",
        JobState::Completed => "completed",
        JobState::Failed => "failed",
        JobState::Preempted => "preempted",
        JobState::Cancelled => "cancelled",
    }
}
