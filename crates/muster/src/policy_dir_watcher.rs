//! Watches the policy folder of the server (`policies.dir`) and applies its policies when they change.
//!
//! The folder is polled every two seconds and applied once two polls find the same contents, so that half-written edits
//! are not applied. Unchanged contents are never applied again, so a manual rollback stays in effect. Compile errors and
//! failing tests are logged, and the active policies stay.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use muster_core::objects::policy::PolicyScope;
use muster_core::{Actor, Command};
use muster_server::cluster::{Cluster, ServerRole};
use muster_server::policies::Interpreter;
use tracing::{error, info};

use crate::policy_dirs;

const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The actor that applied the versions of the folder.
const ACTOR_NAME: &str = muster_core::objects::token::POLICY_FOLDER_NAME;

type PolicyFiles = BTreeMap<String, String>;

/// Watches a folder as long as the process lives.
pub struct PolicyDirWatcher {
    pub path: PathBuf,
    pub cluster: Cluster,
    pub interpreter: Arc<dyn Interpreter>,
}

/// Contents found by earlier polls, or the error of reading them.
#[derive(Debug, Default)]
struct FolderChanges {
    last_seen: Option<Result<PolicyFiles, String>>,
    /// The contents handled last, applied or rejected.
    last_handled: Option<Result<PolicyFiles, String>>,
}

impl FolderChanges {
    /// The contents to handle now: found by two polls in a row and not handled before.
    fn next_stable(&mut self, found: Result<PolicyFiles, String>) -> Option<Result<PolicyFiles, String>> {
        let is_stable = self.last_seen.as_ref() == Some(&found);
        let is_new = is_stable && self.last_handled.as_ref() != Some(&found);
        self.last_seen = Some(found.clone());
        is_new.then_some(found)
    }
}

/// Why the contents of a folder were not applied.
struct ApplyFailure {
    message: String,
    /// Whether the same contents may be accepted at a later poll.
    is_transient: bool,
}

impl PolicyDirWatcher {
    pub fn watch(self) {
        let mut changes = FolderChanges::default();
        let mut last_logged = None;
        loop {
            let leads = matches!(self.cluster.role(), ServerRole::Leading { .. });
            if let Some(found) = changes.next_stable(self.read_files()).filter(|_| leads) {
                let failure = self.apply_if_new(&found).err();
                if failure.as_ref().is_none_or(|failure| !failure.is_transient) {
                    changes.last_handled = Some(found);
                }
                let message = failure.map(|failure| failure.message);
                if let Some(reason) = message.as_ref().filter(|_| message != last_logged) {
                    let folder = self.path.display();
                    error!(%folder, %reason, "policy folder not applied; the active policies stay");
                }
                last_logged = message;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn read_files(&self) -> Result<PolicyFiles, String> {
        policy_dirs::read_policies(&self.path).map_err(|error| error.message)
    }

    /// Compiles, tests and applies the contents, unless they are those that the watcher applied last.
    fn apply_if_new(&self, found: &Result<PolicyFiles, String>) -> Result<(), ApplyFailure> {
        let files = found.as_ref().map_err(|error| ApplyFailure { message: error.clone(), is_transient: false })?;
        if self.was_applied(files) {
            return Ok(());
        }
        let compiled = self.interpreter.compile(&PolicyScope::Cluster, files.clone());
        let bundle = compiled.map_err(|errors| ApplyFailure { message: errors.join("\n"), is_transient: false })?;
        let failing = self.interpreter.failing_tests(&PolicyScope::Cluster, files).unwrap_or_else(|error| vec![error]);
        if !failing.is_empty() {
            let message = format!("tests of the policies fail:\n{}", failing.join("\n"));
            return Err(ApplyFailure { message, is_transient: false });
        }
        let why = format!("{} has changed", self.path.display());
        let command = Command::ApplyPolicy { scope: PolicyScope::Cluster, bundle: Arc::new(bundle), why };
        let applied = self.cluster.execute_blocking(Actor::local(ACTOR_NAME), command);
        // The refusal may end: a waiting job that needs a pool which the folder no longer registers may start or end.
        applied.map_err(|refusal| ApplyFailure { message: refusal.to_string(), is_transient: true })?;
        info!(folder = %self.path.display(), "policy folder applied");
        Ok(())
    }

    /// Whether the watcher applied these contents last. Other policies may have been applied by hand since.
    fn was_applied(&self, files: &PolicyFiles) -> bool {
        self.cluster.read(|state| {
            let versions = state.policies.versions();
            let last = versions.into_iter().rev().find(|version| version.by == ACTOR_NAME);
            last.is_some_and(|version| version.bundle.files == *files)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_seen_twice_are_applied_once() {
        let files = |text: &str| Ok(BTreeMap::from([("a.gsky".to_string(), text.to_string())]));
        let mut changes = FolderChanges::default();
        assert_eq!(changes.next_stable(files("half")), None);
        assert_eq!(changes.next_stable(files("whole")), None, "the file may still be being written");
        assert_eq!(changes.next_stable(files("whole")), Some(files("whole")));
        assert_eq!(changes.next_stable(files("whole")), Some(files("whole")), "not handled yet");
        changes.last_handled = Some(files("whole"));
        assert_eq!(changes.next_stable(files("whole")), None);
        let gone = || Err("no folder".to_string());
        assert_eq!((changes.next_stable(gone()), changes.next_stable(gone())), (None, Some(gone())));
    }
}
