//! The identity of a node on disk: its key, its certificate, and the cluster it belongs to.
//!
//! The private key is generated here and never leaves the node. Files are replaced in one step, so that a crash leaves
//! the former or the new certificate, never half of one.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rcgen::{KeyPair, PublicKeyData};
use serde::{Deserialize, Serialize};

use crate::error::LinkError;

/// Who the node is and where its servers are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub node: String,
    pub enrolment: String,
    /// `HOST:PORT` of the link on each known server.
    pub servers: Vec<String>,
    /// SHA-256 of the CA certificate of the cluster, in hexadecimal.
    pub ca_fingerprint: String,
}

/// The files of an identity, in the folder `link` of the agent's data folder.
#[derive(Debug)]
pub struct Identity {
    folder: PathBuf,
    pub membership: Membership,
    key: KeyPair,
    /// In PEM.
    certificate: String,
}

impl Identity {
    /// The identity of a node that has joined; `None` if it has not.
    pub fn load(data_dir: &Path) -> Result<Option<Identity>, LinkError> {
        let folder = folder(data_dir);
        let Some(membership) = read_if_present(&folder.join("membership.json"))? else { return Ok(None) };
        let damaged = |why: String| LinkError::DamagedIdentity { folder: folder.clone(), why };
        let membership: Membership = muster_json::from_str(&membership).map_err(|error| damaged(error.to_string()))?;
        if membership.servers.is_empty() {
            return Err(damaged("membership.json names no server".into()));
        }
        let key = read_if_present(&folder.join("node.key"))?.ok_or_else(|| damaged("node.key is missing".into()))?;
        let key = KeyPair::from_pem(&key).map_err(|error| damaged(format!("node.key: {error}")))?;
        let certificate = read_if_present(&folder.join("node.pem"))?;
        let certificate = certificate.ok_or_else(|| damaged("node.pem is missing".into()))?;
        Ok(Some(Identity { folder, membership, key, certificate }))
    }

    /// A new key, for a node that joins.
    pub fn generate_key() -> Result<KeyPair, LinkError> {
        Ok(KeyPair::generate()?)
    }

    /// Creates the folder of an identity and checks that it can be written.
    pub fn prepare(data_dir: &Path) -> Result<(), LinkError> {
        let folder = folder(data_dir);
        let unwritable = |source| LinkError::Write { path: folder.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(unwritable)?;
        let probe = folder.join("probe");
        write_private(&probe, b"")?;
        fs::remove_file(&probe).map_err(unwritable)
    }

    /// Stores a new identity. The membership is written last: without it the node has not joined.
    pub fn store(
        data_dir: &Path,
        membership: Membership,
        key: KeyPair,
        certificate: String,
    ) -> Result<Identity, LinkError> {
        Identity::prepare(data_dir)?;
        let folder = folder(data_dir);
        write_private(&folder.join("node.key"), key.serialize_pem().as_bytes())?;
        write_private(&folder.join("node.pem"), certificate.as_bytes())?;
        let identity = Identity { folder, membership, key, certificate };
        identity.write_membership()?;
        Ok(identity)
    }

    /// Replaces the certificate by a renewed one for the same key.
    pub fn replace_certificate(&mut self, certificate: String) -> Result<(), LinkError> {
        if !certificate.contains("BEGIN CERTIFICATE") {
            return Err(LinkError::Refused("the server sent no certificate".to_string()));
        }
        write_private(&self.folder.join("node.pem"), certificate.as_bytes())?;
        self.certificate = certificate;
        Ok(())
    }

    pub fn remember_servers(&mut self, servers: Vec<String>) -> Result<(), LinkError> {
        self.membership.servers = servers;
        self.write_membership()
    }

    /// In PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// In PKCS #8 DER.
    pub fn private_key(&self) -> Vec<u8> {
        self.key.serialize_der()
    }

    pub fn public_key(&self) -> &[u8] {
        self.key.der_bytes()
    }

    fn write_membership(&self) -> Result<(), LinkError> {
        let text = muster_json::to_string_pretty(&self.membership) + "\n";
        write_private(&self.folder.join("membership.json"), text.as_bytes())
    }
}

/// The folder of the identity below the data folder of an agent.
pub fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("link")
}

fn read_if_present(path: &Path) -> Result<Option<String>, LinkError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LinkError::Read { path: path.to_path_buf(), source }),
    }
}

/// Replaces a file that only its owner can read, in one step that survives a power cut.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), LinkError> {
    let unwritable = |source| LinkError::Write { path: path.to_path_buf(), source };
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let file = file.as_mut().map_err(|error| unwritable(std::io::Error::new(error.kind(), error.to_string())))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(unwritable)?;
    fs::rename(&new, path).map_err(unwritable)?;
    let folder = path.parent().and_then(|folder| fs::File::open(folder).ok());
    folder.map_or(Ok(()), |folder| folder.sync_all()).map_err(unwritable)
}
