//! Start a server to try things out: nothing to set up, and three commands to go on with.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use muster_agent::Cluster;
use muster_server::config::{AuthMode, Config};
use muster_server::server::{Nodes, Running};

use super::serve::{self, ServerArgs};
use super::{Ending, config};
use crate::error::CliError;
use crate::output;
use crate::units;

/// Two thousand simulated nodes take less.
const NODES_WITHIN: Duration = Duration::from_secs(3);

/// `muster dev`.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(
    before_help = "Examples:\n  muster dev\n  muster dev --real --gpus 2     real processes on this machine"
)]
pub struct Args {
    #[command(flatten)]
    common: ServerArgs,
    /// Run jobs as real processes of yours on this machine; a token is needed then
    #[arg(long, conflicts_with = "cluster")]
    real: bool,
    /// GPUs to count on this machine with `--real`; nothing looks for real ones yet
    #[arg(long, value_name = "N", default_value_t = 1, requires = "real")]
    gpus: u32,
}

impl From<ServerArgs> for Args {
    fn from(common: ServerArgs) -> Args {
        Args { common, real: false, gpus: 0 }
    }
}

/// Start, say what a newcomer needs, and run until told to stop.
pub fn run(args: Args) -> Ending {
    let mut flags = args.common.flags();
    if args.real {
        // It runs what it is given, so it asks who gives it.
        flags.flag("auth.mode", "--real", "tokens");
    }
    let mut config = config::load(flags, args.common.config.as_deref())?;
    config.new_cluster = args.common.new_cluster;
    let nodes = nodes(&args, &config)?;
    let (about, try_next, count) = (about(&nodes), try_next(&nodes), count(&nodes));
    let running = serve::start(&config, nodes, args.common.interpreter())?;
    await_nodes(&running, count);
    serve::show_first_token(&running, &config)?;
    output::print(&welcome(&running, &config, &about, &try_next))?;
    serve::wait(running)
}

fn nodes(args: &Args, config: &Config) -> Result<Nodes, CliError> {
    if args.real {
        return Ok(Nodes::Real { gpus: args.gpus });
    }
    Ok(Nodes::Simulated(serve::simulated(config)?.unwrap_or_else(Cluster::default_dev)))
}

fn count(nodes: &Nodes) -> usize {
    match nodes {
        Nodes::None => 0,
        Nodes::Real { .. } => 1,
        Nodes::Simulated(cluster) => cluster.registrations().len(),
    }
}

/// Nodes register by themselves, in a moment; whoever reads the welcome should find them there. A server that
/// stands by will not hear from them, so nobody waits long.
fn await_nodes(running: &Running, count: usize) {
    let give_up = Instant::now() + NODES_WITHIN;
    while running.cluster().read(|state| state.nodes.len()) < count && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What there is to play with.
fn about(nodes: &Nodes) -> String {
    match nodes {
        Nodes::None => "no nodes".to_string(),
        Nodes::Real { gpus } => {
            format!("this machine with {}; jobs run as your user", units::count(*gpus, "counted GPU"))
        }
        Nodes::Simulated(cluster) => {
            let nodes = cluster.registrations();
            let gpus: usize = nodes.iter().map(|node| node.gpus.len()).sum();
            let model = nodes
                .iter()
                .flat_map(|node| &node.gpus)
                .map(|gpu| gpu.model.as_str())
                .next()
                .unwrap_or("GPUs");
            let (nodes, gpus) =
                (units::count(nodes.len() as u64, "simulated node"), units::count(gpus as u64, "GPU"));
            format!("{nodes} with {gpus} ({model})")
        }
    }
}

/// Three commands that show something on such nodes.
fn try_next(nodes: &Nodes) -> [&'static str; 3] {
    match nodes {
        Nodes::Real { .. } => ["muster run -- hostname", "muster ps --all", "muster show -"],
        _ => [
            "muster run --gpus 1 --annotation muster.sim/runtime=2s -- nvidia-smi",
            "muster submit --gpus 4 --array 0-2 -- python train.py",
            "muster why -",
        ],
    }
}

fn welcome(running: &Running, config: &Config, about: &str, try_next: &[&str]) -> String {
    let url = running.url();
    let mut lines = vec![format!("muster serves {url}"), format!("  {about}"), String::new()];
    lines.push("Try next, in another terminal:".to_string());
    if url != crate::options::DEFAULT_SERVER {
        lines.push(format!("  export MUSTER_SERVER={url}"));
    }
    if config.auth == AuthMode::Tokens || config.tls.is_some() {
        lines.push(format!("  export MUSTER_DATA_DIR={}", absolute(config)));
    }
    lines.extend(try_next.iter().map(|command| format!("  {command}")));
    lines.push("Ctrl-C stops it; what it knows stays in the data folder.".to_string());
    lines.join("\n") + "\n"
}

fn absolute(config: &Config) -> String {
    let dir = config.data_dir.canonicalize().unwrap_or_else(|_| config.data_dir.clone());
    dir.display().to_string()
}

/// What agents start jobs under; not for people.
pub fn run_shim(words: impl Iterator<Item = OsString>) -> ExitCode {
    let code = muster_agent::shim_main(words);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
