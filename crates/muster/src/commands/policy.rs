//! Policies: those that lie in files, checked, tested and tried without a server, and those of a server.

mod check;
mod eval;
pub mod folders;
mod json;
mod live;
mod shadow;
mod test;

use super::Ending;
use crate::options::Options;
pub use json::Json;

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
    Apply(live::ApplyArgs),
    /// Put an earlier version into force again
    Rollback(live::RollbackArgs),
    /// List the versions that were put into force
    Ls(live::LsArgs),
    /// Look at one version
    Show(live::ShowOneArgs),
    /// Compare a folder with what is in force
    Diff(live::DiffArgs),
    /// Look at what policies on trial would decide otherwise
    Shadow(shadow::Args),
}

/// Do one of them.
pub fn run(verb: &Verb, options: &Options) -> Ending {
    match verb {
        Verb::Check(args) => check::run(args, options),
        Verb::Test(args) => test::run(args, options),
        Verb::Eval(args) => eval::run(args),
        Verb::Apply(args) => live::apply(args, options),
        Verb::Rollback(args) => live::roll_back(args, options),
        Verb::Ls(args) => live::list(args, options),
        Verb::Show(args) => live::show(args, options),
        Verb::Diff(args) => live::diff(args, options),
        Verb::Shadow(args) => shadow::run(args, options),
    }
}
