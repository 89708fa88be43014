//! Encrypted connections to a PostgreSQL server that accepts no others.

use muster_store::testing::PostgresServer;
use muster_store::{PostgresConfig, Store, StoreConfig, StoreError, open};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::bench::Folder;
use crate::story::*;

/// A CA in a file.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    file: std::path::PathBuf,
}

fn ca(folder: &Folder, name: &str) -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let file = folder.0.join(format!("{name}.crt"));
    std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
    Ca { issuer: Issuer::new(params, key), file }
}

/// A server whose certificate is for `localhost`, signed by the first CA.
struct Site {
    server: PostgresServer,
    config: PostgresConfig,
    right: Ca,
    wrong: Ca,
    _folder: Folder,
}

fn site() -> Option<Site> {
    // Skips or fails as the other tests do where PostgreSQL is not installed.
    muster_store::testing::postgres()?;
    let folder = Folder::new();
    let (right, wrong) = (ca(&folder, "right"), ca(&folder, "wrong"));
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    let certificate = params.signed_by(&key, &right.issuer).unwrap();
    let server = PostgresServer::start_with_tls(&certificate.pem(), &key.serialize_pem()).unwrap();
    let socket = server.database().unwrap();
    let config = PostgresConfig { host: "127.0.0.1".to_string(), ..socket };
    Some(Site { server, config, right, wrong, _folder: folder })
}

impl Site {
    fn config(&self, host: &str, mode: &str, roots: Option<&Ca>) -> PostgresConfig {
        let sslrootcert = roots.map(|ca| ca.file.clone());
        PostgresConfig {
            host: host.to_string(),
            sslmode: mode.parse().unwrap(),
            sslrootcert,
            ..self.config.clone()
        }
    }

    fn open(&self, host: &str, mode: &str, roots: Option<&Ca>) -> Store {
        open(&StoreConfig::Postgres(self.config(host, mode, roots))).unwrap()
    }

    /// Connections by TCP, as `encrypted of all`.
    fn connections(&self) -> String {
        let sql = "SELECT count(*) FILTER (WHERE ssl) || ' of ' || count(*) FROM pg_stat_ssl JOIN pg_stat_activity \
                   USING (pid) WHERE client_addr IS NOT NULL";
        self.server.psql(&self.config.database, sql).unwrap().trim().to_string()
    }
}

#[test]
fn every_connection_is_encrypted() {
    let Some(site) = site() else { return };
    for (host, mode, roots) in [
        ("127.0.0.1", "prefer", None),
        ("127.0.0.1", "require", None),
        ("127.0.0.1", "require", Some(&site.right)),
        ("127.0.0.1", "verify-ca", Some(&site.right)),
        ("localhost", "verify-full", Some(&site.right)),
    ] {
        let mut book = Book::lead_from(site.open(host, mode, roots), 0);
        book.seq = book.replay(0).unwrap().len() as u64;
        book.add(&[muster_core::Event::Forgotten {
            before: muster_core::Timestamp(0),
            trimmed_before: None,
        }]);
        book.store.savepoints.save(book.seq, b"state").unwrap();
        book.store.tables.ping().unwrap();
        assert_eq!(site.connections(), "3 of 3", "{mode}: journal, savepoints and readers");
        book.store.journal.resign().unwrap();
        drop(book);
        let gone = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while site.connections() != "0 of 0" && std::time::Instant::now() < gone {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_server_that_is_not_the_right_one_is_refused() {
    let Some(site) = site() else { return };
    for (host, mode, roots, words) in [
        ("127.0.0.1", "disable", None, ["no encryption", "pg_hba.conf"]),
        ("127.0.0.1", "require", Some(&site.wrong), ["not signed by a CA in", "wrong.crt"]),
        ("127.0.0.1", "verify-ca", Some(&site.wrong), ["not signed by a CA in", "wrong.crt"]),
        ("localhost", "verify-full", Some(&site.wrong), ["not signed by a CA in", "wrong.crt"]),
        ("127.0.0.1", "verify-full", Some(&site.right), ["another host name than `127.0.0.1`", "verify-ca"]),
    ] {
        let mut store = site.open(host, mode, roots);
        for error in [
            store.journal.lead("a", LEASE_MS).unwrap_err(),
            store.savepoints.newest(None).unwrap_err(),
            store.tables.ping().unwrap_err(),
        ] {
            let said = error.to_string();
            assert!(matches!(error, StoreError::Unavailable { .. }), "{said}");
            assert!(words.iter().all(|word| said.contains(word)), "{mode}: {said}");
        }
    }
}

#[test]
fn certificates_are_looked_at_before_the_start() {
    let folder = Folder::new();
    let empty = folder.0.join("empty.crt");
    std::fs::write(&empty, "").unwrap();
    for (query, word) in [
        ("sslmode=verify-full".to_string(), "set `sslrootcert`"),
        (format!("sslmode=verify-ca&sslrootcert={}", empty.display()), "no certificate in PEM"),
        ("sslmode=require&sslrootcert=/nonexistent".to_string(), "`/nonexistent`"),
        // A certificate without `sslkey`.
        ("sslmode=require&sslcert=/nonexistent".to_string(), "set both or none"),
    ] {
        let config = format!("postgres://ada@db/muster?{query}").parse().unwrap();
        let error = open(&StoreConfig::Postgres(config)).err().unwrap();
        assert!(matches!(error, StoreError::Misconfigured(_)) && error.to_string().contains(word), "{error}");
    }
}
