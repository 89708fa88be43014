//! Starlark has no recursion, and the interpreter allows it: so we look for it before anything runs.
//!
//! A function that names itself, or names one that leads back to it, is refused. What is hidden behind values, such as a
//! function that is given itself, is not seen here; the bound on calls inside calls ends it.

use std::collections::{BTreeMap, BTreeSet};

use starlark::codemap::{FileSpan, Span};
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AstExpr, AstNoPayload, AstStmt, DefP, Expr, Parameter, Stmt};

/// A function of a file: where it is told, and which names it uses that are not its own.
struct Function {
    span: Span,
    uses: BTreeSet<String>,
}

/// The first function that can come back to itself, and by which way.
pub fn find(ast: &AstModule) -> Option<(FileSpan, String)> {
    let mut functions = BTreeMap::new();
    collect(ast.statement(), &mut functions);
    let functions = only_rings(functions);
    let (name, way) = functions.keys().find_map(|name| Some((name, way_back(name, &functions)?)))?;
    let what = format!("`{name}` calls itself ({}), and Starlark has no recursion", way.join(" -> "));
    Some((ast.file_span(functions[name].span), what))
}

/// Without the functions that lead nowhere, one after the other: what is left is a ring, or leads to one.
fn only_rings(mut functions: BTreeMap<String, Function>) -> BTreeMap<String, Function> {
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut leads: BTreeMap<String, usize> = BTreeMap::new();
    for (name, function) in &functions {
        let used: Vec<&String> = function.uses.iter().filter(|used| functions.contains_key(*used)).collect();
        leads.insert(name.clone(), used.len());
        used.into_iter().for_each(|used| users.entry(used.clone()).or_default().push(name.clone()));
    }
    let mut nowhere: Vec<String> =
        leads.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name.clone()).collect();
    while let Some(name) = nowhere.pop() {
        functions.remove(&name);
        for user in users.remove(&name).unwrap_or_default() {
            if let Some(count) = leads.get_mut(&user) {
                *count -= 1;
                nowhere.extend((*count == 0).then_some(user));
            }
        }
    }
    functions
}

/// Every function of a file, those inside others as well.
fn collect(statement: &AstStmt, functions: &mut BTreeMap<String, Function>) {
    if let Stmt::Def(def) = &statement.node {
        let mut uses = BTreeSet::new();
        names_in(&def.body, &mut uses);
        own_names(def).iter().for_each(|own| {
            uses.remove(own);
        });
        let function = Function { span: def.name.span, uses };
        functions.insert(def.name.ident.clone(), function);
    }
    statement.visit_stmt(|inner| collect(inner, functions));
}

/// Its parameters, and what it assigns: they hide what others told under the same name.
fn own_names(def: &DefP<AstNoPayload>) -> BTreeSet<String> {
    let parameter = |parameter: &Parameter| match parameter {
        Parameter::Normal(name, ..) | Parameter::Args(name, _) | Parameter::KwArgs(name, _) => {
            Some(name.ident.clone())
        }
        Parameter::Slash | Parameter::NoArgs => None,
    };
    let mut own: BTreeSet<String> = def.params.iter().filter_map(|one| parameter(&one.node)).collect();
    assigned_in(&def.body, &mut own);
    own
}

fn assigned_in(statement: &AstStmt, own: &mut BTreeSet<String>) {
    let target = match &statement.node {
        Stmt::Assign(assign) => Some(&assign.lhs),
        Stmt::For(over) => Some(&over.var),
        // What is told inside has names of its own.
        Stmt::Def(_) => return,
        _ => None,
    };
    if let Some(target) = target {
        target.visit_lvalue(|name| {
            own.insert(name.ident.clone());
        });
    }
    statement.visit_stmt(|inner| assigned_in(inner, own));
}

fn names_in(statement: &AstStmt, names: &mut BTreeSet<String>) {
    statement.visit_expr(|expression| names_of(expression, names));
}

fn names_of(expression: &AstExpr, names: &mut BTreeSet<String>) {
    if let Expr::Identifier(name) = &expression.node {
        names.insert(name.ident.clone());
    }
    expression.visit_expr(|inner| names_of(inner, names));
}

/// The shortest way from a function back to itself.
fn way_back(start: &str, functions: &BTreeMap<String, Function>) -> Option<Vec<String>> {
    let mut ways: Vec<Vec<String>> = vec![vec![start.to_string()]];
    let mut seen = BTreeSet::new();
    let mut next = 0;
    while let Some(way) = ways.get(next).cloned() {
        next += 1;
        let here = functions.get(way.last()?)?;
        for used in here.uses.iter().filter(|used| functions.contains_key(*used)) {
            let longer: Vec<String> = way.iter().cloned().chain([used.clone()]).collect();
            if used == start {
                return Some(longer);
            }
            if seen.insert(used.clone()) {
                ways.push(longer);
            }
        }
    }
    None
}
