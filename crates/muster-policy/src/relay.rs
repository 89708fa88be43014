//! Functions that hand what they are given to what they are given, such as `lambda g: g(g)`.
//!
//! They are the one way to recursion that names do not show. While a file is compiled, the interpreter puts the
//! bodies of small functions in the place of their calls, and with `f(f)` it would never come to an end of that.
//! Such a function can be called like any other; as a value, for others to call, it is refused.

use std::collections::BTreeSet;

use starlark::codemap::{FileSpan, Span};
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AssignTarget, AstExpr, AstParameter, AstStmt, Expr, Parameter, Stmt};

/// The functions of a file that hand on, by name. Those that it loads are known already, by their names here.
pub fn names(ast: &AstModule, loaded: BTreeSet<String>) -> BTreeSet<String> {
    let mut names = loaded;
    collect(ast.statement(), &mut names);
    names
}

/// The first place where one of them is a value.
pub fn find(ast: &AstModule, names: &BTreeSet<String>) -> Option<(FileSpan, String)> {
    let mut found = None;
    search(ast.statement(), names, &mut found);
    let what = "a function that calls what it is given with what it is given cannot be handed on itself";
    found.map(|span| (ast.file_span(span), what.to_string()))
}

fn collect(statement: &AstStmt, names: &mut BTreeSet<String>) {
    match &statement.node {
        Stmt::Def(def) => {
            let own = parameters(&def.params);
            let mut relays = false;
            in_body(&def.body, &mut |expression| relays |= hands_on(expression, &own));
            if relays {
                names.insert(def.name.ident.clone());
            }
        }
        Stmt::Assign(assign) => {
            if let (AssignTarget::Identifier(name), Expr::Lambda(lambda)) =
                (&assign.lhs.node, &assign.rhs.node)
                && hands_on(&lambda.body, &parameters(&lambda.params))
            {
                names.insert(name.ident.clone());
            }
        }
        _ => {}
    }
    statement.visit_stmt(|inner| collect(inner, names));
}

fn parameters(parameters: &[AstParameter]) -> BTreeSet<String> {
    let name = |parameter: &AstParameter| match &parameter.node {
        Parameter::Normal(name, ..) | Parameter::Args(name, _) | Parameter::KwArgs(name, _) => {
            Some(name.ident.clone())
        }
        Parameter::Slash | Parameter::NoArgs => None,
    };
    parameters.iter().filter_map(name).collect()
}

/// The expressions of a body, without those of functions that are told inside.
fn in_body<'a>(statement: &'a AstStmt, look: &mut dyn FnMut(&'a AstExpr)) {
    use starlark_syntax::syntax::uniplate::Visit;
    statement.node.visit_children(|child| match child {
        Visit::Stmt(inner) if matches!(inner.node, Stmt::Def(_)) => {}
        Visit::Stmt(inner) => in_body(inner, look),
        Visit::Expr(expression) => look(expression),
    });
}

/// Whether somewhere in an expression one of these is called with one of these.
fn hands_on(expression: &AstExpr, own: &BTreeSet<String>) -> bool {
    let here = match &expression.node {
        Expr::Lambda(_) => return false,
        // A method is called on a value, which is no function.
        Expr::Call(called, _) if matches!(called.node, Expr::Dot(..)) => false,
        Expr::Call(called, args) => {
            mentions(called, own) && args.args.iter().any(|arg| mentions(arg.expr(), own))
        }
        _ => false,
    };
    let mut inside = here;
    expression.visit_expr(|inner| inside = inside || hands_on(inner, own));
    inside
}

fn mentions(expression: &AstExpr, own: &BTreeSet<String>) -> bool {
    let mut found = matches!(&expression.node, Expr::Identifier(name) if own.contains(&name.ident));
    expression.visit_expr(|inner| found = found || mentions(inner, own));
    found
}

fn search(statement: &AstStmt, names: &BTreeSet<String>, found: &mut Option<Span>) {
    use starlark_syntax::syntax::uniplate::Visit;
    if let Stmt::Assign(assign) = &statement.node
        && matches!((&assign.lhs.node, &assign.rhs.node), (AssignTarget::Identifier(_), Expr::Lambda(_)))
    {
        // It has a name by this, and is looked for under it.
        return assign.rhs.visit_expr(|inner| search_in(inner, names, found));
    }
    statement.node.visit_children(|child| match child {
        Visit::Stmt(inner) => search(inner, names, found),
        Visit::Expr(expression) => search_in(expression, names, found),
    });
}

fn search_in(expression: &AstExpr, names: &BTreeSet<String>, found: &mut Option<Span>) {
    let is_relay = match &expression.node {
        Expr::Identifier(name) => names.contains(&name.ident),
        Expr::Lambda(lambda) => hands_on(&lambda.body, &parameters(&lambda.params)),
        _ => false,
    };
    if is_relay && found.is_none() {
        *found = Some(expression.span);
    }
    match &expression.node {
        // Called by its name, it is no value.
        Expr::Call(called, args) if matches!(called.node, Expr::Identifier(_) | Expr::Lambda(_)) => {
            called.visit_expr(|inner| search_in(inner, names, found));
            args.args.iter().for_each(|arg| search_in(arg.expr(), names, found));
        }
        _ => expression.visit_expr(|inner| search_in(inner, names, found)),
    }
}
