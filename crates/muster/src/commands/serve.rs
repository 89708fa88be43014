//! `muster serve`: start a server. Also the server of `muster dev`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_agent::Cluster;
use muster_server::config::{Config, RawConfig};
use muster_server::policies::Interpreter;
use muster_server::server::{self, Adapters, InProcessNodes, RunningServer};
use muster_server::whatif::WhatIfReplay;
use muster_sim::whatif::WhatIfSimulator;
use tracing::warn;

use super::{CommandResult, ExitStatus, config};
use crate::error::CliError;
use crate::interpreter::StarlarkInterpreter;
use crate::output;
use crate::policy_dir_watcher::PolicyDirWatcher;

/// `muster serve`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(before_help = "Example:\n  muster serve --config /etc/muster.yaml")]
pub struct Args {
    #[command(flatten)]
    pub common: ServerArgs,
}

/// The flags of `serve`, `dev` and `scheduler`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServerArgs {
    /// Configuration file, in YAML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Folder of the database, certificates and tokens [default: ./muster-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// `postgres://…` or `sqlite:PATH` [default: SQLite in the data folder]
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// Simulate the cluster that this YAML file describes
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// Disable policies, to start despite a harmful bundle and run `muster policy rollback`
    #[arg(long)]
    pub without_policies: bool,
    /// Start a new cluster although the data folder belongs to another database or its database is missing
    #[arg(long)]
    pub new_cluster: bool,
}

impl ServerArgs {
    /// The flags as configuration keys.
    pub fn flags(&self) -> RawConfig {
        let mut raw = RawConfig::default();
        let mut set = |key, flag, value: Option<String>| {
            if let Some(value) = value {
                raw.flag(key, flag, value);
            }
        };
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        set("listen", "--listen", self.listen.clone());
        set("data_dir", "--data-dir", path(&self.data_dir));
        set("database.url", "--database", self.database.clone());
        set("cluster", "--cluster", path(&self.cluster));
        raw
    }

    pub fn interpreter(&self) -> StarlarkInterpreter {
        if self.without_policies { StarlarkInterpreter::disabled() } else { StarlarkInterpreter::for_live_decisions() }
    }
}

/// Starts a server and runs until it is stopped.
pub fn run(args: Args) -> CommandResult {
    let mut config = config::load_config(args.common.flags(), args.common.config.as_deref())?;
    config.new_cluster = args.common.new_cluster;
    let nodes = match simulated_cluster(&config)? {
        Some(cluster) => InProcessNodes::Simulated(cluster),
        None => InProcessNodes::None,
    };
    let running = start_server(&config, nodes, args.common.interpreter())?;
    show_first_token(&running, &config)?;
    output::print_stdout(&format!("muster serves {}\n", running.url()))?;
    wait_until_stopped(running)
}

/// The simulated cluster of the configuration.
pub fn simulated_cluster(config: &Config) -> Result<Option<Cluster>, CliError> {
    let load =
        |file: &PathBuf| Cluster::load(file).map_err(|error| CliError::usage(format!("{}: {error}", file.display())));
    config.cluster.as_ref().map(load).transpose()
}

/// Starts the server, with its log on standard error, and waits until it is leader or standby.
pub fn start_server(
    config: &Config,
    nodes: InProcessNodes,
    interpreter: StarlarkInterpreter,
) -> Result<RunningServer, CliError> {
    let rust_log = std::env::var("RUST_LOG").ok();
    let logging = muster_server::telemetry::start_logging(&config.log, rust_log.as_deref());
    logging.map_err(|error| CliError::usage(error.to_string()))?;
    if let Some(notice) = interpreter.disabled_notice() {
        warn!("{notice}");
        output::print_stderr(&format!("warning: {notice}"));
    }
    let interpreter: Option<Arc<dyn Interpreter>> = Some(Arc::new(interpreter));
    // What-if and shadow evaluation have worker processes of their own, so that they do not delay live decisions.
    let simulation: Option<Arc<dyn Interpreter>> = Some(Arc::new(StarlarkInterpreter::for_simulation()));
    let simulator = WhatIfSimulator { interpreter: simulation.clone() };
    let whatif_replay: Option<Arc<Mutex<dyn WhatIfReplay>>> = Some(Arc::new(Mutex::new(simulator)));
    let adapters = Adapters { whatif_replay, interpreter: interpreter.clone(), shadow_interpreter: simulation };
    let failed = |error: server::StartError| CliError::failed(error.to_string());
    let mut running = server::start(config, nodes, adapters).map_err(failed)?;
    let limit = config.start_timeout_ms.map(|ms| Duration::from_millis(ms as u64));
    if !running.wait_until_ready(limit).map_err(failed)? {
        let why = running.why_not_ready();
        return Err(CliError::failed(format!("the server did not become ready in time: {why}")));
    }
    if let (Some(path), Some(interpreter)) = (config.policies_dir.clone(), interpreter) {
        let watcher = PolicyDirWatcher { path, cluster: running.cluster().clone(), interpreter };
        std::thread::spawn(move || watcher.watch());
    }
    Ok(running)
}

/// With authentication by tokens, the first start creates an administrator's token and prints its file once.
pub fn show_first_token(running: &RunningServer, config: &Config) -> Result<(), CliError> {
    let created = server::bootstrap_token(running, config).map_err(|error| CliError::failed(error.to_string()))?;
    let file = muster_server::identity::admin_token_path(&config.data_dir);
    if created.is_some() {
        output::print_stderr(&format!("the administrator's token is in {}", file.display()));
    }
    Ok(())
}

pub fn wait_until_stopped(running: RunningServer) -> CommandResult {
    running.wait().map_err(|error| CliError::failed(error.to_string()))?;
    Ok(ExitStatus::SUCCESS)
}
