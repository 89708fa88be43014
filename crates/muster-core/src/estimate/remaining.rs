//! Short work first: what the objective `fast` orders jobs by, and who gives way to whom.
//!
//! The size of a job is the GPU time that is left of it, as far as can be told: where it has a limit, as much of it as
//! its owner's jobs usually use, less what it has run; else what is known of others of its kind (`past`). Its worth is
//! how many such jobs would be done in a time on its GPUs.
//!
//! Who saves its work gives way to a job that is worth more than all who would have to stop for it, however often: what
//! was done is not lost, and whoever is displaced has become smaller by what it ran. It gives way to several who are
//! worth more only together as well (`plan/together`). Who does not save its work gives way once in its
//! life, and only where that gains more time than it costs (`plan/hasten`). Nobody gives way to a lower priority; and
//! nobody who had to wait so long that its turn came by right: the bound on every wait is the same as in `fair`.

use crate::estimate::gittins::RemainingTime;

/// What is known of an owner's jobs of one kind at a moment.
pub(crate) struct RuntimeModel<'a> {
    pub(crate) expected: RemainingTime<'a>,
    /// How much of their limits their jobs usually use, in thousandths.
    pub(crate) used_milli: Option<i64>,
    /// How long their jobs usually run.
    pub(crate) usual_ms: Option<i64>,
    pub(crate) gpu_milli: u64,
}

impl RuntimeModel<'_> {
    /// How much longer a job runs, with a limit if it has one; by its number among those of its kind if it has come.
    pub fn remaining_ms(&self, limit_ms: Option<i64>, number: Option<u64>, ran_ms: i64) -> i64 {
        let Some(limit_ms) = limit_ms else { return self.expected.remaining_ms(number, ran_ms) };
        let usual_ms = match (self.used_milli, self.usual_ms) {
            (Some(used), _) => (limit_ms / 1_000).saturating_mul(used),
            (None, Some(usual)) => usual.min(limit_ms),
            (None, None) => limit_ms,
        };
        // Who is late is expected to be late by as much again; nobody knows the end to the last moment.
        usual_ms.saturating_sub(ran_ms).abs().max(usual_ms / 64).max(1)
    }

    /// The same as GPUs × milliseconds.
    pub fn size_gpu_ms(&self, limit_ms: Option<i64>, number: Option<u64>, ran_ms: i64) -> u64 {
        gpu_ms(self.remaining_ms(limit_ms, number, ran_ms), self.gpu_milli)
    }
}

pub(crate) fn gpu_ms(ms: i64, gpu_milli: u64) -> u64 {
    (ms.max(0) as u64).saturating_mul(gpu_milli) / 1_000
}

/// What it is worth to run a job of a size on so many GPUs: how many of them would be done in a time.
pub(crate) fn srpt_index(size_gpu_ms: u64, gpu_milli: u64) -> u64 {
    (gpu_milli << 40) / size_gpu_ms.max(1)
}
