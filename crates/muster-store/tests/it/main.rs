//! One contract for both databases, and what is special to each.

mod bench;
mod contract;
mod story;
