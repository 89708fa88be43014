//! Attributes of views that no view has, such as `job.time_limt_s`. They are found when the files are compiled: a line that
//! rarely runs would fail at night, in the middle of a decision.
//!
//! Views are followed from the parameters of hooks: by their names and aliases (`j = job`), through lists, comprehensions and
//! loops over `candidates`, into `key = lambda c: …`, and into functions of the same file that are called with them. Where a
//! name may stand for something else as well it is not followed, so that nothing that is right is refused.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::nearest::nearest;
use muster_core::policy::Hook;
use starlark::codemap::{FileSpan, Span};
use starlark::syntax::AstModule;
use starlark::syntax::ast::{
    Argument, AssignTarget, AstExpr, AstNoPayload, AstParameter, AstStmt, Clause, DefP, Expr, ForClause,
    Parameter, Stmt,
};

use crate::bundle::parameters_of;
use crate::samples::Sample;

/// More calls with views than policies have: each order of arguments counts as one.
const FOLLOWED_MAX: usize = 1_000;

/// Functions of the language that return the items of the list they are given.
const RETURN_LISTS: [&str; 3] = ["sorted", "list", "reversed"];
/// Functions of the language that call `key` with each item of the list they are given.
const TAKE_KEYS: [&str; 3] = ["sorted", "min", "max"];

type Def = DefP<AstNoPayload>;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum View {
    /// A record.
    Of(Sample),
    /// A list of such records, as `candidates` is one.
    ListOf(Sample),
    /// A moment.
    Now,
}

/// What a name or an expression stands for, as far as that was worked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Not worked out yet: it depends on a name that is bound further on.
    Pending,
    Known(View),
    /// Something else, or one thing here and another there.
    Unknown,
}

/// What each name of a function stands for.
type Names = BTreeMap<String, Meaning>;

impl Meaning {
    fn of(view: Option<View>) -> Meaning {
        view.map_or(Meaning::Unknown, Meaning::Known)
    }

    /// What stands for both.
    fn or(self, other: Meaning) -> Meaning {
        match (self, other) {
            (Meaning::Pending, one) | (one, Meaning::Pending) => one,
            (one, other) if one == other => one,
            _ => Meaning::Unknown,
        }
    }

    fn map(self, next: impl FnOnce(View) -> Option<View>) -> Meaning {
        match self {
            Meaning::Known(view) => Meaning::of(next(view)),
            other => other,
        }
    }

    fn view(self) -> Option<View> {
        match self {
            Meaning::Known(view) => Some(view),
            Meaning::Pending | Meaning::Unknown => None,
        }
    }
}

/// The first attribute that no view has, and what was probably meant.
pub fn find(ast: &AstModule) -> Option<(FileSpan, String)> {
    let mut search = Search::default();
    functions(ast.statement(), &mut search.functions);
    for hook in Hook::ALL {
        let views = parameters_of(hook).iter().map(|parameter| View::named(parameter)).collect();
        search.follow(hook.word(), views);
    }
    while let Some((name, views)) = search.pending.pop() {
        search.function(&name, views);
    }
    search.found.map(|(span, what)| (ast.file_span(span), what))
}

impl View {
    fn named(parameter: &str) -> Option<View> {
        match parameter {
            "candidates" => Some(View::ListOf(Sample::Candidate)),
            _ => Sample::ALL.into_iter().find(|sample| sample.word() == parameter).map(View::Of),
        }
    }

    /// What an attribute of it stands for: nothing where it has no such attribute.
    fn attribute(self, name: &str) -> Option<Option<View>> {
        let is_moment = matches!(self, View::Of(sample) if sample.has_moment()) && name == "now";
        let is_there = self.attributes().contains(&name);
        is_there.then_some(is_moment.then_some(View::Now))
    }

    /// What the items of it are, if it is a list.
    fn item(self) -> Option<View> {
        match self {
            View::ListOf(sample) => Some(View::Of(sample)),
            View::Of(_) | View::Now => None,
        }
    }

    /// What a list of it is.
    fn listed(self) -> Option<View> {
        match self {
            View::Of(sample) => Some(View::ListOf(sample)),
            View::ListOf(_) | View::Now => None,
        }
    }

    fn attributes(self) -> Vec<&'static str> {
        match self {
            View::Of(sample) => sample.attributes(),
            View::Now => Sample::moment_attributes(),
            View::ListOf(_) => Vec::new(),
        }
    }

    fn word(self) -> &'static str {
        match self {
            View::Of(sample) => sample.word(),
            View::Now => "now",
            View::ListOf(_) => "list",
        }
    }
}

/// The functions at the top of a file. One that is told twice is left out: nobody knows which of them is called.
fn functions<'a>(statement: &'a AstStmt, found: &mut BTreeMap<&'a str, Option<&'a Def>>) {
    match &statement.node {
        Stmt::Def(def) => {
            let is_new = !found.contains_key(def.name.ident.as_str());
            found.insert(&def.name.ident, is_new.then_some(def));
        }
        _ => statement.visit_stmt(|inner| functions(inner, found)),
    }
}

/// A function, and what its first parameters are.
type Called = (String, Vec<Option<View>>);

#[derive(Default)]
struct Search<'a> {
    functions: BTreeMap<&'a str, Option<&'a Def>>,
    /// Each is looked at once, and not one inside the other: a file may have thousands of them.
    followed: BTreeSet<Called>,
    pending: Vec<Called>,
    found: Option<(Span, String)>,
}

impl Search<'_> {
    /// Have a function looked at whose first parameters are these.
    fn follow(&mut self, name: &str, views: Vec<Option<View>>) {
        let called = (name.to_string(), views);
        let is_known = matches!(self.functions.get(name), Some(Some(_)));
        let has_view = called.1.iter().any(Option::is_some);
        if is_known && has_view && self.followed.len() < FOLLOWED_MAX && self.followed.insert(called.clone())
        {
            self.pending.push(called);
        }
    }

    fn function(&mut self, name: &str, views: Vec<Option<View>>) {
        let Some(Some(def)) = self.functions.get(name).copied() else { return };
        let mut names = Names::new();
        let parameters = def.params.iter().filter_map(parameter);
        let views = views.into_iter().map(Meaning::of).chain(std::iter::repeat(Meaning::Unknown));
        names.extend(parameters.map(str::to_string).zip(views));
        // Until nothing changes: a name may be bound below the loop or the alias that reads it. The meaning of a name
        // changes at most twice, from pending to known to unknown, so this ends.
        let redefined =
            RETURN_LISTS.iter().chain(&TAKE_KEYS).filter(|name| self.functions.contains_key(*name));
        names.extend(redefined.map(|name| (name.to_string(), Meaning::Unknown)));
        for name in bound_names(&def.body) {
            names.entry(name).or_insert(Meaning::Pending);
        }
        loop {
            let before = names.clone();
            bind_statement(&def.body, &mut names);
            def.body.visit_expr(|expression| bind_expression(expression, &mut names));
            if names == before {
                break;
            }
        }
        self.statement(&def.body, &names);
    }

    fn statement(&mut self, statement: &AstStmt, names: &Names) {
        statement.visit_expr(|expression| self.expression(expression, names));
    }

    fn expression(&mut self, expression: &AstExpr, names: &Names) {
        match &expression.node {
            Expr::Dot(value, name) => self.attribute(value, (&name.node, name.span), names),
            Expr::Call(called, args) => {
                if let Expr::Identifier(function) = &called.node
                    && !names.contains_key(&function.ident)
                {
                    let is_in_a_row = |arg: &Argument| matches!(arg, Argument::Positional(_));
                    let in_a_row = args.args.iter().take_while(|arg| is_in_a_row(&arg.node));
                    let views = in_a_row.map(|arg| meaning_of(arg.expr(), names).view()).collect();
                    self.follow(&function.ident, views);
                }
            }
            _ => {}
        }
        expression.visit_expr(|inner| self.expression(inner, names));
    }

    fn attribute(&mut self, value: &AstExpr, (name, span): (&str, Span), names: &Names) {
        let view = meaning_of(value, names).view().filter(|view| !matches!(view, View::ListOf(_)));
        let Some(view) = view else { return };
        if self.found.is_some() || view.attribute(name).is_some() {
            return;
        }
        let known = view.attributes();
        let what = match nearest(name, known.iter().copied()) {
            Some(meant) => format!("`{}` has no attribute `{name}`; did you mean `{meant}`?", view.word()),
            None => format!("`{}` has no attribute `{name}`; it has {}", view.word(), known.join(", ")),
        };
        self.found = Some((span, what));
    }
}

/// What an expression stands for.
fn meaning_of(expression: &AstExpr, names: &Names) -> Meaning {
    match &expression.node {
        Expr::Identifier(name) => names.get(&name.ident).copied().unwrap_or(Meaning::Unknown),
        Expr::Dot(value, name) => meaning_of(value, names).map(|view| view.attribute(&name.node)?),
        Expr::List(items) => {
            let all = items.iter().map(|item| meaning_of(item, names));
            all.reduce(Meaning::or).unwrap_or(Meaning::Unknown).map(View::listed)
        }
        Expr::ListComprehension(item, ..) => meaning_of(item, names).map(View::listed),
        Expr::Call(called, args) if is_builtin(called, &RETURN_LISTS, names) => {
            let list = args.args.first().map_or(Meaning::Unknown, |arg| meaning_of(arg.expr(), names));
            list.map(|view| view.item().map(|_| view))
        }
        _ => Meaning::Unknown,
    }
}

/// Whether one of these functions of the language is called, and no function of the policy that has its name.
fn is_builtin(called: &AstExpr, functions: &[&str], names: &Names) -> bool {
    let is_one = |name: &str| functions.contains(&name) && !names.contains_key(name);
    matches!(&called.node, Expr::Identifier(name) if is_one(&name.ident))
}

fn parameter(parameter: &AstParameter) -> Option<&str> {
    match &parameter.node {
        Parameter::Normal(name, ..) => Some(&name.ident),
        _ => None,
    }
}

/// Every name that is bound below a statement, in whatever meaning.
fn bound_names(statement: &AstStmt) -> BTreeSet<String> {
    let mut names = Names::new();
    bind_statement(statement, &mut names);
    statement.visit_expr(|expression| bind_expression(expression, &mut names));
    names.into_keys().collect()
}

/// Every name that is bound below a statement. A name that is bound twice to different things stands for nothing known.
fn bind_statement(statement: &AstStmt, names: &mut Names) {
    match &statement.node {
        Stmt::Assign(assign) => {
            let meaning = meaning_of(&assign.rhs, names);
            bind(&assign.lhs.node, meaning, names);
        }
        Stmt::AssignModify(target, ..) => bind(&target.node, Meaning::Unknown, names),
        Stmt::For(each) => {
            let item = item_of(&each.over, names);
            bind(&each.var.node, item, names);
        }
        Stmt::Def(def) => {
            bind_name(&def.name.ident, Meaning::Unknown, names);
            bind_parameters(&def.params, names);
        }
        _ => {}
    }
    statement.visit_stmt(|inner| bind_statement(inner, names));
}

fn bind_expression(expression: &AstExpr, names: &mut Names) {
    match &expression.node {
        Expr::Lambda(lambda) => bind_parameters(&lambda.params, names),
        Expr::Call(called, args) if is_builtin(called, &TAKE_KEYS, names) => {
            bind_keyed(args.args.iter().map(|arg| &arg.node), names);
            return;
        }
        Expr::ListComprehension(_, first, rest) | Expr::DictComprehension(_, first, rest) => {
            let others = rest.iter().filter_map(|clause| match clause {
                Clause::For(each) => Some(each),
                Clause::If(_) => None,
            });
            for ForClause { var, over } in std::iter::once(&**first).chain(others) {
                let item = item_of(over, names);
                bind(&var.node, item, names);
            }
        }
        _ => {}
    }
    expression.visit_expr(|inner| bind_expression(inner, names));
}

/// The arguments of `sorted(list, key = lambda item: …)`: the function is called with the items of the list.
fn bind_keyed<'a>(arguments: impl Iterator<Item = &'a Argument>, names: &mut Names) {
    let mut item = Meaning::Pending;
    for argument in arguments {
        match argument {
            Argument::Positional(list) => item = item.or(item_of(list, names)),
            Argument::Named(name, key) if name.node == "key" => {
                if let Expr::Lambda(lambda) = &key.node
                    && let [only] = &lambda.params[..]
                    && let Some(name) = parameter(only)
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
fn item_of(over: &AstExpr, names: &Names) -> Meaning {
    meaning_of(over, names).map(View::item)
}

fn bind_parameters(parameters: &[AstParameter], names: &mut Names) {
    parameters.iter().filter_map(parameter).for_each(|name| bind_name(name, Meaning::Unknown, names));
}

fn bind(target: &AssignTarget, meaning: Meaning, names: &mut Names) {
    match target {
        AssignTarget::Identifier(name) => bind_name(&name.ident, meaning, names),
        AssignTarget::Tuple(targets) => {
            targets.iter().for_each(|one| bind(&one.node, Meaning::Unknown, names));
        }
        AssignTarget::Index(_) | AssignTarget::Dot(..) => {}
    }
}

fn bind_name(name: &str, meaning: Meaning, names: &mut Names) {
    let known = names.entry(name.to_string()).or_insert(Meaning::Pending);
    *known = known.or(meaning);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::dialect;

    fn found(source: &str) -> Option<String> {
        let ast = AstModule::parse("a.gsky", source.to_string(), &dialect()).unwrap();
        find(&ast).map(|(span, what)| format!("{}: {what}", span.resolve().span.begin.line + 1))
    }

    #[test]
    fn an_attribute_that_no_view_has_is_found_with_what_was_meant() {
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
            let said = found(source).unwrap_or_default();
            assert!(said.contains(told), "{source}\n{said}");
        }
    }

    #[test]
    fn what_may_be_right_is_not_refused() {
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
            assert_eq!(found(source), None, "{source}");
        }
    }
}
