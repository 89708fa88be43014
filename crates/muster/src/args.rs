//! The command line of `muster`: every verb with its arguments, and the command that runs it.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    agent, audit, bench, cancel, change, checkpoint, completion, config, cp, dev, doctor, events, exec, gpu, gpus,
    hold, logs, moves, node, plan, policy, ps, receipts, release, requeue, run, secret, serve, show, sim, submit,
    tenant, token, usage, version, wait, why, window,
};
use crate::error::CommandResult;
use crate::options::{GlobalArgs, Options};

/// The text of `muster help`: examples first, one screen. A test keeps it complete and short.
const HELP: &str = "\
muster schedules the GPU jobs of many teams and explains every decision.

  muster dev                                   start here: 8 simulated GPUs
  muster run --gpus 1 -- python train.py       run, follow, return the exit code
  muster submit --gpus 8 --time 4h -- ./go.sh  queue a job and print its id
  muster ps                                    list waiting and running jobs
  muster why job-42                            why it waits, what would help

Usage: muster [OPTIONS] <COMMAND>

Jobs     run submit plan ps show why logs exec attach ssh cp wait cancel hold
         release requeue change checkpoint receipts
Cluster  gpus gpu node window moves usage events doctor
Admin    tenant token secret audit config policy
Server   dev serve agent
Other    bench sim completion version help

`muster help COMMAND` explains one. All take --server URL, --token-file FILE,
--ca-file FILE, --color WHEN; every read takes -o table|wide|json|yaml|csv|name.
Exit codes: 0 done; 1 failed; 2 usage; 3 not found; 4 not allowed; 5 conflict or
quota; 6 infeasible; 7 timed out; 69 server unreachable; `run` and `wait` return
the job's own (128 + signal when it was killed).
";

#[derive(Debug, Parser)]
#[command(name = "muster", version, override_help = HELP, arg_required_else_help = true, max_term_width = 100)]
pub struct Args {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs, in the order of the help.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command on GPUs, print its output, and return its exit code
    Run(run::Args),
    /// Queue a job and print its id
    Submit(submit::Args),
    /// Dry run: say whether and when a job would start, without submitting it
    Plan(plan::Args),
    /// List jobs
    Ps(ps::Args),
    /// Show the details of a job
    Show(show::Args),
    /// Say why a job waits, or how it ended
    Why(why::Args),
    /// Print the output of a job
    Logs(logs::Args),
    /// Run a program inside a running job
    Exec(exec::Args),
    /// Open a shell inside a running job
    Attach(exec::AttachArgs),
    /// Open a login shell inside a running job, or run a program there
    Ssh(exec::SshArgs),
    /// Copy files out of a running job, or into it
    Cp(cp::Args),
    /// Wait until jobs have ended, and return the exit code of the first that failed
    Wait(wait::Args),
    /// Cancel waiting or running jobs
    Cancel(cancel::Args),
    /// Hold jobs: they do not start until released; running jobs are stopped first
    Hold(hold::Args),
    /// Release held jobs
    Release(release::Args),
    /// Stop running jobs and queue them again
    Requeue(requeue::Args),
    /// Change the time limit, priority or name of a job
    Change(change::Args),
    /// Report a checkpoint of a running job
    Checkpoint(checkpoint::Args),
    /// Show the preemption receipts of a job, as victim and as preemptor
    Receipts(receipts::Args),

    /// Show the free GPUs
    Gpus(gpus::Args),
    /// List and show GPUs, declare their health, repartition them
    #[command(subcommand)]
    Gpu(gpu::Verb),
    /// List, show, label, drain, fence and remove nodes, and let new ones join
    #[command(subcommand)]
    Node(node::Verb),
    /// Book nodes for maintenance or for a tenant
    #[command(subcommand)]
    Window(window::Verb),
    /// List the defragmentation moves that would let waiting jobs start
    Moves(moves::Args),
    /// Show the GPU-hours, energy and cost of each tenant
    Usage(usage::Args),
    /// Print the events of the cluster or of a job
    Events(events::Args),
    /// Diagnose this machine, the server and the cluster
    Doctor(doctor::Args),

    /// List, show, create and change tenants and their quotas
    #[command(subcommand)]
    Tenant(tenant::Verb),
    /// List, create and revoke tokens
    #[command(subcommand)]
    Token(token::Verb),
    /// Set, list and remove the secrets of jobs
    #[command(subcommand)]
    Secret(secret::Verb),
    /// List administrative acts, done and refused
    Audit(audit::Args),
    /// Show or check the configuration of a server
    #[command(subcommand)]
    Config(config::Verb),
    /// Check, test, apply and compare policies
    #[command(subcommand)]
    Policy(policy::Verb),

    /// Start a server for trying out, with simulated GPUs and without setup
    Dev(dev::Args),
    /// Start a server
    Serve(serve::Args),
    /// Run the jobs of a cluster on this machine
    Agent(agent::Args),

    /// Run the benchmarks
    #[command(subcommand)]
    Bench(bench::Verb),
    /// Simulate whole clusters with injected faults and check the invariants
    Sim(sim::Args),
    /// Print a completion script for your shell
    Completion(completion::Args),
    /// Print the versions of this program and of the server
    Version(version::Args),
}

/// Parse the command line, resolve the options and run the verb.
pub fn run(words: &[OsString]) -> CommandResult {
    let args = Args::parse_from(words);
    let variables = std::env::vars().collect();
    let options = Options::resolve(args.global, &variables)?;
    run_verb(args.verb, &options)
}

fn run_verb(verb: Verb, options: &Options) -> CommandResult {
    match verb {
        Verb::Run(args) => run::run(args, options),
        Verb::Submit(args) => submit::run(args, options),
        Verb::Plan(args) => plan::run(args, options),
        Verb::Ps(args) => ps::run(args, options),
        Verb::Show(args) => show::run(args, options),
        Verb::Why(args) => why::run(args, options),
        Verb::Logs(args) => logs::run(args, options),
        Verb::Exec(args) => exec::run(args, options),
        Verb::Attach(args) => exec::run_attach(args, options),
        Verb::Ssh(args) => exec::run_ssh(args, options),
        Verb::Cp(args) => cp::run(args, options),
        Verb::Wait(args) => wait::run(args, options),
        Verb::Cancel(args) => cancel::run(args, options),
        Verb::Hold(args) => hold::run(args, options),
        Verb::Release(args) => release::run(args, options),
        Verb::Bench(verb) => bench::run(verb),
        Verb::Sim(args) => sim::run(args, options),
        Verb::Requeue(args) => requeue::run(args, options),
        Verb::Change(args) => change::run(args, options),
        Verb::Checkpoint(args) => checkpoint::run(args, options),
        Verb::Receipts(args) => receipts::run(args, options),
        Verb::Moves(args) => moves::run(args, options),
        Verb::Gpus(args) => gpus::run(args, options),
        Verb::Gpu(verb) => gpu::run(verb, options),
        Verb::Node(verb) => node::run(verb, options),
        Verb::Window(verb) => window::run(verb, options),
        Verb::Secret(verb) => secret::run(verb, options),
        Verb::Usage(args) => usage::run(args, options),
        Verb::Events(args) => events::run(args, options),
        Verb::Doctor(args) => doctor::run(args, options),
        Verb::Tenant(verb) => tenant::run(verb, options),
        Verb::Token(verb) => token::run(verb, options),
        Verb::Audit(args) => audit::run(args, options),
        Verb::Config(verb) => config::run(verb, options),
        Verb::Policy(verb) => policy::run(&verb, options),
        Verb::Dev(args) => dev::run(args),
        Verb::Serve(args) => serve::run(args),
        Verb::Agent(args) => agent::run(args),
        Verb::Completion(args) => completion::run(args, Args::command()),
        Verb::Version(args) => version::run(args, options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::EXIT_CODES;

    #[test]
    fn clap_accepts_the_command_line() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_help_fits_one_screen_and_names_every_verb() {
        assert!(HELP.lines().count() <= 24, "{} lines", HELP.lines().count());
        assert!(HELP.lines().all(|line| line.chars().count() <= 80));
        assert!(HELP.contains(EXIT_CODES));
        for verb in Args::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let named = HELP.split_whitespace().any(|word| word == verb.get_name());
            assert!(named, "`{}` is missing in the help", verb.get_name());
        }
    }
}
