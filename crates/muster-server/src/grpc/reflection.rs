//! Server reflection: clients such as grpcurl need no definitions.

use muster_wire::FILE_DESCRIPTOR_SET;
use tonic::service::Routes;
use tonic_reflection::server::{Builder, Error};

/// Standard services beside the public ones.
const STANDARD_SERVICES: [&str; 2] = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];

/// Add both versions of reflection for these services and the standard ones.
///
/// # Panics
///
/// If the descriptors in the program are damaged.
pub fn add_reflection(routes: Routes, services: &[String]) -> Routes {
    with_both_versions(routes, services).unwrap_or_else(|error| panic!("descriptors of the gRPC API: {error}"))
}

fn with_both_versions(routes: Routes, services: &[String]) -> Result<Routes, Error> {
    let builder = || {
        let described = Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        let names = services.iter().map(String::as_str).chain(STANDARD_SERVICES);
        names.fold(described, Builder::with_service_name)
    };
    Ok(routes.add_service(builder().build_v1()?).add_service(builder().build_v1alpha()?))
}
