//! Limits of one evaluation. The interpreter checks them every thousand steps, and they do not bound a single builtin
//! call; the size and depth of a source are therefore limited before it is parsed. They do not contain untrusted
//! policies: run those in a worker process.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use starlark::eval::Evaluator;
use starlark::values::Heap;

use crate::syntax_depth;
use crate::watchdog::Watchdog;

/// The limits of one evaluation: the run of a file, or one call of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Function calls and loop iterations.
    pub steps: u64,
    /// Wall-clock time of one call.
    pub call_time: Duration,
    /// Wall-clock time to load one file.
    pub load_time: Duration,
    /// Bytes of values on the interpreter's heap.
    pub heap_bytes: usize,
    /// Depth of nested function calls.
    pub call_stack_depth: usize,
    /// Bytes of source of one file.
    pub source_bytes: usize,
    /// Depth of nested syntax. The interpreter recurses over it on its own stack.
    pub syntax_depth: usize,
    /// Bytes that `print` may write.
    pub output_bytes: usize,
}

/// Steps of a file run, in multiples of the steps of a call.
const FILE_STEPS_FACTOR: u64 = 5;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            steps: 200_000,
            call_time: Duration::from_millis(50),
            load_time: Duration::from_secs(2),
            heap_bytes: 32 << 20,
            call_stack_depth: 64,
            source_bytes: 1 << 20,
            syntax_depth: 100,
            output_bytes: 64 << 10,
        }
    }
}

impl Limits {
    /// Limit the run of a file. It may take more steps than a call, because it happens once.
    pub(crate) fn limit_file_run(&self, eval: &mut Evaluator) -> anyhow::Result<Watchdog> {
        let watchdog = Watchdog::new(self.steps.saturating_mul(FILE_STEPS_FACTOR), self.load_time);
        self.limit_evaluator(eval, watchdog.clone())?;
        Ok(watchdog)
    }

    /// Limit the calls of a function.
    pub(crate) fn limit_calls(&self, eval: &mut Evaluator) -> anyhow::Result<Watchdog> {
        let watchdog = Watchdog::new(self.steps, self.call_time);
        self.limit_evaluator(eval, watchdog.clone())?;
        Ok(watchdog)
    }

    fn limit_evaluator(&self, eval: &mut Evaluator, watchdog: Watchdog) -> anyhow::Result<()> {
        eval.set_check_cancelled(Box::new(move || watchdog.must_stop()));
        eval.set_max_heap_size(self.heap_bytes)?;
        eval.set_max_callstack_size(self.call_stack_depth)
    }

    /// True if the next call should get a new heap. Every call then has at least three quarters of
    /// [`Self::heap_bytes`].
    pub(crate) fn should_replace_heap(&self, heap: Heap) -> bool {
        heap.allocated_bytes() > self.heap_bytes / 4
    }

    /// The first line that exceeds a limit on the source, with a message. It is found before the source is parsed.
    pub(crate) fn source_problem(&self, source: &str) -> Option<(usize, String)> {
        if source.len() > self.source_bytes {
            let (bytes, most) = (source.len(), self.source_bytes);
            return Some((1, format!("the file has {bytes} bytes; the limit is {most}")));
        }
        syntax_depth::source_problem(source, self.syntax_depth)
    }
}
