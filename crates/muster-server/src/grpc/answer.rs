//! A JSON answer of REST as a message.

use axum::body::{Body, to_bytes};
use axum::http::Response;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor};
use serde_json::Value;
use tonic::{Response as Reply, Status};

use super::status::{metadata, status_of_response};

/// Whole numbers up to this size are exact as floating-point numbers.
const EXACT_NUMBER_MAX: u64 = 1 << 53;

/// A field that the definitions lack is left out; the tests compare the definitions with the OpenAPI document.
const JSON_OPTIONS: DeserializeOptions = DeserializeOptions::new().deny_unknown_fields(false);

/// The response of a method that is no stream.
pub async fn reply(response: Response<Body>, output: MessageDescriptor) -> Result<Reply<DynamicMessage>, Status> {
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.map_err(|error| Status::internal(error.to_string()))?;
    if !parts.status.is_success() {
        return Err(status_of_response(parts.status, &parts.headers, &bytes));
    }
    let mut reply = Reply::new(message(&bytes, output)?);
    *reply.metadata_mut() = metadata(&parts.headers);
    Ok(reply)
}

/// A JSON object as a message.
pub fn message(json: &[u8], descriptor: MessageDescriptor) -> Result<DynamicMessage, Status> {
    let mut value: Value = muster_json::from_slice(json).map_err(|error| Status::internal(error.to_string()))?;
    write_large_numbers_as_text(&mut value);
    let name = descriptor.name().to_string();
    DynamicMessage::deserialize_with_options(descriptor, value, &JSON_OPTIONS)
        .map_err(|error| Status::internal(format!("the answer is no `{name}`: {error}")))
}

/// In the JSON form of protobuf, a number may be a text. In a `Struct` a large number has to be one, because its numbers
/// are floating-point.
fn write_large_numbers_as_text(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if size.is_some_and(|size| size > EXACT_NUMBER_MAX) {
                *value = Value::String(number.to_string());
            }
        }
        Value::Array(values) => values.iter_mut().for_each(write_large_numbers_as_text),
        Value::Object(fields) => fields.values_mut().for_each(write_large_numbers_as_text),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_exact() {
        let pool = prost_reflect::DescriptorPool::decode(muster_wire::FILE_DESCRIPTOR_SET).unwrap();
        let event = pool.get_message_by_name("muster.v1.Event").unwrap();
        let json = br#"{"seq": 18446744073709551615, "data": {"large": 9007199254740993, "small": 7}}"#;
        let message = message(json, event).unwrap();
        assert_eq!(message.get_field_by_name("seq").unwrap().as_u64(), Some(u64::MAX));
        let data = serde_json::to_value(message.get_field_by_name("data").unwrap().as_message().unwrap()).unwrap();
        assert_eq!(data, serde_json::json!({"large": "9007199254740993", "small": 7.0}));
    }
}
