//! How an attempt stands, from its records and from whether its shim lives.

use crate::error::AgentError;
use crate::machine::{AttemptKey, Machine};
use crate::records::{Claim, ExitRecord, ShimRecord};

/// How an attempt stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing was ever tried here.
    Absent,
    /// There is an intent, and no shim has taken the attempt.
    Unclaimed,
    /// Its shim lives. The tasks run as soon as their group is known.
    Alive(ShimRecord),
    /// Its shim is gone without an exit record; where its tasks may be found, if it was of this boot.
    Lost { why: String, shim: Option<ShimRecord> },
    /// It is over, and nothing is left of it.
    Ended(ExitRecord),
}

/// Whether an attempt without records may have processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MayRun {
    /// Nobody has launched it, or it was found already.
    No,
    /// This agent has launched it, and the shim is up. It has not taken the attempt yet, or its records are gone.
    Coming,
    /// It may have been launched, by this agent or one before.
    Unseen,
}

/// Look. A record that cannot be understood counts as a lost shim: it must not run on unseen. A folder that cannot
/// be read just now is a fault, and we look again. Records that are missing say nothing: `may_run` tells whether the
/// processes are looked for too.
pub(super) fn of(
    machine: &mut impl Machine,
    key: &AttemptKey,
    boot_id: &str,
    may_run: MayRun,
) -> Result<Standing, AgentError> {
    match read(machine, key, boot_id) {
        Ok(Standing::Absent) if may_run != MayRun::No => unrecorded(machine, key),
        Ok(Standing::Unclaimed) if may_run == MayRun::Unseen => unrecorded(machine, key),
        Err(damaged @ AgentError::Damaged { .. }) => {
            Ok(Standing::Lost { why: damaged.to_string(), shim: None })
        }
        read => read,
    }
}

/// When the attempt that left its traces here was placed, if there is one.
pub(super) fn placed_at_ms(machine: &mut impl Machine, key: &AttemptKey) -> Result<Option<i64>, AgentError> {
    if let Some(exit) = machine.exit(key)? {
        return Ok(Some(exit.placed_at_ms));
    }
    Ok(machine.intent(key)?.map(|intent| intent.order.placed_at_ms))
}

/// Of an attempt without a claim that may have been launched.
fn unrecorded(machine: &mut impl Machine, key: &AttemptKey) -> Result<Standing, AgentError> {
    let found = machine.find_shim(key)?;
    // A shim may have ended since we looked: then its last record is there now.
    if let Some(record) = machine.exit(key)? {
        return Ok(Standing::Ended(record));
    }
    Ok(match (machine.intent(key)?, found) {
        // A shim without tasks has not taken the attempt: whoever takes it first has it.
        (Some(_), Some(shim)) if shim.group.is_some() => Standing::Alive(shim),
        (Some(_), _) => Standing::Unclaimed,
        (None, Some(shim)) => Standing::Alive(shim),
        (None, None) => Standing::Absent,
    })
}

fn read(machine: &mut impl Machine, key: &AttemptKey, boot_id: &str) -> Result<Standing, AgentError> {
    let claim = machine.claim(key);
    // First whether it lives, then the exit record: a shim writes it before it goes, so we cannot miss both.
    let lives =
        matches!(&claim, Ok(Some(Claim::Shim(shim))) if shim.boot_id == boot_id && machine.lives(shim));
    // Before the claim is judged: one that stays damaged must not hide the end that we wrote for its sake.
    if let Some(record) = machine.exit(key)? {
        return Ok(Standing::Ended(record));
    }
    Ok(match claim? {
        Some(Claim::Shim(shim)) if lives => Standing::Alive(shim),
        Some(Claim::Shim(shim)) if shim.boot_id == boot_id => {
            Standing::Lost { why: "shim lost".to_string(), shim: Some(shim) }
        }
        Some(Claim::Shim(_)) => Standing::Lost { why: "the machine was restarted".to_string(), shim: None },
        Some(Claim::Abandoned) => {
            Standing::Lost { why: "the launch was interrupted".to_string(), shim: None }
        }
        None if machine.intent(key)?.is_some() => Standing::Unclaimed,
        None => Standing::Absent,
    })
}
