//! What a file could look at: every name after a dot and every text that it writes.
//!
//! A policy that never writes `image` cannot ask for the image of a job. So jobs that differ only in their images are the
//! same to it, and it is asked once about all of them.

use std::collections::BTreeSet;

use starlark::syntax::AstModule;
use starlark::syntax::ast::{AstExpr, AstLiteral, AstStmt, Expr, Stmt};

/// Add what a file mentions.
pub fn collect(ast: &AstModule, mentions: &mut BTreeSet<String>) {
    of_statement(ast.statement(), mentions);
}

fn of_statement(statement: &AstStmt, mentions: &mut BTreeSet<String>) {
    if let Stmt::Assign(assign) = &statement.node {
        assign.lhs.visit_expr(|expression| of_expression(expression, mentions));
    }
    statement.visit_expr(|expression| of_expression(expression, mentions));
}

fn of_expression(expression: &AstExpr, mentions: &mut BTreeSet<String>) {
    match &expression.node {
        Expr::Dot(_, name) => {
            mentions.insert(name.node.clone());
        }
        Expr::Literal(AstLiteral::String(text)) => {
            mentions.insert(text.node.clone());
        }
        _ => {}
    }
    expression.visit_expr(|inner| of_expression(inner, mentions));
}
