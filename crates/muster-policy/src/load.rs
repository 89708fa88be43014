//! From files to rules. A policy may `load` files that lie beside it, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use muster_core::objects::policy::rules::Rules;
use starlark::PrintHandler;
use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::{Evaluator, ReturnFileLoader};
use starlark::syntax::{AstLoad, AstModule, Dialect};
use starlark::values::FrozenHeapName;

use crate::builtins::{Registry, policy_globals};
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::testing::{COVERAGE_GLOBALS, CoverageRecorder, TEST_GLOBALS};
use crate::{unknown_attributes, mentions, recursion, self_application};

/// How policies end.
pub const POLICY_EXTENSION: &str = "gsky";

static GLOBALS: LazyLock<Globals> = LazyLock::new(policy_globals);

/// Run a policy and say what it registered.
pub fn load_file(path: &Path, limits: &Limits) -> Result<Rules, PolicyError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut shelf = BundleLoader::new(FileSource::Folder(folder), limits, LoadMode::Policies);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    shelf.load_module(&name)?;
    Ok(shelf.registry.into_rules())
}

/// What became of the files of a bundle.
pub(crate) struct CompiledFiles {
    /// Each file by its name, frozen.
    pub modules: BTreeMap<String, FrozenModule>,
    /// What they registered.
    pub rules: Rules,
    /// Names after a dot and texts that they write.
    pub mentions: BTreeSet<String>,
}

/// Run every policy of a bundle, in the order of their names. Tests of policies are no policies.
pub(crate) fn load_policies(files: &BTreeMap<String, String>, limits: &Limits) -> Result<CompiledFiles, PolicyError> {
    let mut shelf = BundleLoader::new(FileSource::Bundle(files), limits, LoadMode::Policies);
    for name in files.keys().filter(|name| is_policy_file(name)) {
        if !shelf.loaded_modules.contains_key(name) {
            check_load_path(name).map_err(|what| PolicyError::Invalid { file: name.clone(), message: what })?;
            shelf.load_module(name)?;
        }
    }
    let BundleLoader { loaded_modules: done, registry, mentions, .. } = shelf;
    let rules = registry.into_rules();
    match rules.excess() {
        Some(what) => Err(PolicyError::Invalid { file: "the bundle".to_string(), message: what }),
        None => Ok(CompiledFiles { modules: done, rules, mentions }),
    }
}

/// Run one file of a bundle after those it loads.
pub(crate) fn load_policy_file(
    files: &BTreeMap<String, String>,
    name: &str,
    limits: &Limits,
) -> Result<CompiledFiles, PolicyError> {
    let mut shelf = BundleLoader::new(FileSource::Bundle(files), limits, LoadMode::Policies);
    shelf.load_module(name)?;
    let BundleLoader { loaded_modules: done, registry, mentions, .. } = shelf;
    Ok(CompiledFiles { modules: done, rules: registry.into_rules(), mentions })
}

/// Run a test file after what it loads, and say what that registered. Marks that were reached are told.
pub(crate) fn load_test_file(
    files: &BTreeMap<String, String>,
    name: &str,
    limits: &Limits,
    manner: LoadMode,
) -> Result<(FrozenModule, Registry), PolicyError> {
    let mut shelf = BundleLoader::new(FileSource::Bundle(files), limits, manner);
    let outcome = shelf.load_module(name);
    if let LoadMode::Coverage(marker) = manner {
        marker.record_reached(&shelf.registry.take_reached_marks());
    }
    outcome?;
    let missing = || PolicyError::Invalid { file: name.to_string(), message: "it has not run".to_string() };
    let module = shelf.loaded_modules.remove(name).ok_or_else(missing)?;
    Ok((module, shelf.registry))
}

/// For what files are loaded.
#[derive(Clone, Copy)]
pub(crate) enum LoadMode<'a> {
    /// To be asked.
    Policies,
    /// To be tested.
    Tests,
    /// To see which lines of policies tests reach.
    Coverage(&'a CoverageRecorder),
}

impl LoadMode<'_> {
    /// What a file finds besides the language.
    fn globals_for(self, file: &str) -> &'static Globals {
        match self {
            LoadMode::Policies => &GLOBALS,
            LoadMode::Tests if is_policy_file(file) => &GLOBALS,
            LoadMode::Coverage(_) if is_policy_file(file) => &COVERAGE_GLOBALS,
            LoadMode::Tests | LoadMode::Coverage(_) => &TEST_GLOBALS,
        }
    }
}

/// Whether a file of this name is a policy: not a test of one, nor anything else.
pub fn is_policy_file(name: &str) -> bool {
    name.strip_suffix(POLICY_EXTENSION)
        .and_then(|stem| stem.strip_suffix('.'))
        .is_some_and(|stem| !stem.ends_with("_test"))
}

/// Where files lie.
enum FileSource<'a> {
    /// In a folder.
    Folder(&'a Path),
    /// In memory.
    Bundle(&'a BTreeMap<String, String>),
}

impl FileSource<'_> {
    /// How a file is called in messages.
    fn display_name(&self, name: &str) -> String {
        match self {
            FileSource::Folder(folder) => folder.join(name).display().to_string(),
            FileSource::Bundle(_) => name.to_string(),
        }
    }

    fn contains(&self, name: &str) -> bool {
        match self {
            FileSource::Folder(folder) => is_inside_folder(folder, &folder.join(name)),
            FileSource::Bundle(files) => files.contains_key(name),
        }
    }

    fn read(&self, name: &str, most_bytes: usize) -> Result<String, PolicyError> {
        match self {
            FileSource::Folder(folder) => {
                let path = folder.join(name);
                let read = read_text_bounded(&path, most_bytes);
                read.map_err(|error| PolicyError::Unreadable { path, reason: error.to_string() })
            }
            FileSource::Bundle(files) => files.get(name).cloned().ok_or_else(|| PolicyError::Unreadable {
                path: PathBuf::from(name),
                reason: "it is not in the bundle".to_string(),
            }),
        }
    }
}

/// A file as text, if it is not too long. One that grows while it is read is read no further than that.
fn read_text_bounded(path: &Path, most_bytes: usize) -> std::io::Result<String> {
    let file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > most_bytes as u64 {
        return Err(std::io::Error::other(format!("the file has {bytes} bytes, {most_bytes} are the most")));
    }
    let mut text = String::new();
    file.take(most_bytes as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a file lies in a folder, also after following links: one that leads elsewhere does not lie beside a policy.
fn is_inside_folder(folder: &Path, path: &Path) -> bool {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match (folder.canonicalize(), path.canonicalize()) {
        (Ok(folder), Ok(path)) => path.is_file() && path.starts_with(folder),
        _ => false,
    }
}

/// The files that lie beside a policy, as far as they were asked for.
struct BundleLoader<'a> {
    source: FileSource<'a>,
    limits: &'a Limits,
    mode: LoadMode<'a>,
    loaded_modules: BTreeMap<String, FrozenModule>,
    /// Those that are being loaded, the outermost first.
    loading: Vec<String>,
    registry: Registry,
    mentions: BTreeSet<String>,
    /// Of each file, the functions that hand on what they are given.
    self_applying: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> BundleLoader<'a> {
    fn new(source: FileSource<'a>, limits: &'a Limits, manner: LoadMode<'a>) -> BundleLoader<'a> {
        let (done, open, registry) = (BTreeMap::new(), Vec::new(), Registry::default());
        let (mentions, relays) = (BTreeSet::new(), BTreeMap::new());
        BundleLoader { source, limits, mode: manner, loaded_modules: done, loading: open, registry, mentions, self_applying: relays }
    }

    /// Run a file after those it loads.
    fn load_module(&mut self, name: &str) -> Result<(), PolicyError> {
        let source = self.source.read(name, self.limits.source_bytes)?;
        let shown = self.source.display_name(name);
        if let Some((line, what)) = self.limits.source_problem(&source) {
            return Err(PolicyError::InvalidAt { file: shown, line, column: 1, message: what });
        }
        let parse = |source: &str| {
            AstModule::parse(&shown, source.to_string(), &dialect())
                .map_err(|error| PolicyError::from_starlark(&error, &shown))
        };
        let mut ast = parse(&source)?;
        if let Some((span, what)) = recursion::first_recursion(&ast) {
            return Err(PolicyError::at_span(&span, what));
        }
        if let Some((span, what)) = unknown_attributes::first_unknown_attribute(&ast).filter(|_| is_policy_file(name)) {
            return Err(PolicyError::at_span(&span, what));
        }
        mentions::collect_mentions(&ast, &mut self.mentions);
        self.loading.push(name.to_string());
        for load in ast.loads() {
            self.ensure_loaded(load.module_id).map_err(|what| match what {
                Ok(error) => error,
                Err(what) => PolicyError::at_span(&load.span, what),
            })?;
        }
        self.loading.pop();
        let relays = self_application::self_applying_functions(&ast, self.loaded_self_applying(&ast));
        if let Some((span, what)) = self_application::first_use_as_value(&ast, &relays) {
            return Err(PolicyError::at_span(&span, what));
        }
        self.self_applying.insert(name.to_string(), relays);
        if let LoadMode::Coverage(marker) = self.mode
            && is_policy_file(name)
        {
            ast = parse(&marker.instrumented_source(name, &ast, &source))?;
        }
        let module = self.evaluate(ast, name, &shown)?;
        self.loaded_modules.insert(name.to_string(), module);
        Ok(())
    }

    /// Of the functions that a file loads, those that hand on what they are given, under their names there.
    fn loaded_self_applying(&self, ast: &AstModule) -> BTreeSet<String> {
        let known =
            |module: &str, name: &str| self.self_applying.get(module).is_some_and(|names| names.contains(name));
        let loads = ast.loads().into_iter();
        let local = |load: AstLoad| {
            let theirs = load.symbols.iter().filter(|(_, their)| known(load.module_id, their));
            theirs.map(|(local, _)| local.to_string()).collect::<Vec<_>>()
        };
        loads.flat_map(local).collect()
    }

    /// See to it that a file which is loaded has run. The error is that of the file, or what is wrong with loading it.
    fn ensure_loaded(&mut self, id: &str) -> Result<(), Result<PolicyError, String>> {
        if self.loaded_modules.contains_key(id) {
            return Ok(());
        }
        check_load_path(id).map_err(Err)?;
        if self.loading.iter().any(|open| open == id) {
            return Err(Err(format!("`{id}` loads itself: {} -> {id}", self.loading.join(" -> "))));
        }
        if !self.source.contains(id) {
            return Err(Err(format!("there is no file `{id}` beside this one")));
        }
        self.load_module(id).map_err(Ok)
    }

    fn evaluate(&self, ast: AstModule, name: &str, shown: &str) -> Result<FrozenModule, PolicyError> {
        let modules = self.loaded_modules.iter().map(|(id, module)| (id.as_str(), module)).collect();
        let loader = ReturnFileLoader { modules: &modules };
        let printer = Printer::for_mode(self.mode, self.limits);
        let run = || {
            Module::with_temp_heap(|module| {
                {
                    let mut eval = Evaluator::new(&module);
                    let unbound = |error| PolicyError::from_starlark(&starlark::Error::new_other(error), shown);
                    let watch = self.limits.limit_file_run(&mut eval).map_err(unbound)?;
                    eval.set_loader(&loader);
                    eval.set_print_handler(&printer);
                    eval.extra = Some(&self.registry);
                    let wrong = |error| watch.with_exceeded_limit(PolicyError::from_starlark(&error, shown));
                    eval.eval_module(ast, self.mode.globals_for(name)).map_err(wrong)?;
                }
                let frozen = module.freeze_named(FrozenHeapName::User(Box::new(shown.to_string())));
                frozen.map_err(|error| PolicyError::from_starlark(&error.into(), shown))
            })
        };
        // The interpreter panics where a value grows beyond what it can count; nothing of ours is left half done by that.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(outcome) => outcome,
            Err(_) => {
                let what = "a value grows beyond all bounds".to_string();
                Err(PolicyError::Invalid { file: shown.to_string(), message: what })
            }
        }
    }
}

/// Starlark as its specification has it, with statements at the top of a file as policies write them.
pub(crate) fn dialect() -> Dialect {
    Dialect {
        enable_top_level_stmt: true,
        enable_keyword_only_arguments: true,
        // What a file loads is its own affair.
        enable_load_reexport: false,
        ..Dialect::Standard
    }
}

/// Whether a file that lies beside the policy is meant.
fn check_load_path(id: &str) -> Result<(), String> {
    let mut parts = Path::new(id).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    let ours = id.ends_with(&format!(".{POLICY_EXTENSION}")) && !id.contains(['\0', '\\', ':', '@']);
    match plain && ours {
        true => Ok(()),
        false => Err(format!("`{id}` cannot be loaded: only files `NAME.{POLICY_EXTENSION}` that lie beside this one")),
    }
}

/// What policies print goes to standard error, up to a limit.
pub(crate) struct Printer {
    bytes_left: std::cell::Cell<usize>,
    prints_to_stderr: bool,
}

impl Printer {
    pub(crate) fn new(most_bytes: usize) -> Printer {
        Printer { bytes_left: std::cell::Cell::new(most_bytes), prints_to_stderr: true }
    }

    /// What runs a second time was heard before.
    pub(crate) fn for_mode(manner: LoadMode, limits: &Limits) -> Printer {
        let is_heard = !matches!(manner, LoadMode::Coverage(_));
        Printer { prints_to_stderr: is_heard, ..Printer::new(limits.output_bytes) }
    }
}

impl PrintHandler for Printer {
    fn println(&self, text: &str) -> starlark::Result<()> {
        let Some(left) = self.bytes_left.get().checked_sub(text.len() + 1) else {
            return Err(starlark::Error::new_other(anyhow::anyhow!("it prints more than it may")));
        };
        self.bytes_left.set(left);
        if self.prints_to_stderr {
            eprintln!("[Policy] {text}");
        }
        Ok(())
    }
}
