//! The benchmarked policy functions, their arguments, and calls per second by muster.

use std::cell::RefCell;
use std::collections::BTreeMap;

use muster_core::gpu::model;
use muster_core::policy::{JobView, Moment, NodeView};
use muster_core::queue::Bucket;
use muster_core::{State, Timestamp};
use muster_policy::hooks::{self, HookExecutor};
use muster_policy::{CallBatch, PolicyError, PolicyValue, Program, WorkerCommand, WorkerPool, WorkerPoolSettings};
use muster_sim::synthetic::{SyntheticJob, job_spec};

use crate::commands::bench::timing::{cpu_ms, median_wall_ms};
use crate::error::CliError;
use crate::interpreter::{call_limits, cluster_confinement};

/// Distinct nodes, or GPUs, that a function is called with.
const SECOND_ARGUMENTS: usize = 50;
/// Distinct jobs, or requirements, that a function is called with.
const FIRST_ARGUMENTS: usize = 20;
const FILE: &str = "bench.gsky";

/// A function and the arguments of many calls: each first argument with each second one.
pub struct BenchmarkCall {
    pub function: &'static str,
    /// Its source for interpreters without records, which get dicts.
    pub source: String,
    /// Its source as policies write it.
    own_source: String,
    firsts: Vec<PolicyValue>,
    seconds: Vec<PolicyValue>,
    program: Program,
    style: CallStyle,
}

/// How the server calls the function.
enum CallStyle {
    /// With ready values.
    Values,
    /// As a hook, with views of jobs and nodes.
    Score(Vec<JobView>, Vec<NodeView>),
}

/// A rule on dicts: a GPU and requirements.
pub fn allow() -> Result<BenchmarkCall, CliError> {
    let source = include_str!("allow.gsky");
    let (firsts, seconds) =
        ((0..SECOND_ARGUMENTS).map(gpu).collect(), (0..FIRST_ARGUMENTS).map(requirements).collect());
    let (program, source) = (program(source)?, source.to_string());
    let own_source = source.clone();
    Ok(BenchmarkCall { function: "allow", source, own_source, firsts, seconds, program, style: CallStyle::Values })
}

/// A `score` hook on jobs and nodes.
pub fn score() -> Result<BenchmarkCall, CliError> {
    let source = include_str!("score.gsky");
    let job = |index: usize| {
        let spec = job_spec(SyntheticJob { gpus: 1 << (index % 4), cpus: 4 + index as u32, ..SyntheticJob::default() });
        let bucket = Bucket::of_spec(&spec, None, &State::empty().policies.bucket_criteria);
        JobView::of(&bucket, Moment::of(Timestamp(0), 0))
    };
    let jobs: Vec<JobView> = (0..FIRST_ARGUMENTS).map(job).collect();
    let nodes: Vec<NodeView> = (0..SECOND_ARGUMENTS).map(node).collect();
    let recorder = ArgumentRecorder::default();
    hooks::score_each(&recorder, &jobs.iter().collect::<Vec<_>>(), &nodes);
    let (mut firsts, mut seconds) = recorder.argument_pairs.into_inner().into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    // The pairs list every node for the first job, then for the next.
    seconds.truncate(SECOND_ARGUMENTS);
    firsts = firsts.into_iter().step_by(SECOND_ARGUMENTS).collect();
    let (program, own_source) = (program(source)?, source.to_string());
    let source = without_records(source, [("job", &firsts[0]), ("node", &seconds[0])]);
    Ok(BenchmarkCall {
        function: "score",
        source,
        own_source,
        firsts,
        seconds,
        program,
        style: CallStyle::Score(jobs, nodes),
    })
}

impl BenchmarkCall {
    /// The arguments of every call, in the order of [`BenchmarkCall::answers`].
    pub fn args(&self) -> Vec<Vec<&PolicyValue>> {
        let with_each = |first| self.seconds.iter().map(move |second| vec![first, second]);
        self.firsts.iter().flat_map(with_each).collect()
    }

    /// The answer of every call.
    pub fn answers(&self) -> Result<Vec<PolicyValue>, CliError> {
        self.call_batch(&CallBatch::from_pairs(self.firsts.clone(), self.seconds.clone()))
    }

    fn call_batch(&self, calls: &CallBatch) -> Result<Vec<PolicyValue>, CliError> {
        let answers = self.program.call_each(FILE, self.function, calls).into_iter();
        answers.collect::<Result<_, _>>().map_err(failed)
    }

    /// Calls per second of CPU time, as the server does: each argument is built once for all of its calls.
    pub fn per_second(&self) -> Result<f64, CliError> {
        let (ms, answered) = match &self.style {
            CallStyle::Values => cpu_ms(|| self.answers().map(|_| ())),
            CallStyle::Score(jobs, nodes) => {
                let jobs: Vec<&JobView> = jobs.iter().collect();
                let (ms, scores) = cpu_ms(|| hooks::score_each(&self.program, &jobs, nodes));
                (ms, scores.into_iter().collect::<Result<Vec<_>, _>>().map(|_| ()).map_err(failed))
            }
        };
        answered?;
        Ok((self.firsts.len() * self.seconds.len()) as f64 / ms * 1e3)
    }

    /// Calls per second of wall-clock time in a worker process, as the server queries the cluster's policies.
    pub fn per_second_in_worker(&self, rounds: usize) -> Result<f64, CliError> {
        let workers =
            WorkerPool::new(WorkerCommand::this_binary(), cluster_confinement(), WorkerPoolSettings::for_cluster());
        let bundle = workers.compile(bundle_files(&self.own_source)).map_err(failed)?;
        let query = || {
            workers.query("bench", &bundle, |worker| match &self.style {
                CallStyle::Values => {
                    let calls = CallBatch::from_pairs(self.firsts.clone(), self.seconds.clone());
                    worker.call_each(FILE, self.function, &calls).into_iter().try_for_each(|one| one.map(drop))
                }
                CallStyle::Score(jobs, nodes) => {
                    let jobs: Vec<&JobView> = jobs.iter().collect();
                    hooks::score_each(worker, &jobs, nodes).into_iter().try_for_each(|one| one.map(drop))
                }
            })
        };
        // The first query starts the worker.
        query().map_err(failed)?;
        let (ms, answered) = median_wall_ms(rounds, query);
        answered.map_err(failed)?;
        Ok((self.firsts.len() * self.seconds.len()) as f64 / ms * 1e3)
    }

    /// Calls per second of CPU time with arguments built for each call.
    pub fn per_second_without_sharing(&self) -> Result<f64, CliError> {
        let args = self.args();
        let row = |pair: &Vec<&PolicyValue>| [pair[0].clone(), pair[1].clone()];
        let (ms, answered) = cpu_ms(|| self.call_batch(&CallBatch::from_rows(args.iter().map(row))));
        Ok(answered?.len() as f64 / ms * 1e3)
    }
}

fn failed(error: PolicyError) -> CliError {
    CliError::failed(error.to_string())
}

fn program(source: &str) -> Result<Program, CliError> {
    Program::compile_files(&bundle_files(source), call_limits()).map_err(failed)
}

fn bundle_files(source: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(FILE.to_string(), source.to_string())])
}

/// Records the arguments that a hook is called with.
#[derive(Default)]
struct ArgumentRecorder {
    argument_pairs: RefCell<Vec<(PolicyValue, PolicyValue)>>,
}

impl HookExecutor for ArgumentRecorder {
    fn files_defining(&self, _: &str) -> Vec<String> {
        vec![FILE.to_string()]
    }

    fn call_each(&self, _: &str, _: &str, calls: &CallBatch) -> Vec<Result<PolicyValue, PolicyError>> {
        let pairs = calls.iter().map(|args| (args[0].clone(), args[1].clone()));
        self.argument_pairs.borrow_mut().extend(pairs);
        vec![Ok(PolicyValue::None); calls.len()]
    }
}

/// The source for interpreters that get dicts: `job.gpus` becomes `job["gpus"]`.
fn without_records(source: &str, records: [(&str, &PolicyValue); 2]) -> String {
    let mut source = source.to_string();
    for (parameter, record) in records {
        let PolicyValue::Record(fields) = record else { continue };
        let mut names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        // Longer names first, because a name may be the prefix of another.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        for name in names {
            source = source.replace(&format!("{parameter}.{name}"), &format!("{parameter}[{name:?}]"));
        }
    }
    source
}

/// A GPU as a dict. About half of the GPUs are eligible.
fn gpu(index: usize) -> PolicyValue {
    let names = ["NVIDIA GeForce RTX 5070 Ti", "NVIDIA GeForce RTX 4090", "NVIDIA L4", "NVIDIA H100 80GB HBM3"];
    let types = ["RTX_5070ti", "RTX_4090", "L4", "H100"];
    let memories = [16.0, 24.0, 24.0, 80.0];
    let tags = if index.is_multiple_of(7) { vec!["spare".into()] } else { vec!["high-perf".into(), "lab".into()] };
    dict(vec![
        ("id", PolicyValue::Int(index as i64)),
        ("name", names[index % 4].into()),
        ("type", types[index % 4].into()),
        ("uuid", format!("GPU-{index:08x}").into()),
        ("state", if index.is_multiple_of(11) { "offline" } else { "online" }.into()),
        ("registered", PolicyValue::Bool(true)),
        ("memory_gb", PolicyValue::Float(memories[index % 4])),
        ("temperature_c", PolicyValue::Int(35 + (index % 50) as i64)),
        ("power_w", PolicyValue::Float(10.0 + (index % 300) as f64)),
        ("power_limit_w", PolicyValue::Float(350.0)),
        ("numa_node", PolicyValue::Int((index % 2) as i64)),
        ("tags", PolicyValue::List(tags)),
    ])
}

/// Requirements on a GPU as a dict.
fn requirements(index: usize) -> PolicyValue {
    let whole = |number: usize| PolicyValue::Int(number as i64);
    dict(vec![
        ("types", PolicyValue::List(vec!["RTX_5070ti".into(), "RTX_4090".into(), "H100".into()])),
        ("min_memory", whole(8 + index % 16)),
        ("max_temp", whole(75 + index % 10)),
        ("tags", PolicyValue::List(vec!["high-perf".into()])),
        ("numa_node", whole(index % 2)),
    ])
}

/// A node; each is of a kind of its own.
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

fn dict(entries: Vec<(&str, PolicyValue)>) -> PolicyValue {
    PolicyValue::Dict(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}
