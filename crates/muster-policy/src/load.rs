//! From files to rules. A policy may `load` files that lie beside it, and nothing else.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use muster_core::rules::Rules;
use starlark::PrintHandler;
use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::{Evaluator, ReturnFileLoader};
use starlark::syntax::{AstModule, Dialect};
use starlark::values::FrozenHeapName;

use crate::builtins::{Registry, globals};
use crate::error::PolicyError;
use crate::limits::Limits;
use crate::recursion;

/// How policies end.
pub const ENDING: &str = "gsky";

static GLOBALS: LazyLock<Globals> = LazyLock::new(globals);

/// Run a policy and say what it registered.
pub fn load_file(path: &Path, limits: &Limits) -> Result<Rules, PolicyError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut shelf =
        Shelf { folder, limits, done: BTreeMap::new(), open: Vec::new(), registry: Registry::default() };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    shelf.module(&name, path)?;
    Ok(shelf.registry.into_rules())
}

/// The files that lie beside a policy, as far as they were asked for.
struct Shelf<'a> {
    folder: &'a Path,
    limits: &'a Limits,
    done: BTreeMap<String, FrozenModule>,
    /// Those that are being loaded, the outermost first.
    open: Vec<String>,
    registry: Registry,
}

impl Shelf<'_> {
    /// Run a file after those it loads.
    fn module(&mut self, name: &str, path: &Path) -> Result<(), PolicyError> {
        let source = std::fs::read_to_string(path)
            .map_err(|error| PolicyError::Unreadable { path: path.to_path_buf(), why: error.to_string() })?;
        let shown = path.display().to_string();
        if let Some((line, what)) = self.limits.complaint(&source) {
            return Err(PolicyError::Wrong { file: shown, line, column: 1, what });
        }
        let ast =
            AstModule::parse(&shown, source, &dialect()).map_err(|error| PolicyError::of(&error, &shown))?;
        if let Some((span, what)) = recursion::find(&ast) {
            return Err(PolicyError::at(&span, what));
        }
        self.open.push(name.to_string());
        for load in ast.loads() {
            self.loaded(load.module_id).map_err(|what| match what {
                Ok(error) => error,
                Err(what) => PolicyError::at(&load.span, what),
            })?;
        }
        self.open.pop();
        let module = self.run(ast, &shown)?;
        self.done.insert(name.to_string(), module);
        Ok(())
    }

    /// See to it that a file which is loaded has run. The error is that of the file, or what is wrong with loading it.
    fn loaded(&mut self, id: &str) -> Result<(), Result<PolicyError, String>> {
        if self.done.contains_key(id) {
            return Ok(());
        }
        let path = beside(self.folder, id).map_err(Err)?;
        if self.open.iter().any(|open| open == id) {
            return Err(Err(format!("`{id}` loads itself: {} -> {id}", self.open.join(" -> "))));
        }
        if !path.is_file() {
            return Err(Err(format!("there is no file `{id}` beside this one")));
        }
        self.module(id, &path).map_err(Ok)
    }

    fn run(&self, ast: AstModule, shown: &str) -> Result<FrozenModule, PolicyError> {
        let wrong = |error: starlark::Error| PolicyError::of(&error, shown);
        let modules = self.done.iter().map(|(id, module)| (id.as_str(), module)).collect();
        let loader = ReturnFileLoader { modules: &modules };
        let printer = Quiet { left: std::cell::Cell::new(self.limits.output_bytes) };
        let run = || {
            Module::with_temp_heap(|module| {
                {
                    let mut eval = Evaluator::new(&module);
                    self.limits.bind(&mut eval)?;
                    eval.set_loader(&loader);
                    eval.set_print_handler(&printer);
                    eval.extra = Some(&self.registry);
                    eval.eval_module(ast, &GLOBALS)?;
                }
                Ok(module.freeze_named(FrozenHeapName::User(Box::new(shown.to_string())))?)
            })
        };
        // The interpreter panics where a value grows beyond what it can count; nothing of ours is left half done by that.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(outcome) => outcome.map_err(wrong),
            Err(_) => {
                let what = "a value grows beyond all bounds".to_string();
                Err(PolicyError::Somewhere { file: shown.to_string(), what })
            }
        }
    }
}

/// Starlark as its specification has it, with statements at the top of a file as policies write them.
fn dialect() -> Dialect {
    Dialect { enable_top_level_stmt: true, enable_keyword_only_arguments: true, ..Dialect::Standard }
}

/// The path of a file that lies beside the policy, if that is what was meant.
fn beside(folder: &Path, id: &str) -> Result<PathBuf, String> {
    let mut parts = Path::new(id).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    let ours = id.ends_with(&format!(".{ENDING}")) && !id.contains(['\0', '\\', ':', '@']);
    match plain && ours {
        true => Ok(folder.join(id)),
        false => Err(format!("`{id}` cannot be loaded: only files `NAME.{ENDING}` that lie beside this one")),
    }
}

/// What policies print goes to standard error, up to a limit.
struct Quiet {
    left: std::cell::Cell<usize>,
}

impl PrintHandler for Quiet {
    fn println(&self, text: &str) -> starlark::Result<()> {
        let Some(left) = self.left.get().checked_sub(text.len() + 1) else {
            return Err(starlark::Error::new_other(anyhow::anyhow!("it prints more than it may")));
        };
        self.left.set(left);
        eprintln!("[Policy] {text}");
        Ok(())
    }
}
