//! Detects self-applying functions, which call one of their parameters with a parameter, such as `lambda g: g(g)`.
//!
//! They allow recursion without naming themselves. The compiler inlines calls of small functions, which would not
//! terminate on `f(f)`. Such a function may be called by name but is rejected as a value.

use std::collections::BTreeSet;

use starlark::codemap::{FileSpan, Span};
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AssignTarget, AstExpr, AstParameter, AstStmt, Expr, Parameter, Stmt};

/// The self-applying functions of a file, by name. `loaded` are those that the file loads, by their local names.
pub fn self_applying_functions(ast: &AstModule, loaded: BTreeSet<String>) -> BTreeSet<String> {
    let mut names = loaded;
    collect_self_applying(ast.statement(), &mut names);
    names
}

/// The first use of a self-applying function as a value, with a message.
pub fn first_use_as_value(ast: &AstModule, names: &BTreeSet<String>) -> Option<(FileSpan, String)> {
    let mut found = None;
    find_value_in_statement(ast.statement(), names, &mut found);
    let message = "a function that calls one of its parameters with a parameter as argument cannot be used as a value: \
                   it could call itself";
    found.map(|span| (ast.file_span(span), message.to_string()))
}

fn collect_self_applying(statement: &AstStmt, names: &mut BTreeSet<String>) {
    match &statement.node {
        Stmt::Def(def) => {
            let parameters = parameter_names(&def.params);
            let mut is_self_applying = false;
            visit_body_expressions(&def.body, &mut |expression| {
                is_self_applying |= applies_parameter_to_parameter(expression, &parameters);
            });
            if is_self_applying {
                names.insert(def.name.ident.clone());
            }
        }
        Stmt::Assign(assign) => {
            if let (AssignTarget::Identifier(name), Expr::Lambda(lambda)) = (&assign.lhs.node, &assign.rhs.node)
                && applies_parameter_to_parameter(&lambda.body, &parameter_names(&lambda.params))
            {
                names.insert(name.ident.clone());
            }
        }
        _ => {}
    }
    statement.visit_stmt(|inner| collect_self_applying(inner, names));
}

fn parameter_names(parameters: &[AstParameter]) -> BTreeSet<String> {
    let name = |parameter: &AstParameter| match &parameter.node {
        Parameter::Normal(name, ..) | Parameter::Args(name, _) | Parameter::KwArgs(name, _) => Some(name.ident.clone()),
        Parameter::Slash | Parameter::NoArgs => None,
    };
    parameters.iter().filter_map(name).collect()
}

/// Visit the expressions of a body, without those of nested functions.
fn visit_body_expressions<'a>(statement: &'a AstStmt, visit: &mut dyn FnMut(&'a AstExpr)) {
    use starlark_syntax::syntax::uniplate::Visit;
    statement.node.visit_children(|child| match child {
        Visit::Stmt(inner) if matches!(inner.node, Stmt::Def(_)) => {}
        Visit::Stmt(inner) => visit_body_expressions(inner, visit),
        Visit::Expr(expression) => visit(expression),
    });
}

/// True if the expression contains a call of one of these parameters with one of these parameters.
fn applies_parameter_to_parameter(expression: &AstExpr, parameters: &BTreeSet<String>) -> bool {
    let applies = match &expression.node {
        Expr::Lambda(_) => return false,
        // The receiver of a method call is a value and no function.
        Expr::Call(called, _) if matches!(called.node, Expr::Dot(..)) => false,
        Expr::Call(called, args) => {
            mentions_any(called, parameters) && args.args.iter().any(|arg| mentions_any(arg.expr(), parameters))
        }
        _ => false,
    };
    let mut found = applies;
    expression.visit_expr(|inner| found = found || applies_parameter_to_parameter(inner, parameters));
    found
}

fn mentions_any(expression: &AstExpr, names: &BTreeSet<String>) -> bool {
    let mut found = matches!(&expression.node, Expr::Identifier(name) if names.contains(&name.ident));
    expression.visit_expr(|inner| found = found || mentions_any(inner, names));
    found
}

fn find_value_in_statement(statement: &AstStmt, names: &BTreeSet<String>, found: &mut Option<Span>) {
    use starlark_syntax::syntax::uniplate::Visit;
    if let Stmt::Assign(assign) = &statement.node
        && matches!((&assign.lhs.node, &assign.rhs.node), (AssignTarget::Identifier(_), Expr::Lambda(_)))
    {
        // The assignment names the function; its uses are found under that name.
        return assign.rhs.visit_expr(|inner| find_value_in_expression(inner, names, found));
    }
    statement.node.visit_children(|child| match child {
        Visit::Stmt(inner) => find_value_in_statement(inner, names, found),
        Visit::Expr(expression) => find_value_in_expression(expression, names, found),
    });
}

fn find_value_in_expression(expression: &AstExpr, names: &BTreeSet<String>, found: &mut Option<Span>) {
    let is_self_applying = match &expression.node {
        Expr::Identifier(name) => names.contains(&name.ident),
        Expr::Lambda(lambda) => applies_parameter_to_parameter(&lambda.body, &parameter_names(&lambda.params)),
        _ => false,
    };
    if is_self_applying && found.is_none() {
        *found = Some(expression.span);
    }
    match &expression.node {
        // The callee of a call is no use as a value.
        Expr::Call(called, args) if matches!(called.node, Expr::Identifier(_) | Expr::Lambda(_)) => {
            called.visit_expr(|inner| find_value_in_expression(inner, names, found));
            args.args.iter().for_each(|arg| find_value_in_expression(arg.expr(), names, found));
        }
        _ => expression.visit_expr(|inner| find_value_in_expression(inner, names, found)),
    }
}
