//! Reports unknown attributes of views, such as `job.time_limt_s`, when the files are compiled. At run time the error
//! would appear only when the line runs, in the middle of a decision.
//!
//! Types are inferred from the parameters of hooks: through aliases (`j = job`), lists, comprehensions, loops over
//! `candidates`, `key = lambda c: …`, and calls of functions of the same file. A name that may hold another type is
//! unknown, so that no correct policy is rejected.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::nearest::nearest;
use muster_core::objects::policy::Hook;
use starlark::codemap::{FileSpan, Span};
use starlark::syntax::AstModule;
use starlark::syntax::ast::{
    Argument, AssignTarget, AstExpr, AstNoPayload, AstParameter, AstStmt, Clause, DefP, Expr, ForClause, Parameter,
    Stmt,
};

use crate::samples::ViewKind;
use crate::views::hook_parameters;

/// The most pairs of a function and its argument types that are checked: more than policies have.
const TRACED_CALLS_MAX: usize = 1_000;

/// Builtins that return the items of their first argument as a list.
const LIST_RETURNING_BUILTINS: [&str; 3] = ["sorted", "list", "reversed"];
/// Builtins that call `key` with each item of their first argument.
const KEY_FUNCTION_BUILTINS: [&str; 3] = ["sorted", "min", "max"];

type Def = DefP<AstNoPayload>;

/// The type of a view or of a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ViewType {
    Single(ViewKind),
    /// A list of views, such as `candidates`.
    List(ViewKind),
    /// The time of the call.
    Now,
}

/// The inferred type of a name or expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InferredType {
    /// Not inferred yet: it depends on a name that is bound later.
    Pending,
    Resolved(ViewType),
    /// No view, or different types at different places.
    Unknown,
}

/// The types of the names of a function.
type NameTypes = BTreeMap<String, InferredType>;

impl InferredType {
    fn from_view(view: Option<ViewType>) -> InferredType {
        view.map_or(InferredType::Unknown, InferredType::Resolved)
    }

    /// The type of a name that is bound to both.
    fn merge(self, other: InferredType) -> InferredType {
        match (self, other) {
            (InferredType::Pending, one) | (one, InferredType::Pending) => one,
            (one, other) if one == other => one,
            _ => InferredType::Unknown,
        }
    }

    fn map(self, next: impl FnOnce(ViewType) -> Option<ViewType>) -> InferredType {
        match self {
            InferredType::Resolved(view) => InferredType::from_view(next(view)),
            other => other,
        }
    }

    fn view(self) -> Option<ViewType> {
        match self {
            InferredType::Resolved(view) => Some(view),
            InferredType::Pending | InferredType::Unknown => None,
        }
    }
}

/// The first attribute that its view does not have, with a message that suggests the nearest name.
pub fn first_unknown_attribute(ast: &AstModule) -> Option<(FileSpan, String)> {
    let mut checker = AttributeChecker::default();
    collect_functions(ast.statement(), &mut checker.functions);
    for hook in Hook::ALL {
        let views = hook_parameters(hook).iter().map(|parameter| ViewType::of_parameter(parameter)).collect();
        checker.enqueue_call(hook.as_str(), views);
    }
    while let Some((name, views)) = checker.pending.pop() {
        checker.check_function(&name, views);
    }
    checker.first_error.map(|(span, message)| (ast.file_span(span), message))
}

impl ViewType {
    fn of_parameter(parameter: &str) -> Option<ViewType> {
        match parameter {
            "candidates" => Some(ViewType::List(ViewKind::Candidate)),
            _ => ViewKind::ALL.into_iter().find(|kind| kind.as_str() == parameter).map(ViewType::Single),
        }
    }

    /// The view type of an attribute: `None` if there is no such attribute, `Some(None)` if it is no view.
    fn attribute_view(self, name: &str) -> Option<Option<ViewType>> {
        let is_now = matches!(self, ViewType::Single(kind) if kind.has_now()) && name == "now";
        let exists = self.attributes().contains(&name);
        exists.then_some(is_now.then_some(ViewType::Now))
    }

    /// The type of the items of a list.
    fn item_view(self) -> Option<ViewType> {
        match self {
            ViewType::List(kind) => Some(ViewType::Single(kind)),
            ViewType::Single(_) | ViewType::Now => None,
        }
    }

    fn list_view(self) -> Option<ViewType> {
        match self {
            ViewType::Single(kind) => Some(ViewType::List(kind)),
            ViewType::List(_) | ViewType::Now => None,
        }
    }

    fn attributes(self) -> Vec<&'static str> {
        match self {
            ViewType::Single(kind) => kind.attributes(),
            ViewType::Now => ViewKind::now_attributes(),
            ViewType::List(_) => Vec::new(),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            ViewType::Single(kind) => kind.as_str(),
            ViewType::Now => "now",
            ViewType::List(_) => "list",
        }
    }
}

/// The top-level functions of a file. A function that is defined twice maps to `None`, because either may be called.
fn collect_functions<'a>(statement: &'a AstStmt, found: &mut BTreeMap<&'a str, Option<&'a Def>>) {
    match &statement.node {
        Stmt::Def(def) => {
            let is_new = !found.contains_key(def.name.ident.as_str());
            found.insert(&def.name.ident, is_new.then_some(def));
        }
        _ => statement.visit_stmt(|inner| collect_functions(inner, found)),
    }
}

/// A function with the types of its first parameters.
type TracedCall = (String, Vec<Option<ViewType>>);

#[derive(Default)]
struct AttributeChecker<'a> {
    functions: BTreeMap<&'a str, Option<&'a Def>>,
    /// Calls that were queued. Each is checked once, and without recursion: a file may have thousands of them.
    traced: BTreeSet<TracedCall>,
    pending: Vec<TracedCall>,
    first_error: Option<(Span, String)>,
}

impl AttributeChecker<'_> {
    /// Queue the check of a function whose first parameters have these types.
    fn enqueue_call(&mut self, name: &str, views: Vec<Option<ViewType>>) {
        let call = (name.to_string(), views);
        let is_known = matches!(self.functions.get(name), Some(Some(_)));
        let has_view = call.1.iter().any(Option::is_some);
        if is_known && has_view && self.traced.len() < TRACED_CALLS_MAX && self.traced.insert(call.clone()) {
            self.pending.push(call);
        }
    }

    fn check_function(&mut self, name: &str, views: Vec<Option<ViewType>>) {
        let Some(Some(def)) = self.functions.get(name).copied() else { return };
        let mut names = NameTypes::new();
        let parameters = def.params.iter().filter_map(parameter_name);
        let views = views.into_iter().map(InferredType::from_view).chain(std::iter::repeat(InferredType::Unknown));
        names.extend(parameters.map(str::to_string).zip(views));
        let redefined = LIST_RETURNING_BUILTINS
            .iter()
            .chain(&KEY_FUNCTION_BUILTINS)
            .filter(|name| self.functions.contains_key(*name));
        names.extend(redefined.map(|name| (name.to_string(), InferredType::Unknown)));
        for name in bound_names(&def.body) {
            names.entry(name).or_insert(InferredType::Pending);
        }
        // Iterate to a fixed point: a name may be bound below the loop or alias that reads it. The type of a name
        // changes at most twice, from pending to resolved to unknown, so the iteration ends.
        loop {
            let before = names.clone();
            bind_statement(&def.body, &mut names);
            def.body.visit_expr(|expression| bind_expression(expression, &mut names));
            if names == before {
                break;
            }
        }
        self.check_statement(&def.body, &names);
    }

    fn check_statement(&mut self, statement: &AstStmt, names: &NameTypes) {
        statement.visit_expr(|expression| self.check_expression(expression, names));
    }

    fn check_expression(&mut self, expression: &AstExpr, names: &NameTypes) {
        match &expression.node {
            Expr::Dot(value, name) => self.check_attribute(value, (&name.node, name.span), names),
            Expr::Call(called, args) => {
                if let Expr::Identifier(function) = &called.node
                    && !names.contains_key(&function.ident)
                {
                    let is_positional = |arg: &Argument| matches!(arg, Argument::Positional(_));
                    let positional = args.args.iter().take_while(|arg| is_positional(&arg.node));
                    let views = positional.map(|arg| infer_type(arg.expr(), names).view()).collect();
                    self.enqueue_call(&function.ident, views);
                }
            }
            _ => {}
        }
        expression.visit_expr(|inner| self.check_expression(inner, names));
    }

    fn check_attribute(&mut self, value: &AstExpr, (name, span): (&str, Span), names: &NameTypes) {
        let view = infer_type(value, names).view().filter(|view| !matches!(view, ViewType::List(_)));
        let Some(view) = view else { return };
        if self.first_error.is_some() || view.attribute_view(name).is_some() {
            return;
        }
        let known = view.attributes();
        let view = view.as_str();
        let message = match nearest(name, known.iter().copied()) {
            Some(meant) => format!("`{view}` has no attribute `{name}`; did you mean `{meant}`?"),
            None => format!("`{view}` has no attribute `{name}`; its attributes are {}", known.join(", ")),
        };
        self.first_error = Some((span, message));
    }
}

fn infer_type(expression: &AstExpr, names: &NameTypes) -> InferredType {
    match &expression.node {
        Expr::Identifier(name) => names.get(&name.ident).copied().unwrap_or(InferredType::Unknown),
        Expr::Dot(value, name) => infer_type(value, names).map(|view| view.attribute_view(&name.node)?),
        Expr::List(items) => {
            let all = items.iter().map(|item| infer_type(item, names));
            all.reduce(InferredType::merge).unwrap_or(InferredType::Unknown).map(ViewType::list_view)
        }
        Expr::ListComprehension(item, ..) => infer_type(item, names).map(ViewType::list_view),
        Expr::Call(called, args) if is_builtin_call(called, &LIST_RETURNING_BUILTINS, names) => {
            let list = args.args.first().map_or(InferredType::Unknown, |arg| infer_type(arg.expr(), names));
            list.map(|view| view.item_view().map(|_| view))
        }
        _ => InferredType::Unknown,
    }
}

/// True if one of these builtins is called, and not a function of the policy with the same name.
fn is_builtin_call(called: &AstExpr, builtins: &[&str], names: &NameTypes) -> bool {
    let is_builtin = |name: &str| builtins.contains(&name) && !names.contains_key(name);
    matches!(&called.node, Expr::Identifier(name) if is_builtin(&name.ident))
}

fn parameter_name(parameter: &AstParameter) -> Option<&str> {
    match &parameter.node {
        Parameter::Normal(name, ..) => Some(&name.ident),
        _ => None,
    }
}

/// Every name that is bound in a statement.
fn bound_names(statement: &AstStmt) -> BTreeSet<String> {
    let mut names = NameTypes::new();
    bind_statement(statement, &mut names);
    statement.visit_expr(|expression| bind_expression(expression, &mut names));
    names.into_keys().collect()
}

/// Merge the types of all names that are bound in a statement. A name bound to different types becomes unknown.
fn bind_statement(statement: &AstStmt, names: &mut NameTypes) {
    match &statement.node {
        Stmt::Assign(assign) => {
            let inferred = infer_type(&assign.rhs, names);
            bind(&assign.lhs.node, inferred, names);
        }
        Stmt::AssignModify(target, ..) => bind(&target.node, InferredType::Unknown, names),
        Stmt::For(each) => {
            let item = infer_item_type(&each.over, names);
            bind(&each.var.node, item, names);
        }
        Stmt::Def(def) => {
            bind_name(&def.name.ident, InferredType::Unknown, names);
            bind_parameters(&def.params, names);
        }
        _ => {}
    }
    statement.visit_stmt(|inner| bind_statement(inner, names));
}

fn bind_expression(expression: &AstExpr, names: &mut NameTypes) {
    match &expression.node {
        Expr::Lambda(lambda) => bind_parameters(&lambda.params, names),
        Expr::Call(called, args) if is_builtin_call(called, &KEY_FUNCTION_BUILTINS, names) => {
            bind_key_function(args.args.iter().map(|arg| &arg.node), names);
            return;
        }
        Expr::ListComprehension(_, first, rest) | Expr::DictComprehension(_, first, rest) => {
            let others = rest.iter().filter_map(|clause| match clause {
                Clause::For(each) => Some(each),
                Clause::If(_) => None,
            });
            for ForClause { var, over } in std::iter::once(&**first).chain(others) {
                let item = infer_item_type(over, names);
                bind(&var.node, item, names);
            }
        }
        _ => {}
    }
    expression.visit_expr(|inner| bind_expression(inner, names));
}

/// Bind the parameter of `key` in `sorted(list, key = lambda item: …)` to the item type of the list.
fn bind_key_function<'a>(arguments: impl Iterator<Item = &'a Argument>, names: &mut NameTypes) {
    let mut item = InferredType::Pending;
    for argument in arguments {
        match argument {
            Argument::Positional(list) => item = item.merge(infer_item_type(list, names)),
            Argument::Named(name, key) if name.node == "key" => {
                if let Expr::Lambda(lambda) = &key.node
                    && let [only] = &lambda.params[..]
                    && let Some(name) = parameter_name(only)
                {
                    bind_name(name, item, names);
                    key.visit_expr(|inner| bind_expression(inner, names));
                    continue;
                }
            }
            _ => {}
        }
        bind_expression(argument.expr(), names);
    }
}

fn infer_item_type(over: &AstExpr, names: &NameTypes) -> InferredType {
    infer_type(over, names).map(ViewType::item_view)
}

fn bind_parameters(parameters: &[AstParameter], names: &mut NameTypes) {
    parameters.iter().filter_map(parameter_name).for_each(|name| bind_name(name, InferredType::Unknown, names));
}

fn bind(target: &AssignTarget, inferred: InferredType, names: &mut NameTypes) {
    match target {
        AssignTarget::Identifier(name) => bind_name(&name.ident, inferred, names),
        AssignTarget::Tuple(targets) => {
            targets.iter().for_each(|one| bind(&one.node, InferredType::Unknown, names));
        }
        AssignTarget::Index(_) | AssignTarget::Dot(..) => {}
    }
}

fn bind_name(name: &str, inferred: InferredType, names: &mut NameTypes) {
    let known = names.entry(name.to_string()).or_insert(InferredType::Pending);
    *known = known.merge(inferred);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::dialect;

    fn error_in(source: &str) -> Option<String> {
        let ast = AstModule::parse("a.gsky", source.to_string(), &dialect()).unwrap();
        let (span, message) = first_unknown_attribute(&ast)?;
        Some(format!("{}: {message}", span.resolve().span.begin.line + 1))
    }

    #[test]
    fn an_unknown_view_attribute_is_reported_with_the_nearest_name() {
        let cases = [
            (
                "def admit(job):\n    return job.time_limt_s > 3",
                "2: `job` has no attribute `time_limt_s`; did you mean `time_limit_s`?",
            ),
            ("def admit(j):\n    return True if j.gpus else j.gpuz", "`gpuz`; did you mean `gpus`?"),
            ("def admit(job):\n    return job.now.our < 6", "`now` has no attribute `our`; did you mean `hour`?"),
            (
                "def priority(job, tenant):\n    return tenant.wieght",
                "`tenant` has no attribute `wieght`; did you mean `weight`?",
            ),
            (
                "def victims(job, candidates):\n    return [c for c in candidates if c.save]",
                "`candidate` has no attribute `save`; did you mean `saves`?",
            ),
            (
                "def victims(job, candidates):\n    for c in candidates:\n        print(c.gpu)",
                "3: `candidate` has no attribute `gpu`",
            ),
            (
                "def big(x):\n    return x.gpuz > 2\ndef admit(job):\n    return not big(job)",
                "2: `job` has no attribute `gpuz`",
            ),
            (
                "def limit(tenant, cluster):\n    return cluster.gpu / 2",
                "2: `cluster` has no attribute `gpu`; did you mean `gpus`?",
            ),
            (
                "def limit(t, c):\n    return None if c.now.our > 6 else t.gpus_held",
                "2: `now` has no attribute `our`; did you mean `hour`?",
            ),
            ("def admit(job):\n    j = job\n    k = j\n    return k.gpuz > 1", "4: `job` has no attribute `gpuz`"),
            ("def admit(job):\n    n = job.now\n    return n.our < 6", "3: `now` has no attribute `our`"),
            ("def admit(job):\n    return [j.gpuz for j in [job]]", "2: `job` has no attribute `gpuz`"),
            ("def admit(job):\n    return {j.name: j.gpuz for j in [job]}", "`job` has no attribute `gpuz`"),
            (
                "def victims(job, candidates):\n    s = [c for c in candidates if c.saves]\n    return [d for d in s if d.save]",
                "3: `candidate` has no attribute `save`",
            ),
            (
                "def victims(job, candidates):\n    return sorted(candidates, key = lambda c: c.prioriti)[:1]",
                "2: `candidate` has no attribute `prioriti`; did you mean `priority`?",
            ),
            (
                "def victims(job, candidates):\n    return [c for c in sorted(candidates, key = lambda d: d.gpus) if c.gpu]",
                "`candidate` has no attribute `gpu`",
            ),
            (
                "def score(job, node):\n    return node.zebra",
                "`node` has no attribute `zebra`; its attributes are models, gpus",
            ),
        ];
        for (source, expected) in cases {
            let error = error_in(source).unwrap_or_default();
            assert!(error.contains(expected), "{source}\n{error}");
        }
    }

    #[test]
    fn attributes_of_values_that_may_not_be_views_are_accepted() {
        let accepted = [
            "def admit(job):\n    return job.labels.get('x') and job.now.hour < 6 and job.tenant.upper() == 'A'",
            // Not a view: the name is bound to another type as well, or the argument of a call is unknown.
            "def admit(job):\n    job = {'a': 1}\n    return job.keys()",
            "def admit(job):\n    return [job.zebra for job in [struct(zebra = 1)]]",
            "def admit(job):\n    f = lambda job: job.zebra\n    return f(struct(zebra = 1))",
            "def name(tenant):\n    return tenant.upper()\ndef admit(job):\n    return name(job.tenant)",
            "def admit(job):\n    j = job\n    j = struct(zebra = 1)\n    return j.zebra",
            "def admit(job):\n    for i in range(2):\n        k = j if i else 1\n        j = job\n    return k.zebra",
            "def admit(job):\n    a = job\n    b = a\n    a = struct(zebra = 1)\n    b = a\n    return b.zebra",
            "def admit(job):\n    return [j.zebra for j in [job, struct(zebra = 1)]]",
            "def victims(job, candidates):\n    return sorted([struct(zebra = 1)], key = lambda c: c.zebra)",
            "def sorted(x):\n    return [struct(zebra = 1)]\ndef victims(job, candidates):\n    return [c.zebra for c in sorted(candidates)]",
            "def max(x, key):\n    return key(struct(zebra = 1))\ndef victims(job, candidates):\n    return max(candidates, key = lambda c: c.zebra)",
            "def victims(job, candidates):\n    list = lambda x: [struct(zebra = 1)]\n    return [c.zebra for c in list(candidates)]",
            "def victims(job, candidates):\n    s = [(c.gpus, c) for c in candidates]\n    return [c for gpus, c in s if c.any]",
            "def helper(job):\n    return job.zebra\ndef admit(job):\n    return True",
            "def victims(job, candidates):\n    candidates.sort\n    return candidates",
        ];
        for source in accepted {
            assert_eq!(error_in(source), None, "{source}");
        }
    }
}
