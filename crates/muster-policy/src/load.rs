//! Loads policy files: checks each source, runs it after the files it loads, and collects what it registers. A policy
//! may `load` files of its own folder and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use muster_core::objects::policy::rules::Rules;
use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::{Evaluator, ReturnFileLoader};
use starlark::syntax::{AstLoad, AstModule};
use starlark::values::FrozenHeapName;

use crate::builtins::{Registry, policy_globals};
use crate::coverage::{COVERAGE_GLOBALS, CoverageRecorder};
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::policy_files::{FileSource, check_load_path, is_policy_file};
use crate::printer::Printer;
use crate::syntax::dialect;
use crate::test_builtins::TEST_GLOBALS;
use crate::{mentions, recursion, self_application, unknown_attributes};

static GLOBALS: LazyLock<Globals> = LazyLock::new(policy_globals);

/// Run a policy file, and return what it registered.
pub fn load_file(path: &Path, limits: &Limits) -> Result<Rules, PolicyError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut loader = BundleLoader::new(FileSource::Folder(folder), limits, LoadMode::Policies);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    loader.load_module(&name)?;
    Ok(loader.registry.into_rules())
}

/// The compiled files of a bundle.
pub(crate) struct CompiledFiles {
    /// Frozen modules by file name.
    pub modules: BTreeMap<String, FrozenModule>,
    pub rules: Rules,
    /// Attribute names and string literals of the files.
    pub mentions: BTreeSet<String>,
}

/// Run every policy of a bundle, in the order of file names. Test files are skipped.
pub(crate) fn load_policies(files: &BTreeMap<String, String>, limits: &Limits) -> Result<CompiledFiles, PolicyError> {
    let mut loader = BundleLoader::new(FileSource::Bundle(files), limits, LoadMode::Policies);
    for name in files.keys().filter(|name| is_policy_file(name)) {
        if !loader.loaded_modules.contains_key(name) {
            check_load_path(name).map_err(|message| PolicyError::Invalid { file: name.clone(), message })?;
            loader.load_module(name)?;
        }
    }
    let compiled = loader.into_compiled();
    match compiled.rules.excess() {
        Some(message) => Err(PolicyError::Invalid { file: "the bundle".to_string(), message }),
        None => Ok(compiled),
    }
}

/// Run one file of a bundle after the files it loads.
pub(crate) fn load_policy_file(
    files: &BTreeMap<String, String>,
    name: &str,
    limits: &Limits,
) -> Result<CompiledFiles, PolicyError> {
    let mut loader = BundleLoader::new(FileSource::Bundle(files), limits, LoadMode::Policies);
    loader.load_module(name)?;
    Ok(loader.into_compiled())
}

/// Run a test file after the files it loads, and return its module with what all of them registered. In coverage mode
/// the recorder gets the marks that were reached.
pub(crate) fn load_test_file(
    files: &BTreeMap<String, String>,
    name: &str,
    limits: &Limits,
    mode: LoadMode,
) -> Result<(FrozenModule, Registry), PolicyError> {
    let mut loader = BundleLoader::new(FileSource::Bundle(files), limits, mode);
    let outcome = loader.load_module(name);
    if let LoadMode::Coverage(recorder) = mode {
        recorder.record_reached(&loader.registry.take_reached_marks());
    }
    outcome?;
    let not_evaluated =
        || PolicyError::Invalid { file: name.to_string(), message: "the file was not evaluated".to_string() };
    let module = loader.loaded_modules.remove(name).ok_or_else(not_evaluated)?;
    Ok((module, loader.registry))
}

/// The purpose of a load. It decides which builtins a file sees.
#[derive(Clone, Copy)]
pub(crate) enum LoadMode<'a> {
    /// Policies, for their rules and hooks.
    Policies,
    /// Test files and the policies they load.
    Tests,
    /// The same with instrumented policies, to record which lines the tests reach.
    Coverage(&'a CoverageRecorder),
}

impl LoadMode<'_> {
    fn globals_for(self, file: &str) -> &'static Globals {
        match self {
            LoadMode::Policies => &GLOBALS,
            LoadMode::Tests if is_policy_file(file) => &GLOBALS,
            LoadMode::Coverage(_) if is_policy_file(file) => &COVERAGE_GLOBALS,
            LoadMode::Tests | LoadMode::Coverage(_) => &TEST_GLOBALS,
        }
    }

    /// The run for coverage repeats the run of the tests, whose output was printed before.
    pub(crate) fn printer(self, limits: &Limits) -> Printer {
        match self {
            LoadMode::Policies | LoadMode::Tests => Printer::new(limits.output_bytes),
            LoadMode::Coverage(_) => Printer::silent(limits.output_bytes),
        }
    }
}

/// Loads the files of one folder or bundle, each at most once.
struct BundleLoader<'a> {
    source: FileSource<'a>,
    limits: &'a Limits,
    mode: LoadMode<'a>,
    loaded_modules: BTreeMap<String, FrozenModule>,
    /// The files being loaded, outermost first.
    loading: Vec<String>,
    registry: Registry,
    mentions: BTreeSet<String>,
    /// Self-applying functions by file.
    self_applying: BTreeMap<String, BTreeSet<String>>,
}

/// Why a file named by `load` could not be loaded.
enum LoadFailure {
    /// The file itself has an error.
    InFile(PolicyError),
    /// The `load` statement is wrong, for this reason.
    InStatement(String),
}

impl<'a> BundleLoader<'a> {
    fn new(source: FileSource<'a>, limits: &'a Limits, mode: LoadMode<'a>) -> BundleLoader<'a> {
        BundleLoader {
            source,
            limits,
            mode,
            loaded_modules: BTreeMap::new(),
            loading: Vec::new(),
            registry: Registry::default(),
            mentions: BTreeSet::new(),
            self_applying: BTreeMap::new(),
        }
    }

    fn into_compiled(self) -> CompiledFiles {
        CompiledFiles { modules: self.loaded_modules, rules: self.registry.into_rules(), mentions: self.mentions }
    }

    /// Check a file, load the files it names, and run it.
    fn load_module(&mut self, name: &str) -> Result<(), PolicyError> {
        let source = self.source.read(name, self.limits.source_bytes)?;
        let shown = self.source.display_name(name);
        if let Some((line, message)) = self.limits.source_problem(&source) {
            return Err(PolicyError::InvalidAt { file: shown, line, column: 1, message });
        }
        let parse = |source: &str| {
            AstModule::parse(&shown, source.to_string(), &dialect())
                .map_err(|error| PolicyError::from_starlark(&error, &shown))
        };
        let mut ast = parse(&source)?;
        if let Some((span, message)) = recursion::first_recursion(&ast) {
            return Err(PolicyError::at_span(&span, message));
        }
        if is_policy_file(name)
            && let Some((span, message)) = unknown_attributes::first_unknown_attribute(&ast)
        {
            return Err(PolicyError::at_span(&span, message));
        }
        mentions::collect_mentions(&ast, &mut self.mentions);
        self.loading.push(name.to_string());
        for load in ast.loads() {
            self.ensure_loaded(load.module_id).map_err(|failure| match failure {
                LoadFailure::InFile(error) => error,
                LoadFailure::InStatement(message) => PolicyError::at_span(&load.span, message),
            })?;
        }
        self.loading.pop();
        let self_applying = self_application::self_applying_functions(&ast, self.loaded_self_applying(&ast));
        if let Some((span, message)) = self_application::first_use_as_value(&ast, &self_applying) {
            return Err(PolicyError::at_span(&span, message));
        }
        self.self_applying.insert(name.to_string(), self_applying);
        if let LoadMode::Coverage(recorder) = self.mode
            && is_policy_file(name)
        {
            ast = parse(&recorder.instrumented_source(name, &ast, &source))?;
        }
        let module = self.evaluate(ast, name, &shown)?;
        self.loaded_modules.insert(name.to_string(), module);
        Ok(())
    }

    /// The self-applying functions that a file loads, under their local names.
    fn loaded_self_applying(&self, ast: &AstModule) -> BTreeSet<String> {
        let is_self_applying =
            |module: &str, name: &str| self.self_applying.get(module).is_some_and(|names| names.contains(name));
        let local_names = |load: AstLoad| {
            let symbols = load.symbols.iter().filter(|(_, original)| is_self_applying(load.module_id, original));
            symbols.map(|(local, _)| local.to_string()).collect::<Vec<_>>()
        };
        ast.loads().into_iter().flat_map(local_names).collect()
    }

    /// Load a file named by `load`, unless it is loaded already.
    fn ensure_loaded(&mut self, id: &str) -> Result<(), LoadFailure> {
        if self.loaded_modules.contains_key(id) {
            return Ok(());
        }
        check_load_path(id).map_err(LoadFailure::InStatement)?;
        if self.loading.iter().any(|loading| loading == id) {
            let message = format!("`{id}` loads itself: {} -> {id}", self.loading.join(" -> "));
            return Err(LoadFailure::InStatement(message));
        }
        if !self.source.contains(id) {
            return Err(LoadFailure::InStatement(format!("there is no file `{id}` in the same folder")));
        }
        self.load_module(id).map_err(LoadFailure::InFile)
    }

    fn evaluate(&self, ast: AstModule, name: &str, shown: &str) -> Result<FrozenModule, PolicyError> {
        let modules = self.loaded_modules.iter().map(|(id, module)| (id.as_str(), module)).collect();
        let loader = ReturnFileLoader { modules: &modules };
        let printer = self.mode.printer(self.limits);
        let run = || {
            Module::with_temp_heap(|module| {
                {
                    let mut eval = Evaluator::new(&module);
                    let not_limited = |error| PolicyError::from_starlark(&starlark::Error::new_other(error), shown);
                    let watchdog = self.limits.limit_file_run(&mut eval).map_err(not_limited)?;
                    eval.set_loader(&loader);
                    eval.set_print_handler(&printer);
                    eval.extra = Some(&self.registry);
                    let failed = |error| watchdog.with_exceeded_limit(PolicyError::from_starlark(&error, shown));
                    eval.eval_module(ast, self.mode.globals_for(name)).map_err(failed)?;
                }
                let frozen = module.freeze_named(FrozenHeapName::User(Box::new(shown.to_string())));
                frozen.map_err(|error| PolicyError::from_starlark(&error.into(), shown))
            })
        };
        // The interpreter panics if a value exceeds what it can represent. The panic leaves no state half changed: the
        // module is dropped.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(outcome) => outcome,
            Err(_) => {
                let message = "a value exceeds what the interpreter can represent".to_string();
                Err(PolicyError::Invalid { file: shown.to_string(), message })
            }
        }
    }
}
