//! The verbs, one a file. Each has its raw arguments and a function that does it.

pub mod audit;
pub mod bench;
pub mod cancel;
pub mod change;
pub mod checkpoint;
pub mod completion;
pub mod config;
pub mod dev;
pub mod doctor;
pub mod events;
pub mod gpu;
pub mod gpus;
pub mod hold;
pub mod logs;
pub mod moves;
pub mod node;
pub mod plan;
pub mod policy;
pub mod ps;
pub mod receipts;
pub mod release;
pub mod requeue;
pub mod run;
pub mod serve;
pub mod show;
pub mod sim;
pub mod steer;
pub mod submit;
pub mod tenant;
pub mod token;
pub mod usage;
pub mod version;
pub mod wait;
pub mod why;
pub mod window;

use std::ffi::OsString;

use clap::Parser;

use crate::args::{Args, Verb};
use crate::error::CliError;
use crate::options::Options;

/// What the process returns when nothing went wrong: 0, or a job's own code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u8);

impl Code {
    /// It is done.
    pub const DONE: Code = Code(0);
}

/// How a command ends.
pub type Ending = Result<Code, CliError>;

/// Do what the command line says.
pub fn run(words: &[OsString]) -> Ending {
    let args = Args::parse_from(words);
    let variables = std::env::vars().collect();
    let options = Options::resolve(args.global, &variables)?;
    do_verb(args.verb, &options)
}

fn do_verb(verb: Verb, options: &Options) -> Ending {
    match verb {
        Verb::Run(args) => run::run(args, options),
        Verb::Submit(args) => submit::run(args, options),
        Verb::Plan(args) => plan::run(args, options),
        Verb::Ps(args) => ps::run(args, options),
        Verb::Show(args) => show::run(args, options),
        Verb::Why(args) => why::run(args, options),
        Verb::Logs(args) => logs::run(args, options),
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
        Verb::Completion(args) => completion::run(args),
        Verb::Version(args) => version::run(args, options),
    }
}
