//! Policies of a folder, put into force when it changes (`policies.dir`).
//!
//! The folder is looked at every two seconds, and what is found counts once two looks found the same: nobody puts half of
//! an edit into force. A folder that has not changed since it was last put into force changes nothing, so that whoever
//! rolls back in a hurry is not overruled by it. Files that do not compile are told in the log, and what is in force stays.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use muster_core::policy::Scope;
use muster_core::{Actor, Command};
use muster_server::cluster::{Cluster, Role};
use muster_server::policies::Interpreter;
use tracing::{error, info};

use crate::commands::policy::folders;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(2);
/// Under whose name its versions are kept.
const NAME: &str = muster_core::token::POLICY_FOLDER_NAME;

type Files = BTreeMap<String, String>;

/// Watches a folder as long as the process lives.
pub struct PolicyFolder {
    /// Which.
    pub path: PathBuf,
    /// Where policies are put into force.
    pub cluster: Cluster,
    /// Who compiles them.
    pub interpreter: Arc<dyn Interpreter>,
}

/// What was found so far.
#[derive(Debug, Default)]
struct Looks {
    /// By the last look.
    found: Option<Result<Files, String>>,
    /// What was dealt with last, well or not.
    settled: Option<Result<Files, String>>,
}

impl Looks {
    /// What is to be dealt with now: what two looks found that nobody dealt with.
    fn next(&mut self, found: Result<Files, String>) -> Option<Result<Files, String>> {
        let same = self.found.as_ref() == Some(&found);
        let news = same && self.settled.as_ref() != Some(&found);
        self.found = Some(found.clone());
        news.then_some(found)
    }
}

/// Why a folder is not in force as it is.
struct Trouble {
    what: String,
    /// Whether it may be otherwise at the next look although the folder has not changed.
    passes: bool,
}

impl PolicyFolder {
    /// Watch.
    pub fn run(self) {
        let mut looks = Looks::default();
        let mut said = None;
        loop {
            let leads = matches!(self.cluster.role(), Role::Leading { .. });
            if let Some(found) = looks.next(self.read()).filter(|_| leads) {
                let trouble = self.settle(&found).err();
                if trouble.as_ref().is_none_or(|trouble| !trouble.passes) {
                    looks.settled = Some(found);
                }
                let what = trouble.map(|trouble| trouble.what);
                if let Some(what) = what.as_ref().filter(|_| what != said) {
                    error!(folder = %self.path.display(), %what, "the policies in force stay");
                }
                said = what;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn read(&self) -> Result<Files, String> {
        folders::policies_of(&self.path).map_err(|error| error.what)
    }

    /// Deal with what was found.
    fn settle(&self, found: &Result<Files, String>) -> Result<(), Trouble> {
        let files = found.as_ref().map_err(|what| Trouble { what: what.clone(), passes: false })?;
        if self.was_applied(files) {
            return Ok(());
        }
        let compiled = self.interpreter.compile(&Scope::Cluster, files.clone());
        let bundle = compiled.map_err(|errors| Trouble { what: errors.join("\n"), passes: false })?;
        let failing =
            self.interpreter.failing_tests(&Scope::Cluster, files).unwrap_or_else(|error| vec![error]);
        if !failing.is_empty() {
            let what = format!("tests of the policies fail:\n{}", failing.join("\n"));
            return Err(Trouble { what, passes: false });
        }
        let why = format!("{} has changed", self.path.display());
        let command = Command::ApplyPolicy { scope: Scope::Cluster, bundle: Arc::new(bundle), why };
        let applied = self.cluster.ask_blocking(Actor::local(NAME), command);
        // A job may wait for a pool that the folder no longer has: not for ever.
        applied.map_err(|declined| Trouble { what: declined.to_string(), passes: true })?;
        info!(folder = %self.path.display(), "policies are in force as their folder has them");
        Ok(())
    }

    /// Whether the folder was put into force as it is now. Someone may have put other policies into force since.
    fn was_applied(&self, files: &Files) -> bool {
        self.cluster.read(|state| {
            let versions = state.policies.versions();
            let ours = versions.into_iter().rev().find(|version| version.by == NAME);
            ours.is_some_and(|version| version.bundle.files == *files)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_looks_find_counts_once() {
        let files = |text: &str| Ok(BTreeMap::from([("a.gsky".to_string(), text.to_string())]));
        let mut looks = Looks::default();
        assert_eq!(looks.next(files("half")), None);
        assert_eq!(looks.next(files("whole")), None, "it is being written");
        assert_eq!(looks.next(files("whole")), Some(files("whole")));
        assert_eq!(looks.next(files("whole")), Some(files("whole")), "nobody has dealt with it");
        looks.settled = Some(files("whole"));
        assert_eq!(looks.next(files("whole")), None);
        let gone = || Err("no folder".to_string());
        assert_eq!((looks.next(gone()), looks.next(gone())), (None, Some(gone())));
    }
}
