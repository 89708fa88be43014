//! `muster secret`: set, list and remove the secrets of jobs. A value is never an argument: others could read it in `ps`.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hyper::Method;
use muster_protocol::secret::{Secret, SecretList, SecretSpec};
use muster_protocol::secret_value::SecretValue;
use muster_protocol::submit::Acknowledgement;

use super::{CommandResult, ExitStatus};
use crate::client::RequestTarget;
use crate::confirm::{self, Consent};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Cell, Column, ListArgs};
use crate::units;

/// The server refuses longer values; this only bounds what is read.
const VALUE_BYTES_MAX: u64 = 1 << 20;

/// `muster secret …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List secrets; values are never shown
    Ls(SecretLsArgs),
    /// Set the value of a secret, read from standard input or a file
    Set(SecretSetArgs),
    /// Remove a secret
    Rm(SecretRmArgs),
}

/// `muster secret ls`.
#[derive(Debug, Args)]
pub struct SecretLsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// `muster secret set`.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  \
    muster secret set HF_TOKEN < token.txt\n  \
    muster secret set KUBECONFIG --file ~/.kube/config\n  \
    muster submit --secret HF_TOKEN -- sh -c 'login --token-file $MUSTER_SECRETS_DIR/HF_TOKEN'")]
pub struct SecretSetArgs {
    /// Name, as that of an environment variable
    name: String,
    /// Read the value from this file, byte for byte [default: standard input, without a newline at its end]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    scope: ScopeArgs,
}

/// `muster secret rm`.
#[derive(Debug, Args)]
pub struct SecretRmArgs {
    /// Name of the secret
    name: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    scope: ScopeArgs,
}

/// Which of the secrets of a name is meant.
#[derive(Debug, Args)]
struct ScopeArgs {
    /// Tenant of the secret [default: yours]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// User whose jobs get it [default: you]
    #[arg(long, value_name = "USER", conflicts_with = "shared")]
    user: Option<String>,
    /// For the jobs of all users of the tenant
    #[arg(long)]
    shared: bool,
}

const COLUMNS: [Column<Secret>; 6] = [
    Column::new("NAME", |secret| secret.name.as_str().into()),
    Column::new("TENANT", |secret| secret.tenant_id.as_str().into()),
    Column::new("USER", |secret| Cell::or_dash(secret.user.clone())),
    Column::new("BYTES", |secret| secret.bytes.into()),
    Column::new("SET", |secret| units::localize_timestamps(&secret.set_at).into()),
    Column::new("BY", |secret| secret.set_by.as_str().into()),
];

pub fn run(verb: Verb, options: &Options) -> CommandResult {
    let client = options.client()?;
    match verb {
        Verb::Ls(args) => {
            let secrets: SecretList = client.get("secrets")?;
            output::list(&args.list, options.color, &COLUMNS, secrets.secrets.clone(), &secrets)?;
        }
        Verb::Set(args) => {
            let value = match &args.file {
                Some(file) => read_file(file)?,
                None => read_stdin()?,
            };
            let ScopeArgs { tenant, user, shared } = args.scope;
            let spec = SecretSpec { value, tenant_id: tenant, user, shared };
            let target = RequestTarget::new("secrets").segment(&args.name);
            let set: Secret = client.send(Method::PUT, target, &spec)?;
            let whose = set.user.map_or_else(|| "all users".to_string(), |user| format!("user {user}"));
            let about = format!("secret `{}` of tenant {} for {whose} is set", set.name, set.tenant_id);
            output::print_stderr(&format!("{about} ({} bytes)", set.bytes));
        }
        Verb::Rm(args) => {
            confirm::require_confirmation(Consent::from(args.yes), &format!("remove secret {}", args.name))?;
            let ScopeArgs { tenant, user, shared } = args.scope;
            let target = RequestTarget::new("secrets").segment(&args.name);
            let target = target.query_if_some("tenant_id", tenant).query_if_some("user", user);
            let target = target.query_if_some("shared", shared.then_some(true));
            let done: Acknowledgement = client.send_without_body(Method::DELETE, target)?;
            output::print_stderr(&done.message);
        }
    }
    Ok(ExitStatus::SUCCESS)
}

fn read_file(path: &Path) -> Result<SecretValue, CliError> {
    let read = std::fs::File::open(path).and_then(read_bounded);
    read.map(SecretValue::new).map_err(|error| CliError::failed(format!("cannot read `{}`: {error}", path.display())))
}

/// What `echo` and editors add at the end is not a part of the value.
fn read_stdin() -> Result<SecretValue, CliError> {
    let read = read_bounded(std::io::stdin().lock());
    let mut bytes = read.map_err(|error| CliError::failed(format!("cannot read standard input: {error}")))?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Err(CliError::usage("the value on standard input is empty").hint("use `--file` for an empty value"));
    }
    Ok(SecretValue::new(bytes))
}

fn read_bounded(input: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(VALUE_BYTES_MAX).read_to_end(&mut bytes).map(|_| bytes)
}
