//! What is done with arbitrary bytes. The fuzzers of `fuzz/` and the seeded run of `main.rs` do the same.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_policy::{Limits, Plain, Program};

/// A bundle of one file, from any bytes.
pub fn bundle(bytes: &[u8]) -> BTreeMap<String, String> {
    BTreeMap::from([("policy.gsky".to_string(), String::from_utf8_lossy(bytes).into_owned())])
}

/// Bytes are a policy: it is loaded, or it is not.
#[allow(dead_code)] // The seeded run asks a worker, because some policies only it can stop.
pub fn policy_source(bytes: &[u8]) {
    let small = Limits { steps: 2_000, heap_bytes: 4 << 20, ..Limits::default() };
    drop(Program::of_files(&bundle(bytes), small));
}

/// A program whose hooks give back what they are given, as it is and taken apart.
pub fn echo() -> Program {
    let source = "
def hook(x):
    return x
def apart(x):
    return [x] if type(x) != 'list' else [y for y in x]
";
    let files = BTreeMap::from([("policy.gsky".to_string(), source.to_string())]);
    // A machine that is busy may leave a call alone for longer than it may take.
    let patient = Limits { time: Duration::from_secs(60), ..Limits::default() };
    Program::of_files(&files, patient).unwrap_or_else(|error| panic!("{error}"))
}

/// Bytes are a value: a hook is asked with it, and gives back the same.
pub fn policy_values(program: &Program, bytes: &[u8]) {
    let value = value_of(&mut bytes.iter().copied(), 0);
    let back =
        program.call("hook", std::slice::from_ref(&value)).unwrap_or_else(|error| panic!("{value}: {error}"));
    assert_eq!(back.to_string(), seen_from_inside(&value).to_string());
    let apart = program.call("apart", std::slice::from_ref(&value));
    assert!(apart.is_ok(), "{value}: {apart:?}");
}

/// The value that bytes describe; they can run out at any time.
pub fn value_of(bytes: &mut dyn Iterator<Item = u8>, depth: usize) -> Plain {
    let Some(kind) = bytes.next() else { return Plain::None };
    match kind % 9 {
        0 => Plain::None,
        1 => Plain::Bool(kind > 127),
        2 => Plain::Int(i64::from_le_bytes(eight(bytes))),
        3 => Plain::Float(f64::from_le_bytes(eight(bytes))),
        4 => Plain::Text(text(bytes)),
        5 if depth < 8 => Plain::List(several(bytes, depth)),
        6 if depth < 8 => Plain::Tuple(several(bytes, depth)),
        7 if depth < 8 => {
            let keys = (0..few(bytes)).map(|_| Plain::Text(text(bytes))).collect::<Vec<_>>();
            let entry = |key| (key, value_of(bytes, depth + 1));
            Plain::Dict(keys.into_iter().map(entry).collect())
        }
        8 if depth < 8 => {
            let names = ["gpus", "tenant", "labels", "priority"].into_iter().take(few(bytes));
            Plain::Record(names.map(|name| (name, value_of(bytes, depth + 1))).collect())
        }
        _ => Plain::Int(i64::from(kind)),
    }
}

fn few(bytes: &mut dyn Iterator<Item = u8>) -> usize {
    usize::from(bytes.next().unwrap_or(0) % 6)
}

fn several(bytes: &mut dyn Iterator<Item = u8>, depth: usize) -> Vec<Plain> {
    (0..few(bytes)).map(|_| value_of(bytes, depth + 1)).collect()
}

fn eight(bytes: &mut dyn Iterator<Item = u8>) -> [u8; 8] {
    std::array::from_fn(|_| bytes.next().unwrap_or(0))
}

fn text(bytes: &mut dyn Iterator<Item = u8>) -> String {
    let length = usize::from(bytes.next().unwrap_or(0) % 32);
    String::from_utf8_lossy(&bytes.take(length).collect::<Vec<u8>>()).into_owned()
}

/// What a policy gives back of a value: records are dicts then, and a key that came twice has its last value.
fn seen_from_inside(value: &Plain) -> Plain {
    let all = |items: &[Plain]| items.iter().map(seen_from_inside).collect();
    match value {
        Plain::List(items) => Plain::List(all(items)),
        Plain::Tuple(items) => Plain::Tuple(all(items)),
        Plain::Dict(entries) => Plain::Dict(entries.iter().fold(Vec::new(), |mut kept, (key, value)| {
            let value = seen_from_inside(value);
            match kept.iter_mut().find(|(known, _)| known == key) {
                Some((_, known)) => *known = value,
                None => kept.push((key.clone(), value)),
            }
            kept
        })),
        Plain::Record(fields) => {
            let field = |(name, value): &(&'static str, Plain)| (Plain::text(*name), seen_from_inside(value));
            Plain::Dict(fields.iter().map(field).collect())
        }
        other => other.clone(),
    }
}
