//! Reads the journal page by page and stops loudly at anything that is not as it was written.

use crate::chain::follows;
use crate::error::StoreError;
use crate::journal::Visit;
use crate::record::Record;

/// Records read at once. A page of ordinary events is well below a megabyte.
pub const PAGE: u32 = 1_000;

/// Read all records after `after`. `fetch` returns up to [`PAGE`] records from a number on, in order.
pub fn replay(
    after: u64,
    fetch: &mut dyn FnMut(u64) -> Result<Vec<Record>, StoreError>,
    visit: &mut Visit<'_>,
) -> Result<u64, StoreError> {
    let mut last = after;
    let mut previous = None;
    // A savepoint that is ahead of its journal belongs to another history.
    let mut from = if after == 0 { 1 } else { after };
    loop {
        let page = fetch(from)?;
        if from == after && page.is_empty() {
            return Err(StoreError::unreadable(after, "is missing, although a savepoint was taken after it"));
        }
        let full = page.len() >= PAGE as usize;
        for record in page {
            if record.seq != from {
                return Err(StoreError::unreadable(from, format!("is missing; the next is {}", record.seq)));
            }
            from += 1;
            if record.seq > after {
                last = record.seq;
                let entry = record.entry()?;
                follows(previous.as_ref(), &record)
                    .map_err(|problem| StoreError::unreadable(last, problem))?;
                visit(entry)?;
            }
            previous = Some(record);
        }
        if !full {
            return Ok(last);
        }
    }
}
