//! `muster version`: the versions of this program and of the server.

use muster_protocol::cluster::ClusterStatus;
use serde::Serialize;

use super::{CommandResult, ExitStatus};
use crate::options::Options;
use crate::output::{self, Card, ShowArgs};

/// `muster version`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    show: ShowArgs,
    /// Print only the version of this program, without asking the server
    #[arg(long)]
    client: bool,
}

#[derive(Serialize)]
struct Versions {
    client: &'static str,
    server: Option<String>,
}

/// Prints the versions. A server that does not answer is not an error.
pub fn run(args: Args, options: &Options) -> CommandResult {
    let server = if args.client { None } else { server_version(options) };
    let versions = Versions { client: env!("CARGO_PKG_VERSION"), server };
    let server = versions.server.clone().unwrap_or_else(|| match args.client {
        true => String::new(),
        false => format!("{} does not answer", options.connection.server.text),
    });
    let card = Card::default().field("muster", versions.client).field("server", server);
    output::show(&args.show, &card, versions.client, &versions)?;
    Ok(ExitStatus::SUCCESS)
}

fn server_version(options: &Options) -> Option<String> {
    options.client().ok()?.get::<ClusterStatus>("cluster/status").ok().map(|status| status.version)
}
