//! How an attempt stands, from its records and from whether its shim lives.

use muster_protocol::agent::Exit;

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
    Ended { exit: Exit, stopped: bool },
}

impl From<ExitRecord> for Standing {
    fn from(record: ExitRecord) -> Standing {
        Standing::Ended { exit: record.exit, stopped: record.stopped }
    }
}

/// Look. A record that cannot be understood counts as a lost shim: it must not run on unseen. A folder that cannot
/// be read just now is a fault, and we look again.
pub(super) fn of(
    machine: &mut impl Machine,
    key: &AttemptKey,
    boot_id: &str,
) -> Result<Standing, AgentError> {
    match read(machine, key, boot_id) {
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

fn read(machine: &mut impl Machine, key: &AttemptKey, boot_id: &str) -> Result<Standing, AgentError> {
    let claim = machine.claim(key);
    // First whether it lives, then the exit record: a shim writes it before it goes, so we cannot miss both.
    let lives =
        matches!(&claim, Ok(Some(Claim::Shim(shim))) if shim.boot_id == boot_id && machine.lives(shim));
    // Before the claim is judged: one that stays damaged must not hide the end that we wrote for its sake.
    if let Some(record) = machine.exit(key)? {
        return Ok(record.into());
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
