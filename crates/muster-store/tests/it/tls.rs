//! TLS to a PostgreSQL server that accepts encrypted connections only.

use muster_store::testing::PostgresServer;
use muster_store::{PostgresConfig, Store, StoreConfig, StoreError, open};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::fixtures::*;
use crate::test_database::TempFolder;

/// A CA whose certificate is in a file.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    file: std::path::PathBuf,
}

fn ca(folder: &TempFolder, name: &str) -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let file = folder.0.join(format!("{name}.crt"));
    std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
    Ca { issuer: Issuer::new(params, key), file }
}

/// A server whose certificate is for `localhost`, signed by the first CA.
struct TlsTestServer {
    server: PostgresServer,
    config: PostgresConfig,
    right: Ca,
    wrong: Ca,
    _folder: TempFolder,
}

fn start_tls_server() -> Option<TlsTestServer> {
    // Without PostgreSQL the test is skipped, or fails in CI, like the other tests.
    muster_store::testing::shared_postgres()?;
    let folder = TempFolder::new();
    let (right, wrong) = (ca(&folder, "right"), ca(&folder, "wrong"));
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    let certificate = params.signed_by(&key, &right.issuer).unwrap();
    let server = PostgresServer::start_with_tls(&certificate.pem(), &key.serialize_pem()).unwrap();
    let socket = server.create_database().unwrap();
    let config = PostgresConfig { host: "127.0.0.1".to_string(), ..socket };
    Some(TlsTestServer { server, config, right, wrong, _folder: folder })
}

impl TlsTestServer {
    fn config(&self, host: &str, mode: &str, roots: Option<&Ca>) -> PostgresConfig {
        let sslrootcert = roots.map(|ca| ca.file.clone());
        PostgresConfig { host: host.to_string(), sslmode: mode.parse().unwrap(), sslrootcert, ..self.config.clone() }
    }

    fn open(&self, host: &str, mode: &str, roots: Option<&Ca>) -> Store {
        open(&StoreConfig::Postgres(self.config(host, mode, roots))).unwrap()
    }

    /// TCP connections, as `encrypted of all`.
    fn connections(&self) -> String {
        let sql = "SELECT count(*) FILTER (WHERE ssl) || ' of ' || count(*) FROM pg_stat_ssl JOIN pg_stat_activity \
                   USING (pid) WHERE client_addr IS NOT NULL";
        self.server.psql(&self.config.database, sql).unwrap().trim().to_string()
    }
}

#[test]
fn every_connection_is_encrypted() {
    let Some(server) = start_tls_server() else { return };
    for (host, mode, roots) in [
        ("127.0.0.1", "prefer", None),
        ("127.0.0.1", "require", None),
        ("127.0.0.1", "require", Some(&server.right)),
        ("127.0.0.1", "verify-ca", Some(&server.right)),
        ("localhost", "verify-full", Some(&server.right)),
    ] {
        let mut writer = JournalWriter::lead_from(server.open(host, mode, roots), 0);
        writer.seq = writer.replay(0).unwrap().len() as u64;
        writer.append(&[NOOP_EVENT]);
        writer.store.savepoints.save(writer.seq, b"state").unwrap();
        writer.store.tables.ping().unwrap();
        assert_eq!(server.connections(), "3 of 3", "{mode}: journal, savepoints and readers");
        writer.store.journal.resign().unwrap();
        drop(writer);
        let gone = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while server.connections() != "0 of 0" && std::time::Instant::now() < gone {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn an_untrusted_or_misnamed_server_is_refused() {
    let Some(server) = start_tls_server() else { return };
    for (host, mode, roots, parts) in [
        ("127.0.0.1", "disable", None, ["no encryption", "pg_hba.conf"]),
        ("127.0.0.1", "require", Some(&server.wrong), ["not signed by a CA in", "wrong.crt"]),
        ("127.0.0.1", "verify-ca", Some(&server.wrong), ["not signed by a CA in", "wrong.crt"]),
        ("localhost", "verify-full", Some(&server.wrong), ["not signed by a CA in", "wrong.crt"]),
        ("127.0.0.1", "verify-full", Some(&server.right), ["another host name than `127.0.0.1`", "verify-ca"]),
    ] {
        let mut store = server.open(host, mode, roots);
        for error in [
            store.journal.acquire_leadership("a", LEASE_MS).unwrap_err(),
            store.savepoints.newest(None).unwrap_err(),
            store.tables.ping().unwrap_err(),
        ] {
            let message = error.to_string();
            assert!(matches!(error, StoreError::Unavailable { .. }), "{message}");
            assert!(parts.iter().all(|part| message.contains(part)), "{mode}: {message}");
        }
    }
}

#[test]
fn unusable_certificates_are_refused_at_open() {
    let folder = TempFolder::new();
    let empty = folder.0.join("empty.crt");
    std::fs::write(&empty, "").unwrap();
    for (query, part) in [
        ("sslmode=verify-full".to_string(), "set `sslrootcert`"),
        (format!("sslmode=verify-ca&sslrootcert={}", empty.display()), "no certificate in PEM"),
        ("sslmode=require&sslrootcert=/nonexistent".to_string(), "`/nonexistent`"),
        // A certificate without `sslkey`.
        ("sslmode=require&sslcert=/nonexistent".to_string(), "set both or none"),
    ] {
        let config = format!("postgres://ada@db/muster?{query}").parse().unwrap();
        let error = open(&StoreConfig::Postgres(config)).err().unwrap();
        assert!(matches!(error, StoreError::Misconfigured(_)) && error.to_string().contains(part), "{error}");
    }
}
