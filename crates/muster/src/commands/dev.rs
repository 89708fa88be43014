//! Start a server to try things out: nothing to set up, and three commands to go on with.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use muster_agent::Cluster;
use muster_server::config::Config;
use muster_server::server::{Nodes, Running};

use super::serve::{self, ServerArgs};
use super::{Ending, config};
use crate::error::CliError;
use crate::output;

/// A start that takes longer has a database that does not answer.
const READY_WITHIN: Duration = Duration::from_secs(30);

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
    let config = config::load(flags, args.common.config.as_deref())?;
    let nodes = nodes(&args, &config)?;
    let about = about(&nodes);
    let running = serve::start(&config, nodes)?;
    if !running.wait_until_ready(READY_WITHIN) {
        return Err(CliError::failed("the server is not ready after 30 s; its log says why"));
    }
    serve::show_first_token(&running, &config)?;
    output::print(&welcome(&running, &config, &about))?;
    serve::wait(running)
}

fn nodes(args: &Args, config: &Config) -> Result<Nodes, CliError> {
    if args.real {
        return Ok(Nodes::Real { gpus: args.gpus });
    }
    Ok(Nodes::Simulated(serve::simulated(config)?.unwrap_or_else(Cluster::default_dev)))
}

/// What there is to play with.
fn about(nodes: &Nodes) -> String {
    match nodes {
        Nodes::None => "no nodes".to_string(),
        Nodes::Real { gpus } => format!("this machine with {gpus} counted GPUs; jobs run as your user"),
        Nodes::Simulated(cluster) => {
            let nodes = cluster.registrations();
            let gpus: usize = nodes.iter().map(|node| node.gpus.len()).sum();
            let model = nodes
                .iter()
                .flat_map(|node| &node.gpus)
                .map(|gpu| gpu.model.as_str())
                .next()
                .unwrap_or("GPUs");
            format!("{} simulated nodes with {gpus} GPUs ({model})", nodes.len())
        }
    }
}

fn welcome(running: &Running, config: &Config, about: &str) -> String {
    let url = running.url();
    let mut lines = vec![format!("muster serves {url}"), format!("  {about}"), String::new()];
    if url != crate::options::DEFAULT_SERVER {
        lines.push(format!("  export MUSTER_SERVER={url}"));
    }
    if config.auth == muster_server::config::AuthMode::Tokens {
        lines.push(format!("  export MUSTER_DATA_DIR={}", absolute(config)));
    }
    lines.push("Try next, in another terminal:".to_string());
    lines.push("  muster run --gpus 1 -- nvidia-smi".to_string());
    lines.push("  muster ps --all".to_string());
    lines.push("  muster why -".to_string());
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
