//! Compiles files into a bundle: what they register, which hooks they define, and the hash that identifies the bundle.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::objects::policy::rules::Rules;
use muster_core::objects::policy::{Hook, PolicyBundle};
use sha2::{Digest, Sha256};

use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::{self, LoadMode};
use crate::policy_files::is_policy_file;
use crate::program::Program;
use crate::syntax::definition_span;
use crate::views::hook_parameters;

/// Compile files by name. Test files are stored in the bundle and define no hooks.
///
/// ```
/// # use std::collections::BTreeMap;
/// use muster_core::objects::policy::Hook;
/// use muster_policy::{Limits, compile};
///
/// let source = "def admit(job):\n    return job.gpus <= 8 or \"at most 8 GPUs\"".to_string();
/// let (bundle, _) = compile(BTreeMap::from([("small.gsky".to_string(), source)]), Limits::default())?;
/// assert!(bundle.hooks.contains(&Hook::Admit));
/// # Ok::<(), muster_policy::PolicyError>(())
/// ```
pub fn compile(files: BTreeMap<String, String>, limits: Limits) -> Result<(PolicyBundle, Program), PolicyError> {
    let program = Program::compile_files(&files, limits)?;
    let mut hooks = BTreeSet::new();
    for (file, source) in files.iter().filter(|(file, _)| is_policy_file(file)) {
        hooks.extend(hooks_defined_in(&program, file, source)?);
    }
    let (rules, mentions) = (program.rules().clone(), program.mentions().clone());
    let bundle = PolicyBundle { hash: bundle_hash(&files), rules, hooks, mentions, files };
    Ok((bundle, program))
}

/// What one file registers and defines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileSummary {
    /// Registered by the file and by those it loads.
    pub rules: Rules,
    /// The hooks that the file defines.
    pub hooks: Vec<Hook>,
}

/// Compile one of these files, as a policy or as a test, and summarise it.
pub fn check_file(files: &BTreeMap<String, String>, name: &str, limits: &Limits) -> Result<FileSummary, PolicyError> {
    if !is_policy_file(name) {
        return load::load_test_file(files, name, limits, LoadMode::Tests).map(|_| FileSummary::default());
    }
    let program = Program::compile_file(files, name, *limits)?;
    let source = files.get(name).map(String::as_str).unwrap_or_default();
    let hooks = hooks_defined_in(&program, name, source)?;
    Ok(FileSummary { rules: program.rules().clone(), hooks })
}

/// The hooks that a file defines. The name of a hook must be a function that accepts the hook's arguments.
fn hooks_defined_in(program: &Program, file: &str, source: &str) -> Result<Vec<Hook>, PolicyError> {
    let mut hooks = Vec::new();
    for hook in Hook::ALL {
        match check_hook_signature(program, file, hook) {
            None => continue,
            Some(Ok(())) => hooks.push(hook),
            Some(Err(message)) => return Err(error_at_definition(file, source, hook.as_str(), message)),
        }
    }
    Ok(hooks)
}

/// `None` if the file does not define the name; else whether its definition can be called as this hook.
fn check_hook_signature(program: &Program, file: &str, hook: Hook) -> Option<Result<(), String>> {
    let (name, parameters) = (hook.as_str(), hook_parameters(hook));
    let call = format!("{name}({})", parameters.join(", "));
    let Some(signature) = program.signature(file, name) else {
        let kind = program.type_of(file, name)?;
        let message = format!("`{name}` is a value of type {kind}; the name is reserved for the hook {call}");
        return Some(Err(message));
    };
    match signature.accepts(parameters.len()) {
        true => Some(Ok(())),
        false => Some(Err(format!("`{name}` takes {signature}; muster calls it as {call}"))),
    }
}

fn error_at_definition(file: &str, source: &str, name: &str, message: String) -> PolicyError {
    match definition_span(file, source, name) {
        Some(span) => PolicyError::at_span(&span, message),
        None => PolicyError::Invalid { file: file.to_string(), message },
    }
}

/// A hash of names and contents. Each is preceded by its length, so that different bundles never hash the same bytes.
pub(crate) fn bundle_hash(files: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    for text in files.iter().flat_map(|(name, source)| [name, source]) {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
