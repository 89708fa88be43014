//! A batch of calls of one function: the argument values, stored once, and which of them each call uses. A job scored
//! on many nodes is one value, allocated once per interpreter and sent once to the worker.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use starlark::environment::Module;
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{Heap, OwnedFrozenValue, Value};

use crate::error::PolicyError;
use crate::policy_value::PolicyValue;

/// A batch of calls of one function.
#[derive(Debug)]
pub struct CallBatch {
    /// Unique in this process. A worker that has cached the values of this batch is not sent them again.
    id: u64,
    values: Vec<PolicyValue>,
    layout: ArgumentLayout,
    /// The values as a frozen tuple of the interpreter, created when several evaluators need them.
    frozen_values: OnceLock<Result<OwnedFrozenValue, PolicyError>>,
}

/// Which values each call uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentLayout {
    /// Each call uses the next `args_per_call` values.
    Rows { calls: usize, args_per_call: usize },
    /// Every pair of one of the first `firsts` values and one of the rest.
    Pairs { firsts: usize },
}

impl CallBatch {
    pub fn single(args: Vec<PolicyValue>) -> CallBatch {
        let layout = ArgumentLayout::Rows { calls: 1, args_per_call: args.len() };
        CallBatch::new(args, layout)
    }

    /// One call per row of arguments.
    pub fn from_rows<const EACH: usize>(rows: impl IntoIterator<Item = [PolicyValue; EACH]>) -> CallBatch {
        let rows: Vec<[PolicyValue; EACH]> = rows.into_iter().collect();
        let layout = ArgumentLayout::Rows { calls: rows.len(), args_per_call: EACH };
        CallBatch::new(rows.into_iter().flatten().collect(), layout)
    }

    /// One call per pair of a first and a second value: all calls of the first `first`, then all of the next.
    ///
    /// ```
    /// use muster_policy::{CallBatch, PolicyValue};
    ///
    /// let (firsts, seconds) = (vec![PolicyValue::Int(1), PolicyValue::Int(2)], vec!["a".into(), "b".into()]);
    /// let calls = CallBatch::from_pairs(firsts, seconds);
    /// let args: Vec<String> = calls.iter().map(|args| format!("{} {}", args[0], args[1])).collect();
    /// assert_eq!(args, ["1 \"a\"", "1 \"b\"", "2 \"a\"", "2 \"b\""]);
    /// ```
    pub fn from_pairs(firsts: Vec<PolicyValue>, seconds: Vec<PolicyValue>) -> CallBatch {
        let layout = ArgumentLayout::Pairs { firsts: firsts.len() };
        CallBatch::new(firsts.into_iter().chain(seconds).collect(), layout)
    }

    fn new(values: Vec<PolicyValue>, layout: ArgumentLayout) -> CallBatch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        CallBatch { id: NEXT.fetch_add(1, Ordering::Relaxed), values, layout, frozen_values: OnceLock::new() }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// A batch from its encoded parts; `None` if a call would use values that are missing.
    pub(crate) fn from_wire(values: Vec<PolicyValue>, layout: ArgumentLayout) -> Option<CallBatch> {
        let is_complete = match layout {
            ArgumentLayout::Rows { calls, args_per_call } => calls.checked_mul(args_per_call) == Some(values.len()),
            ArgumentLayout::Pairs { firsts } => firsts <= values.len(),
        };
        is_complete.then(|| CallBatch::new(values, layout))
    }

    /// The number of calls.
    pub fn len(&self) -> usize {
        match self.layout {
            ArgumentLayout::Rows { calls, .. } => calls,
            ArgumentLayout::Pairs { firsts } => firsts * (self.values.len() - firsts),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arguments of each call.
    pub fn iter(&self) -> impl Iterator<Item = Vec<&PolicyValue>> {
        (0..self.len()).map(|call| self.value_indexes(call).map(|index| &self.values[index]).collect())
    }

    /// The values of all calls, each once.
    pub(crate) fn values(&self) -> &[PolicyValue] {
        &self.values
    }

    pub(crate) fn layout(&self) -> ArgumentLayout {
        self.layout
    }

    /// The indexes of a call's arguments among the values.
    pub(crate) fn value_indexes(&self, call: usize) -> impl Iterator<Item = usize> {
        let (first, step, count) = match self.layout {
            ArgumentLayout::Rows { args_per_call, .. } => (call * args_per_call, 1, args_per_call),
            ArgumentLayout::Pairs { firsts } => {
                let seconds = self.values.len() - firsts;
                let (first, second) = (call / seconds, firsts + call % seconds);
                (first, second - first, 2)
            }
        };
        (0..count).map(move |argument| first + argument * step)
    }

    /// All values on the heap of one evaluator, by index. They are frozen, so that no call can change the arguments of
    /// the next.
    pub(crate) fn alloc_in_module<'v>(&self, module: &Module<'v>) -> Vec<Value<'v>> {
        self.values.iter().map(|value| value.alloc(module.frozen_heap()).to_value()).collect()
    }

    /// The same for several evaluators: allocated once for all of them.
    pub(crate) fn alloc_shared<'v>(&self, heap: Heap<'v>) -> Result<&'v [Value<'v>], PolicyError> {
        let frozen = self.frozen_values.get_or_init(|| freeze_values(&self.values)).as_ref().map_err(Clone::clone)?;
        let tuple = TupleRef::from_value(heap.access_owned_frozen_value(frozen));
        Ok(tuple.map(TupleRef::content).unwrap_or_default())
    }
}

fn freeze_values(values: &[PolicyValue]) -> Result<OwnedFrozenValue, PolicyError> {
    let error = |reason: String| PolicyError::Invalid {
        file: "policy".to_string(),
        message: format!("the arguments cannot be allocated: {reason}"),
    };
    let module = Module::with_temp_heap(|module| {
        let heap = module.frozen_heap();
        let values = heap.alloc(AllocTuple(values.iter().map(|value| value.alloc(heap))));
        module.set("values", values.to_value());
        module.freeze()
    });
    let module = module.map_err(|reason| error(format!("{reason:?}")))?;
    module.get("values").map_err(|reason| error(reason.to_string()))
}
