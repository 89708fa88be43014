//! Sealing, the key file, and what is delivered when something is missing.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::sealing::{KEY_BYTES, hex};
use super::*;

/// Values in memory.
#[derive(Default)]
struct MemorySecrets(Mutex<BTreeMap<String, Vec<u8>>>);

impl SealedSecrets for MemorySecrets {
    fn put(&self, _: LeaderEpoch, value: &SealedSecret<'_>) -> Result<(), StoreError> {
        self.0.lock().unwrap().insert(value.id.to_string(), value.sealed.to_vec());
        Ok(())
    }

    fn discard(&self, _: LeaderEpoch, id: &str) -> Result<(), StoreError> {
        self.0.lock().unwrap().remove(id);
        Ok(())
    }

    fn sealed(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.lock().unwrap().get(id).cloned())
    }
}

fn id(owner: Option<&str>, name: &str) -> SecretId {
    SecretId { tenant: "red".parse().unwrap(), owner: owner.map(str::to_string), name: name.to_string() }
}

fn key(byte: u8) -> SealingKey {
    SealingKey::new(&[byte; KEY_BYTES]).unwrap()
}

fn value() -> SecretValue {
    SecretValue::new(b"hunter2".to_vec())
}

fn vault(store: &Arc<MemorySecrets>, folder: &Path) -> SecretVault {
    SecretVault::new(store.clone(), folder.join("secrets.key"))
}

/// Writes a value as `set` does, and returns the secret as the state holds it.
fn written(vault: &SecretVault, expected: Option<&str>, id: SecretId) -> Result<Secret, SecretFault> {
    let (value, key) = vault.write(LeaderEpoch::default(), expected, &id, &value())?;
    Ok(Secret { id, value, key, bytes: 7, set_by: "ann".to_string(), set_at: Timestamp(1) })
}

/// Removed at the end of the test.
struct KeyFolder(PathBuf);

impl KeyFolder {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for KeyFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn folder() -> KeyFolder {
    let path = std::env::temp_dir().join(format!("muster-secrets-{}", sealing::random_hex().unwrap()));
    std::fs::create_dir(&path).unwrap();
    KeyFolder(path)
}

#[test]
fn a_value_opens_only_for_its_own_secret_and_with_its_own_key() {
    let sealed = key(1).seal(&id(Some("ann"), "TOKEN"), "v1", &value()).unwrap();
    assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
    assert_eq!(key(1).open(&id(Some("ann"), "TOKEN"), "v1", &sealed).unwrap(), value());
    let others = [id(Some("eve"), "TOKEN"), id(None, "TOKEN"), id(Some("ann"), "OTHER"), id(Some(""), "TOKEN")];
    for other in others {
        assert!(key(1).open(&other, "v1", &sealed).is_err(), "{other}");
    }
    assert!(key(1).open(&id(Some("ann"), "TOKEN"), "v2", &sealed).is_err(), "a former value");
    assert!(key(2).open(&id(Some("ann"), "TOKEN"), "v1", &sealed).is_err(), "another key");
    for index in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[index] ^= 1;
        assert!(key(1).open(&id(Some("ann"), "TOKEN"), "v1", &changed).is_err(), "byte {index}");
        assert!(key(1).open(&id(Some("ann"), "TOKEN"), "v1", &sealed[..index]).is_err(), "{index} bytes");
    }
    let again = key(1).seal(&id(Some("ann"), "TOKEN"), "v1", &value()).unwrap();
    assert_ne!(sealed, again, "the nonce is random");
}

#[test]
fn the_first_secret_makes_a_key_that_only_its_owner_reads() {
    let (store, folder) = (Arc::new(MemorySecrets::default()), folder());
    let secret = written(&vault(&store, folder.path()), None, id(None, "TOKEN")).unwrap();
    let path = folder.path().join("secrets.key");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // Another server with the same file.
    assert_eq!(vault(&store, folder.path()).open(&secret).unwrap(), value());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = vault(&store, folder.path()).open(&secret).unwrap_err().to_string();
    assert!(error.contains("0644") && error.contains("chmod 600"), "{error}");
}

#[test]
fn a_server_with_another_key_or_none_says_so_and_makes_no_new_one() {
    let (store, own, other) = (Arc::new(MemorySecrets::default()), folder(), folder());
    let secret = written(&vault(&store, own.path()), None, id(None, "TOKEN")).unwrap();
    let second = vault(&store, other.path());
    assert!(matches!(second.open(&secret), Err(SecretFault::NoKey { .. })));
    assert!(matches!(written(&second, Some(&secret.key), id(None, "B")), Err(SecretFault::NoKey { .. })));
    assert!(!other.path().join("secrets.key").exists());
    crate::identity::write_private(&other.path().join("secrets.key"), hex(&[7; KEY_BYTES]).as_bytes()).unwrap();
    assert!(matches!(second.open(&secret), Err(SecretFault::WrongKey { .. })));
    // Once the right file is there, no restart is needed.
    std::fs::copy(own.path().join("secrets.key"), other.path().join("secrets.key")).unwrap();
    assert_eq!(second.open(&secret).unwrap(), value());
    std::fs::write(own.path().join("secrets.key"), "no key").unwrap();
    assert!(matches!(vault(&store, own.path()).open(&secret), Err(SecretFault::NotAKey { .. })));
}

#[test]
fn an_attempt_gets_all_of_its_secrets_or_the_reason() {
    let (store, folder) = (Arc::new(MemorySecrets::default()), folder());
    let vault = vault(&store, folder.path());
    let secret = written(&vault, None, id(None, "TOKEN")).unwrap();
    let wanted = |secret: Option<Secret>| WantedSecrets {
        job: "job-1".to_string(),
        attempt: 1,
        files: [("token".to_string(), ("TOKEN".to_string(), secret))].into(),
    };
    let (sent, are_left) = vault.secrets_to_send(&[wanted(Some(secret.clone()))]);
    assert_eq!((sent[0].files[0].name.as_str(), sent[0].files[0].value.clone()), ("token", value()));
    assert_eq!((sent[0].refusal.as_deref(), are_left), (None, false));
    let (sent, _) = vault.secrets_to_send(&[wanted(None)]);
    let why = sent[0].refusal.clone().unwrap();
    assert!(why.starts_with("invalid job: ") && why.contains("`TOKEN` was removed"), "{why}");
    let (sent, _) = vault.secrets_to_send(&[wanted(Some(Secret { value: "gone".to_string(), ..secret.clone() }))]);
    assert!(sent[0].refusal.as_ref().unwrap().contains("not in the database"), "{sent:?}");
    // A message has a limit; what does not fit comes later, and one attempt always fits.
    let large = Secret { bytes: 2 << 20, ..secret };
    let (sent, are_left) = vault.secrets_to_send(&[wanted(Some(large.clone())), wanted(Some(large))]);
    assert_eq!((sent.len(), are_left), (1, true));
}
