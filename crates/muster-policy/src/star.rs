//! The policy tool of the commissioning document: load policies, list what they register, and try a GPU.
//!
//! Written once for both doors, the binary `star` and the console script of the Python package, so that they say the
//! same to the letter.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use muster_core::rules::{Pool, Ruleset};

use crate::{Gpu, PolicyEngine, PolicyError, Requirements};

/// What the synthetic GPU is asked for.
const MIN_MEMORY_GB: f64 = 16.0;

/// It is done.
const DONE: u8 = 0;
/// It was tried and did not work.
const FAILED: u8 = 1;
/// The command line makes no sense.
const USAGE: u8 = 2;

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

/// Do what the words say, the first of which is the program, and give the code that the process returns. Data goes to
/// standard output, talk to standard error.
pub fn run(words: &[OsString]) -> u8 {
    let done = match Args::try_parse_from(words) {
        Ok(args) => do_it(&args),
        Err(error) => error.print().map(|()| u8::try_from(error.exit_code()).unwrap_or(USAGE)),
    };
    match done {
        Ok(code) => code,
        // The reader has gone, as in `star --help | head -1`: nothing to say.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => DONE,
        Err(error) => fail(FAILED, &format!("cannot write the output: {error}")),
    }
}

/// In this order: load, list, try.
fn do_it(args: &Args) -> io::Result<u8> {
    if args.load.is_empty() && !args.load_all {
        let what = "no policy is loaded, so there is nothing to do";
        let hint = "`star --load-all --list-pools`, or `star --help` for all there is";
        return Ok(fail(USAGE, &format!("{what}\n  try: {hint}")));
    }
    let mut engine = PolicyEngine::new(&args.policy_dir);
    for path in &args.load {
        if let Err(error) = engine.load_policy(path) {
            return Ok(fail(FAILED, &error.to_string()));
        }
    }
    let errors = load_all(args, &mut engine)?;
    print(&found(args, &engine))?;
    Ok(errors.first().map_or(DONE, |error| fail(FAILED, &error.to_string())))
}

/// Say what was loaded; what is wrong with single policies of a folder is told and does not hide the others.
fn load_all(args: &Args, engine: &mut PolicyEngine) -> io::Result<Vec<PolicyError>> {
    let (_, errors) = if args.load_all { engine.load_all_policies() } else { Default::default() };
    let loaded = engine.loaded();
    let names = loaded.iter().map(|path| format!("[Policy] Loaded {}\n", path.display()));
    let sum = format!("[Policy] {}\n", counted(loaded.len()));
    print(&names.chain([sum]).collect::<String>())?;
    if args.load_all && !engine.policy_dir().is_dir() {
        talk(&format!("[Policy] there is no folder `{}`", args.policy_dir.display()));
    }
    errors.iter().skip(1).for_each(|error| talk(&format!("error: {error}")));
    Ok(errors)
}

/// What was asked about the policies that are loaded.
fn found(args: &Args, engine: &PolicyEngine) -> String {
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
    text
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

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Nobody there to listen is fine.
fn talk(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn fail(code: u8, what: &str) -> u8 {
    talk(&format!("error: {what}"));
    code
}
