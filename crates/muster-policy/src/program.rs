//! A compiled bundle: the rules its files registered, and their functions, which can be called.
//!
//! Files are compiled and frozen once. A call runs one function of a frozen file on [`PolicyValue`]s within [`Limits`].
//! Consecutive calls share an evaluator, because creating one costs more than most calls.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use muster_core::objects::policy::rules::Rules;
use starlark::environment::{FrozenModule, Module};
use starlark::eval::Evaluator;
use starlark::values::{OwnedFrozenValue, Value};

use crate::call_batch::CallBatch;
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::{self, CompiledFiles};
use crate::policy_value::PolicyValue;
use crate::printer::Printer;
use crate::signature::Signature;

/// The most calls that share an evaluator. Their garbage is freed with its heap.
const CALLS_PER_EVALUATOR_MAX: usize = 256;

/// Compiled policies.
pub struct Program {
    /// By file name.
    modules: BTreeMap<String, FrozenModule>,
    rules: Rules,
    mentions: BTreeSet<String>,
    limits: Limits,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("files", &self.modules.keys()).finish_non_exhaustive()
    }
}

impl Program {
    /// Compile files by name. Every policy runs, in the order of file names; test files are skipped.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// use muster_policy::{Limits, PolicyValue, Program};
    ///
    /// let source = "def admit(job):\n    return job.gpus <= 8 or \"at most 8 GPUs\"".to_string();
    /// let files = BTreeMap::from([("small.gsky".to_string(), source)]);
    /// let program = Program::compile_files(&files, Limits::default())?;
    /// let job = PolicyValue::Record(vec![("gpus", PolicyValue::Int(16))]);
    /// assert_eq!(program.call("admit", &[job])?, PolicyValue::text("at most 8 GPUs"));
    /// # Ok::<(), muster_policy::PolicyError>(())
    /// ```
    pub fn compile_files(files: &BTreeMap<String, String>, limits: Limits) -> Result<Program, PolicyError> {
        let CompiledFiles { modules, rules, mentions } = load::load_policies(files, &limits)?;
        Ok(Program { modules, rules, mentions, limits })
    }

    /// Compile one of these files and the files it loads.
    pub fn compile_file(files: &BTreeMap<String, String>, name: &str, limits: Limits) -> Result<Program, PolicyError> {
        let CompiledFiles { modules, rules, mentions } = load::load_policy_file(files, name, &limits)?;
        Ok(Program { modules, rules, mentions, limits })
    }

    /// What the files registered.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The callable functions, with the files that define them.
    pub fn functions(&self) -> BTreeMap<String, Vec<String>> {
        let mut functions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (file, module) in &self.modules {
            for name in module.names() {
                if find_function(module, name.as_str()).is_some() {
                    functions.entry(name.as_str().to_string()).or_default().push(file.clone());
                }
            }
        }
        functions
    }

    /// Attribute names and string literals of the files: an upper bound on the attributes they read.
    pub fn mentions(&self) -> &BTreeSet<String> {
        &self.mentions
    }

    /// The files that define a function, in the order of file names.
    pub fn files_defining(&self, function: &str) -> Vec<&str> {
        let defines = |(_, module): &(&String, &FrozenModule)| find_function(module, function).is_some();
        self.modules.iter().filter(defines).map(|(file, _)| file.as_str()).collect()
    }

    /// The signature of a function; `None` if the file does not define it.
    pub fn signature(&self, file: &str, function: &str) -> Option<Signature> {
        let owned = self.modules.get(file).and_then(|module| find_function(module, function))?;
        Signature::of_value(owned.value())
    }

    /// The type of a top-level name of a file, such as `int`.
    pub(crate) fn type_of(&self, file: &str, name: &str) -> Option<&'static str> {
        let owned = self.modules.get(file)?.get_option(name).ok()??;
        Some(owned.value().get_type())
    }

    /// Call a function in the first file that defines it.
    pub fn call(&self, function: &str, args: &[PolicyValue]) -> Result<PolicyValue, PolicyError> {
        let file = self.files_defining(function).first().map(ToString::to_string);
        let Some(file) = file else { return Err(no_function("policy", function)) };
        let answers = self.call_each(&file, function, &CallBatch::single(args.to_vec()));
        answers.into_iter().next().unwrap_or(Ok(PolicyValue::None))
    }

    /// Call a function of a file once for each call of the batch. The arguments are immutable.
    pub fn call_each(&self, file: &str, function: &str, calls: &CallBatch) -> Vec<Result<PolicyValue, PolicyError>> {
        self.call_range((file, function), calls, 0..calls.len())
    }

    /// Make the calls of the batch with these indexes.
    pub(crate) fn call_range(
        &self,
        (file, function): (&str, &str),
        calls: &CallBatch,
        range: Range<usize>,
    ) -> Vec<Result<PolicyValue, PolicyError>> {
        let owned = self.modules.get(file).and_then(|module| find_function(module, function));
        let Some(owned) = owned else { return vec![Err(no_function(file, function)); range.len()] };
        let mut answers = Vec::with_capacity(range.len());
        while answers.len() < range.len() {
            let start = range.start + answers.len();
            let end = range.end.min(start + CALLS_PER_EVALUATOR_MAX);
            answers.extend(self.call_in_one_evaluator((file, &owned), calls, start..end));
        }
        answers
    }

    /// Make the first of these calls, at least one: the evaluator is given up after an error and when its heap is full.
    fn call_in_one_evaluator(
        &self,
        (file, function): (&str, &OwnedFrozenValue),
        calls: &CallBatch,
        range: Range<usize>,
    ) -> Vec<Result<PolicyValue, PolicyError>> {
        let mut answers = Vec::with_capacity(range.len());
        let run = || {
            Module::with_temp_heap(|module| {
                let printer = Printer::new(self.limits.output_bytes);
                let mut eval = Evaluator::new(&module);
                let limited = self.limits.limit_calls(&mut eval);
                let limited =
                    limited.map_err(|error| PolicyError::from_starlark(&starlark::Error::new_other(error), file));
                // A batch that fits in one evaluator is allocated there. After a failed call another one is needed.
                let allocate = || match range == (0..calls.len()) {
                    true => Ok(Cow::Owned(calls.alloc_in_module(&module))),
                    false => calls.alloc_shared(module.heap()).map(Cow::Borrowed),
                };
                let (watchdog, values) = match limited.and_then(|watchdog| Ok((watchdog, allocate()?))) {
                    Ok(ready) => ready,
                    Err(error) => return answers.push(Err(error)),
                };
                eval.set_print_handler(&printer);
                let function = module.heap().access_owned_frozen_value(function);
                let mut args = Vec::new();
                for call in range {
                    args.clear();
                    args.extend(calls.value_indexes(call).map(|index| values[index]));
                    watchdog.start_call();
                    let value = eval.eval_function(function, &args, &[]);
                    let error = |error| watchdog.with_exceeded_limit(PolicyError::from_starlark(&error, file));
                    let answer = value.map_err(error).and_then(|value| to_policy_value(value, file));
                    let stop = answer.is_err() || self.limits.should_replace_heap(module.heap());
                    answers.push(answer);
                    if stop {
                        return;
                    }
                }
            });
        };
        // The interpreter panics if a value exceeds what it can represent. The panic leaves no state half changed: the
        // evaluator is dropped.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            let message = "a value exceeds what the interpreter can represent".to_string();
            answers.push(Err(PolicyError::Invalid { file: file.to_string(), message }));
        }
        answers
    }
}

fn no_function(file: &str, function: &str) -> PolicyError {
    PolicyError::Invalid { file: file.to_string(), message: format!("there is no function `{function}`") }
}

fn find_function(module: &FrozenModule, name: &str) -> Option<OwnedFrozenValue> {
    let value = module.get_option(name).ok()??;
    (value.value().get_type() == "function").then_some(value)
}

fn to_policy_value(value: Value, file: &str) -> Result<PolicyValue, PolicyError> {
    let failed = |reason| PolicyError::Invalid {
        file: file.to_string(),
        message: format!("the answer cannot be converted: {reason}"),
    };
    PolicyValue::from_starlark(value).map_err(failed)
}
