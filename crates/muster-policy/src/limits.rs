//! The bounds of one run. They are guard rails, not a jail: the interpreter looks at them once in a thousand steps, and
//! a single call of a builtin may do much in between. So the size of a source is bounded too, and whoever does not trust
//! the author runs a policy in a process of its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use starlark::eval::Evaluator;
use starlark::values::Heap;

use crate::nesting;
use crate::program::Watch;

/// The bounds of one run: of a file that is loaded, or of one call of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Calls and turns of loops.
    pub steps: u64,
    /// How long a call may take.
    pub time: Duration,
    /// How long a file may take to load.
    pub load_time: Duration,
    /// Bytes of values.
    pub heap_bytes: usize,
    /// Calls inside calls.
    pub depth: usize,
    /// Bytes of source of one file.
    pub source_bytes: usize,
    /// Parts of a file inside each other, which the interpreter follows with its own stack.
    pub nesting: usize,
    /// Bytes that `print` may say.
    pub output_bytes: usize,
}

/// A file may take so many times the steps of a call.
const FILE_STEPS: u64 = 5;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            steps: 200_000,
            time: Duration::from_millis(50),
            load_time: Duration::from_secs(2),
            heap_bytes: 32 << 20,
            depth: 64,
            source_bytes: 1 << 20,
            nesting: 100,
            output_bytes: 64 << 10,
        }
    }
}

impl Limits {
    /// Bound the run of a file. It may take more steps than a call: it happens once.
    pub(crate) fn bind_file(&self, eval: &mut Evaluator) -> anyhow::Result<Watch> {
        let watch = Watch::new(self.steps.saturating_mul(FILE_STEPS), self.load_time);
        self.bind(eval, watch.clone())?;
        Ok(watch)
    }

    /// Bound the calls of a function.
    pub(crate) fn bind_calls(&self, eval: &mut Evaluator) -> anyhow::Result<Watch> {
        let watch = Watch::new(self.steps, self.time);
        self.bind(eval, watch.clone())?;
        Ok(watch)
    }

    fn bind(&self, eval: &mut Evaluator, watch: Watch) -> anyhow::Result<()> {
        eval.set_check_cancelled(Box::new(move || watch.is_over()));
        eval.set_max_heap_size(self.heap_bytes)?;
        eval.set_max_callstack_size(self.depth)
    }

    /// Whether a heap that several calls used is better left: a call has at least three quarters of what it may use.
    pub(crate) fn heap_is_worn(&self, heap: Heap) -> bool {
        heap.allocated_bytes() > self.heap_bytes / 4
    }

    /// What is wrong with a source before anyone parses it.
    pub(crate) fn complaint(&self, source: &str) -> Option<(usize, String)> {
        if source.len() > self.source_bytes {
            let (bytes, most) = (source.len(), self.source_bytes);
            return Some((1, format!("the file has {bytes} bytes, {most} are the most")));
        }
        nesting::complaint(source, self.nesting)
    }
}
