//! `muster agent`: the node agent. It runs the jobs that a server of the cluster places on this machine.

mod install;
mod unit_files;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand};
use muster_agent::inventory::{counted_gpus, local_node_name};
use muster_agent::{Runner, RunnerConfig};
use muster_core::NodeId;
use muster_link::link::report_queue;
use muster_link::{Identity, Link, LinkConfig, LinkError, enrolment};
use muster_server::config::{Config, RawConfig};
use muster_wire::join_url::JoinUrl;
use tokio::signal::unix::{SignalKind, signal};

use super::{CommandResult, ExitStatus, config};
use crate::error::CliError;
use crate::output;

/// `muster agent`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    before_help = "Examples:\n  muster node token                        on the server: prints a join URL\n  muster node token | ssh gpu01 muster agent --join -     the same, without showing the URL\n  muster agent                             later: the node has joined"
)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    run: RunArgs,
}

/// What else `muster agent` does.
#[derive(Debug, Clone, Subcommand)]
enum Verb {
    /// Install the agent as a service of systemd, with a configuration file and the account of jobs
    Install(install::InstallArgs),
}

/// The node agent itself.
#[derive(Debug, Clone, clap::Args)]
struct RunArgs {
    /// Join a cluster with this URL, which `muster node token` prints; `-` reads it from standard input. Not needed once
    /// the node has joined
    #[arg(long, value_name = "URL", env = "MUSTER_JOIN", hide_env_values = true)]
    join: Option<String>,
    /// Join with the URL in this file if the node has not joined yet; the file is removed then
    #[arg(long, value_name = "FILE", conflicts_with = "join")]
    join_file: Option<PathBuf>,
    /// Configuration file, in YAML; its section `agent` applies
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the node's identity and of its jobs [default: ./muster-agent]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Address of this node for the tasks of gangs [default: the one from which it reaches the server]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Number of GPUs to assume on this machine; GPUs are not detected yet
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpus: u32,
    /// Label of this node, by which jobs select it; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Rack of this node: gangs stay in one rack where they can
    #[arg(long, value_name = "RACK")]
    rack: Option<String>,
}

/// `agent`, the node agent of the specification.
#[derive(Debug, Parser)]
#[command(name = "agent", version, about = "Node agent: muster's agent under its former name")]
struct AgentArgs {
    #[command(flatten)]
    args: Args,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        _ => Err(format!("`{text}` is not KEY=VALUE")),
    }
}

pub fn run_as_agent(words: &[OsString]) -> CommandResult {
    run(AgentArgs::parse_from(words).args)
}

pub fn run(args: Args) -> CommandResult {
    match args.verb {
        Some(Verb::Install(install)) => install::run(&install),
        None => run_agent(args.run),
    }
}

/// Joins the cluster if necessary, connects, and runs until stopped. Jobs outlive the agent.
fn run_agent(args: RunArgs) -> CommandResult {
    let config = config::load_config(RawConfig::default(), args.config.as_deref())?;
    start_logging(&config)?;
    let data_dir = args.data_dir.clone().unwrap_or_else(|| PathBuf::from("muster-agent"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed(format!("cannot start: {error}")))?;
    let identity = runtime.block_on(identity(&args, &config, &data_dir)).map_err(|error| failed(&error))?;
    let membership = &identity.membership;
    output::print_stderr(&format!("node `{}` of the cluster at {}", membership.node, membership.servers.join(", ")));
    let mut link = start(&args, &config, &data_dir, identity)?;
    runtime.block_on(termination_signal())?;
    output::print_stderr("stopping: running jobs continue, and the next start of the agent finds them");
    link.stop();
    Ok(ExitStatus::SUCCESS)
}

fn start_logging(config: &Config) -> Result<(), CliError> {
    let rust_log = std::env::var("RUST_LOG").ok();
    let logging = muster_server::telemetry::start_logging(&config.log, rust_log.as_deref());
    logging.map_err(|error| CliError::usage(error.to_string()))
}

/// The identity of this node, after joining if it has none.
async fn identity(args: &RunArgs, config: &Config, data_dir: &Path) -> Result<Identity, LinkError> {
    let known = || Identity::load(data_dir);
    let url = match (&args.join, &args.join_file) {
        (Some(url), _) => join_url_text(url)?,
        (None, Some(file)) if known()?.is_none() && file.exists() => read_join_file(file)?,
        (None, _) => return known()?.ok_or(LinkError::NotJoined),
    };
    let identity = join(args.node.as_ref(), config, data_dir, &url).await?;
    if let Some(file) = args.join_file.as_ref().filter(|file| file.exists()) {
        // Its token is used up.
        std::fs::remove_file(file).map_err(|source| LinkError::Write { path: file.clone(), source })?;
    }
    Ok(identity)
}

fn read_join_file(file: &Path) -> Result<String, LinkError> {
    std::fs::read_to_string(file).map_err(|source| LinkError::Read { path: file.to_path_buf(), source })
}

/// Joins with a URL, which is parsed here and not by clap: clap would print a damaged URL with its secret.
async fn join(node: Option<&String>, config: &Config, data_dir: &Path, url: &str) -> Result<Identity, LinkError> {
    let url: JoinUrl = url.trim().parse().map_err(|error| LinkError::Refused(format!("{error}")))?;
    let name = node.cloned().or_else(|| config.agent.node_id.clone()).unwrap_or_else(local_node_name);
    if let Err(error) = name.parse::<NodeId>() {
        return Err(LinkError::Refused(format!(
            "`{name}` cannot be the name of a node: {error}; choose one with --node"
        )));
    }
    enrolment::join(data_dir, &name, &url).await
}

/// The URL, or the first line of standard input for `-`: arguments are visible to every user of the machine.
fn join_url_text(argument: &str) -> Result<String, LinkError> {
    if argument != "-" {
        return Ok(argument.to_string());
    }
    let mut line = String::new();
    let unreadable = |source| LinkError::Read { path: PathBuf::from("standard input"), source };
    std::io::stdin().read_line(&mut line).map_err(unreadable)?;
    Ok(line)
}

/// Starts the agent of this machine and its link.
fn start(args: &RunArgs, config: &Config, data_dir: &Path, identity: Identity) -> Result<Link, CliError> {
    let failed_agent = |error: muster_agent::AgentError| CliError::failed(error.to_string());
    let shim =
        std::env::current_exe().map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
    let mut runner = RunnerConfig::new(data_dir, vec![shim.into_os_string(), "shim".into()]);
    runner.node = identity.membership.node.clone();
    runner.gpus = counted_gpus(&format!("{}-", runner.node), args.gpus);
    runner.heartbeat_interval = Duration::from_millis(config.agent.heartbeat_ms.max(1).unsigned_abs());
    runner.labels = BTreeMap::from_iter(args.labels.iter().cloned());
    runner.rack = args.rack.clone();
    runner.launcher = config.agent.launcher.clone();
    runner.address = args.address.clone().or_else(|| address_towards(&identity.membership.servers)).unwrap_or_default();
    let heartbeat_interval = runner.heartbeat_interval;
    let (report_sink, reports) = report_queue();
    let runner = Runner::start(runner, report_sink).map_err(failed_agent)?;
    let link = LinkConfig {
        identity,
        incarnation: runner.incarnation().to_string(),
        agent_version: env!("CARGO_PKG_VERSION").to_string(),
        heartbeat_interval,
        data_dir: data_dir.to_path_buf(),
    };
    Link::start(link, reports, Box::new(runner)).map_err(|error| failed(&error))
}

/// The address of this machine on the way to the first server that has one. Connecting a datagram socket sends nothing.
fn address_towards(servers: &[String]) -> Option<String> {
    let address = servers.iter().find_map(|server| server.to_socket_addrs().ok()?.next())?;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(address).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

async fn termination_signal() -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::failed(format!("cannot catch signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn failed(error: &LinkError) -> CliError {
    CliError::failed(error.to_string())
}
