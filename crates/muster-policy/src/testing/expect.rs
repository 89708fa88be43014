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

use crate::builtins::registry;
use crate::calls::Calls;
use crate::plain::Plain;
use crate::samples::Sample;

/// Letters of a value in a message.
const SHOWN_MAX: usize = 300;

/// All of them.
pub(super) fn names_of_tests(builder: GlobalsBuilder) -> GlobalsBuilder {
    builder.with(samples).with_namespace("expect", expect)
}

#[starlark_module]
fn expect(builder: &mut GlobalsBuilder) {
    fn eq<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let equal = a.equals(b).map_err(told)?;
        hold(eval, equal, || format!("expect.eq: {} is not {}", shown(a), shown(b)))
    }

    fn ne<'v>(
        #[starlark(require = pos)] a: Value<'v>,
        #[starlark(require = pos)] b: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let equal = a.equals(b).map_err(told)?;
        hold(eval, !equal, || format!("expect.ne: {} is the same as {}", shown(a), shown(b)))
    }

    fn r#true<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        hold(eval, value.to_bool(), || format!("expect.true: {} is not true", shown(value)))
    }

    fn r#false<'v>(
        #[starlark(require = pos)] value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        hold(eval, !value.to_bool(), || format!("expect.false: {} is not false", shown(value)))
    }

    fn contains<'v>(
        #[starlark(require = pos)] container: Value<'v>,
        #[starlark(require = pos)] item: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let within = container.is_in(item).map_err(told)?;
        hold(eval, within, || format!("expect.contains: {} is not in {}", shown(item), shown(container)))
    }

    fn fails<'v>(
        #[starlark(require = pos)] function: Value<'v>,
        #[starlark(require = pos)] text: &str,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let said = match eval.eval_function(function, &[], &[]) {
            Ok(answer) => Err(format!("expect.fails: it answers {} and does not fail", shown(answer))),
            Err(error) => Ok(error.without_diagnostic().to_string()),
        };
        let complaint = said.map(|said| {
            let missing = format!("expect.fails: it fails with {said:?}, which does not tell {text:?}");
            (!said.contains(text)).then_some(missing)
        });
        let complaint = complaint.unwrap_or_else(Some);
        hold(eval, complaint.is_none(), || complaint.unwrap_or_default())
    }
}

#[starlark_module]
fn samples(builder: &mut GlobalsBuilder) {
    fn job<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        sample(Sample::Job, given, heap)
    }

    fn tenant<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        sample(Sample::Tenant, given, heap)
    }

    fn cluster<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        sample(Sample::Cluster, given, heap)
    }

    fn node<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        sample(Sample::Node, given, heap)
    }

    fn candidate<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        sample(Sample::Candidate, given, heap)
    }

    fn failure<'v>(#[starlark(kwargs)] given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        sample(Sample::Failure, given, heap)
    }
}

fn sample<'v>(sample: Sample, given: DictRef<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let field = |(name, value): (Value<'v>, Value<'v>)| {
        let plain = Plain::of(value).map_err(|why| anyhow!("{}: {why}", sample.word()))?;
        Ok((name.to_str(), plain))
    };
    let given = given.iter().map(field).collect::<anyhow::Result<Vec<_>>>()?;
    let record = sample.with(given).map_err(|what| anyhow!(what))?;
    // Nobody can change it, as in a question.
    Ok(Calls::one(vec![record]).given(heap)?[0])
}

/// Count an expectation, and fail if it does not hold.
fn hold(eval: &Evaluator, holds: bool, complaint: impl FnOnce() -> String) -> anyhow::Result<NoneType> {
    registry(eval)?.expected();
    if holds { Ok(NoneType) } else { Err(anyhow!(complaint())) }
}

fn told(error: starlark::Error) -> anyhow::Error {
    anyhow!("{}", error.without_diagnostic())
}

fn shown(value: Value) -> String {
    let text = value.to_repr();
    match text.chars().count() > SHOWN_MAX {
        true => text.chars().take(SHOWN_MAX - 1).chain(['…']).collect(),
        false => text,
    }
}
