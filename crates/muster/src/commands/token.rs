//! Tokens: who may ask for what.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hyper::Method;
use muster_protocol::submit::Done;
use muster_protocol::token::{Token, TokenList, TokenMade, TokenSpec};
use muster_server::identity::write_private;

use super::{Code, Ending};
use crate::client::{Client, Target};
use crate::confirm::{self, Consent};
use crate::error::CliError;
use crate::job_flags::{priority, span};
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs, ShowArgs};
use crate::units;

/// `muster token …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List tokens; secrets are never shown again
    Ls(LsArgs),
    /// Make one, and print its secret this once
    Create(CreateArgs),
    /// Revoke one
    Rm(RmArgs),
}

/// `muster token ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// `muster token create`.
#[derive(Debug, Args)]
#[command(
    before_help = "Example:\n  muster token create ann --role member --tenant vision --expires 90d --out ann.token"
)]
pub struct CreateArgs {
    /// Whose it is; acts are recorded under this name
    name: String,
    /// What it allows
    #[arg(long, default_value = "member", value_parser = ["viewer", "member", "tenant-admin", "operator", "admin"])]
    role: String,
    /// Where; for the first three roles
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// It ends by itself after this time, for example 90d
    #[arg(long, value_name = "TIME", value_parser = units::duration_ms)]
    expires: Option<i64>,
    /// Highest priority its bearer may give to a job, above the ceiling of the tenant; needs the right to give it
    #[arg(long, value_name = "PRIORITY")]
    max_priority: Option<String>,
    /// Write the secret into this file, which only you may read, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster token rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// Which, by its id
    token: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

const COLUMNS: [Column<Token>; 7] = [
    Column::new("TOKEN", |token| token.id.as_str().into()),
    Column::new("NAME", |token| token.name.as_str().into()),
    Column::new("ROLE", |token| token.role.as_str().into()),
    Column::new("TENANT", |token| Cell::or_dash(token.tenant_id.clone())),
    Column::new("MADE", |token| units::localized(&token.created_at).into()),
    Column::new("EXPIRES", |token| Cell::or_dash(token.expires_at.as_deref().map(units::localized))),
    Column::wide("MAX-PRIORITY", |token| Cell::or_dash(token.max_priority)),
];

/// Do one of them.
pub fn run(verb: Verb, options: &Options) -> Ending {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => {
            let tokens: TokenList = client.get("tokens")?;
            output::list(&args.list, options.color, &COLUMNS, tokens.tokens.clone(), &tokens)?;
        }
        Verb::Create(args) => return create(&client, args),
        Verb::Rm(args) => {
            confirm::ask(Consent::from(args.yes), &format!("revoke token {}", args.token))?;
            let done: Done = client.act(Method::DELETE, Target::new("tokens").at(&args.token))?;
            output::talk(&done.message);
        }
    }
    Ok(Code::DONE)
}

/// The secret alone goes to standard output, or to a file that only its owner may read.
fn create(client: &Client, args: CreateArgs) -> Ending {
    let spec = TokenSpec {
        name: args.name,
        role: args.role,
        tenant_id: args.tenant,
        expires_in: args.expires.map(span),
        max_priority: args.max_priority.as_deref().map(priority),
    };
    let made: TokenMade = client.send(Method::POST, Target::new("tokens"), &spec)?;
    let about = format!("token `{}` for {} ({})", made.token.id, made.token.name, made.token.role);
    match &args.out {
        Some(file) => {
            let written = write_private(file, format!("{}\n", made.secret).as_bytes());
            written.map_err(|error| CliError::failed(error.to_string()))?;
            output::talk(&format!("{about} is in {}", file.display()));
        }
        None => {
            output::talk(&format!("{about}; the secret is shown this once"));
            output::say(&args.show, &format!("{}\n", made.secret), &made.token.id, &made)?;
        }
    }
    Ok(Code::DONE)
}
