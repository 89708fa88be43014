//! Joining a cluster with a single-use token, and renewing the certificate of a node that has joined.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_wire::join_url::JoinUrl;
use muster_wire::v1::agent_link_client::AgentLinkClient;
use muster_wire::v1::{EnrolRequest, NodeCertificate, RenewRequest};
use rcgen::PublicKeyData;
use rustls::ClientConfig;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::error::LinkError;
use crate::identity::{self, Identity, Membership};
use crate::{channel, tls};

const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Joins the cluster of a join URL, unless the node has used this very URL already: a service manager starts the agent with
/// the same URL after every boot.
pub async fn join(data_dir: &Path, node: &str, url: &JoinUrl) -> Result<Identity, LinkError> {
    let Some(identity) = Identity::load(data_dir)? else { return enrol(data_dir, node, url).await };
    if identity.membership.ca_fingerprint != url.ca_fingerprint {
        return Err(LinkError::OtherCluster { folder: identity::folder(data_dir) });
    }
    if url.token_id() == Some(identity.membership.enrolment.as_str()) {
        return Ok(identity);
    }
    match enrol(data_dir, node, url).await {
        Err(LinkError::Refused(why)) => {
            tracing::warn!("the join URL cannot be used ({why}); the agent goes on with the identity that it has");
            Ok(identity)
        }
        joined => joined,
    }
}

async fn enrol(data_dir: &Path, node: &str, url: &JoinUrl) -> Result<Identity, LinkError> {
    let (key, tls) = (Identity::generate_key()?, tls::config_for_joining(&url.ca_fingerprint)?);
    let request =
        EnrolRequest { join_token: url.secret.clone(), node: node.to_string(), public_key: key.der_bytes().to_vec() };
    // The token is used up before the answer arrives, so a folder that cannot be written is found first.
    Identity::prepare(data_dir)?;
    let call = |mut client: AgentLinkClient<Channel>| {
        let request = request.clone();
        async move { client.enrol(request).await }
    };
    let response = call_leader(&url.servers, &tls, call).await?;
    let membership = Membership {
        node: node.to_string(),
        enrolment: response.enrolment,
        servers: url.servers.clone(),
        ca_fingerprint: url.ca_fingerprint.clone(),
    };
    let certificate = response.certificate.unwrap_or_default();
    Identity::store(data_dir, membership, key, certificate.certificate)
}

/// Obtains a new certificate for the key of the node. The caller stores it.
pub(crate) async fn renew(
    membership: &Membership,
    public_key: Vec<u8>,
    tls: &Arc<ClientConfig>,
) -> Result<NodeCertificate, LinkError> {
    let (node, enrolment) = (membership.node.clone(), membership.enrolment.clone());
    let request = RenewRequest { node, enrolment, public_key };
    let call = |mut client: AgentLinkClient<Channel>| {
        let request = request.clone();
        async move { client.renew(request).await }
    };
    Ok(call_leader(&membership.servers, tls, call).await?.certificate.unwrap_or_default())
}

/// Tries the servers until the leader has answered. A refusal of the leader is final.
async fn call_leader<T, F>(
    servers: &[String],
    tls: &Arc<ClientConfig>,
    call: impl Fn(AgentLinkClient<Channel>) -> F,
) -> Result<T, LinkError>
where
    F: Future<Output = Result<tonic::Response<T>, Status>>,
{
    let mut failures = Vec::new();
    for server in servers {
        let answer = timeout(CALL_TIMEOUT, async {
            let channel = channel::connect(server, tls.clone()).await.map_err(Status::unavailable)?;
            call(AgentLinkClient::new(channel)).await
        });
        match answer.await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) if is_refusal(status.code()) => {
                return Err(LinkError::Refused(status.message().to_string()));
            }
            Ok(Err(status)) => failures.push(format!("{server}: {}", status.message())),
            Err(_) => failures.push(format!("{server}: no answer within {} s", CALL_TIMEOUT.as_secs())),
        }
    }
    Err(LinkError::Unreachable(failures.join("; ")))
}

/// Codes with which a leader refuses; the others are failures of the way to it, or of a server that does not lead.
fn is_refusal(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::InvalidArgument | Code::Unauthenticated | Code::AlreadyExists)
}
