//! `muster policy`: check, test and call the policies of files without a server; apply, compare and roll back those of a
//! server.

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
    /// Compile policies and list what they register and which hooks they define
    Check(check::Args),
    /// Run the tests of policies, `NAME_test.gsky`
    Test(test::Args),
    /// Call a function of a policy and print its answer
    Eval(eval::Args),
    /// Apply the policies of a folder
    Apply(server_policies::PolicyApplyArgs),
    /// Apply an earlier version again
    Rollback(server_policies::PolicyRollbackArgs),
    /// List all versions
    Ls(server_policies::PolicyLsArgs),
    /// Show the details of a version
    Show(server_policies::PolicyShowArgs),
    /// Compare a folder with the active policies
    Diff(server_policies::PolicyDiffArgs),
    /// Show where shadow policies would decide differently
    Shadow(shadow::Args),
}

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
