//! `muster token`: list, create and revoke tokens.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hyper::Method;
use muster_protocol::submit::Acknowledgement;
use muster_protocol::token::{Token, TokenList, TokenMade, TokenSpec};
use muster_server::identity::write_private;

use super::{CommandResult, ExitStatus};
use crate::client::{Client, RequestTarget};
use crate::confirm::{self, Consent};
use crate::error::CliError;
use crate::job_flags::{api_duration, parse_priority};
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs, ShowArgs};
use crate::units;

/// `muster token …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List tokens; secrets are never shown again
    Ls(TokenLsArgs),
    /// Create a token and print its secret once
    Create(TokenCreateArgs),
    /// Revoke a token
    Rm(TokenRmArgs),
}

/// `muster token ls`.
#[derive(Debug, Args)]
pub struct TokenLsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// `muster token create`.
#[derive(Debug, Args)]
#[command(
    before_help = "Example:\n  muster token create ann --role member --tenant vision --expires 90d --out ann.token"
)]
pub struct TokenCreateArgs {
    /// Name of the holder; the audit log records acts under this name
    name: String,
    /// What the token permits
    #[arg(long, default_value = "member", value_parser = ["viewer", "member", "tenant-admin", "operator", "admin"])]
    role: String,
    /// Tenant; required for the first three roles
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Expire after this time, for example 90d
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms)]
    expires: Option<i64>,
    /// Priority ceiling of the holder, above that of the tenant; requires the right to grant it
    #[arg(long, value_name = "PRIORITY")]
    max_priority: Option<String>,
    /// Write the secret to this file, readable by you only, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
}

/// `muster token rm`.
#[derive(Debug, Args)]
pub struct TokenRmArgs {
    /// Token id
    token: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

const COLUMNS: [Column<Token>; 7] = [
    Column::new("TOKEN", |token| token.id.as_str().into()),
    Column::new("NAME", |token| token.name.as_str().into()),
    Column::new("ROLE", |token| token.role.as_str().into()),
    Column::new("TENANT", |token| Cell::or_dash(token.tenant_id.clone())),
    Column::new("MADE", |token| units::localize_timestamps(&token.created_at).into()),
    Column::new("EXPIRES", |token| Cell::or_dash(token.expires_at.as_deref().map(units::localize_timestamps))),
    Column::wide("MAX-PRIORITY", |token| Cell::or_dash(token.max_priority)),
];

pub fn run(verb: Verb, options: &Options) -> CommandResult {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => {
            let tokens: TokenList = client.get("tokens")?;
            output::list(&args.list, options.color, &COLUMNS, tokens.tokens.clone(), &tokens)?;
        }
        Verb::Create(args) => return create(&client, args),
        Verb::Rm(args) => {
            confirm::require_confirmation(Consent::from(args.yes), &format!("revoke token {}", args.token))?;
            let done: Acknowledgement =
                client.send_without_body(Method::DELETE, RequestTarget::new("tokens").segment(&args.token))?;
            output::print_stderr(&done.message);
        }
    }
    Ok(ExitStatus::SUCCESS)
}

/// Only the secret goes to standard output, or to a file that only its owner may read.
fn create(client: &Client, args: TokenCreateArgs) -> CommandResult {
    let spec = TokenSpec {
        name: args.name,
        role: args.role,
        tenant_id: args.tenant,
        expires_in: args.expires.map(api_duration),
        max_priority: args.max_priority.as_deref().map(parse_priority),
    };
    let created: TokenMade = client.send(Method::POST, RequestTarget::new("tokens"), &spec)?;
    let about = format!("token `{}` for {} ({})", created.token.id, created.token.name, created.token.role);
    match &args.out {
        Some(file) => {
            let written = write_private(file, format!("{}\n", created.secret).as_bytes());
            written.map_err(|error| CliError::failed(error.to_string()))?;
            output::print_stderr(&format!("{about} is in {}", file.display()));
        }
        None => {
            output::print_stderr(&format!("{about}; the secret is printed only once"));
            output::print_text(&args.show, &format!("{}\n", created.secret), &created.token.id, &created)?;
        }
    }
    Ok(ExitStatus::SUCCESS)
}
