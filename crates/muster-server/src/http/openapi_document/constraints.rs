//! Enumerations, ranges and patterns that `constraints.json` adds to the schemas of the OpenAPI document.
//!
//! The server enforces the same limits where it parses values. A test sends values from both sides of each limit to a
//! server, so that document and server agree.

use serde_json::{Map, Value};

const CONSTRAINTS_JSON: &str = include_str!("constraints.json");

/// The document with all constraints.
pub fn add_constraints(document: Value) -> Value {
    match with_constraints(document.clone()) {
        Ok(constrained) => constrained,
        Err(problem) => {
            // Without constraints the document is less precise, but correct.
            tracing::error!(%problem, "could not add constraints to the OpenAPI document; serving it without them");
            document
        }
    }
}

fn with_constraints(mut document: Value) -> Result<Value, String> {
    let table: Value = muster_json::from_str(CONSTRAINTS_JSON).map_err(|error| error.to_string())?;
    for (schema, fields) in object(&table["schemas"]) {
        for (field, constraint) in object(fields) {
            let target = constrained_schema(&mut document["components"]["schemas"][schema], field);
            let target = target.ok_or_else(|| format!("unknown field `{field}` in schema `{schema}`"))?;
            constrain(target, resolve_shared(&table, constraint));
        }
    }
    constrain_parameters(&mut document, &table);
    // An integer is also a number, so a setting may match two alternatives: `oneOf` would refuse it.
    if let Some(setting) = document["components"]["schemas"]["Setting"].as_object_mut()
        && let Some(choices) = setting.remove("oneOf")
    {
        setting.insert("anyOf".to_string(), choices);
    }
    Ok(document)
}

/// The schema that a constraint applies to: `name` is a field, `name[]` its items, `name{}` its keys, `name{*}` its
/// values, and `#0` an alternative of the schema itself.
fn constrained_schema<'a>(schema: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    if let Some(number) = field.strip_prefix('#') {
        return schema["oneOf"].get_mut(number.parse::<usize>().ok()?);
    }
    let name = field.trim_end_matches(['[', ']', '{', '}', '*']);
    let within = schema.get_mut("properties")?.get_mut(name)?;
    match &field[name.len()..] {
        "" => Some(within),
        "[]" => within.get_mut("items"),
        "{}" => within.get_mut("propertyNames"),
        _ => within.get_mut("additionalProperties"),
    }
}

/// Constrain query parameters. A constraint applies to all parameters of its name, unless another one names the route
/// as well.
fn constrain_parameters(json: &mut Value, table: &Value) {
    let Some(paths) = json["paths"].as_object_mut() else { return };
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            let Some(parameters) = operation["parameters"].as_array_mut() else { continue };
            for parameter in parameters.iter_mut().filter(|parameter| parameter["in"] == "query") {
                let name = parameter["name"].as_str().unwrap_or_default().to_string();
                let exact = format!("{} {path} {name}", method.to_uppercase());
                let known = &table["parameters"];
                if let Some(constraint) = known.get(&exact).or_else(|| known.get(&name)) {
                    constrain(&mut parameter["schema"], resolve_shared(table, constraint));
                }
            }
        }
    }
}

/// The constraint itself, or the shared one that it names.
fn resolve_shared<'a>(table: &'a Value, constraint: &'a Value) -> &'a Value {
    constraint.as_str().map_or(constraint, |name| &table["shared"][name])
}

fn constrain(schema: &mut Value, constraint: &Value) {
    let may_be_null = schema["type"].as_array().is_some_and(|types| types.iter().any(|kind| kind == "null"));
    for (key, value) in object(constraint) {
        let mut value = value.clone();
        if let (Some(values), "enum", true) = (value.as_array_mut(), key.as_str(), may_be_null) {
            values.push(Value::Null);
        }
        schema[key] = value;
    }
    if let (Some(members), true) = (schema.as_object_mut(), constraint.get("examples").is_some()) {
        members.remove("example");
    }
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constraint_names_an_existing_field() {
        let document = with_constraints(crate::http::openapi()).unwrap();
        let submit = &document["components"]["schemas"]["SubmitJob"]["properties"];
        assert_eq!(submit["isolation"]["enum"], serde_json::json!(["none", "memory", "full", null]));
        assert_eq!((&submit["gpu_count"]["minimum"], &submit["gpu_count"]["maximum"]), (&1.into(), &64.into()));
        assert!(submit["environment"]["propertyNames"]["pattern"].is_string());
        let limit = |path: &str| {
            let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
            parameters.iter().find(|parameter| parameter["name"] == "limit").unwrap()["schema"]["maximum"].clone()
        };
        // The lists of GPUs and nodes have no maximum limit: they are short.
        assert_eq!((limit("/api/v1/jobs"), limit("/api/v1/gpus")), (1_000.into(), Value::Null));
    }
}
