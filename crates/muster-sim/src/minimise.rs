//! A shorter story that breaks the same law.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::story::Story;
use crate::world::{Failure, tell};

/// Tell a story; a panic is a failure like any other.
pub fn judge(story: &Story) -> Option<Failure> {
    match catch_unwind(AssertUnwindSafe(|| tell(story))) {
        Ok(told) => told.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Some(Failure { law: format!("panicked: {}", text.unwrap_or_default()), step: 0 })
        }
    }
}

/// Leave out what is not needed: halves of the acts, quarters and so on down to single ones, as long as the story still
/// ends badly; it need not be in the same manner. So many stories are told at most.
pub fn minimise(story: &Story, tries: usize) -> Story {
    let mut best = story.clone();
    let mut left = tries;
    if let Some(failure) = judge(&best) {
        // What comes after the failure did not cause it.
        best.steps = best.steps.min(failure.step.max(1));
    }
    if judge(&best).is_none() {
        best.steps = story.steps;
    }
    let mut chunk = best.acts.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        while from < best.acts.len() && left > 0 {
            let mut shorter = best.clone();
            shorter.acts.drain(from..(from + chunk).min(shorter.acts.len()));
            left -= 1;
            match judge(&shorter) {
                Some(_) => best = shorter,
                None => from += chunk,
            }
        }
        if chunk == 1 || left == 0 {
            return best;
        }
        chunk = chunk.div_ceil(2);
    }
}
