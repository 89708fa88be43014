//! Functions of policies, the arguments they are called with, and how often the product calls them in a second.

use std::cell::RefCell;
use std::collections::BTreeMap;

use muster_core::model;
use muster_core::policy::{JobView, Moment, NodeView};
use muster_core::queue::Bucket;
use muster_core::{State, Timestamp};
use muster_policy::hooks::{self, Caller};
use muster_policy::{Calls, Launch, Patience, Plain, PolicyError, Program, Workers};

use crate::commands::bench::cpu::{measured, median_wall};
use crate::commands::bench::synthetic::{Ask, spec};
use crate::error::CliError;
use crate::interpreter::{cluster_confinement, limits};

/// GPUs and nodes that functions are asked about: each is another.
const PLACES: usize = 50;
/// Wishes and jobs that they are asked for.
const ASKERS: usize = 20;
const FILE: &str = "bench.gsky";

/// A function with the arguments of many calls: each of the first with each of the second.
pub struct Call {
    /// Its name.
    pub function: &'static str,
    /// The file that tells it, for interpreters without records: they are given dicts.
    pub source: String,
    /// The same as policies write it.
    own_source: String,
    firsts: Vec<Plain>,
    seconds: Vec<Plain>,
    program: Program,
    asked: Asked,
}

/// How the product asks.
enum Asked {
    /// Values are there already.
    Values,
    /// As a hook, from views of jobs and of nodes.
    Score(Vec<JobView>, Vec<NodeView>),
}

/// The rule of the commissioning document on dicts: GPUs and wishes.
pub fn allow() -> Result<Call, CliError> {
    let source = include_str!("allow.gsky");
    let (firsts, seconds) = ((0..PLACES).map(gpu).collect(), (0..ASKERS).map(wish).collect());
    let (program, source) = (program(source)?, source.to_string());
    let own_source = source.clone();
    Ok(Call { function: "allow", source, own_source, firsts, seconds, program, asked: Asked::Values })
}

/// A hook: jobs and nodes.
pub fn score() -> Result<Call, CliError> {
    let source = include_str!("score.gsky");
    let job = |index: usize| {
        let wanted = spec(Ask { gpus: 1 << (index % 4), cpus: 4 + index as u32, ..Ask::default() });
        let bucket = Bucket::of_spec(&wanted, None, &State::empty().policies);
        JobView::of(&bucket, Moment::of(Timestamp(0), 0))
    };
    let jobs: Vec<JobView> = (0..ASKERS).map(job).collect();
    let nodes: Vec<NodeView> = (0..PLACES).map(node).collect();
    let listener = Listener::default();
    hooks::score_each(&listener, &jobs.iter().collect::<Vec<_>>(), &nodes);
    let (mut firsts, mut seconds) = listener.heard.into_inner().into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    // Pair by pair: a job comes once with each node.
    seconds.truncate(PLACES);
    firsts = firsts.into_iter().step_by(PLACES).collect();
    let (program, own_source) = (program(source)?, source.to_string());
    let source = without_records(source, [("job", &firsts[0]), ("node", &seconds[0])]);
    Ok(Call {
        function: "score",
        source,
        own_source,
        firsts,
        seconds,
        program,
        asked: Asked::Score(jobs, nodes),
    })
}

impl Call {
    /// The arguments of every call.
    pub fn args(&self) -> Vec<Vec<&Plain>> {
        let with_each = |first| self.seconds.iter().map(move |second| vec![first, second]);
        self.firsts.iter().flat_map(with_each).collect()
    }

    /// What every call answers.
    pub fn answers(&self) -> Result<Vec<Plain>, CliError> {
        self.asked_with(&Calls::of_pairs(self.firsts.clone(), self.seconds.clone()))
    }

    fn asked_with(&self, calls: &Calls) -> Result<Vec<Plain>, CliError> {
        let said = self.program.call_each(FILE, self.function, calls).into_iter();
        said.collect::<Result<_, _>>().map_err(failed)
    }

    /// Calls in a second of one core, in the manner of the product: everything is made once for all of its calls.
    pub fn per_second(&self) -> Result<f64, CliError> {
        let (ms, answered) = match &self.asked {
            Asked::Values => measured(|| self.answers().map(|_| ())),
            Asked::Score(jobs, nodes) => {
                let jobs: Vec<&JobView> = jobs.iter().collect();
                let (ms, said) = measured(|| hooks::score_each(&self.program, &jobs, nodes));
                (ms, said.into_iter().collect::<Result<Vec<_>, _>>().map(|_| ()).map_err(failed))
            }
        };
        answered?;
        Ok((self.firsts.len() * self.seconds.len()) as f64 / ms * 1e3)
    }

    /// Calls in a second of the wall clock, in a worker: as the server asks the bundle of the cluster.
    pub fn per_second_in_worker(&self, rounds: usize) -> Result<f64, CliError> {
        let workers = Workers::new(Launch::this_binary(), cluster_confinement(), Patience::of_cluster());
        let bundle = workers.compile(files_of(&self.own_source)).map_err(failed)?;
        let ask = || {
            workers.ask("bench", &bundle, |guest| match &self.asked {
                Asked::Values => {
                    let calls = Calls::of_pairs(self.firsts.clone(), self.seconds.clone());
                    guest.call_each(FILE, self.function, &calls).into_iter().try_for_each(|one| one.map(drop))
                }
                Asked::Score(jobs, nodes) => {
                    let jobs: Vec<&JobView> = jobs.iter().collect();
                    hooks::score_each(guest, &jobs, nodes).into_iter().try_for_each(|one| one.map(drop))
                }
            })
        };
        // The first starts the worker.
        ask().map_err(failed)?;
        let (ms, answered) = median_wall(rounds, ask);
        answered.map_err(failed)?;
        Ok((self.firsts.len() * self.seconds.len()) as f64 / ms * 1e3)
    }

    /// The same where everything is copied and made anew for each call.
    pub fn per_second_anew(&self) -> Result<f64, CliError> {
        let args = self.args();
        let row = |pair: &Vec<&Plain>| [pair[0].clone(), pair[1].clone()];
        let (ms, answered) = measured(|| self.asked_with(&Calls::of_rows(args.iter().map(row))));
        Ok(answered?.len() as f64 / ms * 1e3)
    }
}

fn failed(error: PolicyError) -> CliError {
    CliError::failed(error.to_string())
}

fn program(source: &str) -> Result<Program, CliError> {
    Program::of_files(&files_of(source), limits()).map_err(failed)
}

fn files_of(source: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(FILE.to_string(), source.to_string())])
}

/// Hears what a hook would be called with.
#[derive(Default)]
struct Listener {
    heard: RefCell<Vec<(Plain, Plain)>>,
}

impl Caller for Listener {
    fn files_with(&self, _: &str) -> Vec<String> {
        vec![FILE.to_string()]
    }

    fn call_each(&self, _: &str, _: &str, calls: &Calls) -> Vec<Result<Plain, PolicyError>> {
        let pairs = calls.iter().map(|args| (args[0].clone(), args[1].clone()));
        self.heard.borrow_mut().extend(pairs);
        vec![Ok(Plain::None); calls.len()]
    }
}

/// The same source for those who are given dicts: `job.gpus` becomes `job["gpus"]`.
fn without_records(source: &str, records: [(&str, &Plain); 2]) -> String {
    let mut source = source.to_string();
    for (parameter, record) in records {
        let Plain::Record(fields) = record else { continue };
        let mut names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        // Those that begin like others go before them.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        for name in names {
            source = source.replace(&format!("{parameter}.{name}"), &format!("{parameter}[{name:?}]"));
        }
    }
    source
}

/// A GPU as the commissioning document describes one. About half of them may be given out.
fn gpu(index: usize) -> Plain {
    let names =
        ["NVIDIA GeForce RTX 5070 Ti", "NVIDIA GeForce RTX 4090", "NVIDIA L4", "NVIDIA H100 80GB HBM3"];
    let types = ["RTX_5070ti", "RTX_4090", "L4", "H100"];
    let memories = [16.0, 24.0, 24.0, 80.0];
    let tags =
        if index.is_multiple_of(7) { vec!["spare".into()] } else { vec!["high-perf".into(), "lab".into()] };
    dict(vec![
        ("id", Plain::Int(index as i64)),
        ("name", names[index % 4].into()),
        ("type", types[index % 4].into()),
        ("uuid", format!("GPU-{index:08x}").into()),
        ("state", if index.is_multiple_of(11) { "offline" } else { "online" }.into()),
        ("registered", Plain::Bool(true)),
        ("memory_gb", Plain::Float(memories[index % 4])),
        ("temperature_c", Plain::Int(35 + (index % 50) as i64)),
        ("power_w", Plain::Float(10.0 + (index % 300) as f64)),
        ("power_limit_w", Plain::Float(350.0)),
        ("numa_node", Plain::Int((index % 2) as i64)),
        ("tags", Plain::List(tags)),
    ])
}

/// What somebody asks for.
fn wish(index: usize) -> Plain {
    let whole = |number: usize| Plain::Int(number as i64);
    dict(vec![
        ("types", Plain::List(vec!["RTX_5070ti".into(), "RTX_4090".into(), "H100".into()])),
        ("min_memory", whole(8 + index % 16)),
        ("max_temp", whole(75 + index % 10)),
        ("tags", Plain::List(vec!["high-perf".into()])),
        ("numa_node", whole(index % 2)),
    ])
}

/// A node of a kind of its own.
fn node(index: usize) -> NodeView {
    let models = ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA B200"];
    let zone = if index.is_multiple_of(5) { "spot" } else { "main" };
    let labels = [("zone", zone.to_string()), ("rack", format!("r{index:03}"))];
    NodeView {
        node: format!("gpu{index:05}").parse().unwrap_or_else(|_| unreachable!("a plain name")),
        models: [model::canonical(models[index % models.len()])].into(),
        gpus: if index.is_multiple_of(3) { 4 } else { 8 },
        gpu_memory_mib: 81_920,
        partitioned: index.is_multiple_of(13),
        cpus: 64,
        memory_mib: 1 << 20,
        labels: labels.into_iter().map(|(label, value)| (label.to_string(), value)).collect(),
        pools: ["training".to_string()].into(),
    }
}

fn dict(entries: Vec<(&str, Plain)>) -> Plain {
    Plain::Dict(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}
