//! The bodies of the fuzz tests, shared by the fuzzers of `fuzz/` and the seeded run of `main.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_policy::{Limits, PolicyValue, Program};

/// A bundle of one file with these bytes.
pub fn bundle(bytes: &[u8]) -> BTreeMap<String, String> {
    BTreeMap::from([("policy.gsky".to_string(), String::from_utf8_lossy(bytes).into_owned())])
}

/// Compile the bytes as a policy. It loads or is rejected; it must not crash.
#[allow(dead_code)] // The seeded run uses a worker, because only a worker can stop some policies.
pub fn policy_source(bytes: &[u8]) {
    let limits = Limits { steps: 2_000, heap_bytes: 4 << 20, ..Limits::default() };
    drop(Program::compile_files(&bundle(bytes), limits));
}

/// A program whose functions return their argument, as it is and as a list.
pub fn echo() -> Program {
    let source = "
def hook(x):
    return x
def apart(x):
    return [x] if type(x) != 'list' else [y for y in x]
";
    let files = BTreeMap::from([("policy.gsky".to_string(), source.to_string())]);
    // Generous: a busy machine must not fail the test.
    let limits = Limits { call_time: Duration::from_secs(60), ..Limits::default() };
    Program::compile_files(&files, limits).unwrap_or_else(|error| panic!("{error}"))
}

/// Decode the bytes as a value, pass it to a function, and check that it comes back unchanged.
pub fn policy_values(program: &Program, bytes: &[u8]) {
    let value = value_of(&mut bytes.iter().copied(), 0);
    let back = program.call("hook", std::slice::from_ref(&value)).unwrap_or_else(|error| panic!("{value}: {error}"));
    assert_eq!(back.to_string(), seen_from_inside(&value).to_string());
    let apart = program.call("apart", std::slice::from_ref(&value));
    assert!(apart.is_ok(), "{value}: {apart:?}");
}

/// The value that these bytes describe. Missing bytes count as zero.
pub fn value_of(bytes: &mut dyn Iterator<Item = u8>, depth: usize) -> PolicyValue {
    let Some(kind) = bytes.next() else { return PolicyValue::None };
    match kind % 9 {
        0 => PolicyValue::None,
        1 => PolicyValue::Bool(kind > 127),
        2 => PolicyValue::Int(i64::from_le_bytes(eight(bytes))),
        3 => PolicyValue::Float(f64::from_le_bytes(eight(bytes))),
        4 => PolicyValue::Text(text(bytes)),
        5 if depth < 8 => PolicyValue::List(several(bytes, depth)),
        6 if depth < 8 => PolicyValue::Tuple(several(bytes, depth)),
        7 if depth < 8 => {
            let keys = (0..few(bytes)).map(|_| PolicyValue::Text(text(bytes))).collect::<Vec<_>>();
            let entry = |key| (key, value_of(bytes, depth + 1));
            PolicyValue::Dict(keys.into_iter().map(entry).collect())
        }
        8 if depth < 8 => {
            let names = ["gpus", "tenant", "labels", "priority"].into_iter().take(few(bytes));
            PolicyValue::Record(names.map(|name| (name, value_of(bytes, depth + 1))).collect())
        }
        _ => PolicyValue::Int(i64::from(kind)),
    }
}

fn few(bytes: &mut dyn Iterator<Item = u8>) -> usize {
    usize::from(bytes.next().unwrap_or(0) % 6)
}

fn several(bytes: &mut dyn Iterator<Item = u8>, depth: usize) -> Vec<PolicyValue> {
    (0..few(bytes)).map(|_| value_of(bytes, depth + 1)).collect()
}

fn eight(bytes: &mut dyn Iterator<Item = u8>) -> [u8; 8] {
    std::array::from_fn(|_| bytes.next().unwrap_or(0))
}

fn text(bytes: &mut dyn Iterator<Item = u8>) -> String {
    let length = usize::from(bytes.next().unwrap_or(0) % 32);
    String::from_utf8_lossy(&bytes.take(length).collect::<Vec<u8>>()).into_owned()
}

/// The value that a policy returns for an argument: records become dicts, and the last of equal keys wins.
fn seen_from_inside(value: &PolicyValue) -> PolicyValue {
    let all = |items: &[PolicyValue]| items.iter().map(seen_from_inside).collect();
    match value {
        PolicyValue::List(items) => PolicyValue::List(all(items)),
        PolicyValue::Tuple(items) => PolicyValue::Tuple(all(items)),
        PolicyValue::Dict(entries) => PolicyValue::Dict(entries.iter().fold(Vec::new(), |mut kept, (key, value)| {
            let value = seen_from_inside(value);
            match kept.iter_mut().find(|(known, _)| known == key) {
                Some((_, known)) => *known = value,
                None => kept.push((key.clone(), value)),
            }
            kept
        })),
        PolicyValue::Record(fields) => {
            let field =
                |(name, value): &(&'static str, PolicyValue)| (PolicyValue::text(*name), seen_from_inside(value));
            PolicyValue::Dict(fields.iter().map(field).collect())
        }
        other => other.clone(),
    }
}
