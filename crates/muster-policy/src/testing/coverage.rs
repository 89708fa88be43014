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

use crate::builtins::registry;
use crate::load::dialect;

/// Which lines of a policy ran.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Lines on which a statement begins. Functions and what is loaded are no statements here: they always run.
    pub lines: BTreeSet<usize>,
    /// Those of which all statements ran.
    pub ran: BTreeSet<usize>,
}

impl Coverage {
    /// Of a policy that nobody loads. What does not parse has no lines.
    pub fn unreached(file: &str, source: &str) -> Coverage {
        let Ok(ast) = AstModule::parse(file, source.to_string(), &dialect()) else {
            return Coverage::default();
        };
        coverage(&Marker::default().mark(&ast, source).marks, &BTreeSet::new())
    }

    /// Lines that did not run.
    pub fn missed(&self) -> Vec<usize> {
        self.lines.difference(&self.ran).copied().collect()
    }

    /// Rounded down: only all is 100.
    pub fn percent(&self) -> usize {
        (self.ran.len() * 100).checked_div(self.lines.len()).unwrap_or(100)
    }
}

/// Marks files, and remembers which marks were reached.
#[derive(Debug, Default)]
pub(crate) struct Marker {
    files: RefCell<BTreeMap<String, Marked>>,
    next: Cell<u32>,
    ran: RefCell<BTreeSet<u32>>,
}

/// The marks of a file.
#[derive(Debug, Clone)]
struct Marked {
    /// Each with its line.
    marks: Vec<(u32, usize)>,
    source: String,
}

impl Marker {
    /// The source with its marks. The same file has the same marks, however often it is loaded.
    pub fn marked(&self, file: &str, ast: &AstModule, source: &str) -> String {
        let known = self.files.borrow().get(file).cloned();
        let marked = known.unwrap_or_else(|| self.mark(ast, source));
        let text = marked.source.clone();
        self.files.borrow_mut().insert(file.to_string(), marked);
        text
    }

    fn mark(&self, ast: &AstModule, source: &str) -> Marked {
        let mut pen = Pen { marker: self, ast, marks: Vec::new(), insertions: Vec::new() };
        pen.statement(ast.statement());
        let Pen { marks, mut insertions, .. } = pen;
        insertions.sort_by_key(|(place, _)| *place);
        let mut text = source.to_string();
        insertions.iter().rev().for_each(|(place, mark)| text.insert_str(*place, mark));
        Marked { marks, source: text }
    }

    /// These marks were reached.
    pub fn ran(&self, marks: &BTreeSet<u32>) {
        self.ran.borrow_mut().extend(marks);
    }

    /// What came of it, of every file that was marked.
    pub fn into_coverage(self) -> BTreeMap<String, Coverage> {
        let ran = self.ran.into_inner();
        let files = self.files.into_inner().into_iter();
        files.map(|(file, marked)| (file, coverage(&marked.marks, &ran))).collect()
    }
}

fn coverage(marks: &[(u32, usize)], ran: &BTreeSet<u32>) -> Coverage {
    let lines: BTreeSet<usize> = marks.iter().map(|(_, line)| *line).collect();
    let missed: BTreeSet<usize> =
        marks.iter().filter(|(mark, _)| !ran.contains(mark)).map(|(_, line)| *line).collect();
    Coverage { ran: lines.difference(&missed).copied().collect(), lines }
}

/// Writes marks into one file.
struct Pen<'a> {
    marker: &'a Marker,
    ast: &'a AstModule,
    marks: Vec<(u32, usize)>,
    insertions: Vec<(usize, String)>,
}

impl Pen<'_> {
    fn statement(&mut self, statement: &AstStmt) {
        match &statement.node {
            Stmt::Statements(all) => all.iter().for_each(|one| self.statement(one)),
            Stmt::If(condition, then) => {
                self.around(condition, statement);
                self.statement(then);
            }
            Stmt::IfElse(condition, branches) => {
                self.around(condition, statement);
                self.statement(&branches.0);
                self.statement(&branches.1);
            }
            Stmt::For(over) => {
                self.around(&over.over, statement);
                self.statement(&over.body);
            }
            Stmt::Def(def) => self.statement(&def.body),
            Stmt::Load(_) => {}
            Stmt::Expression(expression) if is_text(expression) => {}
            _ => self.before(statement),
        }
    }

    fn before(&mut self, statement: &AstStmt) {
        let mark = self.number(statement);
        self.insertions.push((statement.span.begin().get() as usize, format!("__ran({mark}); ")));
    }

    fn around(&mut self, expression: &AstExpr, statement: &AstStmt) {
        let mark = self.number(statement);
        self.insertions.push((expression.span.begin().get() as usize, format!("__saw({mark}, (")));
        self.insertions.push((expression.span.end().get() as usize, "))".to_string()));
    }

    fn number(&mut self, statement: &AstStmt) -> u32 {
        let mark = self.marker.next.get();
        self.marker.next.set(mark + 1);
        let line = self.ast.file_span(statement.span).resolve().span.begin.line + 1;
        self.marks.push((mark, line));
        mark
    }
}

/// A text that stands alone says something to people.
fn is_text(expression: &AstExpr) -> bool {
    matches!(&expression.node, Expr::Literal(AstLiteral::String(_)))
}

/// The marks themselves.
pub(super) fn marks(builder: GlobalsBuilder) -> GlobalsBuilder {
    builder.with(functions)
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn __ran<'v>(
        #[starlark(require = pos)] mark: u32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        registry(eval)?.reached(mark);
        Ok(NoneType)
    }

    fn __saw<'v>(
        #[starlark(require = pos)] mark: u32,
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        registry(eval)?.reached(mark);
        Ok(value)
    }
}
