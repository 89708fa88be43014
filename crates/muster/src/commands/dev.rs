//! `muster dev`: start a server for trying out, without setup, and suggest the next commands. Also `scheduler`, the
//! former name of the server.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use muster_agent::Cluster;
use muster_server::config::{AuthMode, Config};
use muster_server::server::{InProcessNodes, RunningServer};

use super::serve::{self, ServerArgs};
use super::{CommandResult, config};
use crate::error::CliError;
use crate::output;
use crate::units;

/// Enough for two thousand simulated nodes.
const NODE_REGISTRATION_TIMEOUT: Duration = Duration::from_secs(3);

/// `muster dev`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(before_help = "Examples:\n  muster dev\n  muster dev --real --gpus 2     real processes on this machine")]
pub struct Args {
    #[command(flatten)]
    common: ServerArgs,
    /// Run jobs as real processes on this machine; requires a token
    #[arg(long, conflicts_with = "cluster")]
    real: bool,
    /// Number of GPUs to assume on this machine with `--real`; GPUs are not detected yet
    #[arg(long, value_name = "N", default_value_t = 1, requires = "real")]
    gpus: u32,
}

/// `scheduler`, the server of the specification: its flags, and simulated GPUs, so that the walk-through of the
/// specification works on any machine.
#[derive(Debug, Parser)]
#[command(name = "scheduler", version, about = "GPU scheduler: the server of muster under its former name")]
struct SchedulerArgs {
    #[command(flatten)]
    common: ServerArgs,
}

impl From<ServerArgs> for Args {
    fn from(common: ServerArgs) -> Args {
        Args { common, real: false, gpus: 0 }
    }
}

/// Starts the server, prints the welcome text, and runs until stopped.
pub fn run(args: Args) -> CommandResult {
    let mut flags = args.common.flags();
    if args.real {
        // The server runs the commands it is given, so callers must authenticate.
        flags.flag("auth.mode", "--real", "tokens");
    }
    let mut config = config::load_config(flags, args.common.config.as_deref())?;
    config.new_cluster = args.common.new_cluster;
    let nodes = nodes(&args, &config)?;
    let (summary, commands, count) = (nodes_summary(&nodes, &config), suggested_commands(&nodes), node_count(&nodes));
    let running = serve::start_server(&config, nodes, args.common.interpreter())?;
    wait_for_nodes(&running, count);
    serve::show_first_token(&running, &config)?;
    output::print_stdout(&welcome_text(&running, &config, &summary, &commands))?;
    serve::wait_until_stopped(running)
}

pub fn run_as_scheduler(words: &[OsString]) -> CommandResult {
    let args = SchedulerArgs::parse_from(words).common;
    run(Args::from(args))
}

fn nodes(args: &Args, config: &Config) -> Result<InProcessNodes, CliError> {
    if args.real {
        return Ok(InProcessNodes::Real { gpus: args.gpus });
    }
    Ok(InProcessNodes::Simulated(serve::simulated_cluster(config)?.unwrap_or_else(Cluster::default_dev)))
}

fn node_count(nodes: &InProcessNodes) -> usize {
    match nodes {
        InProcessNodes::None => 0,
        InProcessNodes::Real { .. } => 1,
        InProcessNodes::Simulated(cluster) => cluster.registrations().len(),
    }
}

/// Waits for the nodes to register, so that the commands of the welcome text find them. Nodes do not register with a
/// standby, so the wait is short.
fn wait_for_nodes(running: &RunningServer, count: usize) {
    let give_up = Instant::now() + NODE_REGISTRATION_TIMEOUT;
    while running.cluster().read(|state| state.nodes.len()) < count && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn nodes_summary(nodes: &InProcessNodes, config: &Config) -> String {
    match nodes {
        InProcessNodes::None => "no nodes".to_string(),
        InProcessNodes::Real { gpus } => {
            format!(
                "this machine with {}; jobs run as {}",
                units::count_text(*gpus, "assumed GPU"),
                job_account(config)
            )
        }
        InProcessNodes::Simulated(cluster) => {
            let nodes = cluster.registrations();
            let gpus: usize = nodes.iter().map(|node| node.gpus.len()).sum();
            let model = nodes.iter().flat_map(|node| &node.gpus).map(|gpu| gpu.model.as_str()).next().unwrap_or("GPUs");
            let (nodes, gpus) =
                (units::count_text(nodes.len() as u64, "simulated node"), units::count_text(gpus as u64, "GPU"));
            format!("{nodes} with {gpus} ({model})")
        }
    }
}

/// Who runs the jobs of an agent that runs as root or not.
fn job_account(config: &Config) -> String {
    let launcher = &config.agent.launcher;
    match rustix::process::geteuid().is_root() {
        false => "your user".to_string(),
        true if !launcher.users.is_empty() => "the accounts of `agent.users`".to_string(),
        true => format!("`{}`, or `nobody` without that account", launcher.job_user),
    }
}

/// Three commands to try on these nodes.
fn suggested_commands(nodes: &InProcessNodes) -> [&'static str; 3] {
    match nodes {
        InProcessNodes::Real { .. } => ["muster run -- hostname", "muster ps --all", "muster show -"],
        _ => [
            "muster run --gpus 1 --annotation muster.sim/runtime=2s -- nvidia-smi",
            "muster submit --gpus 4 --array 0-2 -- python train.py",
            "muster why -",
        ],
    }
}

fn welcome_text(running: &RunningServer, config: &Config, summary: &str, commands: &[&str]) -> String {
    let url = running.url();
    let mut lines = vec![format!("muster serves {url}"), format!("  {summary}")];
    lines.extend(running.grpc_url().map(|grpc| format!("  gRPC at {grpc}")));
    lines.push(String::new());
    lines.push("Try next, in another terminal:".to_string());
    if url != crate::connection::DEFAULT_SERVER {
        lines.push(format!("  export MUSTER_SERVER={url}"));
    }
    if config.auth == AuthMode::Tokens || config.tls.is_some() {
        lines.push(format!("  export MUSTER_DATA_DIR={}", absolute_data_dir(config)));
    }
    lines.extend(commands.iter().map(|command| format!("  {command}")));
    lines.push("Ctrl-C stops the server; its state stays in the data folder.".to_string());
    lines.join("\n") + "\n"
}

fn absolute_data_dir(config: &Config) -> String {
    let dir = config.data_dir.canonicalize().unwrap_or_else(|_| config.data_dir.clone());
    dir.display().to_string()
}

/// The shim that an agent starts for each attempt; not for users.
pub fn run_shim(words: impl Iterator<Item = OsString>) -> ExitCode {
    let code = muster_agent::shim_main(words);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
