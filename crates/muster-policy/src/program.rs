//! A bundle of policies, ready to be asked: what its files register, and the functions they tell.
//!
//! Files are compiled and frozen once. A call runs one function of a frozen file on plain values, within [`Limits`];
//! calls in a row share an interpreter, because making one costs more than most calls.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use muster_core::rules::Rules;
use starlark::environment::{FrozenModule, Module};
use starlark::eval::Evaluator;
use starlark::values::{OwnedFrozenValue, Value};

use crate::calls::Calls;
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::{self, Compiled, Printer};
use crate::plain::Plain;
use crate::signature::Takes;

/// Calls that share an interpreter at most: what they leave on its heap is freed with it.
const CALLS_TOGETHER: usize = 256;
/// Of the ticks of the interpreter, so many pass between two looks at the bounds.
const TICKS_BETWEEN_LOOKS: u64 = 1_000;

/// Policies that were compiled.
pub struct Program {
    /// Each file by its name.
    modules: BTreeMap<String, FrozenModule>,
    rules: Rules,
    /// Names after a dot and texts, wherever they are written: what the files could look at.
    mentions: BTreeSet<String>,
    limits: Limits,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("files", &self.modules.keys()).finish_non_exhaustive()
    }
}

impl Program {
    /// Compile files by name. All that are policies run, in the order of their names; tests are left out.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// use muster_policy::{Limits, Plain, Program};
    ///
    /// let source = "def admit(job):\n    return job.gpus <= 8 or \"at most 8 GPUs\"".to_string();
    /// let program = Program::of_files(&BTreeMap::from([("small.gsky".to_string(), source)]), Limits::default())?;
    /// let job = Plain::Record(vec![("gpus", Plain::Int(16))]);
    /// assert_eq!(program.call("admit", &[job])?, Plain::text("at most 8 GPUs"));
    /// # Ok::<(), muster_policy::PolicyError>(())
    /// ```
    pub fn of_files(files: &BTreeMap<String, String>, limits: Limits) -> Result<Program, PolicyError> {
        let Compiled { modules, rules, mentions } = load::load_all(files, &limits)?;
        Ok(Program { modules, rules, mentions, limits })
    }

    /// Compile one of these files, with what it loads.
    pub fn of_file(
        files: &BTreeMap<String, String>,
        name: &str,
        limits: Limits,
    ) -> Result<Program, PolicyError> {
        let Compiled { modules, rules, mentions } = load::load_one(files, name, &limits)?;
        Ok(Program { modules, rules, mentions, limits })
    }

    /// What the files registered.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The functions that can be called, with the files that tell them.
    pub fn functions(&self) -> BTreeMap<String, Vec<String>> {
        let mut functions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (file, module) in &self.modules {
            for name in module.names() {
                if function_of(module, name.as_str()).is_some() {
                    functions.entry(name.as_str().to_string()).or_default().push(file.clone());
                }
            }
        }
        functions
    }

    /// Names after a dot and texts, wherever they are written. What is not among them the program cannot ask for.
    pub fn mentions(&self) -> &BTreeSet<String> {
        &self.mentions
    }

    /// The files that tell a function, in the order of their names.
    pub fn files_with(&self, function: &str) -> Vec<&str> {
        let tells = |(_, module): &(&String, &FrozenModule)| function_of(module, function).is_some();
        self.modules.iter().filter(tells).map(|(file, _)| file.as_str()).collect()
    }

    /// What a function of a file takes; nothing if there is no such function.
    pub fn takes(&self, file: &str, function: &str) -> Option<Takes> {
        let owned = self.modules.get(file).and_then(|module| function_of(module, function))?;
        Takes::of(owned.value())
    }

    /// What a name stands for in a file, such as `int`.
    pub(crate) fn kind_of(&self, file: &str, name: &str) -> Option<&'static str> {
        let owned = self.modules.get(file)?.get_option(name).ok()??;
        Some(owned.value().get_type())
    }

    /// Call the function of this name in the first file that tells it.
    pub fn call(&self, function: &str, args: &[Plain]) -> Result<Plain, PolicyError> {
        let file = self.files_with(function).first().map(ToString::to_string);
        let Some(file) = file else {
            let what = format!("there is no function `{function}`");
            return Err(PolicyError::Somewhere { file: "policy".to_string(), what });
        };
        let said = self.call_each(&file, function, &Calls::one(args.to_vec()));
        said.into_iter().next().unwrap_or(Ok(Plain::None))
    }

    /// Call a function of a file many times. What it is given it cannot change.
    pub fn call_each(&self, file: &str, function: &str, calls: &Calls) -> Vec<Result<Plain, PolicyError>> {
        self.call_some((file, function), calls, 0..calls.len())
    }

    /// The same for some of the calls, by their places.
    pub(crate) fn call_some(
        &self,
        (file, function): (&str, &str),
        calls: &Calls,
        which: Range<usize>,
    ) -> Vec<Result<Plain, PolicyError>> {
        let owned = self.modules.get(file).and_then(|module| function_of(module, function));
        let Some(owned) = owned else {
            let what = format!("there is no function `{function}`");
            let error = PolicyError::Somewhere { file: file.to_string(), what };
            return vec![Err(error); which.len()];
        };
        let mut said = Vec::with_capacity(which.len());
        while said.len() < which.len() {
            let start = which.start + said.len();
            let end = which.end.min(start + CALLS_TOGETHER);
            let some = self.some_calls((file, &owned), calls, start..end);
            said.extend(some);
        }
        said
    }

    /// As many of these calls as one interpreter is good for; at least one.
    fn some_calls(
        &self,
        (file, function): (&str, &OwnedFrozenValue),
        calls: &Calls,
        which: Range<usize>,
    ) -> Vec<Result<Plain, PolicyError>> {
        let mut said = Vec::with_capacity(which.len());
        let run = || {
            Module::with_temp_heap(|module| {
                let printer = Printer::new(self.limits.output_bytes);
                let mut eval = Evaluator::new(&module);
                let bound = self.limits.bind_calls(&mut eval);
                let bound = bound.map_err(|error| PolicyError::of(&starlark::Error::new_other(error), file));
                // Where one interpreter is enough they are made in it; a call that failed needs another one.
                let given = || match which == (0..calls.len()) {
                    true => Ok(Cow::Owned(calls.given_here(&module))),
                    false => calls.given(module.heap()).map(Cow::Borrowed),
                };
                let (watch, values) = match bound.and_then(|watch| Ok((watch, given()?))) {
                    Ok(ready) => ready,
                    Err(error) => return said.push(Err(error)),
                };
                eval.set_print_handler(&printer);
                let function = module.heap().access_owned_frozen_value(function);
                let mut args = Vec::new();
                for call in which {
                    args.clear();
                    args.extend(calls.places(call).map(|place| values[place]));
                    watch.begin();
                    let value = eval.eval_function(function, &args, &[]);
                    let error = |error| watch.told(PolicyError::of(&error, file));
                    let answer = value.map_err(error).and_then(|value| answer(value, file));
                    let stop = answer.is_err() || self.limits.heap_is_worn(module.heap());
                    said.push(answer);
                    if stop {
                        return;
                    }
                }
            });
        };
        // The interpreter panics where a value grows beyond what it can count; nothing of ours is left half done by that.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            let what = "a value grows beyond all bounds".to_string();
            said.push(Err(PolicyError::Somewhere { file: file.to_string(), what }));
        }
        said
    }
}

fn function_of(module: &FrozenModule, name: &str) -> Option<OwnedFrozenValue> {
    let value = module.get_option(name).ok()??;
    (value.value().get_type() == "function").then_some(value)
}

fn answer(value: Value, file: &str) -> Result<Plain, PolicyError> {
    let wrong = |why| PolicyError::Somewhere {
        file: file.to_string(),
        what: format!("the answer is not plain: {why}"),
    };
    Plain::of(value).map_err(wrong)
}

/// Looks at steps and time of the call under way, whenever the interpreter asks.
#[derive(Clone)]
pub(crate) struct Watch(Rc<Looks>);

struct Looks {
    steps: u64,
    time: Duration,
    looked: Cell<u64>,
    began: Cell<Instant>,
    /// The interpreter asks when a call ends too: then the next one begins, and the clock is read once for both.
    looked_at: Cell<Option<Instant>>,
    why: Cell<Option<&'static str>>,
}

impl Watch {
    pub(crate) fn new(steps: u64, time: Duration) -> Watch {
        let (looked, began) = (Cell::new(0), Cell::new(Instant::now()));
        let (looked_at, why) = (Cell::new(None), Cell::new(None));
        Watch(Rc::new(Looks { steps, time, looked, began, looked_at, why }))
    }

    /// A call begins.
    fn begin(&self) {
        self.0.looked.set(0);
        self.0.why.set(None);
        self.0.began.set(self.0.looked_at.take().unwrap_or_else(Instant::now));
    }

    /// Whether the call is to end.
    pub(crate) fn is_over(&self) -> bool {
        let looked = self.0.looked.get() + 1;
        self.0.looked.set(looked);
        let now = Instant::now();
        self.0.looked_at.set(Some(now));
        if looked > self.0.steps / TICKS_BETWEEN_LOOKS + 1 {
            self.0.why.set(Some("it takes more steps than it may"));
        } else if now.duration_since(self.0.began.get()) > self.0.time {
            self.0.why.set(Some("it takes longer than it may"));
        }
        self.0.why.get().is_some()
    }

    /// The error, with why the call was ended if it was.
    pub(crate) fn told(&self, error: PolicyError) -> PolicyError {
        match self.0.why.get() {
            Some(why) => error.because(why),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn every_call_has_its_own_time() {
        let most = Duration::from_secs(1);
        let watch = Watch::new(u64::MAX, most);
        let longer = || sleep(most + most / 10);
        longer();
        watch.begin();
        assert!(!watch.is_over(), "what came before the first call is not its own");
        longer();
        assert!(watch.is_over());
        watch.begin();
        assert!(!watch.is_over(), "the next begins when the one before has ended");
    }
}
