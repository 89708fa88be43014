//! The `print` of policies.

use std::cell::Cell;

use starlark::PrintHandler;

/// Writes what policies print to standard error, up to a number of bytes.
pub struct Printer {
    bytes_left: Cell<usize>,
    prints_to_stderr: bool,
}

impl Printer {
    pub fn new(bytes_max: usize) -> Printer {
        Printer { bytes_left: Cell::new(bytes_max), prints_to_stderr: true }
    }

    /// A printer that counts bytes and writes nothing, for a second run of the same files.
    pub fn silent(bytes_max: usize) -> Printer {
        Printer { prints_to_stderr: false, ..Printer::new(bytes_max) }
    }
}

impl PrintHandler for Printer {
    fn println(&self, text: &str) -> starlark::Result<()> {
        let Some(left) = self.bytes_left.get().checked_sub(text.len() + 1) else {
            return Err(starlark::Error::new_other(anyhow::anyhow!("print exceeds the output limit")));
        };
        self.bytes_left.set(left);
        if self.prints_to_stderr {
            eprintln!("[Policy] {text}");
        }
        Ok(())
    }
}
