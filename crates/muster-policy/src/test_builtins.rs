//! The builtins of test files: `expect`, and sample views (`job`, `tenant`, …).
//!
//! `expect` would be named `assert`, but that is a reserved word of Starlark.

use std::sync::LazyLock;

use anyhow::anyhow;
use starlark::environment::{Globals, GlobalsBuilder};
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::DictRef;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};

use crate::builtins::{current_registry, policy_globals_builder};
use crate::call_batch::CallBatch;
use crate::policy_value::PolicyValue;
use crate::samples::ViewKind;

/// Characters of a value in a message.
const REPR_CHARS_MAX: usize = 300;

/// The globals of test files: those of policies, and the builtins of tests.
pub(crate) static TEST_GLOBALS: LazyLock<Globals> =
    LazyLock::new(|| policy_globals_builder().with(samples).with_namespace("expect", expect).build());

#[starlark_module]
fn expect(builder: &mut GlobalsBuilder) {
    fn eq<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let equal = a.equals(b).map_err(to_anyhow)?;
        check_expectation(eval, equal, || format!("expect.eq: {} is not {}", short_repr(a), short_repr(b)))
    }

    fn ne<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let equal = a.equals(b).map_err(to_anyhow)?;
        check_expectation(eval, !equal, || format!("expect.ne: {} is the same as {}", short_repr(a), short_repr(b)))
    }

    fn r#true<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        check_expectation(eval, value.to_bool(), || format!("expect.true: {} is not true", short_repr(value)))
    }

    fn r#false<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        check_expectation(eval, !value.to_bool(), || format!("expect.false: {} is not false", short_repr(value)))
    }

    fn contains<'v>(
        #[starlark(require = pos)] container: Value<'v>,
        #[starlark(require = pos)] item: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let is_in = container.is_in(item).map_err(to_anyhow)?;
        check_expectation(eval, is_in, || {
            format!("expect.contains: {} is not in {}", short_repr(item), short_repr(container))
        })
    }

    fn fails<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(require = pos)] text: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let problem = match eval.eval_function(function, &[], &[]) {
            Ok(value) => Some(format!("expect.fails: it returns {} and does not fail", short_repr(value))),
            Err(error) => {
                let error = error.without_diagnostic().to_string();
                let missing = format!("expect.fails: it fails with {error:?}, which does not contain {text:?}");
                (!error.contains(text)).then_some(missing)
            }
        };
        check_expectation(eval, problem.is_none(), || problem.unwrap_or_default())
    }
}

#[starlark_module]
fn samples(builder: &mut GlobalsBuilder) {
    fn job<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Job, kwargs, heap)
    }

    fn tenant<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Tenant, kwargs, heap)
    }

    fn cluster<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Cluster, kwargs, heap)
    }

    fn node<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Node, kwargs, heap)
    }

    fn candidate<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Candidate, kwargs, heap)
    }

    fn failure<'v>(#[starlark(kwargs)] kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Failure, kwargs, heap)
    }
}

fn build_sample<'v>(view: ViewKind, kwargs: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let field = |(name, value): (Value<'v>, Value<'v>)| {
        let value = PolicyValue::from_starlark(value)
            .map_err(|reason| anyhow!("{}: `{}`: {reason}", view.as_str(), name.to_str()))?;
        Ok((name.to_str(), value))
    };
    let fields = kwargs.iter().map(field).collect::<anyhow::Result<Vec<_>>>()?;
    let record = view.sample_with(fields).map_err(|message| anyhow!(message))?;
    // Immutable, as the arguments of hooks are.
    Ok(CallBatch::single(vec![record]).alloc_shared(heap)?[0])
}

/// Count an expectation, and fail if it does not hold.
fn check_expectation(eval: &Evaluator, holds: bool, message: impl FnOnce() -> String) -> anyhow::Result<NoneType> {
    current_registry(eval)?.count_expectation();
    if holds { Ok(NoneType) } else { Err(anyhow!(message())) }
}

fn to_anyhow(error: starlark::Error) -> anyhow::Error {
    anyhow!("{}", error.without_diagnostic())
}

fn short_repr(value: Value) -> String {
    let text = value.to_repr();
    match text.chars().count() > REPR_CHARS_MAX {
        true => text.chars().take(REPR_CHARS_MAX - 1).chain(['…']).collect(),
        false => text,
    }
}
