//! `muster agent install`: a unit of systemd, a configuration file with every key, and the account of jobs.

use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use muster_server::config::{Config, RawConfig, commented_keys};
use muster_wire::join_url::JoinUrl;

use super::unit_files::{Found, InstalledFile, write_in_one_step};
use crate::commands::{CommandResult, ExitStatus, config};
use crate::error::{CliError, Exit};
use crate::output;

const UNIT_FILE: &str = "etc/systemd/system/muster-agent.service";
const CONFIG_FILE: &str = "etc/muster/agent.yaml";
const JOIN_FILE: &str = "etc/muster/join-url";
const SYSUSERS_FILE: &str = "usr/lib/sysusers.d/muster-agent.conf";
/// Exists while systemd runs the machine.
const SYSTEMD_RUNS: &str = "/run/systemd/system";
const DATA_DIR: &str = "/var/lib/muster-agent";

/// `muster agent install`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    before_help = "Examples:\n  muster node token | ssh gpu01 muster agent install --join - --gpus 4\n  muster agent install --root ./package --binary /usr/bin/muster     for a package\n  muster agent install --print"
)]
pub struct InstallArgs {
    /// Write below this folder, for packages and images: nothing is created, started or asked on this machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print the files instead of writing them
    #[arg(long)]
    print: bool,
    /// Replace files that were changed by hand
    #[arg(long)]
    force: bool,
    /// Leave files that were changed by hand as they are
    #[arg(long, conflicts_with = "force")]
    keep: bool,
    /// Store this join URL for the first start of the agent; `-` reads it from standard input
    #[arg(long, value_name = "URL", env = "MUSTER_JOIN", hide_env_values = true)]
    join: Option<String>,
    /// Store the join URL of this file
    #[arg(long, value_name = "FILE", conflicts_with = "join")]
    join_file: Option<PathBuf>,
    /// Program that the service runs [default: this program]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Folder of the node's identity and of its jobs
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
    /// Name of the node [default: the host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Number of GPUs to assume on the machine
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpus: u32,
    /// Label of the node; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = super::parse_label)]
    labels: Vec<(String, String)>,
    /// Rack of the node
    #[arg(long, value_name = "RACK")]
    rack: Option<String>,
    /// Do not create the account of jobs
    #[arg(long)]
    no_job_user: bool,
}

pub fn run(args: &InstallArgs) -> CommandResult {
    let binary = binary(args)?;
    let job_user = job_user(args)?;
    let files = files(args, &binary, &job_user);
    if args.print {
        let shown = files.iter().map(|file| format!("# {}\n{}", file.path.display(), file.marked_text()));
        output::print_stdout(&shown.collect::<Vec<_>>().join("\n"))?;
        return Ok(ExitStatus::SUCCESS);
    }
    let join_url = join_url(args)?;
    let changed = changed_by_hand(&files)?;
    if !changed.is_empty() && !args.force && !args.keep {
        return Err(refusal(&changed)?);
    }
    for file in &files {
        let is_kept = args.keep && changed.iter().any(|kept| kept.path == file.path);
        install(file, is_kept)?;
    }
    if let Some(url) = join_url {
        store_join_url(args, &url)?;
    }
    if is_this_machine(args) && !args.no_job_user {
        create_job_user(&job_user)?;
    }
    output::print_stderr(&next_steps(args, &binary));
    Ok(ExitStatus::SUCCESS)
}

fn is_this_machine(args: &InstallArgs) -> bool {
    args.root == Path::new("/")
}

fn has_systemd(args: &InstallArgs) -> bool {
    !is_this_machine(args) || Path::new(SYSTEMD_RUNS).exists()
}

/// The path of the program itself: a link to it may be replaced.
fn binary(args: &InstallArgs) -> Result<PathBuf, CliError> {
    let path = match &args.binary {
        Some(path) if path.is_absolute() => path.clone(),
        Some(path) => return Err(CliError::usage(format!("`{}` is not an absolute path", path.display()))),
        None => std::env::current_exe().and_then(fs::canonicalize).map_err(|error| {
            CliError::failed(format!("cannot find this program: {error}")).hint("name it with --binary")
        })?,
    };
    match path.to_str().is_some_and(|text| !text.contains(['"', '\\', '%', '$', '\n'])) {
        true => Ok(path),
        false => Err(CliError::usage(format!("`{}` cannot be written into a unit of systemd", path.display()))),
    }
}

/// The account of jobs, by the configuration that is already there.
fn job_user(args: &InstallArgs) -> Result<String, CliError> {
    let known = args.root.join(CONFIG_FILE);
    let config: Config = config::load_config(RawConfig::default(), known.exists().then_some(known.as_path()))?;
    Ok(config.agent.launcher.job_user)
}

fn files(args: &InstallArgs, binary: &Path, job_user: &str) -> Vec<InstalledFile> {
    let file = |path: &str, text: String| InstalledFile { path: args.root.join(path), mode: 0o644, text };
    let mut files = vec![file(CONFIG_FILE, config_text())];
    if has_systemd(args) {
        files.push(file(UNIT_FILE, unit_text(args, binary)));
    }
    if !is_this_machine(args) && !args.no_job_user {
        let line = format!("# The account that runs jobs of muster.\nu {job_user} - \"muster jobs\" - -\n");
        files.push(file(SYSUSERS_FILE, line));
    }
    files
}

fn config_text() -> String {
    let head = "# The configuration of the muster agent of this node. Each key is shown with its default: remove the `#` in\n\
                # the first column of its section and of the key to change it. `muster config show --config FILE` lists the\n\
                # values in force. Keys of the servers are not shown here.\n\n";
    head.to_string() + &commented_keys(&["agent", "log"])
}

/// Options that put jobs into another mount namespace, or filter their system calls or devices, are not used: jobs are
/// processes of this service, and the agent isolates them itself.
fn unit_text(args: &InstallArgs, binary: &Path) -> String {
    format!(
        "[Unit]\n\
         Description=muster node agent\n\
         Wants=network-online.target\n\
         After=network-online.target time-sync.target remote-fs.target\n\
         # The agent is started again however often it fails: without it the node is lost.\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=exec\n\
         ExecStart={}\n\
         Restart=on-failure\n\
         RestartSec=2\n\
         # Jobs outlive the agent: only the agent itself is stopped, and the next start adopts them.\n\
         KillMode=process\n\
         # The agent makes a cgroup for each job.\n\
         Delegate=yes\n\
         TasksMax=infinity\n\
         LimitNOFILE=1048576\n\
         # Jobs register memory with GPUs and network devices.\n\
         LimitMEMLOCK=infinity\n\
         # Rights that neither the agent nor a job needs.\n\
         CapabilityBoundingSet=~CAP_SYS_TIME CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_WAKE_ALARM CAP_BLOCK_SUSPEND\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        start_command(args, binary).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    )
}

fn start_command(args: &InstallArgs, binary: &Path) -> Vec<String> {
    let mut words: Vec<String> = vec![binary.display().to_string(), "agent".to_string()];
    let mut add = |flag: &str, value: String| words.extend([flag.to_string(), value]);
    add("--config", format!("/{CONFIG_FILE}"));
    add("--data-dir", args.data_dir.display().to_string());
    add("--join-file", format!("/{JOIN_FILE}"));
    if args.gpus > 0 {
        add("--gpus", args.gpus.to_string());
    }
    args.node.iter().for_each(|node| add("--node", node.clone()));
    args.rack.iter().for_each(|rack| add("--rack", rack.clone()));
    args.labels.iter().for_each(|(key, value)| add("--label", format!("{key}={value}")));
    words
}

/// A word of `ExecStart`, in which systemd expands `%` and `$`.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:@+,".contains(letter);
    if word.chars().all(is_plain) && !word.is_empty() {
        return word.to_string();
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

fn changed_by_hand(files: &[InstalledFile]) -> Result<Vec<&InstalledFile>, CliError> {
    let mut changed = Vec::new();
    for file in files {
        if file.find().map_err(|error| unusable(&file.path, &error))? == Found::Changed {
            changed.push(file);
        }
    }
    Ok(changed)
}

fn refusal(changed: &[&InstalledFile]) -> Result<CliError, CliError> {
    let mut message = "nothing was installed: files were changed by hand".to_string();
    for file in changed {
        let difference = file.difference().map_err(|error| unusable(&file.path, &error))?;
        message.push_str(&format!("\n--- {}\n{}", file.path.display(), difference.trim_end()));
    }
    Ok(CliError::new(Exit::Conflict, message).hint("--keep leaves these files as they are, --force replaces them"))
}

fn install(file: &InstalledFile, is_kept: bool) -> Result<(), CliError> {
    let found = file.find().map_err(|error| unusable(&file.path, &error))?;
    let word = match found {
        _ if is_kept => "kept",
        Found::Same => "unchanged",
        Found::Missing => "written",
        Found::Outdated | Found::Changed => "replaced",
    };
    if !matches!(word, "kept" | "unchanged") {
        file.write().map_err(|error| unusable(&file.path, &error))?;
    }
    output::print_stderr(&format!("{word}: {}", file.path.display()));
    Ok(())
}

fn join_url(args: &InstallArgs) -> Result<Option<String>, CliError> {
    let text = match (&args.join, &args.join_file) {
        (Some(word), _) if word == "-" => {
            let mut text = String::new();
            let unreadable = |error| CliError::failed(format!("cannot read standard input: {error}"));
            std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
            text
        }
        (Some(url), _) => url.clone(),
        (None, Some(file)) => fs::read_to_string(file).map_err(|error| unusable(file, &error))?,
        (None, None) => return Ok(None),
    };
    let text = text.trim().to_string();
    let refused = |error| CliError::usage(format!("{error}")).hint("`muster node token` on a server prints a join URL");
    text.parse::<JoinUrl>().map_err(refused)?;
    Ok(Some(text))
}

/// Only root can read the URL: it holds a secret.
fn store_join_url(args: &InstallArgs, url: &str) -> Result<(), CliError> {
    let path = args.root.join(JOIN_FILE);
    let folder = path.parent().unwrap_or(Path::new("/"));
    let created = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    created
        .and_then(|()| write_in_one_step(&path, 0o600, &format!("{url}\n")))
        .map_err(|error| unusable(&path, &error))?;
    output::print_stderr(&format!("written: {} (the first start of the agent uses and removes it)", path.display()));
    Ok(())
}

fn create_job_user(name: &str) -> Result<(), CliError> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    if name.is_empty() || passwd.lines().any(|line| line.split(':').next() == Some(name)) {
        return Ok(());
    }
    let useradd = Command::new("useradd")
        .args(["--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"])
        .args(["--comment", "muster jobs", "--user-group", name])
        .output();
    let failure = match useradd {
        Ok(done) if done.status.success() => {
            output::print_stderr(&format!("created: account `{name}`, which runs jobs"));
            return Ok(());
        }
        Ok(done) => String::from_utf8_lossy(&done.stderr).trim().to_string(),
        Err(error) => format!("useradd: {error}"),
    };
    Err(CliError::failed(format!("cannot create the account `{name}`: {failure}"))
        .hint("create it by hand, or install with --no-job-user"))
}

fn next_steps(args: &InstallArgs, binary: &Path) -> String {
    let by_hand = start_command(args, binary).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    match (has_systemd(args), is_this_machine(args)) {
        (true, true) => {
            "next: systemctl daemon-reload && systemctl enable muster-agent && systemctl restart muster-agent\n\
             then: muster doctor --node"
                .to_string()
        }
        (true, false) => format!("next: pack {}; `systemctl enable muster-agent` on the machine", args.root.display()),
        (false, _) => format!(
            "systemd does not run this machine, so no unit was written. Start the agent as root by the init program of the \
             machine, which must stop only this process and not its children:\n  {by_hand}"
        ),
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("`{}`: {error}", path.display()))
}
