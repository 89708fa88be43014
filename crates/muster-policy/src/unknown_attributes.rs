//! Attributes of views that no view has, such as `job.time_limt_s`. They are found when the files are compiled: a line that
//! rarely runs would fail at night, in the middle of a decision.
//!
//! Views are followed from the parameters of hooks: by their names and aliases (`j = job`), through lists, comprehensions and
//! loops over `candidates`, into `key = lambda c: …`, and into functions of the same file that are called with them. Where a
//! name may stand for something else as well it is not followed, so that nothing that is right is refused.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::nearest::nearest;
use muster_core::objects::policy::Hook;
use starlark::codemap::{FileSpan, Span};
use starlark::syntax::AstModule;
use starlark::syntax::ast::{
    Argument, AssignTarget, AstExpr, AstNoPayload, AstParameter, AstStmt, Clause, DefP, Expr, ForClause,
    Parameter, Stmt,
};

use crate::bundle::hook_parameters;
use crate::samples::ViewKind;

/// More calls with views than policies have: each order of arguments counts as one.
const TRACED_CALLS_MAX: usize = 1_000;

/// Functions of the language that return the items of the list they are given.
const LIST_RETURNING_BUILTINS: [&str; 3] = ["sorted", "list", "reversed"];
/// Functions of the language that call `key` with each item of the list they are given.
const KEY_FUNCTION_BUILTINS: [&str; 3] = ["sorted", "min", "max"];

type Def = DefP<AstNoPayload>;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ViewType {
    /// A record.
    Single(ViewKind),
    /// A list of such records, as `candidates` is one.
    List(ViewKind),
    /// A moment.
    Now,
}

/// What a name or an expression stands for, as far as that was worked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InferredType {
    /// Not worked out yet: it depends on a name that is bound further on.
    Pending,
    Resolved(ViewType),
    /// Something else, or one thing here and another there.
    Unknown,
}

/// What each name of a function stands for.
type NameTypes = BTreeMap<String, InferredType>;

impl InferredType {
    fn from_view(view: Option<ViewType>) -> InferredType {
        view.map_or(InferredType::Unknown, InferredType::Resolved)
    }

    /// What stands for both.
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

/// The first attribute that no view has, and what was probably meant.
pub fn first_unknown_attribute(ast: &AstModule) -> Option<(FileSpan, String)> {
    let mut search = AttributeChecker::default();
    collect_functions(ast.statement(), &mut search.functions);
    for hook in Hook::ALL {
        let views = hook_parameters(hook).iter().map(|parameter| ViewType::of_parameter(parameter)).collect();
        search.enqueue_call(hook.as_str(), views);
    }
    while let Some((name, views)) = search.pending.pop() {
        search.check_function(&name, views);
    }
    search.first_error.map(|(span, what)| (ast.file_span(span), what))
}

impl ViewType {
    fn of_parameter(parameter: &str) -> Option<ViewType> {
        match parameter {
            "candidates" => Some(ViewType::List(ViewKind::Candidate)),
            _ => ViewKind::ALL.into_iter().find(|sample| sample.as_str() == parameter).map(ViewType::Single),
        }
    }

    /// What an attribute of it stands for: nothing where it has no such attribute.
    fn attribute_view(self, name: &str) -> Option<Option<ViewType>> {
        let is_moment = matches!(self, ViewType::Single(sample) if sample.has_now()) && name == "now";
        let is_there = self.attributes().contains(&name);
        is_there.then_some(is_moment.then_some(ViewType::Now))
    }

    /// What the items of it are, if it is a list.
    fn item_view(self) -> Option<ViewType> {
        match self {
            ViewType::List(sample) => Some(ViewType::Single(sample)),
            ViewType::Single(_) | ViewType::Now => None,
        }
    }

    /// What a list of it is.
    fn list_view(self) -> Option<ViewType> {
        match self {
            ViewType::Single(sample) => Some(ViewType::List(sample)),
            ViewType::List(_) | ViewType::Now => None,
        }
    }

    fn attributes(self) -> Vec<&'static str> {
        match self {
            ViewType::Single(sample) => sample.attributes(),
            ViewType::Now => ViewKind::now_attributes(),
            ViewType::List(_) => Vec::new(),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            ViewType::Single(sample) => sample.as_str(),
            ViewType::Now => "now",
            ViewType::List(_) => "list",
        }
    }
}

/// The functions at the top of a file. One that is told twice is left out: nobody knows which of them is called.
fn collect_functions<'a>(statement: &'a AstStmt, found: &mut BTreeMap<&'a str, Option<&'a Def>>) {
    match &statement.node {
        Stmt::Def(def) => {
            let is_new = !found.contains_key(def.name.ident.as_str());
            found.insert(&def.name.ident, is_new.then_some(def));
        }
        _ => statement.visit_stmt(|inner| collect_functions(inner, found)),
    }
}

/// A function, and what its first parameters are.
type TracedCall = (String, Vec<Option<ViewType>>);

#[derive(Default)]
struct AttributeChecker<'a> {
    functions: BTreeMap<&'a str, Option<&'a Def>>,
    /// Each is looked at once, and not one inside the other: a file may have thousands of them.
    traced: BTreeSet<TracedCall>,
    pending: Vec<TracedCall>,
    first_error: Option<(Span, String)>,
}

impl AttributeChecker<'_> {
    /// Have a function looked at whose first parameters are these.
    fn enqueue_call(&mut self, name: &str, views: Vec<Option<ViewType>>) {
        let called = (name.to_string(), views);
        let is_known = matches!(self.functions.get(name), Some(Some(_)));
        let has_view = called.1.iter().any(Option::is_some);
        if is_known && has_view && self.traced.len() < TRACED_CALLS_MAX && self.traced.insert(called.clone())
        {
            self.pending.push(called);
        }
    }

    fn check_function(&mut self, name: &str, views: Vec<Option<ViewType>>) {
        let Some(Some(def)) = self.functions.get(name).copied() else { return };
        let mut names = NameTypes::new();
        let parameters = def.params.iter().filter_map(parameter_name);
        let views = views.into_iter().map(InferredType::from_view).chain(std::iter::repeat(InferredType::Unknown));
        names.extend(parameters.map(str::to_string).zip(views));
        // Until nothing changes: a name may be bound below the loop or the alias that reads it. The meaning of a name
        // changes at most twice, from pending to known to unknown, so this ends.
        let redefined =
            LIST_RETURNING_BUILTINS.iter().chain(&KEY_FUNCTION_BUILTINS).filter(|name| self.functions.contains_key(*name));
        names.extend(redefined.map(|name| (name.to_string(), InferredType::Unknown)));
        for name in bound_names(&def.body) {
            names.entry(name).or_insert(InferredType::Pending);
        }
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
                    let is_in_a_row = |arg: &Argument| matches!(arg, Argument::Positional(_));
                    let in_a_row = args.args.iter().take_while(|arg| is_in_a_row(&arg.node));
                    let views = in_a_row.map(|arg| infer_type(arg.expr(), names).view()).collect();
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
        let what = match nearest(name, known.iter().copied()) {
            Some(meant) => format!("`{}` has no attribute `{name}`; did you mean `{meant}`?", view.as_str()),
            None => format!("`{}` has no attribute `{name}`; it has {}", view.as_str(), known.join(", ")),
        };
        self.first_error = Some((span, what));
    }
}

/// What an expression stands for.
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

/// Whether one of these functions of the language is called, and no function of the policy that has its name.
fn is_builtin_call(called: &AstExpr, functions: &[&str], names: &NameTypes) -> bool {
    let is_one = |name: &str| functions.contains(&name) && !names.contains_key(name);
    matches!(&called.node, Expr::Identifier(name) if is_one(&name.ident))
}

fn parameter_name(parameter: &AstParameter) -> Option<&str> {
    match &parameter.node {
        Parameter::Normal(name, ..) => Some(&name.ident),
        _ => None,
    }
}

/// Every name that is bound below a statement, in whatever meaning.
fn bound_names(statement: &AstStmt) -> BTreeSet<String> {
    let mut names = NameTypes::new();
    bind_statement(statement, &mut names);
    statement.visit_expr(|expression| bind_expression(expression, &mut names));
    names.into_keys().collect()
}

/// Every name that is bound below a statement. A name that is bound twice to different things stands for nothing known.
fn bind_statement(statement: &AstStmt, names: &mut NameTypes) {
    match &statement.node {
        Stmt::Assign(assign) => {
            let meaning = infer_type(&assign.rhs, names);
            bind(&assign.lhs.node, meaning, names);
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

/// The arguments of `sorted(list, key = lambda item: …)`: the function is called with the items of the list.
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

/// What the items of an expression stand for.
fn infer_item_type(over: &AstExpr, names: &NameTypes) -> InferredType {
    infer_type(over, names).map(ViewType::item_view)
}

fn bind_parameters(parameters: &[AstParameter], names: &mut NameTypes) {
    parameters.iter().filter_map(parameter_name).for_each(|name| bind_name(name, InferredType::Unknown, names));
}

fn bind(target: &AssignTarget, meaning: InferredType, names: &mut NameTypes) {
    match target {
        AssignTarget::Identifier(name) => bind_name(&name.ident, meaning, names),
        AssignTarget::Tuple(targets) => {
            targets.iter().for_each(|one| bind(&one.node, InferredType::Unknown, names));
        }
        AssignTarget::Index(_) | AssignTarget::Dot(..) => {}
    }
}

fn bind_name(name: &str, meaning: InferredType, names: &mut NameTypes) {
    let known = names.entry(name.to_string()).or_insert(InferredType::Pending);
    *known = known.merge(meaning);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::dialect;

    fn error_in(source: &str) -> Option<String> {
        let ast = AstModule::parse("a.gsky", source.to_string(), &dialect()).unwrap();
        first_unknown_attribute(&ast).map(|(span, what)| format!("{}: {what}", span.resolve().span.begin.line + 1))
    }

    #[test]
    fn an_unknown_view_attribute_is_reported_with_the_nearest_name() {
        let cases = [
            (
                "def admit(job):\n    return job.time_limt_s > 3",
                "2: `job` has no attribute `time_limt_s`; did you mean `time_limit_s`?",
            ),
            ("def admit(j):\n    return True if j.gpus else j.gpuz", "`gpuz`; did you mean `gpus`?"),
            (
                "def admit(job):\n    return job.now.our < 6",
                "`now` has no attribute `our`; did you mean `hour`?",
            ),
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
            (
                "def admit(job):\n    j = job\n    k = j\n    return k.gpuz > 1",
                "4: `job` has no attribute `gpuz`",
            ),
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
                "`node` has no attribute `zebra`; it has models, gpus",
            ),
        ];
        for (source, told) in cases {
            let said = error_in(source).unwrap_or_default();
            assert!(said.contains(told), "{source}\n{said}");
        }
    }

    #[test]
    fn attributes_of_values_that_may_not_be_views_are_accepted() {
        let right = [
            "def admit(job):\n    return job.labels.get('x') and job.now.hour < 6 and job.tenant.upper() == 'A'",
            // Not a view: the name stands for something else as well, or nobody knows what it is called with.
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
        for source in right {
            assert_eq!(error_in(source), None, "{source}");
        }
    }
}
