//! From files to a bundle: what they register, which questions they answer, and a hash by which history names them.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::objects::policy::rules::Rules;
use muster_core::objects::policy::{Hook, PolicyBundle};
use sha2::{Digest, Sha256};
use starlark::codemap::FileSpan;
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AssignTarget, AstStmt, Stmt};

use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::{self, LoadMode, dialect, is_policy_file};
use crate::program::Program;

/// Compile files by name. Tests are kept with the policies, and say nothing.
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
pub fn compile(
    files: BTreeMap<String, String>,
    limits: Limits,
) -> Result<(PolicyBundle, Program), PolicyError> {
    let program = Program::compile_files(&files, limits)?;
    let mut hooks = BTreeSet::new();
    for (file, source) in files.iter().filter(|(file, _)| is_policy_file(file)) {
        hooks.extend(hooks_defined_in(&program, file, source)?);
    }
    let (rules, mentions) = (program.rules().clone(), program.mentions().clone());
    let bundle = PolicyBundle { hash: bundle_hash(&files), rules, hooks, mentions, files };
    Ok((bundle, program))
}

/// What one file does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileSummary {
    /// What it registers, with what it loads.
    pub rules: Rules,
    /// The questions it answers.
    pub hooks: Vec<Hook>,
}

/// Compile one of these files as a policy, or as a test if it is one, and say what it does.
pub fn check_file(
    files: &BTreeMap<String, String>,
    name: &str,
    limits: &Limits,
) -> Result<FileSummary, PolicyError> {
    if !is_policy_file(name) {
        return load::load_test_file(files, name, limits, LoadMode::Tests).map(|_| FileSummary::default());
    }
    let program = Program::compile_file(files, name, *limits)?;
    let source = files.get(name).map(String::as_str).unwrap_or_default();
    let hooks = hooks_defined_in(&program, name, source)?;
    Ok(FileSummary { rules: program.rules().clone(), hooks })
}

/// What a question is asked with.
pub(crate) fn hook_parameters(hook: Hook) -> &'static [&'static str] {
    match hook {
        Hook::Admit | Hook::Power => &["job"],
        Hook::Priority => &["job", "tenant"],
        Hook::Score => &["job", "node"],
        Hook::Victims => &["job", "candidates"],
        Hook::Retry => &["job", "failure"],
        Hook::Limit => &["tenant", "cluster"],
    }
}

/// The questions that a file answers. A name that stands for a question must be a function that can be asked it.
fn hooks_defined_in(program: &Program, file: &str, source: &str) -> Result<Vec<Hook>, PolicyError> {
    let mut hooks = Vec::new();
    for hook in Hook::ALL {
        match check_hook_signature(program, file, hook) {
            None => continue,
            Some(Ok(())) => hooks.push(hook),
            Some(Err(what)) => return Err(error_at_definition(file, source, hook.as_str(), what)),
        }
    }
    Ok(hooks)
}

/// Nothing where a file does not tell it; else what is wrong with it.
fn check_hook_signature(program: &Program, file: &str, hook: Hook) -> Option<Result<(), String>> {
    let (name, asked) = (hook.as_str(), hook_parameters(hook));
    let call = format!("{name}({})", asked.join(", "));
    let Some(takes) = program.signature(file, name) else {
        let kind = program.type_of(file, name)?;
        return Some(Err(format!("`{name}` is of kind {kind}; the name stands for a function {call}")));
    };
    match takes.accepts(asked.len()) {
        true => Some(Ok(())),
        false => Some(Err(format!("`{name}` takes {takes}; it is asked as {call}"))),
    }
}

fn error_at_definition(file: &str, source: &str, name: &str, what: String) -> PolicyError {
    match definition_span(file, source, name) {
        Some(span) => PolicyError::at_span(&span, what),
        None => PolicyError::Invalid { file: file.to_string(), message: what },
    }
}

/// Where a name is told at the top of a file; the last place counts.
pub(crate) fn definition_span(file: &str, source: &str, name: &str) -> Option<FileSpan> {
    let ast = AstModule::parse(file, source.to_string(), &dialect()).ok()?;
    let mut found = None;
    visit_top_level_names(ast.statement(), &mut |told, span| {
        if told == name {
            found = Some(span);
        }
    });
    found.map(|span| ast.file_span(span))
}

/// Every name that the top of a file tells.
fn visit_top_level_names(statement: &AstStmt, tell: &mut dyn FnMut(&str, starlark::codemap::Span)) {
    match &statement.node {
        Stmt::Def(def) => tell(&def.name.ident, def.name.span),
        Stmt::Assign(assign) => {
            if let AssignTarget::Identifier(name) = &assign.lhs.node {
                tell(&name.ident, name.span);
            }
        }
        _ => statement.visit_stmt(|inner| visit_top_level_names(inner, tell)),
    }
}

/// Names and contents with their lengths, so that no two bundles look the same.
pub(crate) fn bundle_hash(files: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    for text in files.iter().flat_map(|(name, source)| [name, source]) {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
