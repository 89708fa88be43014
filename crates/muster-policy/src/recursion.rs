//! Detects recursion before a file runs. Starlark forbids it, but the interpreter does not.
//!
//! A function that names itself, directly or through other functions, is rejected. Recursion through values, such as a
//! function that is passed to itself, is not detected here; the limit on the call stack depth stops it.

use std::collections::{BTreeMap, BTreeSet};

use starlark::codemap::{FileSpan, Span};
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AstExpr, AstNoPayload, AstStmt, DefP, Expr, Parameter, Stmt};

/// A function of a file: its definition, and the names it uses that are not local.
struct FunctionUses {
    span: Span,
    uses: BTreeSet<String>,
}

/// The first function that calls itself, with a message that names the cycle.
pub fn first_recursion(ast: &AstModule) -> Option<(FileSpan, String)> {
    let mut functions = BTreeMap::new();
    collect_functions(ast.statement(), &mut functions);
    let functions = without_acyclic_functions(functions);
    let (name, cycle) = functions.keys().find_map(|name| Some((name, shortest_cycle(name, &functions)?)))?;
    let message = format!("`{name}` calls itself ({}), and Starlark has no recursion", cycle.join(" -> "));
    Some((ast.file_span(functions[name].span), message))
}

/// Remove functions that use no other function, repeatedly. The rest are on a cycle or lead to one.
fn without_acyclic_functions(mut functions: BTreeMap<String, FunctionUses>) -> BTreeMap<String, FunctionUses> {
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut use_counts: BTreeMap<String, usize> = BTreeMap::new();
    for (name, function) in &functions {
        let used: Vec<&String> = function.uses.iter().filter(|used| functions.contains_key(*used)).collect();
        use_counts.insert(name.clone(), used.len());
        used.into_iter().for_each(|used| users.entry(used.clone()).or_default().push(name.clone()));
    }
    let mut leaves: Vec<String> =
        use_counts.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name.clone()).collect();
    while let Some(name) = leaves.pop() {
        functions.remove(&name);
        for user in users.remove(&name).unwrap_or_default() {
            if let Some(count) = use_counts.get_mut(&user) {
                *count -= 1;
                leaves.extend((*count == 0).then_some(user));
            }
        }
    }
    functions
}

/// Every function of a file, including nested ones.
fn collect_functions(statement: &AstStmt, functions: &mut BTreeMap<String, FunctionUses>) {
    if let Stmt::Def(def) = &statement.node {
        let mut uses = BTreeSet::new();
        collect_statement_names(&def.body, &mut uses);
        local_names(def).iter().for_each(|local| {
            uses.remove(local);
        });
        let function = FunctionUses { span: def.name.span, uses };
        functions.insert(def.name.ident.clone(), function);
    }
    statement.visit_stmt(|inner| collect_functions(inner, functions));
}

/// Parameters and assigned names of a function. They shadow functions of the same name.
fn local_names(def: &DefP<AstNoPayload>) -> BTreeSet<String> {
    let parameter = |parameter: &Parameter| match parameter {
        Parameter::Normal(name, ..) | Parameter::Args(name, _) | Parameter::KwArgs(name, _) => Some(name.ident.clone()),
        Parameter::Slash | Parameter::NoArgs => None,
    };
    let mut local: BTreeSet<String> = def.params.iter().filter_map(|param| parameter(&param.node)).collect();
    collect_assigned_names(&def.body, &mut local);
    local
}

fn collect_assigned_names(statement: &AstStmt, local: &mut BTreeSet<String>) {
    let target = match &statement.node {
        Stmt::Assign(assign) => Some(&assign.lhs),
        Stmt::For(each) => Some(&each.var),
        // A nested function has its own local names.
        Stmt::Def(_) => return,
        _ => None,
    };
    if let Some(target) = target {
        target.visit_lvalue(|name| {
            local.insert(name.ident.clone());
        });
    }
    statement.visit_stmt(|inner| collect_assigned_names(inner, local));
}

fn collect_statement_names(statement: &AstStmt, names: &mut BTreeSet<String>) {
    statement.visit_expr(|expression| collect_expression_names(expression, names));
}

fn collect_expression_names(expression: &AstExpr, names: &mut BTreeSet<String>) {
    if let Expr::Identifier(name) = &expression.node {
        names.insert(name.ident.clone());
    }
    expression.visit_expr(|inner| collect_expression_names(inner, names));
}

/// The shortest path from a function back to itself, by breadth-first search.
fn shortest_cycle(start: &str, functions: &BTreeMap<String, FunctionUses>) -> Option<Vec<String>> {
    let mut paths: Vec<Vec<String>> = vec![vec![start.to_string()]];
    let mut seen = BTreeSet::new();
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        next += 1;
        let function = functions.get(path.last()?)?;
        for used in function.uses.iter().filter(|used| functions.contains_key(*used)) {
            let longer: Vec<String> = path.iter().cloned().chain([used.clone()]).collect();
            if used == start {
                return Some(longer);
            }
            if seen.insert(used.clone()) {
                paths.push(longer);
            }
        }
    }
    None
}
