//! What tests of policies find besides: `expect`, and the things that policies are asked about.
//!
//! It would be called `assert`, but that is a reserved word of Starlark.

use anyhow::anyhow;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::DictRef;
use starlark::values::none::NoneType;
use starlark::values::{Heap, Value};

use crate::builtins::current_registry;
use crate::call_batch::CallBatch;
use crate::policy_value::PolicyValue;
use crate::samples::ViewKind;

/// Letters of a value in a message.
const REPR_CHARS_MAX: usize = 300;

/// All of them.
pub(super) fn with_test_builtins(builder: GlobalsBuilder) -> GlobalsBuilder {
    builder.with(samples).with_namespace("expect", expect)
}

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
        let within = container.is_in(item).map_err(to_anyhow)?;
        check_expectation(eval, within, || format!("expect.contains: {} is not in {}", short_repr(item), short_repr(container)))
    }

    fn fails<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(require = pos)] text: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let said = match eval.eval_function(function, &[], &[]) {
            Ok(answer) => Err(format!("expect.fails: it answers {} and does not fail", short_repr(answer))),
            Err(error) => Ok(error.without_diagnostic().to_string()),
        };
        let complaint = said.map(|said| {
            let missing = format!("expect.fails: it fails with {said:?}, which does not tell {text:?}");
            (!said.contains(text)).then_some(missing)
        });
        let complaint = complaint.unwrap_or_else(Some);
        check_expectation(eval, complaint.is_none(), || complaint.unwrap_or_default())
    }
}

#[starlark_module]
fn samples(builder: &mut GlobalsBuilder) {
    fn job<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Job, given, heap)
    }

    fn tenant<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Tenant, given, heap)
    }

    fn cluster<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Cluster, given, heap)
    }

    fn node<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Node, given, heap)
    }

    fn candidate<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Candidate, given, heap)
    }

    fn failure<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        build_sample(ViewKind::Failure, given, heap)
    }
}

fn build_sample<'v>(sample: ViewKind, given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let field = |(name, value): (Value<'v>, Value<'v>)| {
        let plain = PolicyValue::from_starlark(value).map_err(|why| anyhow!("{}: {why}", sample.as_str()))?;
        Ok((name.to_str(), plain))
    };
    let given = given.iter().map(field).collect::<anyhow::Result<Vec<_>>>()?;
    let record = sample.sample_with(given).map_err(|what| anyhow!(what))?;
    // Nobody can change it, as in a question.
    Ok(CallBatch::single(vec![record]).alloc_shared(heap)?[0])
}

/// Count an expectation, and fail if it does not hold.
fn check_expectation(eval: &Evaluator, holds: bool, complaint: impl FnOnce() -> String) -> anyhow::Result<NoneType> {
    current_registry(eval)?.count_expectation();
    if holds { Ok(NoneType) } else { Err(anyhow!(complaint())) }
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
