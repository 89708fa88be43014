//! The Starlark dialect of policies, and where a file defines a name.

use starlark::codemap::{FileSpan, Span};
use starlark::syntax::ast::{AssignTarget, AstStmt, Stmt};
use starlark::syntax::{AstModule, Dialect};

/// Standard Starlark with top-level statements, as policies write them.
pub fn dialect() -> Dialect {
    Dialect {
        enable_top_level_stmt: true,
        enable_keyword_only_arguments: true,
        // A file does not re-export the names it loads.
        enable_load_reexport: false,
        ..Dialect::Standard
    }
}

/// The span of the last top-level definition of a name.
pub fn definition_span(file: &str, source: &str, name: &str) -> Option<FileSpan> {
    let ast = AstModule::parse(file, source.to_string(), &dialect()).ok()?;
    let mut found = None;
    visit_top_level_names(ast.statement(), &mut |defined, span| {
        if defined == name {
            found = Some(span);
        }
    });
    found.map(|span| ast.file_span(span))
}

fn visit_top_level_names(statement: &AstStmt, visit: &mut dyn FnMut(&str, Span)) {
    match &statement.node {
        Stmt::Def(def) => visit(&def.name.ident, def.name.span),
        Stmt::Assign(assign) => {
            if let AssignTarget::Identifier(name) = &assign.lhs.node {
                visit(&name.ident, name.span);
            }
        }
        _ => statement.visit_stmt(|inner| visit_top_level_names(inner, visit)),
    }
}
