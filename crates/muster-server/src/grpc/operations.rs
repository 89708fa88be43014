//! The table of methods, read from the descriptors of the definitions: which REST operation each one is.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use muster_wire::FILE_DESCRIPTOR_SET;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};

/// The option of a method that names its operation.
const REST_OPTION: &str = "muster.v1.rest";

/// A method of a public service.
#[derive(Debug)]
pub struct Operation {
    pub input: MessageDescriptor,
    pub output: MessageDescriptor,
    /// Whether the response is a stream.
    pub streaming: bool,
    pub method: Method,
    /// With names of fields in braces.
    pub path: String,
    pub body: RequestBody,
    /// Query parameters of every call, such as `follow=true`.
    pub query: String,
}

/// Which fields of a request message are the body of the REST request. All others are path or query parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestBody {
    None,
    AllFields,
    Field(String),
}

/// All methods of the public services.
#[derive(Debug)]
pub struct Operations {
    /// By path of the call, such as `/muster.v1.JobService/Submit`.
    by_path: BTreeMap<String, Arc<Operation>>,
    services: Vec<String>,
}

impl Operations {
    /// # Panics
    ///
    /// If the descriptors in the program are damaged.
    pub fn of_this_version() -> Operations {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET);
        Operations::of(&pool.unwrap_or_else(|error| panic!("descriptors of the gRPC API: {error}")))
    }

    fn of(pool: &DescriptorPool) -> Operations {
        let (mut by_path, mut services) = (BTreeMap::new(), Vec::new());
        for service in pool.services() {
            let operations: Vec<_> = service.methods().filter_map(|method| operation(&method)).collect();
            if !operations.is_empty() {
                services.push(service.full_name().to_string());
                by_path.extend(operations);
            }
        }
        Operations { by_path, services }
    }

    /// The operation of a call.
    pub fn find(&self, path: &str) -> Option<&Arc<Operation>> {
        self.by_path.get(path)
    }

    /// Names of the public services.
    pub fn services(&self) -> &[String] {
        &self.services
    }
}

/// `None` for a method of the agent link, which is on another port and no operation of REST.
fn operation(method: &MethodDescriptor) -> Option<(String, Arc<Operation>)> {
    let options = method.options();
    let extension = method.parent_pool().get_extension_by_name(REST_OPTION)?;
    if !options.has_extension(&extension) {
        return None;
    }
    let value = options.get_extension(&extension);
    let rest = value.as_message()?;
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let operation = Operation {
        input: method.input(),
        output: method.output(),
        streaming: method.is_server_streaming(),
        method: text(rest, "method").parse().ok()?,
        path: text(rest, "path"),
        body: match text(rest, "body").as_str() {
            "" => RequestBody::None,
            "*" => RequestBody::AllFields,
            field => RequestBody::Field(field.to_string()),
        },
        query: text(rest, "query"),
    };
    Some((path, Arc::new(operation)))
}

fn text(message: &DynamicMessage, field: &str) -> String {
    let value = message.get_field_by_name(field);
    value.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_string()
}
