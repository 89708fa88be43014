//! Sealed secrets: their table, which only the leader writes, and what their events remove.

use muster_core::objects::secret::{Secret, SecretId};
use muster_core::{Event, Timestamp};
use muster_store::verify::verify_database;
use muster_store::{LeaderEpoch, SealedSecret, StoreError};

use crate::fixtures::*;
use crate::test_database::TestDatabase;

contract!(
    a_sealed_value_comes_back_byte_for_byte,
    only_the_leader_writes_values,
    an_event_removes_the_former_value_and_no_other,
);

fn id(owner: Option<&str>) -> SecretId {
    SecretId { tenant: "red".parse().unwrap(), owner: owner.map(str::to_string), name: "TOKEN".to_string() }
}

fn leader(database: &dyn TestDatabase) -> LeaderEpoch {
    let number = |column: &str| database.sql(&format!("SELECT {column} FROM leader")).parse().unwrap();
    LeaderEpoch { epoch: number("epoch"), nonce: number("nonce") }
}

fn put(writer: &JournalWriter, leader: LeaderEpoch, id: &str, secret: &SecretId) -> Result<(), StoreError> {
    let sealed = id.as_bytes();
    writer.store.secrets.put(leader, &SealedSecret { id, secret, sealed })
}

fn set(id: &SecretId, value: &str) -> Event {
    let (key, set_by) = ("k".to_string(), "ann".to_string());
    let secret = Secret { id: id.clone(), value: value.to_string(), key, bytes: 7, set_by, set_at: Timestamp(1) };
    Event::SecretSet { secret: Box::new(secret), at: Timestamp(1) }
}

fn values(database: &dyn TestDatabase) -> String {
    database.sql("SELECT count(*) FROM sealed_secrets")
}

fn a_sealed_value_comes_back_byte_for_byte(database: &dyn TestDatabase) {
    let writer = JournalWriter::lead(database.open());
    let sealed: Vec<u8> = (0..65_536_u32).map(|at| (at % 251) as u8).collect();
    let value = SealedSecret { id: "v1", secret: &id(Some("ann")), sealed: &sealed };
    writer.store.secrets.put(leader(database), &value).unwrap();
    assert_eq!(writer.store.secrets.sealed("v1").unwrap(), Some(sealed));
    assert_eq!(writer.store.secrets.sealed("v2").unwrap(), None);
    writer.store.secrets.discard(leader(database), "v1").unwrap();
    assert_eq!(writer.store.secrets.sealed("v1").unwrap(), None);
}

fn only_the_leader_writes_values(database: &dyn TestDatabase) {
    let writer = JournalWriter::lead(database.open());
    let former = leader(database);
    put(&writer, former, "v1", &id(None)).unwrap();
    database.sql("UPDATE leader SET epoch = epoch + 1, nonce = 5, holder = 'b'");
    assert!(matches!(put(&writer, former, "v2", &id(None)), Err(StoreError::NotLeader { .. })));
    assert!(matches!(writer.store.secrets.discard(former, "v1"), Err(StoreError::NotLeader { .. })));
    assert_eq!(values(database), "1");
    put(&writer, leader(database), "v2", &id(None)).unwrap();
}

fn an_event_removes_the_former_value_and_no_other(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    let of_tenant = id(None);
    for (value, secret) in
        [("a1", id(Some("ann"))), ("a2", id(Some("ann"))), ("b1", id(Some("bob"))), ("t1", of_tenant.clone())]
    {
        put(&writer, leader(database), value, &secret).unwrap();
        writer.append(&[set(&secret, value)]);
    }
    let is_there = |value: &str| writer.store.secrets.sealed(value).unwrap().is_some();
    assert_eq!(["a1", "a2", "b1", "t1"].map(is_there), [false, true, true, true]);
    writer.append(&[Event::SecretRemoved { id: of_tenant, at: Timestamp(2) }]);
    assert_eq!((writer.store.secrets.sealed("t1").unwrap(), values(database).as_str()), (None, "2"));
    let mut corruptions = Vec::new();
    verify_database(&database.config(), &mut |_| {}, &mut |corruption| corruptions.push(corruption)).unwrap();
    assert_eq!(corruptions, [], "values are not a part of the journal, so the verification leaves them alone");
    let journal = database.sql("SELECT payload FROM journal WHERE seq = 1");
    assert!(journal.contains("TOKEN") && journal.contains("a1"), "the journal has names and ids: {journal}");
}
