//! From files to rules. A policy may `load` files that lie beside it, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use muster_core::rules::Rules;
use starlark::PrintHandler;
use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::{Evaluator, ReturnFileLoader};
use starlark::syntax::{AstLoad, AstModule, Dialect};
use starlark::values::FrozenHeapName;

use crate::builtins::{Registry, globals};
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::testing::{MARKED_NAMES, Marker, TEST_NAMES};
use crate::{attributes, mentions, recursion, relay};

/// How policies end.
pub const ENDING: &str = "gsky";

static GLOBALS: LazyLock<Globals> = LazyLock::new(globals);

/// Run a policy and say what it registered.
pub fn load_file(path: &Path, limits: &Limits) -> Result<Rules, PolicyError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut shelf = Shelf::new(Source::Folder(folder), limits, Manner::Policies);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    shelf.module(&name)?;
    Ok(shelf.registry.into_rules())
}

/// What became of the files of a bundle.
pub(crate) struct Compiled {
    /// Each file by its name, frozen.
    pub modules: BTreeMap<String, FrozenModule>,
    /// What they registered.
    pub rules: Rules,
    /// Names after a dot and texts that they write.
    pub mentions: BTreeSet<String>,
}

/// Run every policy of a bundle, in the order of their names. Tests of policies are no policies.
pub(crate) fn load_all(files: &BTreeMap<String, String>, limits: &Limits) -> Result<Compiled, PolicyError> {
    let mut shelf = Shelf::new(Source::Bundle(files), limits, Manner::Policies);
    for name in files.keys().filter(|name| is_policy(name)) {
        if !shelf.done.contains_key(name) {
            beside(name).map_err(|what| PolicyError::Somewhere { file: name.clone(), what })?;
            shelf.module(name)?;
        }
    }
    let Shelf { done, registry, mentions, .. } = shelf;
    let rules = registry.into_rules();
    match rules.excess() {
        Some(what) => Err(PolicyError::Somewhere { file: "the bundle".to_string(), what }),
        None => Ok(Compiled { modules: done, rules, mentions }),
    }
}

/// Run one file of a bundle after those it loads.
pub(crate) fn load_one(
    files: &BTreeMap<String, String>,
    name: &str,
    limits: &Limits,
) -> Result<Compiled, PolicyError> {
    let mut shelf = Shelf::new(Source::Bundle(files), limits, Manner::Policies);
    shelf.module(name)?;
    let Shelf { done, registry, mentions, .. } = shelf;
    Ok(Compiled { modules: done, rules: registry.into_rules(), mentions })
}

/// Run a test file after what it loads, and say what that registered. Marks that were reached are told.
pub(crate) fn load_test(
    files: &BTreeMap<String, String>,
    name: &str,
    limits: &Limits,
    manner: Manner,
) -> Result<(FrozenModule, Registry), PolicyError> {
    let mut shelf = Shelf::new(Source::Bundle(files), limits, manner);
    let outcome = shelf.module(name);
    if let Manner::Marked(marker) = manner {
        marker.ran(&shelf.registry.take_ran());
    }
    outcome?;
    let missing = || PolicyError::Somewhere { file: name.to_string(), what: "it has not run".to_string() };
    let module = shelf.done.remove(name).ok_or_else(missing)?;
    Ok((module, shelf.registry))
}

/// For what files are loaded.
#[derive(Clone, Copy)]
pub(crate) enum Manner<'a> {
    /// To be asked.
    Policies,
    /// To be tested.
    Tests,
    /// To see which lines of policies tests reach.
    Marked(&'a Marker),
}

impl Manner<'_> {
    /// What a file finds besides the language.
    fn names(self, file: &str) -> &'static Globals {
        match self {
            Manner::Policies => &GLOBALS,
            Manner::Tests if is_policy(file) => &GLOBALS,
            Manner::Marked(_) if is_policy(file) => &MARKED_NAMES,
            Manner::Tests | Manner::Marked(_) => &TEST_NAMES,
        }
    }
}

/// Whether a file of this name is a policy: not a test of one, nor anything else.
pub fn is_policy(name: &str) -> bool {
    name.strip_suffix(ENDING)
        .and_then(|stem| stem.strip_suffix('.'))
        .is_some_and(|stem| !stem.ends_with("_test"))
}

/// Where files lie.
enum Source<'a> {
    /// In a folder.
    Folder(&'a Path),
    /// In memory.
    Bundle(&'a BTreeMap<String, String>),
}

impl Source<'_> {
    /// How a file is called in messages.
    fn shown(&self, name: &str) -> String {
        match self {
            Source::Folder(folder) => folder.join(name).display().to_string(),
            Source::Bundle(_) => name.to_string(),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Source::Folder(folder) => lies_in(folder, &folder.join(name)),
            Source::Bundle(files) => files.contains_key(name),
        }
    }

    fn read(&self, name: &str, most_bytes: usize) -> Result<String, PolicyError> {
        match self {
            Source::Folder(folder) => {
                let path = folder.join(name);
                let read = read_text(&path, most_bytes);
                read.map_err(|error| PolicyError::Unreadable { path, why: error.to_string() })
            }
            Source::Bundle(files) => files.get(name).cloned().ok_or_else(|| PolicyError::Unreadable {
                path: PathBuf::from(name),
                why: "it is not in the bundle".to_string(),
            }),
        }
    }
}

/// A file as text, if it is not too long. One that grows while it is read is read no further than that.
fn read_text(path: &Path, most_bytes: usize) -> std::io::Result<String> {
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
fn lies_in(folder: &Path, path: &Path) -> bool {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match (folder.canonicalize(), path.canonicalize()) {
        (Ok(folder), Ok(path)) => path.is_file() && path.starts_with(folder),
        _ => false,
    }
}

/// The files that lie beside a policy, as far as they were asked for.
struct Shelf<'a> {
    source: Source<'a>,
    limits: &'a Limits,
    manner: Manner<'a>,
    done: BTreeMap<String, FrozenModule>,
    /// Those that are being loaded, the outermost first.
    open: Vec<String>,
    registry: Registry,
    mentions: BTreeSet<String>,
    /// Of each file, the functions that hand on what they are given.
    relays: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Shelf<'a> {
    fn new(source: Source<'a>, limits: &'a Limits, manner: Manner<'a>) -> Shelf<'a> {
        let (done, open, registry) = (BTreeMap::new(), Vec::new(), Registry::default());
        let (mentions, relays) = (BTreeSet::new(), BTreeMap::new());
        Shelf { source, limits, manner, done, open, registry, mentions, relays }
    }

    /// Run a file after those it loads.
    fn module(&mut self, name: &str) -> Result<(), PolicyError> {
        let source = self.source.read(name, self.limits.source_bytes)?;
        let shown = self.source.shown(name);
        if let Some((line, what)) = self.limits.complaint(&source) {
            return Err(PolicyError::Wrong { file: shown, line, column: 1, what });
        }
        let parse = |source: &str| {
            AstModule::parse(&shown, source.to_string(), &dialect())
                .map_err(|error| PolicyError::of(&error, &shown))
        };
        let mut ast = parse(&source)?;
        if let Some((span, what)) = recursion::find(&ast) {
            return Err(PolicyError::at(&span, what));
        }
        if let Some((span, what)) = attributes::find(&ast).filter(|_| is_policy(name)) {
            return Err(PolicyError::at(&span, what));
        }
        mentions::collect(&ast, &mut self.mentions);
        self.open.push(name.to_string());
        for load in ast.loads() {
            self.loaded(load.module_id).map_err(|what| match what {
                Ok(error) => error,
                Err(what) => PolicyError::at(&load.span, what),
            })?;
        }
        self.open.pop();
        let relays = relay::names(&ast, self.loaded_relays(&ast));
        if let Some((span, what)) = relay::find(&ast, &relays) {
            return Err(PolicyError::at(&span, what));
        }
        self.relays.insert(name.to_string(), relays);
        if let Manner::Marked(marker) = self.manner
            && is_policy(name)
        {
            ast = parse(&marker.marked(name, &ast, &source))?;
        }
        let module = self.run(ast, name, &shown)?;
        self.done.insert(name.to_string(), module);
        Ok(())
    }

    /// Of the functions that a file loads, those that hand on what they are given, under their names there.
    fn loaded_relays(&self, ast: &AstModule) -> BTreeSet<String> {
        let known =
            |module: &str, name: &str| self.relays.get(module).is_some_and(|names| names.contains(name));
        let loads = ast.loads().into_iter();
        let local = |load: AstLoad| {
            let theirs = load.symbols.iter().filter(|(_, their)| known(load.module_id, their));
            theirs.map(|(local, _)| local.to_string()).collect::<Vec<_>>()
        };
        loads.flat_map(local).collect()
    }

    /// See to it that a file which is loaded has run. The error is that of the file, or what is wrong with loading it.
    fn loaded(&mut self, id: &str) -> Result<(), Result<PolicyError, String>> {
        if self.done.contains_key(id) {
            return Ok(());
        }
        beside(id).map_err(Err)?;
        if self.open.iter().any(|open| open == id) {
            return Err(Err(format!("`{id}` loads itself: {} -> {id}", self.open.join(" -> "))));
        }
        if !self.source.has(id) {
            return Err(Err(format!("there is no file `{id}` beside this one")));
        }
        self.module(id).map_err(Ok)
    }

    fn run(&self, ast: AstModule, name: &str, shown: &str) -> Result<FrozenModule, PolicyError> {
        let modules = self.done.iter().map(|(id, module)| (id.as_str(), module)).collect();
        let loader = ReturnFileLoader { modules: &modules };
        let printer = Printer::in_manner(self.manner, self.limits);
        let run = || {
            Module::with_temp_heap(|module| {
                {
                    let mut eval = Evaluator::new(&module);
                    let unbound = |error| PolicyError::of(&starlark::Error::new_other(error), shown);
                    let watch = self.limits.bind_file(&mut eval).map_err(unbound)?;
                    eval.set_loader(&loader);
                    eval.set_print_handler(&printer);
                    eval.extra = Some(&self.registry);
                    let wrong = |error| watch.told(PolicyError::of(&error, shown));
                    eval.eval_module(ast, self.manner.names(name)).map_err(wrong)?;
                }
                let frozen = module.freeze_named(FrozenHeapName::User(Box::new(shown.to_string())));
                frozen.map_err(|error| PolicyError::of(&error.into(), shown))
            })
        };
        // The interpreter panics where a value grows beyond what it can count; nothing of ours is left half done by that.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(outcome) => outcome,
            Err(_) => {
                let what = "a value grows beyond all bounds".to_string();
                Err(PolicyError::Somewhere { file: shown.to_string(), what })
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
fn beside(id: &str) -> Result<(), String> {
    let mut parts = Path::new(id).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    let ours = id.ends_with(&format!(".{ENDING}")) && !id.contains(['\0', '\\', ':', '@']);
    match plain && ours {
        true => Ok(()),
        false => Err(format!("`{id}` cannot be loaded: only files `NAME.{ENDING}` that lie beside this one")),
    }
}

/// What policies print goes to standard error, up to a limit.
pub(crate) struct Printer {
    left: std::cell::Cell<usize>,
    is_heard: bool,
}

impl Printer {
    pub(crate) fn new(most_bytes: usize) -> Printer {
        Printer { left: std::cell::Cell::new(most_bytes), is_heard: true }
    }

    /// What runs a second time was heard before.
    pub(crate) fn in_manner(manner: Manner, limits: &Limits) -> Printer {
        let is_heard = !matches!(manner, Manner::Marked(_));
        Printer { is_heard, ..Printer::new(limits.output_bytes) }
    }
}

impl PrintHandler for Printer {
    fn println(&self, text: &str) -> starlark::Result<()> {
        let Some(left) = self.left.get().checked_sub(text.len() + 1) else {
            return Err(starlark::Error::new_other(anyhow::anyhow!("it prints more than it may")));
        };
        self.left.set(left);
        if self.is_heard {
            eprintln!("[Policy] {text}");
        }
        Ok(())
    }
}
