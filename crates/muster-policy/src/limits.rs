//! The bounds of one run. They are guard rails, not a jail: the interpreter looks at them once in a thousand steps, and
//! a single call of a builtin may do much in between. So the size of a source is bounded too, and whoever does not trust
//! the author runs a policy in a process of its own.

use starlark::eval::Evaluator;

/// The bounds of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls and turns of loops.
    pub steps: u64,
    /// Bytes of values.
    pub heap_bytes: usize,
    /// Calls inside calls.
    pub depth: usize,
    /// Bytes of source of one file.
    pub source_bytes: usize,
    /// Brackets inside brackets, which the parser follows with its own stack.
    pub nesting: usize,
    /// Bytes that `print` may say.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            steps: 1_000_000,
            heap_bytes: 32 << 20,
            depth: 64,
            source_bytes: 1 << 20,
            nesting: 100,
            output_bytes: 64 << 10,
        }
    }
}

impl Limits {
    /// Bound an evaluation.
    pub(crate) fn bind(&self, eval: &mut Evaluator) -> anyhow::Result<()> {
        eval.set_max_tick_count(self.steps)?;
        eval.set_max_heap_size(self.heap_bytes)?;
        eval.set_max_callstack_size(self.depth)
    }

    /// What is wrong with a source before anyone parses it.
    pub(crate) fn complaint(&self, source: &str) -> Option<(usize, String)> {
        if source.len() > self.source_bytes {
            let (bytes, most) = (source.len(), self.source_bytes);
            return Some((1, format!("the file has {bytes} bytes, {most} are the most")));
        }
        let line = too_deep(source, self.nesting)?;
        Some((line, format!("brackets are nested more than {} deep", self.nesting)))
    }
}

/// The line in which brackets are nested too deep. Those inside texts and comments count as well, which costs nobody
/// anything: a hundred of them do not stand unclosed in a text that means something.
fn too_deep(source: &str, most: usize) -> Option<usize> {
    let (mut depth, mut unary) = (0_usize, 0_usize);
    for (number, line) in source.lines().enumerate() {
        for letter in line.chars() {
            match letter {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            // A row of signs is nested as well: each applies to all that follows.
            unary = if matches!(letter, '-' | '+' | '~') { unary + 1 } else { 0 };
            if depth > most || unary > most {
                return Some(number + 1);
            }
        }
        let words =
            line.split_whitespace().filter(|word| matches!(*word, "not" | "lambda" | "lambda:")).count();
        if words > most {
            return Some(number + 1);
        }
    }
    None
}
