//! The definitions of the gRPC API agree with the OpenAPI document: every operation, field, type and presence.
//!
//! A new field of the REST API fails here until it is also in `crates/muster-wire/proto/muster/v1`.

use std::collections::BTreeSet;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::Value;

use crate::grpc_client::{PublicMethod, definitions, public_methods};
use crate::schema::document;

/// Parameters of REST operations that a method has not, and why.
const PARAMETERS_LEFT_OUT: &[(&str, &str, &str)] = &[
    ("muster.v1.JobService.Submit", "Idempotency-Key", "it is metadata"),
    ("muster.v1.JobService.ReadLog", "follow", "the method `Logs` follows"),
    ("muster.v1.JobService.ReadLog", "streams", "only with `follow`"),
    ("muster.v1.JobService.ReadLog", "format", "a message has text and bytes"),
    ("muster.v1.JobService.Logs", "format", "not with `follow`"),
    ("muster.v1.WatchService.Events", "Last-Event-ID", "`after` is the same"),
];

/// The field that lists fields of the body to clear.
const CLEAR_FIELD: &str = "clear";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Response,
}

#[test]
fn definitions_have_every_field_of_the_rest_operations() {
    let methods = public_methods();
    assert!(methods.len() >= 30, "{}", methods.len());
    let mut comparison = Comparison::default();
    for method in &methods {
        comparison.compare_method(method);
    }
    assert!(comparison.seen.len() > 40, "{:?}", comparison.seen);
    assert!(comparison.problems.is_empty(), "{}", comparison.problems.join("\n"));
}

#[test]
fn field_numbers_are_never_reused() {
    let recorded = include_str!("grpc_fields.txt");
    let current: BTreeSet<String> = public_fields();
    let missing: Vec<&str> = recorded.lines().filter(|line| !current.contains(*line)).collect();
    assert!(missing.is_empty(), "clients of earlier releases use these fields, which have changed: {missing:#?}");
    let recorded: BTreeSet<String> = recorded.lines().map(str::to_string).collect();
    let new: Vec<&String> = current.difference(&recorded).collect();
    assert!(new.is_empty(), "add the new fields to muster-server/tests/it/grpc_fields.txt: {new:#?}");
}

/// Number and type of every field of every message, beside those of the agent link.
fn public_fields() -> BTreeSet<String> {
    let pool = definitions();
    let messages = pool.all_messages().filter(|message| {
        !message.is_map_entry()
            && message.package_name() == "muster.v1"
            && !message.parent_file().name().ends_with("agent_link.proto")
    });
    let fields = messages.flat_map(|message| {
        let line = |field: FieldDescriptor| {
            let label = if field.is_list() { "repeated " } else { "" };
            format!("{}.{} = {} {label}{:?}", message.name(), field.name(), field.number(), field.kind())
        };
        message.fields().map(line).collect::<Vec<_>>()
    });
    fields.collect()
}

#[derive(Default)]
struct Comparison {
    problems: Vec<String>,
    /// Messages that were compared, with their schemas.
    seen: BTreeSet<(String, String)>,
}

impl Comparison {
    fn compare_method(&mut self, method: &PublicMethod) {
        let operation = &document()["paths"][&method.path][method.http_method.to_lowercase()];
        if operation.is_null() {
            return self.problem(method.name(), format!("there is no {} {}", method.http_method, method.path));
        }
        self.compare_parameters(method, operation);
        self.compare_body(method, operation);
        let output = method.method.output();
        if method.method.is_server_streaming() {
            let events: Vec<MessageDescriptor> = output
                .oneofs()
                .flat_map(|oneof| oneof.fields().collect::<Vec<_>>())
                .filter_map(|field| {
                    field
                        .containing_oneof()
                        .filter(|oneof| !oneof.is_synthetic())
                        .and(field.kind().as_message().cloned())
                })
                .collect();
            for message in if events.is_empty() { vec![output] } else { events } {
                self.compare_message(&schema_named(message.name()), message.name(), &message, Direction::Response);
            }
            return;
        }
        let responses = operation["responses"].as_object().unwrap();
        let success =
            responses.iter().find(|(status, _)| status.starts_with('2')).map(|(_, response)| response).unwrap();
        let schema = &success["content"]["application/json"]["schema"];
        let name = reference_name(schema).unwrap_or_default();
        if name != output.name() {
            self.problem(method.name(), format!("returns `{}`, the operation `{name}`", output.name()));
        }
        self.compare_message(schema, &name, &output, Direction::Response);
    }

    fn compare_parameters(&mut self, method: &PublicMethod, operation: &Value) {
        let input = method.method.input();
        let mut expected: BTreeSet<String> = BTreeSet::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            if PARAMETERS_LEFT_OUT.iter().any(|(of, left_out, _)| *of == method.name() && *left_out == name) {
                continue;
            }
            if method.query.split('&').any(|parameter| parameter.split('=').next() == Some(name)) {
                continue; // Every call has it.
            }
            expected.insert(name.to_string());
            let Some(field) = input.get_field_by_name(name) else {
                self.problem(input.name(), format!("lacks the parameter `{name}`"));
                continue;
            };
            if parameter["in"] == "query" {
                self.compare_field(&parameter["schema"], &field, Direction::Request, false);
            }
        }
        match method.body.as_str() {
            "*" => return,
            "" => {}
            field => expected.extend([field.to_string(), CLEAR_FIELD.to_string()]),
        }
        for field in input.fields().filter(|field| !expected.contains(field.name())) {
            self.problem(input.name(), format!("`{}` is no parameter of {}", field.name(), method.path));
        }
    }

    fn compare_body(&mut self, method: &PublicMethod, operation: &Value) {
        let content = operation["requestBody"]["content"].as_object();
        let schema = content.and_then(|content| content.values().next()).map(|content| &content["schema"]);
        let input = method.method.input();
        match (method.body.as_str(), schema) {
            ("", None) => {}
            ("*", Some(schema)) => {
                let name = reference_name(schema).unwrap_or_default();
                self.compare_message(schema, &name, &input, Direction::Request);
            }
            (field, Some(schema)) if !field.is_empty() => {
                let message = input.get_field_by_name(field).unwrap().kind().as_message().unwrap().clone();
                self.compare_message(schema, &reference_name(schema).unwrap_or_default(), &message, Direction::Request);
            }
            (body, _) => self.problem(method.name(), format!("body `{body}` does not fit to the operation")),
        }
    }

    fn compare_message(&mut self, schema: &Value, name: &str, message: &MessageDescriptor, direction: Direction) {
        if !self.seen.insert((format!("{}, {direction:?}", message.name()), name.to_string())) {
            return;
        }
        let (properties, required) = properties(schema);
        for (property, schema) in &properties {
            let field = message.fields().find(|field| field.name() == property || field.json_name() == property);
            match field {
                Some(field) => self.compare_field(schema, &field, direction, required.contains(property)),
                None => {
                    let file = message.parent_file().name().to_string();
                    self.problem(message.name(), format!("lacks the field `{property}` of `{name}`; add it to {file}"));
                }
            }
        }
        let known = |field: &FieldDescriptor| {
            properties.iter().any(|(property, _)| property == field.name() || property == field.json_name())
        };
        // A path parameter is beside the fields of the body.
        for field in message.fields().filter(|field| !known(field) && field.name() != "id") {
            self.problem(message.name(), format!("`{}` is not a field of `{name}`", field.name()));
        }
    }

    fn compare_field(&mut self, schema: &Value, field: &FieldDescriptor, direction: Direction, required: bool) {
        let what = format!("{}.{}", field.parent_message().name(), field.name());
        let (schema, nullable) = without_null(schema);
        if !self.type_fits(&schema, field, direction) {
            self.problem(&what, format!("{:?} does not fit to {schema}", field.kind()));
        }
        let needs_presence = match direction {
            Direction::Request => true,
            Direction::Response => nullable || !required,
        };
        if needs_presence && !field.is_list() && !field.is_map() && !field.supports_presence() {
            self.problem(&what, "must be `optional`: absent and zero differ".to_string());
        }
    }

    fn type_fits(&mut self, schema: &Value, field: &FieldDescriptor, direction: Direction) -> bool {
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else { return false };
            let value = entry.map_entry_value_field().kind();
            return schema["type"] == "object" && self.kind_fits(&schema["additionalProperties"], &value, direction);
        }
        match field.is_list() {
            true => schema["type"] == "array" && self.kind_fits(&schema["items"], &field.kind(), direction),
            false => self.kind_fits(schema, &field.kind(), direction),
        }
    }

    fn kind_fits(&mut self, schema: &Value, kind: &Kind, direction: Direction) -> bool {
        if let Kind::Message(message) = kind {
            if message.full_name() == "google.protobuf.Struct" {
                return schema["type"] == "object" && schema["properties"].is_null();
            }
            let name = reference_name(schema).unwrap_or_default();
            self.compare_message(schema, &name, message, direction);
            return name == message.name();
        }
        let schema = resolve(schema);
        if let Some(variants) = schema["oneOf"].as_array() {
            // One notation of several; it can express all values.
            return variants.iter().any(|variant| self.kind_fits(variant, kind, direction));
        }
        let unsigned = schema["minimum"].as_f64().is_some_and(|least| least >= 0.0);
        let format = schema["format"].as_str().unwrap_or_default();
        match (schema["type"].as_str().unwrap_or_default(), kind) {
            ("string", Kind::String | Kind::Bytes) | ("boolean", Kind::Bool) | ("number", Kind::Double) => true,
            ("integer", Kind::Uint32) => unsigned && format == "int32",
            ("integer", Kind::Uint64) => unsigned && format == "int64",
            ("integer", Kind::Int32) => !unsigned && format == "int32",
            ("integer", Kind::Int64) => !unsigned && format == "int64",
            _ => false,
        }
    }

    fn problem(&mut self, what: &str, sentence: String) {
        self.problems.push(format!("{what}: {sentence}"));
    }
}

fn schema_named(name: &str) -> Value {
    serde_json::json!({"$ref": format!("#/components/schemas/{name}")})
}

fn reference_name(schema: &Value) -> Option<String> {
    Some(schema["$ref"].as_str()?.rsplit('/').next()?.to_string())
}

fn resolve(schema: &Value) -> Value {
    match reference_name(schema) {
        Some(name) => document()["components"]["schemas"][&name].clone(),
        None => schema.clone(),
    }
}

/// All properties of an object and the names of those that are always there.
fn properties(schema: &Value) -> (Vec<(String, Value)>, BTreeSet<String>) {
    let schema = resolve(schema);
    if let Some(parts) = schema["allOf"].as_array() {
        let (mut all, mut required) = (Vec::new(), BTreeSet::new());
        for part in parts {
            let (more, names) = properties(part);
            all.extend(more);
            required.extend(names);
        }
        return (all, required);
    }
    let all = schema["properties"].as_object().into_iter().flatten();
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    (all.map(|(name, schema)| (name.clone(), schema.clone())).collect(), required.map(str::to_string).collect())
}

/// A schema without `null`, and whether it allowed it.
fn without_null(schema: &Value) -> (Value, bool) {
    let mut schema = schema.clone();
    if let Some(types) = schema["type"].as_array() {
        let nullable = types.iter().any(|name| name == "null");
        schema["type"] = types.iter().find(|name| *name != "null").cloned().unwrap_or_default();
        return (schema, nullable);
    }
    let variants = schema["oneOf"].as_array().cloned().unwrap_or_default();
    match variants.iter().any(|variant| variant["type"] == "null") {
        true => (variants.into_iter().find(|variant| variant["type"] != "null").unwrap_or_default(), true),
        false => (schema, false),
    }
}
