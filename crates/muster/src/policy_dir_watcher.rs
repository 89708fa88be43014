//! Policies of a folder, put into force when it changes (`policies.dir`).
//!
//! The folder is looked at every two seconds, and what is found counts once two looks found the same: nobody puts half of
//! an edit into force. A folder that has not changed since it was last put into force changes nothing, so that whoever
//! rolls back in a hurry is not overruled by it. Files that do not compile are told in the log, and what is in force stays.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use muster_core::objects::policy::PolicyScope;
use muster_core::{Actor, Command};
use muster_server::cluster::{Cluster, ServerRole};
use muster_server::policies::Interpreter;
use tracing::{error, info};

use crate::commands::policy::policy_dirs;

/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Under whose name its versions are kept.
const ACTOR_NAME: &str = muster_core::objects::token::POLICY_FOLDER_NAME;

type PolicyFiles = BTreeMap<String, String>;

/// Watches a folder as long as the process lives.
pub struct PolicyDirWatcher {
    /// Which.
    pub path: PathBuf,
    /// Where policies are put into force.
    pub cluster: Cluster,
    /// Who compiles them.
    pub interpreter: Arc<dyn Interpreter>,
}

/// What was found so far.
#[derive(Debug, Default)]
struct FolderChanges {
    /// By the last look.
    last_seen: Option<Result<PolicyFiles, String>>,
    /// What was dealt with last, well or not.
    last_handled: Option<Result<PolicyFiles, String>>,
}

impl FolderChanges {
    /// What is to be dealt with now: what two looks found that nobody dealt with.
    fn next_stable(&mut self, found: Result<PolicyFiles, String>) -> Option<Result<PolicyFiles, String>> {
        let same = self.last_seen.as_ref() == Some(&found);
        let news = same && self.last_handled.as_ref() != Some(&found);
        self.last_seen = Some(found.clone());
        news.then_some(found)
    }
}

/// Why a folder is not in force as it is.
struct ApplyFailure {
    message: String,
    /// Whether it may be otherwise at the next look although the folder has not changed.
    is_transient: bool,
}

impl PolicyDirWatcher {
    /// Watch.
    pub fn watch(self) {
        let mut looks = FolderChanges::default();
        let mut said = None;
        loop {
            let leads = matches!(self.cluster.role(), ServerRole::Leading { .. });
            if let Some(found) = looks.next_stable(self.read_files()).filter(|_| leads) {
                let trouble = self.apply_if_new(&found).err();
                if trouble.as_ref().is_none_or(|trouble| !trouble.is_transient) {
                    looks.last_handled = Some(found);
                }
                let what = trouble.map(|trouble| trouble.message);
                if let Some(what) = what.as_ref().filter(|_| what != said) {
                    error!(folder = %self.path.display(), %what, "the policies in force stay");
                }
                said = what;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn read_files(&self) -> Result<PolicyFiles, String> {
        policy_dirs::read_policies(&self.path).map_err(|error| error.message)
    }

    /// Deal with what was found.
    fn apply_if_new(&self, found: &Result<PolicyFiles, String>) -> Result<(), ApplyFailure> {
        let files = found.as_ref().map_err(|what| ApplyFailure { message: what.clone(), is_transient: false })?;
        if self.was_applied(files) {
            return Ok(());
        }
        let compiled = self.interpreter.compile(&PolicyScope::Cluster, files.clone());
        let bundle = compiled.map_err(|errors| ApplyFailure { message: errors.join("\n"), is_transient: false })?;
        let failing =
            self.interpreter.failing_tests(&PolicyScope::Cluster, files).unwrap_or_else(|error| vec![error]);
        if !failing.is_empty() {
            let what = format!("tests of the policies fail:\n{}", failing.join("\n"));
            return Err(ApplyFailure { message: what, is_transient: false });
        }
        let why = format!("{} has changed", self.path.display());
        let command = Command::ApplyPolicy { scope: PolicyScope::Cluster, bundle: Arc::new(bundle), why };
        let applied = self.cluster.execute_blocking(Actor::local(ACTOR_NAME), command);
        // A job may wait for a pool that the folder no longer has: not for ever.
        applied.map_err(|declined| ApplyFailure { message: declined.to_string(), is_transient: true })?;
        info!(folder = %self.path.display(), "policies are in force as their folder has them");
        Ok(())
    }

    /// Whether the folder was put into force as it is now. Someone may have put other policies into force since.
    fn was_applied(&self, files: &PolicyFiles) -> bool {
        self.cluster.read(|state| {
            let versions = state.policies.versions();
            let ours = versions.into_iter().rev().find(|version| version.by == ACTOR_NAME);
            ours.is_some_and(|version| version.bundle.files == *files)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_seen_twice_are_applied_once() {
        let files = |text: &str| Ok(BTreeMap::from([("a.gsky".to_string(), text.to_string())]));
        let mut looks = FolderChanges::default();
        assert_eq!(looks.next_stable(files("half")), None);
        assert_eq!(looks.next_stable(files("whole")), None, "it is being written");
        assert_eq!(looks.next_stable(files("whole")), Some(files("whole")));
        assert_eq!(looks.next_stable(files("whole")), Some(files("whole")), "nobody has dealt with it");
        looks.last_handled = Some(files("whole"));
        assert_eq!(looks.next_stable(files("whole")), None);
        let gone = || Err("no folder".to_string());
        assert_eq!((looks.next_stable(gone()), looks.next_stable(gone())), (None, Some(gone())));
    }
}
