//! Server and OpenAPI document agree: for every route, values that the schemas allow are accepted, and values that they
//! forbid are refused.
//!
//! One property or parameter of a valid request is varied at a time. If a field excludes another one, which the schemas
//! do not express, the other one is left out.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value, json};

use crate::client::HttpReply;
use crate::schema::document;
use crate::test_server::TestServer;

/// Parameters that make the response a stream, or need one that does.
const STREAM_PARAMETERS: [&str; 2] = ["follow", "streams"];
/// Texts sent for an unconstrained string.
const UNCONSTRAINED_TEXTS: [&str; 3] = ["", "plain", "ünï\ncode"];

/// A valid body of each schema.
fn valid_body(schema: &str) -> Map<String, Value> {
    let base = match schema {
        // Both an image and a command, so that each may be removed.
        "SubmitJob" => json!({"image": "i", "command": ["x"], "hold": true}),
        "TenantSpec" => json!({"id": "generated", "name": "generated"}),
        "NodeSpec" => json!({"name": "generated", "cpu_cores": 4, "memory_mb": 1024}),
        "GpuSpec" => json!({"model": "NVIDIA H100", "memory_mb": 81920}),
        "GpuHealthChange" => json!({"health": "healthy"}),
        "GpuPartition" => json!({"profiles": []}),
        "TokenSpec" => json!({"name": "generated", "role": "member", "tenant_id": "default"}),
        "SecretSpec" => json!({"value": "aHVudGVyMg=="}),
        "PowerSpec" => json!({"action": "status"}),
        "WindowSpec" => json!({"name": window_name(), "nodes": ["n01"], "duration": "1h"}),
        "PolicyApply" => json!({"files": {}, "dry_run": true}),
        "DependencyFields" => json!({"job": "job-1"}),
        "ExecCopy" => json!({"direction": "out", "path": "result"}),
        "ExecTerminal" => json!({"rows": 24, "columns": 80}),
        _ => json!({}),
    };
    base.as_object().unwrap().clone()
}

/// A window name that no other test request uses.
fn window_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("w{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A valid body with one property changed, and without the properties that contradict it.
fn valid_body_with(schema: &str, property: &str, value: &Value) -> Value {
    let mut body = valid_body(schema);
    match (schema, property, value.as_str()) {
        ("TokenSpec", "role", Some("operator" | "admin")) => drop(body.remove("tenant_id")),
        ("WindowSpec", "until", _) => drop(body.remove("duration")),
        ("SubmitJob", "signal", _) => drop(body.insert("time_limit".to_string(), json!("1h"))),
        _ => {}
    }
    body.insert(property.to_string(), value.clone());
    Value::Object(body)
}

/// Properties whose valid values depend on the time, on another property, or on the hardware.
fn is_excluded(schema: &str, property: &str) -> bool {
    let excluded = [
        ("TokenSpec", "tenant_id"),
        ("WindowSpec", "duration"),
        ("WindowSpec", "from"),
        ("WindowSpec", "until"),
        ("WindowSpec", "nodes"),
        ("WhatIfRequest", "set"),
        ("PolicyApply", "files"),
        ("NodeSpec", "numa_nodes"),
        ("GpuPartition", "profiles"),
        ("GpuChange", "profiles"),
        ("TenantChange", "max_gpus"),
        ("TenantChange", "max_gpus_by_model"),
    ];
    excluded.contains(&(schema, property))
}

fn resolve_ref(schema: &Value) -> (&str, &Value) {
    match schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        Some(name) => (name, &document()["components"]["schemas"][name]),
        None => ("", schema),
    }
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        name => name.as_str().into_iter().collect(),
    }
}

fn choices(schema: &Value) -> impl Iterator<Item = &Value> {
    [&schema["oneOf"], &schema["anyOf"]].into_iter().filter_map(Value::as_array).flatten()
}

/// Values that the schema allows: every enum value, both ends of a range, every example of a pattern.
fn allowed_values(schema: &Value) -> Vec<Value> {
    let (name, schema) = resolve_ref(schema);
    if let Some(values) = schema["enum"].as_array() {
        return values.clone();
    }
    let mut values: Vec<Value> = choices(schema).flat_map(allowed_values).collect();
    for name_of_type in types(schema) {
        match name_of_type {
            "null" => values.push(Value::Null),
            "boolean" => values.extend([json!(true), json!(false)]),
            "integer" | "number" => values.extend(allowed_numbers(schema, name_of_type)),
            "string" => values.extend(allowed_texts(schema)),
            "array" => {
                values.push(json!([]));
                values.extend(allowed_values(&schema["items"]).into_iter().map(|item| json!([item])));
            }
            "object" => values.extend(allowed_objects(name, schema)),
            other => panic!("unknown type: {other}"),
        }
    }
    values
}

fn allowed_numbers(schema: &Value, name_of_type: &str) -> Vec<Value> {
    let highest = if schema["format"] == "int32" { i64::from(i32::MAX) } else { i64::MAX };
    let end = |key: &str, other: i64| if schema[key].is_number() { schema[key].clone() } else { json!(other) };
    if name_of_type == "number" && !schema["maximum"].is_number() {
        return vec![json!(0.5), json!(1)];
    }
    vec![end("minimum", 0), end("maximum", highest)]
}

fn allowed_texts(schema: &Value) -> Vec<Value> {
    if schema["pattern"].is_string() {
        let examples = schema["examples"].as_array();
        return examples.unwrap_or_else(|| panic!("a pattern without examples: {schema}")).clone();
    }
    let long = "x".repeat(schema["maxLength"].as_u64().unwrap_or(300) as usize);
    let fits = |text: &&str| text.chars().count() as u64 >= schema["minLength"].as_u64().unwrap_or(0);
    UNCONSTRAINED_TEXTS.iter().copied().chain([long.as_str()]).filter(fits).map(Value::from).collect()
}

fn allowed_objects(name: &str, schema: &Value) -> Vec<Value> {
    if schema["properties"].is_object() {
        return allowed_bodies(name, schema);
    }
    let key = schema["propertyNames"]["examples"][0].as_str().unwrap_or("key");
    let mut maps = vec![json!({})];
    maps.extend(allowed_values(&schema["additionalProperties"]).into_iter().map(|value| json!({ key: value })));
    maps
}

/// Objects that the schema allows.
fn allowed_bodies(name: &str, schema: &Value) -> Vec<Value> {
    let properties = schema["properties"].as_object().unwrap();
    let varied = properties.iter().filter(|(property, _)| !is_excluded(name, property)).flat_map(|(property, one)| {
        allowed_values(one).into_iter().map(|value| valid_body_with(name, property, &value)).collect::<Vec<_>>()
    });
    std::iter::once(Value::Object(valid_body(name))).chain(varied).collect()
}

/// Whether a schema allows a value, for the parts of JSON Schema that the document uses. Of the texts that match a
/// pattern only its examples count.
fn schema_allows(schema: &Value, value: &Value) -> bool {
    let (_, schema) = resolve_ref(schema);
    if let Some(values) = schema["enum"].as_array() {
        return values.contains(value);
    }
    if choices(schema).any(|choice| schema_allows(choice, value)) {
        return true;
    }
    let number = value.as_f64();
    let in_range = |number: f64| {
        number >= schema["minimum"].as_f64().unwrap_or(f64::MIN)
            && number <= schema["maximum"].as_f64().unwrap_or(f64::MAX)
    };
    types(schema).into_iter().any(|name| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => (value.is_i64() || value.is_u64()) && number.is_some_and(in_range),
        "number" => number.is_some_and(in_range),
        "string" => value.as_str().is_some_and(|text| schema_allows_text(schema, text)),
        "array" => value.is_array(),
        _ => value.is_object(),
    })
}

fn schema_allows_text(schema: &Value, text: &str) -> bool {
    let length = text.chars().count() as u64;
    let fits = length >= schema["minLength"].as_u64().unwrap_or(0)
        && length <= schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    // This pattern only excludes NUL.
    if schema["pattern"] == "^[^\\u0000]*$" {
        return !text.contains('\0');
    }
    let examples = || schema["examples"].as_array().is_some_and(|all| all.iter().any(|one| one == text));
    fits && (schema["pattern"].is_null() || examples())
}

/// Values that the schema does not allow.
fn forbidden_values(schema: &Value) -> Vec<Value> {
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
    let mut values: Vec<Value> = tries.into_iter().filter(|value| !schema_allows(schema, value)).collect();
    let (_, schema) = resolve_ref(schema);
    values.extend(schema["maximum"].as_i64().and_then(|maximum| maximum.checked_add(1)).map(Value::from));
    values.extend(schema["minimum"].as_i64().map(|minimum| json!(minimum - 1)));
    values
}

/// Objects that the schema does not allow.
fn forbidden_bodies(name: &str, schema: &Value) -> Vec<Value> {
    let mut bodies = vec![json!([]), json!("text"), json!(1), json!(null)];
    for property in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mut body = valid_body(name);
        body.remove(property);
        bodies.push(Value::Object(body));
    }
    if schema["additionalProperties"] == false {
        bodies.push(valid_body_with(name, "no_such_field", &json!(1)));
    }
    for (property, one) in schema["properties"].as_object().unwrap() {
        bodies.extend(forbidden_values(one).into_iter().map(|value| valid_body_with(name, property, &value)));
    }
    bodies
}

/// Whether a request was refused because of its form, and not because of the state of the cluster.
fn is_malformed(reply: &HttpReply) -> bool {
    // A dry run answers 200 with the refusal in its body.
    let is_invalid = |status: u16, code: &Value| status == 400 || (status == 422 && code == "invalid");
    match reply.status {
        200 if reply.header("content-type") == "application/json" => is_invalid(422, &reply.json()["refusal"]["code"]),
        422 => is_invalid(422, &reply.json()["code"]),
        status => status == 400,
    }
}

/// A path with ids of existing objects.
fn example_path(path: &str) -> String {
    let id = match path.split('/').nth(3) {
        Some("jobs") => "job-1",
        Some("tenants") => "generated",
        Some("nodes") => "n01",
        _ => "1",
    };
    path.replace("{id}", id)
        .replace("{node}", "n01")
        .replace("{index}", "0")
        .replace("{version}", "1")
        .replace("secrets/{name}", "secrets/TOKEN")
}

/// Every operation of the document: method, path, operation.
fn operations() -> Vec<(String, String, &'static Value)> {
    let paths = document()["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &'static Value)| {
        let item = item.as_object().unwrap().iter();
        item.map(|(method, operation)| (method.to_uppercase(), path.clone(), operation)).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

/// A server with the objects that [`example_path`] names.
fn server_with_example_objects() -> TestServer {
    let server = TestServer::new();
    server.submit(json!({"name": "first", "command": ["x"], "hold": true}));
    let tenant = json!({"id": "generated", "name": "generated"});
    assert_eq!(server.client().post("/api/v1/tenants", &tenant).status, 201);
    server
}

/// Collects requests about which document and server disagree.
#[derive(Default)]
struct SchemaDifferences {
    sent: usize,
    found: Vec<String>,
}

impl SchemaDifferences {
    fn compare(&mut self, request: &str, is_allowed: bool, reply: &HttpReply) {
        self.sent += 1;
        // Without what-if replay or policy interpreter the server does not check the request.
        if reply.status == 501 {
            return;
        }
        if is_malformed(reply) == is_allowed || (reply.status >= 500 && reply.status != 503) {
            let difference = if is_allowed { "allowed and refused" } else { "forbidden and accepted" };
            let text: String = reply.text.chars().take(160).collect();
            let request: String = request.chars().take(140).collect();
            self.found.push(format!("{difference}: {request}: {} {text}", reply.status));
        }
    }

    fn assert_none(self) {
        assert!(self.sent > 100, "only {} requests were sent", self.sent);
        assert!(self.found.is_empty(), "{} of {}:\n{}", self.found.len(), self.sent, self.found.join("\n"));
    }
}

#[test]
fn request_bodies_are_accepted_exactly_as_the_openapi_schemas_allow() {
    let server = server_with_example_objects();
    let mut differences = SchemaDifferences::default();
    for (method, path, operation) in operations() {
        let body = &operation["requestBody"];
        let schema = &body["content"]["application/json"]["schema"];
        let (name, resolved) = resolve_ref(schema);
        if schema.is_null() {
            continue;
        }
        let target = example_path(&path);
        let mut send = |body: &[u8], is_allowed| {
            let reply = server.client().send(&method, &target, &[("Content-Type", "application/json")], body);
            let text = String::from_utf8_lossy(body);
            differences.compare(&format!("{method} {path} {text}"), is_allowed, &reply);
        };
        send(b"", body["required"] != true);
        // The id of a tenant cannot be changed.
        let keeps_its_id = |body: &&Value| method != "PUT" || body["id"].is_null() || body["id"] == "generated";
        let allowed = allowed_bodies(name, resolved);
        allowed.iter().filter(keeps_its_id).for_each(|body| send(&muster_json::to_vec(body), true));
        forbidden_bodies(name, resolved).iter().for_each(|body| send(&muster_json::to_vec(body), false));
    }
    differences.assert_none();
}

#[test]
fn query_parameters_are_accepted_exactly_as_the_openapi_schemas_allow() {
    let server = server_with_example_objects();
    let mut differences = SchemaDifferences::default();
    for (method, path, operation) in operations() {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        // A stream does not end by itself.
        let is_testable = |one: &&Value| {
            one["in"] == "query"
                && path != "/api/v1/events"
                && !STREAM_PARAMETERS.iter().any(|name| one["name"] == *name)
        };
        for parameter in parameters.filter(is_testable) {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            // The job has not started, so it has one attempt at most.
            let values = if name == "attempt" { vec![json!(1)] } else { allowed_values(schema) };
            let is_text = types(schema).contains(&"string");
            let wrong = forbidden_values(schema).into_iter().filter(|value| value.is_string() || !is_text);
            let wrong = wrong.filter(|value| !value.is_object() && !value.is_array() && !value.is_null());
            let all = values.into_iter().map(|value| (value, true)).chain(wrong.map(|value| (value, false)));
            for (value, is_allowed) in all {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
                let reply =
                    server.client().send(&method, &format!("{}?{name}={encoded}", example_path(&path)), &[], b"");
                differences.compare(&format!("{method} {path} {name}={text}"), is_allowed, &reply);
            }
        }
    }
    differences.assert_none();
}
