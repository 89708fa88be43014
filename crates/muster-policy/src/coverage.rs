//! Line coverage of policies by their tests.
//!
//! The interpreter's own statement coverage misses lines, because the compiler inlines small functions and folds
//! constants. Policies are therefore instrumented before they are compiled: each statement calls a builtin with its
//! mark. A mark is inserted on the line of its statement, so line numbers do not change.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use starlark::environment::{Globals, GlobalsBuilder};
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AstExpr, AstLiteral, AstStmt, Expr, Stmt};
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::builtins::{current_registry, policy_globals_builder};
use crate::syntax::dialect;

/// The globals of instrumented policies.
pub(crate) static COVERAGE_GLOBALS: LazyLock<Globals> =
    LazyLock::new(|| policy_globals_builder().with(coverage_builtins).build());

/// Line coverage of one policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Lines on which a statement begins. `def` and `load` do not count, because they always run.
    pub lines: BTreeSet<usize>,
    /// Lines of which every statement ran.
    pub reached_lines: BTreeSet<usize>,
}

impl Coverage {
    /// The coverage of a policy that no test loads. A source that does not parse has no lines.
    pub fn of_unloaded_file(file: &str, source: &str) -> Coverage {
        let Ok(ast) = AstModule::parse(file, source.to_string(), &dialect()) else {
            return Coverage::default();
        };
        coverage_of_marks(&CoverageRecorder::default().instrument(&ast, source).mark_lines, &BTreeSet::new())
    }

    pub fn missed_lines(&self) -> Vec<usize> {
        self.lines.difference(&self.reached_lines).copied().collect()
    }

    /// Rounded down, so that 100 means every line.
    pub fn percent(&self) -> usize {
        (self.reached_lines.len() * 100).checked_div(self.lines.len()).unwrap_or(100)
    }
}

/// Instruments files and records which marks were reached.
#[derive(Debug, Default)]
pub(crate) struct CoverageRecorder {
    files: RefCell<BTreeMap<String, InstrumentedFile>>,
    next_mark: Cell<u32>,
    reached_marks: RefCell<BTreeSet<u32>>,
}

#[derive(Debug, Clone)]
struct InstrumentedFile {
    /// Each mark with its line.
    mark_lines: Vec<(u32, usize)>,
    source: String,
}

impl CoverageRecorder {
    /// The source with its marks. A file that is loaded several times keeps its marks.
    pub fn instrumented_source(&self, file: &str, ast: &AstModule, source: &str) -> String {
        let known = self.files.borrow().get(file).cloned();
        let instrumented = known.unwrap_or_else(|| self.instrument(ast, source));
        let text = instrumented.source.clone();
        self.files.borrow_mut().insert(file.to_string(), instrumented);
        text
    }

    fn instrument(&self, ast: &AstModule, source: &str) -> InstrumentedFile {
        let mut instrumenter = Instrumenter { recorder: self, ast, mark_lines: Vec::new(), insertions: Vec::new() };
        instrumenter.instrument_statement(ast.statement());
        let Instrumenter { mark_lines, mut insertions, .. } = instrumenter;
        insertions.sort_by_key(|(offset, _)| *offset);
        let mut text = source.to_string();
        insertions.iter().rev().for_each(|(offset, mark)| text.insert_str(*offset, mark));
        InstrumentedFile { mark_lines, source: text }
    }

    pub fn record_reached(&self, marks: &BTreeSet<u32>) {
        self.reached_marks.borrow_mut().extend(marks);
    }

    /// The coverage of every instrumented file.
    pub fn into_coverage(self) -> BTreeMap<String, Coverage> {
        let reached = self.reached_marks.into_inner();
        let files = self.files.into_inner().into_iter();
        files.map(|(name, file)| (name, coverage_of_marks(&file.mark_lines, &reached))).collect()
    }
}

fn coverage_of_marks(mark_lines: &[(u32, usize)], reached: &BTreeSet<u32>) -> Coverage {
    let lines: BTreeSet<usize> = mark_lines.iter().map(|(_, line)| *line).collect();
    let missed: BTreeSet<usize> =
        mark_lines.iter().filter(|(mark, _)| !reached.contains(mark)).map(|(_, line)| *line).collect();
    Coverage { reached_lines: lines.difference(&missed).copied().collect(), lines }
}

/// Inserts marks into one file.
struct Instrumenter<'a> {
    recorder: &'a CoverageRecorder,
    ast: &'a AstModule,
    mark_lines: Vec<(u32, usize)>,
    /// Text to insert, by byte offset.
    insertions: Vec<(usize, String)>,
}

impl Instrumenter<'_> {
    fn instrument_statement(&mut self, statement: &AstStmt) {
        match &statement.node {
            Stmt::Statements(inner) => inner.iter().for_each(|inner| self.instrument_statement(inner)),
            Stmt::If(condition, then) => {
                self.mark_around_expression(condition, statement);
                self.instrument_statement(then);
            }
            Stmt::IfElse(condition, branches) => {
                self.mark_around_expression(condition, statement);
                self.instrument_statement(&branches.0);
                self.instrument_statement(&branches.1);
            }
            Stmt::For(each) => {
                self.mark_around_expression(&each.over, statement);
                self.instrument_statement(&each.body);
            }
            Stmt::Def(def) => self.instrument_statement(&def.body),
            Stmt::Load(_) => {}
            Stmt::Expression(expression) if is_string_literal(expression) => {}
            _ => self.mark_before_statement(statement),
        }
    }

    fn mark_before_statement(&mut self, statement: &AstStmt) {
        let mark = self.new_mark(statement);
        self.insertions.push((statement.span.begin().get() as usize, format!("__ran({mark}); ")));
    }

    fn mark_around_expression(&mut self, expression: &AstExpr, statement: &AstStmt) {
        let mark = self.new_mark(statement);
        self.insertions.push((expression.span.begin().get() as usize, format!("__saw({mark}, (")));
        self.insertions.push((expression.span.end().get() as usize, "))".to_string()));
    }

    fn new_mark(&mut self, statement: &AstStmt) -> u32 {
        let mark = self.recorder.next_mark.get();
        self.recorder.next_mark.set(mark + 1);
        let line = self.ast.file_span(statement.span).resolve().span.begin.line + 1;
        self.mark_lines.push((mark, line));
        mark
    }
}

/// A string literal as a statement is a comment.
fn is_string_literal(expression: &AstExpr) -> bool {
    matches!(&expression.node, Expr::Literal(AstLiteral::String(_)))
}

#[starlark_module]
fn coverage_builtins(builder: &mut GlobalsBuilder) {
    fn __ran<'v>(#[starlark(require = pos)] mark: u32, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        current_registry(eval)?.mark_reached(mark);
        Ok(NoneType)
    }

    fn __saw<'v>(
        #[starlark(require = pos)] mark: u32,
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        current_registry(eval)?.mark_reached(mark);
        Ok(value)
    }
}
