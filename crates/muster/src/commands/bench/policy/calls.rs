//! Functions of policies, the arguments they are called with, and how often the product calls them in a second.

use std::cell::RefCell;
use std::collections::BTreeMap;

use muster_core::model;
use muster_core::policy::{JobView, Moment, NodeView};
use muster_core::queue::Bucket;
use muster_core::{State, Timestamp};
use muster_policy::hooks::{self, Caller};
use muster_policy::{Plain, PolicyError, Program};

use crate::commands::bench::cpu::median;
use crate::commands::bench::synthetic::{Ask, spec};
use crate::error::CliError;
use crate::interpreter::limits;

/// GPUs and nodes that functions are asked about: each is another.
const PLACES: usize = 1_000;
const FILE: &str = "bench.gsky";

/// A function with the arguments of many calls: one is the same in all of them, the other is not.
pub struct Call {
    /// Its name.
    pub function: &'static str,
    /// How the product calls it.
    pub manner: &'static str,
    /// The file that tells it, for interpreters without records: they are given dicts.
    pub source: String,
    same: Plain,
    others: Vec<Plain>,
    program: Program,
    asked: Asked,
}

/// How the product asks.
enum Asked {
    /// Values are there already, the same one last.
    Values,
    /// As a hook, from views of a job and of nodes, the job first.
    Score(Box<JobView>, Vec<NodeView>),
}

/// The rule of the commissioning document on dicts: one wish, and GPUs that differ.
pub fn allow() -> Result<Call, CliError> {
    let source = include_str!("allow.gsky");
    let tags = Plain::List(vec!["high-perf".into()]);
    let whole = |number: i64| Plain::Int(number);
    let same = dict(vec![
        ("types", Plain::List(vec!["RTX_5070ti".into(), "RTX_4090".into(), "H100".into()])),
        ("min_memory", whole(16)),
        ("max_temp", whole(75)),
        ("tags", tags),
        ("numa_node", whole(0)),
    ]);
    let others = (0..PLACES).map(gpu).collect();
    let (program, source) = (program(source)?, source.to_string());
    let (function, manner) = ("allow", "dict by dict");
    Ok(Call { function, manner, source, same, others, program, asked: Asked::Values })
}

/// A hook: one job, and nodes that differ.
pub fn score() -> Result<Call, CliError> {
    let source = include_str!("score.gsky");
    let wanted = spec(Ask { gpus: 4, cpus: 16, ..Ask::default() });
    let bucket = Bucket::of_spec(&wanted, None, &State::empty().policies);
    let job = JobView::of(&bucket, Moment::of(Timestamp(0), 0));
    let nodes: Vec<NodeView> = (0..PLACES).map(node).collect();
    let program = program(source)?;
    let listener = Listener::default();
    hooks::score(&listener, &job, &nodes).map_err(failed)?;
    let Listener { first, second } = listener;
    let (same, others) = (first.into_inner().unwrap_or(Plain::None), second.into_inner());
    let source = without_records(source, [("job", &same), ("node", &others[0])]);
    let (function, manner, asked) = ("score", "as a hook", Asked::Score(Box::new(job), nodes));
    Ok(Call { function, manner, source, same, others, program, asked })
}

impl Call {
    /// The arguments of every call.
    pub fn args(&self) -> Vec<Vec<&Plain>> {
        let pair = |other| match self.asked {
            Asked::Values => vec![other, &self.same],
            Asked::Score(..) => vec![&self.same, other],
        };
        self.others.iter().map(pair).collect()
    }

    /// What every call answers.
    pub fn answers(&self) -> Result<Vec<Plain>, CliError> {
        let said = self.program.call_each(FILE, self.function, &self.args()).into_iter();
        said.collect::<Result<_, _>>().map_err(failed)
    }

    /// Calls in a second of one core.
    pub fn per_second(&self, rounds: usize) -> Result<f64, CliError> {
        let (ms, answered) = match &self.asked {
            Asked::Values => median(rounds, || self.answers().map(|answers| answers.len())),
            Asked::Score(job, nodes) => {
                let (ms, costs) = median(rounds, || hooks::score(&self.program, job, nodes));
                (ms, costs.map(|costs| costs.len()).map_err(failed))
            }
        };
        Ok(answered? as f64 / ms * 1e3)
    }
}

fn failed(error: PolicyError) -> CliError {
    CliError::failed(error.to_string())
}

fn program(source: &str) -> Result<Program, CliError> {
    let files = BTreeMap::from([(FILE.to_string(), source.to_string())]);
    Program::of_files(&files, limits()).map_err(failed)
}

/// Hears what a hook would be called with.
#[derive(Default)]
struct Listener {
    first: RefCell<Option<Plain>>,
    second: RefCell<Vec<Plain>>,
}

impl Caller for Listener {
    fn files_with(&self, _: &str) -> Vec<String> {
        vec![FILE.to_string()]
    }

    fn call_each(&self, _: &str, _: &str, calls: &[Vec<&Plain>]) -> Vec<Result<Plain, PolicyError>> {
        for call in calls {
            if let [first, second] = call.as_slice() {
                self.first.replace(Some(Plain::clone(first)));
                self.second.borrow_mut().push(Plain::clone(second));
            }
        }
        calls.iter().map(|_| Ok(Plain::None)).collect()
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
