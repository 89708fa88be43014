//! How an attempt stands, read from its folder and from `/proc`.

use muster_protocol::agent::Exit;

use crate::error::AgentError;
use crate::folder::Folder;
use crate::proc;
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
pub(super) fn of(folder: &Folder, boot_id: &str) -> Result<Standing, AgentError> {
    match read(folder, boot_id) {
        Err(damaged @ AgentError::Damaged { .. }) => {
            Ok(Standing::Lost { why: damaged.to_string(), shim: None })
        }
        read => read,
    }
}

fn read(folder: &Folder, boot_id: &str) -> Result<Standing, AgentError> {
    let claim = folder.claim()?;
    // First whether it lives, then the exit record: a shim writes it before it goes, so we cannot miss both.
    let lives = matches!(&claim, Some(Claim::Shim(shim)) if lives(shim, boot_id));
    if let Some(record) = folder.exit()? {
        return Ok(record.into());
    }
    Ok(match claim {
        Some(Claim::Shim(shim)) if lives => Standing::Alive(shim),
        Some(Claim::Shim(shim)) if shim.boot_id == boot_id => {
            Standing::Lost { why: "shim lost".to_string(), shim: Some(shim) }
        }
        Some(Claim::Shim(_)) => Standing::Lost { why: "the machine was restarted".to_string(), shim: None },
        Some(Claim::Abandoned) => {
            Standing::Lost { why: "the launch was interrupted".to_string(), shim: None }
        }
        None if folder.intent()?.is_some() => Standing::Unclaimed,
        None => Standing::Absent,
    })
}

/// Pid, start time and boot must agree; a pid alone may be someone else's by now.
fn lives(shim: &ShimRecord, boot_id: &str) -> bool {
    let same = |process: proc::Process| process.start_time == shim.start_time && !process.is_dead;
    shim.boot_id == boot_id && proc::process(shim.pid).is_some_and(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs;
    use crate::records::Intent;
    use crate::sample::{Scratch, order};
    use std::path::Path;

    fn folder(dir: &Path) -> Folder {
        let folder = Folder::of(dir, "job-1", 1).unwrap();
        logs::make_private_dir(folder.path()).unwrap();
        folder
    }

    /// A record of this very process, as if it were a shim.
    fn own_shim() -> ShimRecord {
        let own = proc::process(i32::try_from(std::process::id()).unwrap()).unwrap();
        let (pid, start_time, session) = (own.pid, own.start_time, own.session);
        ShimRecord { pid, start_time, boot_id: "b".to_string(), session, group: None }
    }

    #[test]
    fn an_attempt_is_traced_from_intent_to_exit() {
        let dir = Scratch::new();
        let folder = folder(&dir);
        assert_eq!(of(&folder, "b").unwrap(), Standing::Absent);
        folder.begin(&Intent { order: order("job-1", &[]), boot_id: "b".to_string() }).unwrap();
        assert_eq!(of(&folder, "b").unwrap(), Standing::Unclaimed);
        folder.take(&Claim::Shim(own_shim())).unwrap();
        assert_eq!(of(&folder, "b").unwrap(), Standing::Alive(own_shim()));
        folder.end(&ExitRecord { exit: Exit::Code(3), stopped: false, placed_at_ms: 1 }).unwrap();
        assert_eq!(of(&folder, "b").unwrap(), Standing::Ended { exit: Exit::Code(3), stopped: false });
    }

    #[test]
    fn a_pid_alone_proves_nothing() {
        let dir = Scratch::new();
        let folder = folder(&dir);
        let mut shim = own_shim();
        shim.start_time += 1;
        folder.take(&Claim::Shim(shim.clone())).unwrap();
        let why = "shim lost".to_string();
        assert_eq!(of(&folder, "b").unwrap(), Standing::Lost { why, shim: Some(shim) });
        folder.renew(&own_shim()).unwrap();
        let why = "the machine was restarted".to_string();
        assert_eq!(of(&folder, "another boot").unwrap(), Standing::Lost { why, shim: None });
    }

    #[test]
    fn a_damaged_record_is_a_lost_shim() {
        let dir = Scratch::new();
        let folder = folder(&dir);
        std::fs::write(folder.file("pid.json"), "{\"shim\":").unwrap();
        assert!(matches!(of(&folder, "b").unwrap(), Standing::Lost { shim: None, .. }));
    }
}
