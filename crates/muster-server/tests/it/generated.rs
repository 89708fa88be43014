//! The document and the server agree: for every route, values from both sides of what the document's schemas allow are
//! sent, and only those that it allows are taken.
//!
//! One property or parameter is varied at a time over a request that is known to be good. Where one field depends on
//! another, which a schema of ours does not say, the other is left out.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value, json};

use crate::client::Reply;
use crate::house::House;
use crate::schema::document;

/// Texts that are sent where the document allows any.
const FREE_TEXTS: [&str; 3] = ["", "plain", "ünï\ncode"];

/// Good requests by the name of their schema.
fn base(schema: &str) -> Map<String, Value> {
    let base = match schema {
        // Two things to run, so that each may be left out.
        "SubmitJob" => json!({"image": "i", "command": ["x"], "hold": true}),
        "TenantSpec" => json!({"id": "generated", "name": "generated"}),
        "NodeSpec" => json!({"name": "generated", "cpu_cores": 4, "memory_mb": 1024}),
        "GpuSpec" => json!({"model": "NVIDIA H100", "memory_mb": 81920}),
        "GpuHealthChange" => json!({"health": "healthy"}),
        "GpuPartition" => json!({"profiles": []}),
        "TokenSpec" => json!({"name": "generated", "role": "member", "tenant_id": "default"}),
        "WindowSpec" => json!({"name": window_name(), "nodes": ["n01"], "duration": "1h"}),
        "PolicyApply" => json!({"files": {}, "dry_run": true}),
        "AfterFields" => json!({"job": "job-1"}),
        _ => json!({}),
    };
    base.as_object().unwrap().clone()
}

/// The name of a window is unique.
fn window_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("w{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A good request with one property changed, and without those that contradict it.
fn varied(schema: &str, property: &str, value: &Value) -> Value {
    let mut body = base(schema);
    match (schema, property, value.as_str()) {
        ("TokenSpec", "role", Some("operator" | "admin")) => drop(body.remove("tenant_id")),
        ("WindowSpec", "until", _) => drop(body.remove("duration")),
        _ => {}
    }
    body.insert(property.to_string(), value.clone());
    Value::Object(body)
}

/// Properties whose good values depend on the hour, on another property, or on what is installed.
fn is_apart(schema: &str, property: &str) -> bool {
    let apart = [
        ("TokenSpec", "tenant_id"),
        ("WindowSpec", "duration"),
        ("WindowSpec", "from"),
        ("WindowSpec", "until"),
        ("WindowSpec", "nodes"),
        ("WhatIfAsk", "set"),
        ("PolicyApply", "files"),
        ("NodeSpec", "numa_nodes"),
        ("GpuPartition", "profiles"),
        ("GpuChange", "profiles"),
        ("TenantChange", "max_gpus"),
        ("TenantChange", "max_gpus_by_model"),
    ];
    apart.contains(&(schema, property))
}

fn resolved(schema: &Value) -> (&str, &Value) {
    match schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        Some(name) => (name, &document()["components"]["schemas"][name]),
        None => ("", schema),
    }
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        word => word.as_str().into_iter().collect(),
    }
}

fn choices(schema: &Value) -> impl Iterator<Item = &Value> {
    [&schema["oneOf"], &schema["anyOf"]].into_iter().filter_map(Value::as_array).flatten()
}

/// Values that the schema allows: every word, both ends of a range, every example of a pattern.
fn allowed(schema: &Value) -> Vec<Value> {
    let (name, schema) = resolved(schema);
    if let Some(words) = schema["enum"].as_array() {
        return words.clone();
    }
    let mut values: Vec<Value> = choices(schema).flat_map(allowed).collect();
    for word in types(schema) {
        match word {
            "null" => values.push(Value::Null),
            "boolean" => values.extend([json!(true), json!(false)]),
            "integer" | "number" => values.extend(numbers(schema, word)),
            "string" => values.extend(texts(schema)),
            "array" => {
                values.push(json!([]));
                values.extend(allowed(&schema["items"]).into_iter().map(|item| json!([item])));
            }
            "object" => values.extend(objects(name, schema)),
            other => panic!("a type that nobody knows: {other}"),
        }
    }
    values
}

fn numbers(schema: &Value, word: &str) -> Vec<Value> {
    let highest = if schema["format"] == "int32" { i64::from(i32::MAX) } else { i64::MAX };
    let end =
        |key: &str, other: i64| if schema[key].is_number() { schema[key].clone() } else { json!(other) };
    if word == "number" && !schema["maximum"].is_number() {
        return vec![json!(0.5), json!(1)];
    }
    vec![end("minimum", 0), end("maximum", highest)]
}

fn texts(schema: &Value) -> Vec<Value> {
    if schema["pattern"].is_string() {
        let examples = schema["examples"].as_array();
        return examples.unwrap_or_else(|| panic!("a pattern without examples: {schema}")).clone();
    }
    let long = "x".repeat(schema["maxLength"].as_u64().unwrap_or(300) as usize);
    let fits = |text: &&str| text.chars().count() as u64 >= schema["minLength"].as_u64().unwrap_or(0);
    FREE_TEXTS.iter().copied().chain([long.as_str()]).filter(fits).map(Value::from).collect()
}

fn objects(name: &str, schema: &Value) -> Vec<Value> {
    if schema["properties"].is_object() {
        return bodies(name, schema);
    }
    let key = schema["propertyNames"]["examples"][0].as_str().unwrap_or("key");
    let mut maps = vec![json!({})];
    maps.extend(allowed(&schema["additionalProperties"]).into_iter().map(|value| json!({ key: value })));
    maps
}

/// Objects that the schema allows.
fn bodies(name: &str, schema: &Value) -> Vec<Value> {
    let properties = schema["properties"].as_object().unwrap();
    let varied =
        properties.iter().filter(|(property, _)| !is_apart(name, property)).flat_map(|(property, one)| {
            allowed(one).into_iter().map(|value| varied(name, property, &value)).collect::<Vec<_>>()
        });
    std::iter::once(Value::Object(base(name))).chain(varied).collect()
}

/// Whether a value is inside a schema, as far as our schemas go. Texts that fit a pattern are its examples.
fn is_inside(schema: &Value, value: &Value) -> bool {
    let (_, schema) = resolved(schema);
    if let Some(words) = schema["enum"].as_array() {
        return words.contains(value);
    }
    if choices(schema).any(|choice| is_inside(choice, value)) {
        return true;
    }
    let number = value.as_f64();
    let in_range = |number: f64| {
        number >= schema["minimum"].as_f64().unwrap_or(f64::MIN)
            && number <= schema["maximum"].as_f64().unwrap_or(f64::MAX)
    };
    types(schema).into_iter().any(|word| match word {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => (value.is_i64() || value.is_u64()) && number.is_some_and(in_range),
        "number" => number.is_some_and(in_range),
        "string" => value.as_str().is_some_and(|text| is_inside_text(schema, text)),
        "array" => value.is_array(),
        _ => value.is_object(),
    })
}

fn is_inside_text(schema: &Value, text: &str) -> bool {
    let length = text.chars().count() as u64;
    let fits = length >= schema["minLength"].as_u64().unwrap_or(0)
        && length <= schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    // One of our patterns only keeps NUL out.
    if schema["pattern"] == "^[^\\u0000]*$" {
        return !text.contains('\0');
    }
    let examples = || schema["examples"].as_array().is_some_and(|all| all.iter().any(|one| one == text));
    fits && (schema["pattern"].is_null() || examples())
}

/// Values that the schema does not allow.
fn forbidden(schema: &Value) -> Vec<Value> {
    let long = "x".repeat(256);
    let tries = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(10_001),
        json!(i64::MAX),
        json!(u64::MAX),
        json!("\u{0}"),
        json!(""),
        json!(long),
        json!([]),
        json!({}),
    ];
    let mut values: Vec<Value> = tries.into_iter().filter(|value| !is_inside(schema, value)).collect();
    let (_, schema) = resolved(schema);
    values.extend(schema["maximum"].as_i64().and_then(|most| most.checked_add(1)).map(Value::from));
    values.extend(schema["minimum"].as_i64().map(|least| json!(least - 1)));
    values
}

/// Objects that the schema does not allow.
fn forbidden_bodies(name: &str, schema: &Value) -> Vec<Value> {
    let mut bodies = vec![json!([]), json!("text"), json!(1), json!(null)];
    for property in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mut body = base(name);
        body.remove(property);
        bodies.push(Value::Object(body));
    }
    if schema["additionalProperties"] == false {
        bodies.push(varied(name, "no_such_field", &json!(1)));
    }
    for (property, one) in schema["properties"].as_object().unwrap() {
        bodies.extend(forbidden(one).into_iter().map(|value| varied(name, property, &value)));
    }
    bodies
}

/// Refused because of how it is written, and not because of what the cluster is.
fn is_malformed(reply: &Reply) -> bool {
    // A plan says what would become of a job, a refusal too.
    let is_invalid = |status: u16, code: &Value| status == 400 || (status == 422 && code == "invalid");
    match reply.status {
        200 if reply.header("content-type") == "application/json" => {
            is_invalid(422, &reply.json()["refusal"]["code"])
        }
        422 => is_invalid(422, &reply.json()["code"]),
        status => status == 400,
    }
}

/// A path with names of things that exist.
fn concrete(path: &str) -> String {
    let id = match path.split('/').nth(3) {
        Some("jobs") => "job-1",
        Some("tenants") => "generated",
        Some("nodes") => "n01",
        _ => "1",
    };
    path.replace("{id}", id).replace("{node}", "n01").replace("{index}", "0").replace("{version}", "1")
}

/// Every operation of the document: method, path, and what it says.
fn operations() -> Vec<(String, String, &'static Value)> {
    let paths = document()["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &'static Value)| {
        let item = item.as_object().unwrap().iter();
        item.map(|(method, said)| (method.to_uppercase(), path.clone(), said)).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

/// A server with the objects that `concrete` names.
fn furnished() -> House {
    let house = House::new();
    house.submit(json!({"name": "first", "command": ["x"], "hold": true}));
    let tenant = json!({"id": "generated", "name": "generated"});
    assert_eq!(house.client().post("/api/v1/tenants", &tenant).status, 201);
    house
}

/// Collects what the document and the server see differently.
#[derive(Default)]
struct Differences {
    sent: usize,
    found: Vec<String>,
}

impl Differences {
    fn see(&mut self, request: &str, is_allowed: bool, reply: &Reply) {
        self.sent += 1;
        // Without an oracle or interpreter nothing is looked at.
        if reply.status == 501 {
            return;
        }
        if is_malformed(reply) == is_allowed || (reply.status >= 500 && reply.status != 503) {
            let word = if is_allowed { "allowed and refused" } else { "forbidden and taken" };
            let said: String = reply.text.chars().take(160).collect();
            let request: String = request.chars().take(140).collect();
            self.found.push(format!("{word}: {request}: {} {said}", reply.status));
        }
    }

    fn none(self) {
        assert!(self.sent > 100, "only {} requests were sent", self.sent);
        assert!(self.found.is_empty(), "{} of {}:\n{}", self.found.len(), self.sent, self.found.join("\n"));
    }
}

#[test]
fn bodies_are_taken_as_the_document_says() {
    let house = furnished();
    let mut differences = Differences::default();
    for (method, path, said) in operations() {
        let body = &said["requestBody"];
        let schema = &body["content"]["application/json"]["schema"];
        let (name, resolved) = resolved(schema);
        if schema.is_null() {
            continue;
        }
        let target = concrete(&path);
        let mut send = |body: &[u8], is_allowed| {
            let reply = house.client().send(&method, &target, &[("Content-Type", "application/json")], body);
            let text = String::from_utf8_lossy(body);
            differences.see(&format!("{method} {path} {text}"), is_allowed, &reply);
        };
        send(b"", body["required"] != true);
        // A tenant keeps its id.
        let keeps_its_id =
            |body: &&Value| method != "PUT" || body["id"].is_null() || body["id"] == "generated";
        let good = bodies(name, resolved);
        good.iter().filter(keeps_its_id).for_each(|body| send(&muster_json::to_vec(body), true));
        forbidden_bodies(name, resolved).iter().for_each(|body| send(&muster_json::to_vec(body), false));
    }
    differences.none();
}

#[test]
fn parameters_are_taken_as_the_document_says() {
    let house = furnished();
    let mut differences = Differences::default();
    for (method, path, said) in operations() {
        let parameters = said["parameters"].as_array().into_iter().flatten();
        // Streams answer for as long as they are open.
        let is_plain =
            |one: &&Value| one["in"] == "query" && path != "/api/v1/events" && one["name"] != "follow";
        for parameter in parameters.filter(is_plain) {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            // The job has not started, so it has one attempt at most.
            let values = if name == "attempt" { vec![json!(1)] } else { allowed(schema) };
            let is_text = types(schema).contains(&"string");
            let wrong = forbidden(schema).into_iter().filter(|value| value.is_string() || !is_text);
            let wrong = wrong.filter(|value| !value.is_object() && !value.is_array() && !value.is_null());
            let all = values.into_iter().map(|value| (value, true)).chain(wrong.map(|value| (value, false)));
            for (value, is_allowed) in all {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
                let reply =
                    house.client().send(&method, &format!("{}?{name}={encoded}", concrete(&path)), &[], b"");
                differences.see(&format!("{method} {path} {name}={text}"), is_allowed, &reply);
            }
        }
    }
    differences.none();
}
