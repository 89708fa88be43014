//! A client of the gRPC API that blocks, for tests.

use std::sync::Arc;

use hyper_util::rt::TokioIo;
use muster_wire::v1;
use muster_wire::v1::cluster_service_client::ClusterServiceClient;
use muster_wire::v1::job_service_client::JobServiceClient;
use muster_wire::v1::node_service_client::NodeServiceClient;
use muster_wire::v1::tenant_service_client::TenantServiceClient;
use muster_wire::v1::watch_service_client::WatchServiceClient;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status, Streaming};

/// A channel whose calls carry metadata.
pub type Intercepted = InterceptedService<Channel, AddMetadata>;

#[derive(Clone)]
pub struct GrpcClient {
    runtime: Arc<Runtime>,
    channel: Channel,
    metadata: AddMetadata,
}

/// Adds the same metadata to every call.
#[derive(Clone, Default)]
pub struct AddMetadata(Vec<(AsciiMetadataKey, AsciiMetadataValue)>);

impl Interceptor for AddMetadata {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        for (key, value) in &self.0 {
            request.metadata_mut().insert(key.clone(), value.clone());
        }
        Ok(request)
    }
}

impl GrpcClient {
    pub fn new(url: &str, token: Option<&str>) -> GrpcClient {
        let runtime = Arc::new(Runtime::new().unwrap());
        let channel = {
            let _inside = runtime.enter();
            Endpoint::from_shared(url.to_string()).unwrap().connect_lazy()
        };
        let client = GrpcClient { runtime, channel, metadata: AddMetadata::default() };
        match token {
            Some(token) => client.with_token(token),
            None => client,
        }
    }

    /// Over TLS with these roots, to `HOST:PORT`.
    pub fn over_tls(address: &str, tls: rustls::ClientConfig, token: Option<&str>) -> GrpcClient {
        let (address, tls) = (address.to_string(), TlsConnector::from(Arc::new(tls)));
        let connector = tower::service_fn(move |_: Uri| {
            let (address, tls) = (address.clone(), tls.clone());
            async move {
                let stream = TcpStream::connect(&address).await?;
                let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
                Ok::<_, std::io::Error>(TokioIo::new(tls.connect(name, stream).await?))
            }
        });
        let client = GrpcClient::new("http://localhost", token);
        let channel = {
            let _inside = client.runtime.enter();
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
        };
        GrpcClient { channel, ..client }
    }

    pub fn with_token(&self, token: &str) -> GrpcClient {
        self.with("authorization", &format!("Bearer {token}"))
    }

    pub fn anonymous(&self) -> GrpcClient {
        GrpcClient { metadata: AddMetadata::default(), ..self.clone() }
    }

    /// With one more piece of metadata.
    pub fn with(&self, key: &str, value: &str) -> GrpcClient {
        let mut metadata = self.metadata.clone();
        metadata.0.retain(|(known, _)| known.as_str() != key);
        metadata.0.push((key.parse().unwrap(), value.parse().unwrap()));
        GrpcClient { metadata, ..self.clone() }
    }

    pub fn channel(&self) -> Intercepted {
        InterceptedService::new(self.channel.clone(), self.metadata.clone())
    }

    pub fn jobs(&self) -> JobServiceClient<Intercepted> {
        JobServiceClient::new(self.channel())
    }

    pub fn tenants(&self) -> TenantServiceClient<Intercepted> {
        TenantServiceClient::new(self.channel())
    }

    pub fn nodes(&self) -> NodeServiceClient<Intercepted> {
        NodeServiceClient::new(self.channel())
    }

    pub fn cluster(&self) -> ClusterServiceClient<Intercepted> {
        ClusterServiceClient::new(self.channel())
    }

    pub fn watch(&self) -> WatchServiceClient<Intercepted> {
        WatchServiceClient::new(self.channel())
    }

    /// The message of a call that must succeed.
    pub fn get<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> T {
        self.runtime.block_on(call).unwrap_or_else(|status| panic!("{status:?}")).into_inner()
    }

    /// The error of a call that must fail.
    pub fn error<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> GrpcError {
        match self.runtime.block_on(call) {
            Ok(_) => panic!("the call succeeded"),
            Err(status) => GrpcError::from(status),
        }
    }

    /// The error of a call, if it fails.
    pub fn error_or_ok<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Option<GrpcError> {
        self.runtime.block_on(call).err().map(GrpcError::from)
    }

    /// The next message of a stream; `None` at its end.
    pub fn next<T>(&self, stream: &mut Streaming<T>) -> Option<Result<T, GrpcError>> {
        self.runtime.block_on(stream.next()).map(|item| item.map_err(GrpcError::from))
    }

    /// Call any method; the response is not decoded.
    pub fn call(&self, method: &MethodDescriptor, message: DynamicMessage) -> Result<(), GrpcError> {
        let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let codec = tonic_prost::ProstCodec::<DynamicMessage, ()>::default();
        let mut grpc = tonic::client::Grpc::new(self.channel());
        self.runtime.block_on(async {
            grpc.ready().await.unwrap();
            let path = path.parse().unwrap();
            let sent = match method.is_server_streaming() {
                true => grpc.server_streaming(Request::new(message), path, codec).await.map(drop),
                false => grpc.unary(Request::new(message), path, codec).await.map(drop),
            };
            sent.map_err(GrpcError::from)
        })
    }
}

/// An error of a call: the status, and the problem in its details.
#[derive(Debug)]
pub struct GrpcError {
    pub code: tonic::Code,
    pub message: String,
    /// The metadata `muster-code`; empty without it.
    pub problem_code: String,
    pub problem: Option<Box<v1::Problem>>,
    pub retry_after: Option<String>,
}

impl From<Status> for GrpcError {
    fn from(status: Status) -> GrpcError {
        let text = |key: &str| Some(status.metadata().get(key)?.to_str().ok()?.to_string());
        GrpcError {
            code: status.code(),
            message: status.message().to_string(),
            problem_code: text("muster-code").unwrap_or_default(),
            problem: problem_in(status.details()).map(Box::new),
            retry_after: text("retry-after"),
        }
    }
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct ErrorDetails {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

fn problem_in(details: &[u8]) -> Option<v1::Problem> {
    let details = ErrorDetails::decode(details).unwrap();
    let detail = details.details.iter().find(|detail| detail.type_url == "type.googleapis.com/muster.v1.Problem")?;
    Some(v1::Problem::decode(detail.value.as_slice()).unwrap())
}

/// All definitions.
pub fn definitions() -> DescriptorPool {
    DescriptorPool::decode(muster_wire::FILE_DESCRIPTOR_SET).unwrap()
}

/// A method of a public service, and the operation that its option names.
pub struct PublicMethod {
    pub method: MethodDescriptor,
    pub http_method: String,
    pub path: String,
    pub body: String,
    pub query: String,
}

/// The methods of all public services.
pub fn public_methods() -> Vec<PublicMethod> {
    let pool = definitions();
    let option = pool.get_extension_by_name("muster.v1.rest").unwrap();
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let public = methods.filter(|method| method.options().has_extension(&option));
    public
        .map(|method| {
            let options = method.options();
            let rest = options.get_extension(&option);
            let rest = rest.as_message().unwrap();
            let text = |field: &str| rest.get_field_by_name(field).unwrap().as_str().unwrap().to_string();
            PublicMethod {
                http_method: text("method"),
                path: text("path"),
                body: text("body"),
                query: text("query"),
                method,
            }
        })
        .collect()
}

impl PublicMethod {
    pub fn name(&self) -> &str {
        self.method.full_name()
    }

    /// A request with `id` in the path parameter, if there is one.
    pub fn request_for(&self, id: &str) -> DynamicMessage {
        let mut message = DynamicMessage::new(self.method.input());
        if self.path.contains("{id}") {
            message.set_field_by_name("id", Value::String(id.to_string()));
        }
        message
    }
}
