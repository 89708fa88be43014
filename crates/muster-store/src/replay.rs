//! Replay of the journal, page by page. It stops with an error at the first record that is missing or altered.

use crate::chain::check_follows;
use crate::error::StoreError;
use crate::journal::EntryVisitor;
use crate::record::Record;

/// Records per page. A page of ordinary events is well below a megabyte.
pub const PAGE_ROWS: u32 = 1_000;

/// Read all records after number `after`. `fetch` returns up to [`PAGE_ROWS`] records, in order, from a given number.
pub fn replay(
    after: u64,
    fetch: &mut dyn FnMut(u64) -> Result<Vec<Record>, StoreError>,
    visit: &mut EntryVisitor<'_>,
) -> Result<u64, StoreError> {
    let mut last = after;
    let mut previous = None;
    // Record `after` is read too: if it is missing, the savepoint belongs to another history.
    let mut from = if after == 0 { 1 } else { after };
    loop {
        let page = fetch(from)?;
        if from == after && page.is_empty() {
            return Err(StoreError::unreadable_record(after, "is missing, although a savepoint was taken after it"));
        }
        let full = page.len() >= PAGE_ROWS as usize;
        for record in page {
            if record.seq != from {
                return Err(StoreError::unreadable_record(from, format!("is missing; the next is {}", record.seq)));
            }
            from += 1;
            if record.seq > after {
                last = record.seq;
                let entry = record.decode()?;
                check_follows(previous.as_ref(), &record)
                    .map_err(|problem| StoreError::unreadable_record(last, problem))?;
                visit(entry)?;
            }
            previous = Some(record);
        }
        if !full {
            return Ok(last);
        }
    }
}
