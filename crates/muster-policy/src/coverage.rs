//! Which lines of policies ran.
//!
//! The interpreter can tell which statements it ran, but it puts small functions into their callers and leaves out what
//! it can compute beforehand, and then lines that ran are missing. So policies are marked before they are compiled: each
//! statement says its number when it is reached. Marks stay on their line, so lines are what they were.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AstExpr, AstLiteral, AstStmt, Expr, Stmt};
use starlark::values::Value;
use starlark::values::none::NoneType;

use crate::builtins::current_registry;
use crate::load::dialect;

/// Which lines of a policy ran.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Lines on which a statement begins. Functions and what is loaded are no statements here: they always run.
    pub lines: BTreeSet<usize>,
    /// Those of which all statements ran.
    pub reached_lines: BTreeSet<usize>,
}

impl Coverage {
    /// Of a policy that nobody loads. What does not parse has no lines.
    pub fn of_unloaded_file(file: &str, source: &str) -> Coverage {
        let Ok(ast) = AstModule::parse(file, source.to_string(), &dialect()) else {
            return Coverage::default();
        };
        coverage_of_marks(&CoverageRecorder::default().instrument(&ast, source).mark_lines, &BTreeSet::new())
    }

    /// Lines that did not run.
    pub fn missed_lines(&self) -> Vec<usize> {
        self.lines.difference(&self.reached_lines).copied().collect()
    }

    /// Rounded down: only all is 100.
    pub fn percent(&self) -> usize {
        (self.reached_lines.len() * 100).checked_div(self.lines.len()).unwrap_or(100)
    }
}

/// Marks files, and remembers which marks were reached.
#[derive(Debug, Default)]
pub(crate) struct CoverageRecorder {
    files: RefCell<BTreeMap<String, InstrumentedFile>>,
    next_mark: Cell<u32>,
    reached_marks: RefCell<BTreeSet<u32>>,
}

/// The marks of a file.
#[derive(Debug, Clone)]
struct InstrumentedFile {
    /// Each with its line.
    mark_lines: Vec<(u32, usize)>,
    source: String,
}

impl CoverageRecorder {
    /// The source with its marks. The same file has the same marks, however often it is loaded.
    pub fn instrumented_source(&self, file: &str, ast: &AstModule, source: &str) -> String {
        let known = self.files.borrow().get(file).cloned();
        let marked = known.unwrap_or_else(|| self.instrument(ast, source));
        let text = marked.source.clone();
        self.files.borrow_mut().insert(file.to_string(), marked);
        text
    }

    fn instrument(&self, ast: &AstModule, source: &str) -> InstrumentedFile {
        let mut pen = Instrumenter { marker: self, ast, mark_lines: Vec::new(), insertions: Vec::new() };
        pen.instrument_statement(ast.statement());
        let Instrumenter { mark_lines: marks, mut insertions, .. } = pen;
        insertions.sort_by_key(|(place, _)| *place);
        let mut text = source.to_string();
        insertions.iter().rev().for_each(|(place, mark)| text.insert_str(*place, mark));
        InstrumentedFile { mark_lines: marks, source: text }
    }

    /// These marks were reached.
    pub fn record_reached(&self, marks: &BTreeSet<u32>) {
        self.reached_marks.borrow_mut().extend(marks);
    }

    /// What came of it, of every file that was marked.
    pub fn into_coverage(self) -> BTreeMap<String, Coverage> {
        let ran = self.reached_marks.into_inner();
        let files = self.files.into_inner().into_iter();
        files.map(|(file, marked)| (file, coverage_of_marks(&marked.mark_lines, &ran))).collect()
    }
}

fn coverage_of_marks(marks: &[(u32, usize)], ran: &BTreeSet<u32>) -> Coverage {
    let lines: BTreeSet<usize> = marks.iter().map(|(_, line)| *line).collect();
    let missed: BTreeSet<usize> =
        marks.iter().filter(|(mark, _)| !ran.contains(mark)).map(|(_, line)| *line).collect();
    Coverage { reached_lines: lines.difference(&missed).copied().collect(), lines }
}

/// Writes marks into one file.
struct Instrumenter<'a> {
    marker: &'a CoverageRecorder,
    ast: &'a AstModule,
    mark_lines: Vec<(u32, usize)>,
    insertions: Vec<(usize, String)>,
}

impl Instrumenter<'_> {
    fn instrument_statement(&mut self, statement: &AstStmt) {
        match &statement.node {
            Stmt::Statements(all) => all.iter().for_each(|one| self.instrument_statement(one)),
            Stmt::If(condition, then) => {
                self.mark_around_expression(condition, statement);
                self.instrument_statement(then);
            }
            Stmt::IfElse(condition, branches) => {
                self.mark_around_expression(condition, statement);
                self.instrument_statement(&branches.0);
                self.instrument_statement(&branches.1);
            }
            Stmt::For(over) => {
                self.mark_around_expression(&over.over, statement);
                self.instrument_statement(&over.body);
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
        let mark = self.marker.next_mark.get();
        self.marker.next_mark.set(mark + 1);
        let line = self.ast.file_span(statement.span).resolve().span.begin.line + 1;
        self.mark_lines.push((mark, line));
        mark
    }
}

/// A text that stands alone says something to people.
fn is_string_literal(expression: &AstExpr) -> bool {
    matches!(&expression.node, Expr::Literal(AstLiteral::String(_)))
}

/// The marks themselves.
pub(super) fn with_coverage_builtins(builder: GlobalsBuilder) -> GlobalsBuilder {
    builder.with(coverage_builtins)
}

#[starlark_module]
fn coverage_builtins(builder: &mut GlobalsBuilder) {
    fn __ran<'v>(
        #[starlark(require = pos)] mark: u32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
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
