//! The command line of `muster`, as it is written.

use clap::{Parser, Subcommand};

use crate::commands::{
    audit, bench, cancel, change, checkpoint, completion, config, dev, doctor, events, gpu, gpus, hold, logs,
    moves, node, plan, policy, ps, receipts, release, requeue, run, serve, show, sim, submit, tenant, token,
    usage, version, wait, why, window,
};
use crate::options::GlobalArgs;

/// What `muster help` prints: examples first, one screen. A test keeps it complete and short.
const HELP: &str = "\
muster shares GPUs between teams, and says why, when and how much.

  muster dev                                   start here: 8 simulated GPUs
  muster run --gpus 1 -- python train.py       run, follow, return the exit code
  muster submit --gpus 8 --time 4h -- ./go.sh  queue it and print its id
  muster ps                                    what waits and what runs
  muster why job-42                            what it waits for, what helps

Usage: muster [OPTIONS] <COMMAND>

Jobs     run submit plan ps show why logs wait cancel hold release requeue
         change checkpoint receipts
Cluster  gpus gpu node window moves usage events doctor
Admin    tenant token audit config policy
Server   dev serve
Other    bench sim completion version help

`muster help COMMAND` explains one. Everywhere: --server URL, --token-file FILE,
--ca-file FILE, --color WHEN; every read takes -o table|wide|json|yaml|csv|name.
Exit codes: 0 done; 1 failed; 2 usage; 3 not found; 4 not allowed; 5 conflict or
quota; 6 infeasible; 7 timed out; 69 server unreachable; `run` and `wait` return
the job's own (128 + signal when it was killed).
";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "muster", version, override_help = HELP, arg_required_else_help = true, max_term_width = 100)]
pub struct Args {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs, the common ones first.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command on GPUs, follow it, and return its exit code
    Run(run::Args),
    /// Queue a job and print its id
    Submit(submit::Args),
    /// Say what would become of a job, without submitting it
    Plan(plan::Args),
    /// List jobs
    Ps(ps::Args),
    /// Show all about one job
    Show(show::Args),
    /// Say why a job waits, or how it ended
    Why(why::Args),
    /// Print the output of a job
    Logs(logs::Args),
    /// Wait until jobs have ended, and return their exit code
    Wait(wait::Args),
    /// End jobs, waiting or running
    Cancel(cancel::Args),
    /// Keep jobs from starting; running ones are stopped and kept
    Hold(hold::Args),
    /// Let held jobs queue again
    Release(release::Args),
    /// Stop running jobs and queue them again
    Requeue(requeue::Args),
    /// Change the time limit, the priority or the name of a job
    Change(change::Args),
    /// Say that a running job has saved its work
    Checkpoint(checkpoint::Args),
    /// Say what preemption has cost a job, and others for it
    Receipts(receipts::Args),

    /// Say which GPUs are free now
    Gpus(gpus::Args),
    /// List GPUs, or show one
    #[command(subcommand)]
    Gpu(gpu::Verb),
    /// List machines, show one, label one, or take one out of service
    #[command(subcommand)]
    Node(node::Verb),
    /// Book nodes for maintenance or for a tenant
    #[command(subcommand)]
    Window(window::Verb),
    /// Say which running jobs could go on elsewhere so that others fit
    Moves(moves::Args),
    /// Say who used how much
    Usage(usage::Args),
    /// Print what happens in the cluster
    Events(events::Args),
    /// Check that everything is in order, and say what to do
    Doctor(doctor::Args),

    /// List, show, make and change tenants and their quotas
    #[command(subcommand)]
    Tenant(tenant::Verb),
    /// List, make and revoke tokens
    #[command(subcommand)]
    Token(token::Verb),
    /// List administrative acts, done and refused
    Audit(audit::Args),
    /// Show or check the configuration of a server
    #[command(subcommand)]
    Config(config::Verb),
    /// Check, test and try policies
    #[command(subcommand)]
    Policy(policy::Verb),

    /// Start a server to try things out: simulated GPUs, nothing to set up
    Dev(dev::Args),
    /// Start a server
    Serve(serve::Args),

    /// Measure how fast this build is on this machine
    #[command(subcommand)]
    Bench(bench::Verb),
    /// Play whole clusters in memory, with every misfortune, and look for broken laws
    Sim(sim::Args),
    /// Print a completion script for a shell
    Completion(completion::Args),
    /// Print the versions of this program and of the server
    Version(version::Args),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::EXIT_CODES;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
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
