//! `star`, the policy tool of the specification: loads policies, lists what they register, and tests whether a
//! GPU could be allocated.
//!
//! The binary `star` and the console script of the Python package share this code, so that their output is identical.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use muster_core::objects::policy::rules::{Pool, Ruleset};

use crate::{Gpu, PolicyEngine, PolicyError, Requirements};

/// The memory that `--test-gpu` requires.
const MIN_MEMORY_GB: f64 = 16.0;

const EXIT_OK: u8 = 0;
const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

#[derive(Debug, Parser)]
#[command(name = "star", version, about = "Load policies in Starlark, list what they register, test a GPU allocation")]
#[command(before_help = "Examples:\n  star --load-all --list-pools\n  star --load-all --test-gpu 0\n  \
                         star --load policies/development.gsky")]
struct Args {
    /// Folder of the policies
    #[arg(long, value_name = "DIR", default_value = "policies")]
    policy_dir: PathBuf,
    /// Load this policy; the path may be relative to the folder
    #[arg(long, value_name = "FILE")]
    load: Vec<PathBuf>,
    /// Load every `*.gsky` of the folder
    #[arg(long)]
    load_all: bool,
    /// List the registered pools
    #[arg(long)]
    list_pools: bool,
    /// List the registered rulesets
    #[arg(long)]
    list_schedules: bool,
    /// Test whether a sample GPU with this number could be allocated
    #[arg(long, value_name = "N")]
    test_gpu: Option<u32>,
}

/// Run the command line, program name first, and return the exit code. Data goes to standard output, messages to
/// standard error.
pub fn run(command_line: &[OsString]) -> u8 {
    let outcome = match Args::try_parse_from(command_line) {
        Ok(args) => run_args(&args),
        Err(error) => error.print().map(|()| u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE)),
    };
    match outcome {
        Ok(code) => code,
        // The reader closed the pipe, as in `star --help | head -1`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_OK,
        Err(error) => fail(EXIT_FAILED, &format!("cannot write the output: {error}")),
    }
}

fn run_args(args: &Args) -> io::Result<u8> {
    if args.load.is_empty() && !args.load_all {
        let message = "no policy was loaded: give --load or --load-all";
        let hint = "`star --load-all --list-pools`, or `star --help` for all options";
        return Ok(fail(EXIT_USAGE, &format!("{message}\n  try: {hint}")));
    }
    let mut engine = PolicyEngine::new(&args.policy_dir);
    for path in &args.load {
        if let Err(error) = engine.load_policy(path) {
            return Ok(fail(EXIT_FAILED, &error.to_string()));
        }
    }
    let errors = load_all(args, &mut engine)?;
    print_stdout(&listed_output(args, &engine))?;
    Ok(errors.first().map_or(EXIT_OK, |error| fail(EXIT_FAILED, &error.to_string())))
}

/// Load the folder if `--load-all` is given, and list all loaded files. An error in one policy does not keep the others
/// from being loaded. The caller reports the first error; the rest are printed here.
fn load_all(args: &Args, engine: &mut PolicyEngine) -> io::Result<Vec<PolicyError>> {
    let (_, errors) = if args.load_all { engine.load_all_policies() } else { Default::default() };
    let loaded = engine.loaded();
    let names = loaded.iter().map(|path| format!("[Policy] Loaded {}\n", path.display()));
    let count = format!("[Policy] {}\n", loaded_count_text(loaded.len()));
    print_stdout(&names.chain([count]).collect::<String>())?;
    if args.load_all && !engine.policy_dir().is_dir() {
        print_stderr(&format!("[Policy] there is no folder `{}`", args.policy_dir.display()));
    }
    errors.iter().skip(1).for_each(|error| print_stderr(&format!("error: {error}")));
    Ok(errors)
}

/// The output of `--list-pools`, `--list-schedules` and `--test-gpu`.
fn listed_output(args: &Args, engine: &PolicyEngine) -> String {
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
        let requirements = Requirements { min_memory: Some(MIN_MEMORY_GB), ..Requirements::default() };
        let result = if engine.evaluate_allocation(&Gpu::synthetic(number), &requirements) { "True" } else { "False" };
        text += &format!("GPU {number} allocation result: {result}\n");
    }
    text
}

fn loaded_count_text(policies: usize) -> String {
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

fn print_stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A closed standard error is ignored.
fn print_stderr(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn fail(code: u8, message: &str) -> u8 {
    print_stderr(&format!("error: {message}"));
    code
}
