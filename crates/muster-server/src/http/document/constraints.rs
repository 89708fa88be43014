//! What the server asks of values beside their types: words, ranges and patterns, in `constraints.json`.
//!
//! The same limits are enforced where values are read. A test sends values from both sides of each to a server, so the
//! two cannot drift apart.

use serde_json::{Map, Value};
use utoipa::openapi::OpenApi;

const TABLE: &str = include_str!("constraints.json");

/// The document with all constraints in their places.
pub fn tighten(document: OpenApi) -> OpenApi {
    match tightened(&document) {
        Ok(tight) => tight,
        Err(problem) => {
            // The document is then only less precise.
            tracing::error!(%problem, "the constraints of the OpenAPI document are left out");
            document
        }
    }
}

fn tightened(document: &OpenApi) -> Result<OpenApi, String> {
    let table: Value = muster_json::from_str(TABLE).map_err(|error| error.to_string())?;
    let mut json = serde_json::to_value(document).map_err(|error| error.to_string())?;
    for (schema, fields) in object(&table["schemas"]) {
        for (field, constraint) in object(fields) {
            let place = place(&mut json["components"]["schemas"][schema], field);
            let place = place.ok_or_else(|| format!("there is no `{field}` in `{schema}`"))?;
            constrain(place, shared(&table, constraint));
        }
    }
    constrain_parameters(&mut json, &table);
    // A whole number is a number too, so a setting may fit two of its choices.
    if let Some(setting) = json["components"]["schemas"]["Setting"].as_object_mut()
        && let Some(choices) = setting.remove("oneOf")
    {
        setting.insert("anyOf".to_string(), choices);
    }
    muster_json::from_str(&json.to_string()).map_err(|error| error.to_string())
}

/// Where a constraint belongs: `name` is a field, `name[]` its items, `name{}` its keys, `name{*}` its values, and `#0` a
/// choice of the schema itself.
fn place<'a>(schema: &'a mut Value, field: &str) -> Option<&'a mut Value> {
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

/// A constraint of a parameter counts for all of its name, unless one names the route as well.
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
                    constrain(&mut parameter["schema"], shared(table, constraint));
                }
            }
        }
    }
}

/// A constraint by its name, or as it is written.
fn shared<'a>(table: &'a Value, constraint: &'a Value) -> &'a Value {
    constraint.as_str().map_or(constraint, |name| &table["shared"][name])
}

fn constrain(schema: &mut Value, constraint: &Value) {
    let may_be_null = schema["type"].as_array().is_some_and(|types| types.iter().any(|word| word == "null"));
    for (key, value) in object(constraint) {
        let mut value = value.clone();
        if let (Some(words), "enum", true) = (value.as_array_mut(), key.as_str(), may_be_null) {
            words.push(Value::Null);
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
    fn every_constraint_has_its_place() {
        let document = serde_json::to_value(tightened(&crate::http::openapi()).unwrap()).unwrap();
        let submit = &document["components"]["schemas"]["SubmitJob"]["properties"];
        assert_eq!(submit["isolation"]["enum"], serde_json::json!(["none", "memory", "full", null]));
        assert_eq!(
            (&submit["gpu_count"]["minimum"], &submit["gpu_count"]["maximum"]),
            (&1.into(), &64.into())
        );
        assert!(submit["environment"]["propertyNames"]["pattern"].is_string());
        let limit = |path: &str| {
            let parameters = document["paths"][path]["get"]["parameters"].as_array().unwrap();
            parameters.iter().find(|parameter| parameter["name"] == "limit").unwrap()["schema"]["maximum"]
                .clone()
        };
        // The lists of GPUs and nodes take any limit: they are short.
        assert_eq!((limit("/api/v1/jobs"), limit("/api/v1/gpus")), (1_000.into(), Value::Null));
    }
}
