//! From files to a bundle: what they register, which questions they answer, and a hash by which history names them.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::policy::{Bundle, Hook};
use muster_core::rules::Rules;
use sha2::{Digest, Sha256};
use starlark::codemap::FileSpan;
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AssignTarget, AstStmt, Stmt};

use crate::error::PolicyError;
use crate::limits::Limits;
use crate::load::{self, Manner, dialect, is_policy};
use crate::program::Program;

/// Compile files by name. Tests are kept with the policies, and say nothing.
///
/// ```
/// # use std::collections::BTreeMap;
/// use muster_core::policy::Hook;
/// use muster_policy::{Limits, compile};
///
/// let source = "def admit(job):\n    return job.gpus <= 8 or \"at most 8 GPUs\"".to_string();
/// let (bundle, _) = compile(BTreeMap::from([("small.gsky".to_string(), source)]), Limits::default())?;
/// assert!(bundle.hooks.contains(&Hook::Admit));
/// # Ok::<(), muster_policy::PolicyError>(())
/// ```
pub fn compile(files: BTreeMap<String, String>, limits: Limits) -> Result<(Bundle, Program), PolicyError> {
    let program = Program::of_files(&files, limits)?;
    let mut hooks = BTreeSet::new();
    for (file, source) in files.iter().filter(|(file, _)| is_policy(file)) {
        hooks.extend(hooks_of(&program, file, source)?);
    }
    let (rules, mentions) = (program.rules().clone(), program.mentions().clone());
    let bundle = Bundle { hash: hash_of(&files), rules, hooks, mentions, files };
    Ok((bundle, program))
}

/// What one file does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileFacts {
    /// What it registers, with what it loads.
    pub rules: Rules,
    /// The questions it answers.
    pub hooks: Vec<Hook>,
}

/// Compile one of these files as a policy, or as a test if it is one, and say what it does.
pub fn check(
    files: &BTreeMap<String, String>,
    name: &str,
    limits: &Limits,
) -> Result<FileFacts, PolicyError> {
    if !is_policy(name) {
        return load::load_test(files, name, limits, Manner::Tests).map(|_| FileFacts::default());
    }
    let program = Program::of_file(files, name, *limits)?;
    let source = files.get(name).map(String::as_str).unwrap_or_default();
    let hooks = hooks_of(&program, name, source)?;
    Ok(FileFacts { rules: program.rules().clone(), hooks })
}

/// What a question is asked with.
pub(crate) fn parameters_of(hook: Hook) -> &'static [&'static str] {
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
fn hooks_of(program: &Program, file: &str, source: &str) -> Result<Vec<Hook>, PolicyError> {
    let mut hooks = Vec::new();
    for hook in Hook::ALL {
        match complaint(program, file, hook) {
            None => continue,
            Some(Ok(())) => hooks.push(hook),
            Some(Err(what)) => return Err(at_definition(file, source, hook.word(), what)),
        }
    }
    Ok(hooks)
}

/// Nothing where a file does not tell it; else what is wrong with it.
fn complaint(program: &Program, file: &str, hook: Hook) -> Option<Result<(), String>> {
    let (name, asked) = (hook.word(), parameters_of(hook));
    let call = format!("{name}({})", asked.join(", "));
    let Some(takes) = program.takes(file, name) else {
        let kind = program.kind_of(file, name)?;
        return Some(Err(format!("`{name}` is of kind {kind}; the name stands for a function {call}")));
    };
    match takes.fits(asked.len()) {
        true => Some(Ok(())),
        false => Some(Err(format!("`{name}` takes {takes}; it is asked as {call}"))),
    }
}

fn at_definition(file: &str, source: &str, name: &str, what: String) -> PolicyError {
    match place_of(file, source, name) {
        Some(span) => PolicyError::at(&span, what),
        None => PolicyError::Somewhere { file: file.to_string(), what },
    }
}

/// Where a name is told at the top of a file; the last place counts.
pub(crate) fn place_of(file: &str, source: &str, name: &str) -> Option<FileSpan> {
    let ast = AstModule::parse(file, source.to_string(), &dialect()).ok()?;
    let mut found = None;
    visit(ast.statement(), &mut |told, span| {
        if told == name {
            found = Some(span);
        }
    });
    found.map(|span| ast.file_span(span))
}

/// Every name that the top of a file tells.
fn visit(statement: &AstStmt, tell: &mut dyn FnMut(&str, starlark::codemap::Span)) {
    match &statement.node {
        Stmt::Def(def) => tell(&def.name.ident, def.name.span),
        Stmt::Assign(assign) => {
            if let AssignTarget::Identifier(name) = &assign.lhs.node {
                tell(&name.ident, name.span);
            }
        }
        _ => statement.visit_stmt(|inner| visit(inner, tell)),
    }
}

/// Names and contents with their lengths, so that no two bundles look the same.
pub(crate) fn hash_of(files: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    for text in files.iter().flat_map(|(name, source)| [name, source]) {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
