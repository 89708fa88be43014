//! Start a server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use muster_agent::Cluster;
use muster_server::config::{Config, RawConfig};
use muster_server::policies::Interpreter;
use muster_server::server::{self, Advisers, Nodes, Running};
use muster_server::whatif::Oracle;
use muster_sim::whatif::Historian;
use tracing::warn;

use super::{Code, Ending, config, dev};
use crate::error::CliError;
use crate::interpreter::Starlark;
use crate::output;
use crate::policy_folder::PolicyFolder;

/// `muster serve`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(before_help = "Example:\n  muster serve --config /etc/muster.yaml")]
pub struct Args {
    #[command(flatten)]
    pub common: ServerArgs,
}

/// What every way to start a server takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServerArgs {
    /// Configuration file, in YAML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Folder of the database, certificates and tokens [default: ./muster-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// `postgres://…` or `sqlite:PATH` [default: SQLite in the data folder]
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// A simulated cluster, described in YAML
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// Run no policy: start past a bundle that does harm, and go back with `muster policy rollback`
    #[arg(long)]
    pub without_policies: bool,
    /// Begin a new cluster although the data folder was used before and its database is missing or another one
    #[arg(long)]
    pub new_cluster: bool,
}

/// The seed's `scheduler`: its flags, and simulated GPUs on a fresh machine so that its walk-through works.
#[derive(Debug, Parser)]
#[command(name = "scheduler", version, about = "GPU scheduler: the server of muster under its former name")]
struct SchedulerArgs {
    #[command(flatten)]
    common: ServerArgs,
}

impl ServerArgs {
    /// What was said, for the configuration to weigh.
    pub fn flags(&self) -> RawConfig {
        let mut raw = RawConfig::default();
        let mut say = |key, flag, value: Option<String>| {
            if let Some(value) = value {
                raw.flag(key, flag, value);
            }
        };
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        say("listen", "--listen", self.listen.clone());
        say("data_dir", "--data-dir", path(&self.data_dir));
        say("database.url", "--database", self.database.clone());
        say("cluster", "--cluster", path(&self.cluster));
        raw
    }

    /// What runs policies, or runs none.
    pub fn interpreter(&self) -> Starlark {
        if self.without_policies { Starlark::off() } else { Starlark::hurried() }
    }
}

/// Start a server, and run until it is told to stop.
pub fn run(args: Args) -> Ending {
    let mut config = config::load(args.common.flags(), args.common.config.as_deref())?;
    config.new_cluster = args.common.new_cluster;
    let nodes = match simulated(&config)? {
        Some(cluster) => Nodes::Simulated(cluster),
        None => Nodes::None,
    };
    let running = start(&config, nodes, args.common.interpreter())?;
    show_first_token(&running, &config)?;
    output::print(&format!("muster serves {}\n", running.url()))?;
    wait(running)
}

/// As the seed starts it.
pub fn run_as_scheduler(words: &[OsString]) -> Ending {
    let args = SchedulerArgs::parse_from(words).common;
    dev::run(dev::Args::from(args))
}

/// The simulated cluster that the configuration names, if it names one.
pub fn simulated(config: &Config) -> Result<Option<Cluster>, CliError> {
    let load = |file: &PathBuf| {
        Cluster::load(file).map_err(|error| CliError::usage(format!("{}: {error}", file.display())))
    };
    config.cluster.as_ref().map(load).transpose()
}

/// Start it, with its log on standard error, and wait until it leads or stands by.
pub fn start(config: &Config, nodes: Nodes, interpreter: Starlark) -> Result<Running, CliError> {
    let rust_log = std::env::var("RUST_LOG").ok();
    let logging = muster_server::telemetry::start_logging(&config.log, rust_log.as_deref());
    logging.map_err(|error| CliError::usage(error.to_string()))?;
    if let Some(why) = interpreter.is_off() {
        warn!("{why}");
        output::talk(&format!("warning: {why}"));
    }
    let interpreter: Option<Arc<dyn Interpreter>> = Some(Arc::new(interpreter));
    // With processes of its own: what would have been takes no time from what is.
    let unhurried: Option<Arc<dyn Interpreter>> = Some(Arc::new(Starlark::unhurried()));
    let historian = Historian { interpreter: unhurried.clone() };
    let oracle: Option<Arc<Mutex<dyn Oracle>>> = Some(Arc::new(Mutex::new(historian)));
    let advisers = Advisers { oracle, interpreter: interpreter.clone(), unhurried };
    let failed = |error: server::StartError| CliError::failed(error.to_string());
    let mut running = server::start(config, nodes, advisers).map_err(failed)?;
    let limit = config.start_timeout_ms.map(|ms| Duration::from_millis(ms as u64));
    if !running.wait_until_ready(limit).map_err(failed)? {
        let why = running.why_not_ready();
        return Err(CliError::failed(format!("the server is not ready in time: {why}")));
    }
    if let (Some(path), Some(interpreter)) = (config.policies_dir.clone(), interpreter) {
        let folder = PolicyFolder { path, cluster: running.cluster().clone(), interpreter };
        std::thread::spawn(move || folder.run());
    }
    Ok(running)
}

/// With tokens, the first start makes one; it is shown this once.
pub fn show_first_token(running: &Running, config: &Config) -> Result<(), CliError> {
    let made =
        server::bootstrap_token(running, config).map_err(|error| CliError::failed(error.to_string()))?;
    let file = muster_server::identity::admin_token_path(&config.data_dir);
    if made.is_some() {
        output::talk(&format!("the administrator's token is in {}", file.display()));
    }
    Ok(())
}

/// Run until it is told to stop.
pub fn wait(running: Running) -> Ending {
    running.wait().map_err(|error| CliError::failed(error.to_string()))?;
    Ok(Code::DONE)
}
