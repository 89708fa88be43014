//! Policies: those that lie in files, checked, tested and tried without a server, and those of a server.

mod check;
mod eval;
mod json;
mod server_policies;
mod shadow;
mod test;

use super::CommandResult;
use crate::options::Options;
pub use json::JsonValue;

/// `muster policy …`.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Compile policies and say what they register and answer
    Check(check::Args),
    /// Run the tests of policies, `NAME_test.gsky`
    Test(test::Args),
    /// Call a function of a policy and print its answer
    Eval(eval::Args),
    /// Put the policies of a folder into force
    Apply(server_policies::PolicyApplyArgs),
    /// Put an earlier version into force again
    Rollback(server_policies::PolicyRollbackArgs),
    /// List the versions that were put into force
    Ls(server_policies::PolicyLsArgs),
    /// Look at one version
    Show(server_policies::PolicyShowArgs),
    /// Compare a folder with what is in force
    Diff(server_policies::PolicyDiffArgs),
    /// Look at what policies on trial would decide otherwise
    Shadow(shadow::Args),
}

/// Do one of them.
pub fn run(verb: &Verb, options: &Options) -> CommandResult {
    match verb {
        Verb::Check(args) => check::run(args, options),
        Verb::Test(args) => test::run(args, options),
        Verb::Eval(args) => eval::run(args),
        Verb::Apply(args) => server_policies::apply(args, options),
        Verb::Rollback(args) => server_policies::rollback(args, options),
        Verb::Ls(args) => server_policies::list(args, options),
        Verb::Show(args) => server_policies::show(args, options),
        Verb::Diff(args) => server_policies::diff(args, options),
        Verb::Shadow(args) => shadow::run(args, options),
    }
}
