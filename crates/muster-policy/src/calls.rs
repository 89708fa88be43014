//! What a function is called with, many times over: values, and which of them each call is given. A job that is asked
//! about with many nodes is one value, made once for the interpreter and sent once to another process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use starlark::environment::Module;
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{Heap, OwnedFrozenValue, Value};

use crate::error::PolicyError;
use crate::plain::Plain;

/// Calls of a function.
#[derive(Debug)]
pub struct Calls {
    /// Unlike that of any other calls of this process: a worker that holds the values is not sent them again.
    number: u64,
    values: Vec<Plain>,
    manner: Manner,
    /// The values as a tuple of the interpreter, once they are needed for many.
    made: OnceLock<Result<OwnedFrozenValue, PolicyError>>,
}

/// Which of the values each call is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// So many calls, each with the next so many.
    InTurn {
        /// How many calls.
        calls: usize,
        /// How many values each.
        each: usize,
    },
    /// Each of so many, which come first, with each of the rest.
    Pairs {
        /// How many.
        firsts: usize,
    },
}

impl Calls {
    /// One call with these arguments.
    pub fn one(args: Vec<Plain>) -> Calls {
        let manner = Manner::InTurn { calls: 1, each: args.len() };
        Calls::new(args, manner)
    }

    /// A call for each of these.
    pub fn of_rows<const EACH: usize>(rows: impl IntoIterator<Item = [Plain; EACH]>) -> Calls {
        let rows: Vec<[Plain; EACH]> = rows.into_iter().collect();
        let manner = Manner::InTurn { calls: rows.len(), each: EACH };
        Calls::new(rows.into_iter().flatten().collect(), manner)
    }

    /// A call for each of the first with each of the second: all calls of the first one, then all of the next.
    ///
    /// ```
    /// use muster_policy::{Calls, Plain};
    ///
    /// let calls = Calls::of_pairs(vec![Plain::Int(1), Plain::Int(2)], vec![Plain::text("a"), Plain::text("b")]);
    /// let said: Vec<String> = calls.iter().map(|args| format!("{} {}", args[0], args[1])).collect();
    /// assert_eq!(said, ["1 \"a\"", "1 \"b\"", "2 \"a\"", "2 \"b\""]);
    /// ```
    pub fn of_pairs(firsts: Vec<Plain>, seconds: Vec<Plain>) -> Calls {
        let manner = Manner::Pairs { firsts: firsts.len() };
        Calls::new(firsts.into_iter().chain(seconds).collect(), manner)
    }

    fn new(values: Vec<Plain>, manner: Manner) -> Calls {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Calls { number: NEXT.fetch_add(1, Ordering::Relaxed), values, manner, made: OnceLock::new() }
    }

    /// Unlike that of any other calls of this process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// As another process was told of them; nothing where a call would have values that are not there.
    pub(crate) fn told(values: Vec<Plain>, manner: Manner) -> Option<Calls> {
        let are_there = match manner {
            Manner::InTurn { calls, each } => calls.checked_mul(each) == Some(values.len()),
            Manner::Pairs { firsts } => firsts <= values.len(),
        };
        are_there.then(|| Calls::new(values, manner))
    }

    /// How many.
    pub fn len(&self) -> usize {
        match self.manner {
            Manner::InTurn { calls, .. } => calls,
            Manner::Pairs { firsts } => firsts * (self.values.len() - firsts),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arguments of each call.
    pub fn iter(&self) -> impl Iterator<Item = Vec<&Plain>> {
        (0..self.len()).map(|call| self.places(call).map(|place| &self.values[place]).collect())
    }

    /// All values, each once.
    pub(crate) fn values(&self) -> &[Plain] {
        &self.values
    }

    pub(crate) fn manner(&self) -> Manner {
        self.manner
    }

    /// Where the arguments of a call lie among the values.
    pub(crate) fn places(&self, call: usize) -> impl Iterator<Item = usize> {
        let (first, step, count) = match self.manner {
            Manner::InTurn { each, .. } => (call * each, 1, each),
            Manner::Pairs { firsts } => {
                let seconds = self.values.len() - firsts;
                let (first, second) = (call / seconds, firsts + call % seconds);
                (first, second - first, 2)
            }
        };
        (0..count).map(move |argument| first + argument * step)
    }

    /// All values as those of one interpreter, by their places. They are frozen: what one call did to them the next one
    /// would see.
    pub(crate) fn given_here<'v>(&self, module: &Module<'v>) -> Vec<Value<'v>> {
        self.values.iter().map(|value| value.alloc(module.frozen_heap()).to_value()).collect()
    }

    /// The same for many interpreters: made once for all of them.
    pub(crate) fn given<'v>(&self, heap: Heap<'v>) -> Result<&'v [Value<'v>], PolicyError> {
        let made = self.made.get_or_init(|| frozen(&self.values)).as_ref().map_err(Clone::clone)?;
        let tuple = TupleRef::from_value(heap.access_owned_frozen_value(made));
        Ok(tuple.map(TupleRef::content).unwrap_or_default())
    }
}

fn frozen(values: &[Plain]) -> Result<OwnedFrozenValue, PolicyError> {
    let error = |what: String| PolicyError::Somewhere { file: "policy".to_string(), what };
    let module = Module::with_temp_heap(|module| {
        let heap = module.frozen_heap();
        let values = heap.alloc(AllocTuple(values.iter().map(|value| value.alloc(heap))));
        module.set("given", values.to_value());
        module.freeze()
    });
    let module = module.map_err(|why| error(format!("what it is given: {why:?}")))?;
    module.get("given").map_err(|why| error(format!("what it is given: {why}")))
}
