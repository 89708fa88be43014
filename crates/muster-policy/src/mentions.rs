//! Attribute names and string literals of a file: an upper bound on the attributes that it reads.
//!
//! A policy that never mentions `image` cannot depend on it, so jobs that differ only in their image share one answer.

use std::collections::BTreeSet;

use starlark::syntax::AstModule;
use starlark::syntax::ast::{AstExpr, AstLiteral, AstStmt, Expr, Stmt};

pub fn collect_mentions(ast: &AstModule, mentions: &mut BTreeSet<String>) {
    collect_from_statement(ast.statement(), mentions);
}

fn collect_from_statement(statement: &AstStmt, mentions: &mut BTreeSet<String>) {
    if let Stmt::Assign(assign) = &statement.node {
        assign.lhs.visit_expr(|expression| collect_from_expression(expression, mentions));
    }
    statement.visit_expr(|expression| collect_from_expression(expression, mentions));
}

fn collect_from_expression(expression: &AstExpr, mentions: &mut BTreeSet<String>) {
    match &expression.node {
        Expr::Dot(_, name) => {
            mentions.insert(name.node.clone());
        }
        Expr::Literal(AstLiteral::String(text)) => {
            mentions.insert(text.node.clone());
        }
        _ => {}
    }
    expression.visit_expr(|inner| collect_from_expression(inner, mentions));
}
