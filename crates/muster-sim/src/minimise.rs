//! A shorter story that ends badly as well.

use crate::story::Story;
use crate::world::tell;

/// Leave out what is not needed: halves of the acts, quarters and so on down to single ones, as long as the story still
/// ends badly; it need not be in the same manner. So many stories are told at most.
pub fn minimise(story: &Story, tries: usize) -> Story {
    let mut best = up_to_the_failure(story);
    let mut left = tries;
    let mut chunk = best.acts.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        while from < best.acts.len() && left > 0 {
            let mut shorter = best.clone();
            shorter.acts.drain(from..(from + chunk).min(shorter.acts.len()));
            left -= 1;
            match tell(&shorter) {
                Err(_) => best = shorter,
                Ok(_) => from += chunk,
            }
        }
        if chunk == 1 || left == 0 {
            return best;
        }
        chunk = chunk.div_ceil(2);
    }
}

/// What comes after the failure did not cause it.
fn up_to_the_failure(story: &Story) -> Story {
    let Err(failure) = tell(story) else { return story.clone() };
    let shorter = Story { steps: story.steps.min(failure.step), ..story.clone() };
    if tell(&shorter).is_err() { shorter } else { story.clone() }
}
