//! The policy tool of the commissioning document: load policies, list what they register, and try a GPU.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use muster_core::rules::{Pool, Ruleset};
use muster_policy::{Gpu, PolicyEngine, PolicyError, Requirements};

use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::output;

/// What the synthetic GPU is asked for.
const MIN_MEMORY_GB: f64 = 16.0;

/// `star`.
#[derive(Debug, Parser)]
#[command(
    name = "star",
    version,
    about = "Policies in Starlark: load them, list what they register, try a GPU"
)]
#[command(before_help = "Examples:\n  star --load-all --list-pools\n  star --load-all --test-gpu 0\n  \
                         star --load policies/development.gsky")]
struct Args {
    /// Folder of the policies
    #[arg(long, value_name = "DIR", default_value = "policies")]
    policy_dir: PathBuf,
    /// Load this policy: the path as it is, or inside the folder
    #[arg(long, value_name = "FILE")]
    load: Vec<PathBuf>,
    /// Load every `*.gsky` of the folder
    #[arg(long)]
    load_all: bool,
    /// List the pools that were registered
    #[arg(long)]
    list_pools: bool,
    /// List the rulesets that were registered
    #[arg(long)]
    list_schedules: bool,
    /// Whether a GPU with this number could be given out
    #[arg(long, value_name = "N")]
    test_gpu: Option<u32>,
}

/// Do what was asked, in this order: load, list, try.
pub fn run(words: &[OsString]) -> Ending {
    let args = Args::parse_from(words);
    if args.load.is_empty() && !args.load_all {
        return Err(CliError::usage("no policy is loaded, so there is nothing to do")
            .hint("`star --load-all --list-pools`, or `star --help` for all there is"));
    }
    let mut engine = PolicyEngine::new(&args.policy_dir);
    let errors = load(&args, &mut engine)?;
    let mut text = String::new();
    if args.list_pools {
        text += "Registered Pools:\n";
        text += &engine.rules().pools.values().map(pool_line).collect::<String>();
    }
    if args.list_schedules {
        text += "Registered Schedules:\n";
        text += &engine.rules().schedules.values().map(schedule_line).collect::<String>();
    }
    if let Some(number) = args.test_gpu {
        let wanted = Requirements { min_memory: Some(MIN_MEMORY_GB), ..Requirements::default() };
        let result =
            if engine.evaluate_allocation(&Gpu::synthetic(number), &wanted) { "True" } else { "False" };
        text += &format!("GPU {number} allocation result: {result}\n");
    }
    output::print(&text)?;
    match errors.first() {
        None => Ok(Code::DONE),
        Some(error) => Err(CliError::failed(error.to_string())),
    }
}

/// Load, and say what was; what is wrong with single policies of a folder is told and does not hide the others.
fn load(args: &Args, engine: &mut PolicyEngine) -> Result<Vec<PolicyError>, CliError> {
    for path in &args.load {
        engine.load_policy(path).map_err(|error| CliError::failed(error.to_string()))?;
    }
    let (_, errors) = if args.load_all { engine.load_all_policies() } else { Default::default() };
    let loaded = engine.loaded();
    let names = loaded.iter().map(|path| format!("[Policy] Loaded {}\n", path.display()));
    let sum = format!("[Policy] {}\n", counted(loaded.len()));
    output::print(&names.chain([sum]).collect::<String>())?;
    if args.load_all && !args.policy_dir.is_dir() {
        output::talk(&format!("[Policy] there is no folder `{}`", args.policy_dir.display()));
    }
    errors.iter().skip(1).for_each(|error| output::talk(&format!("error: {error}")));
    Ok(errors)
}

fn counted(policies: usize) -> String {
    match policies {
        1 => "1 policy loaded".to_string(),
        policies => format!("{policies} policies loaded"),
    }
}

fn pool_line(pool: &Pool) -> String {
    let types = match pool.gpu_types.is_empty() {
        true => "any type".to_string(),
        false => format!("[{}]", pool.gpu_types.join(", ")),
    };
    format!("  - {}: {types}\n", pool.name)
}

fn schedule_line(ruleset: &Ruleset) -> String {
    let rules = match ruleset.rules.len() {
        1 => "1 rule".to_string(),
        rules => format!("{rules} rules"),
    };
    format!("  - {}: {rules}\n", ruleset.name)
}
