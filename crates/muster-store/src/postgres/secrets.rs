//! Adapter (SealedSecrets): the table of sealed values in PostgreSQL, over a connection of its own.

use std::sync::{Mutex, PoisonError};

use super::config::PostgresConfig;
use super::connection::{PostgresConnection, ReconnectingConnection};
use super::error_mapping::{map_commit_error, map_read_error, map_write_error};
use super::leader;
use crate::error::StoreError;
use crate::leader_epoch::LeaderEpoch;
use crate::sealed_secrets::{DISCARD_VALUE, READ_VALUE, SealedSecret, SealedSecrets, WRITE_VALUE};

pub struct PostgresSecrets(Mutex<ReconnectingConnection>);

impl PostgresSecrets {
    pub fn new(config: &PostgresConfig) -> Result<PostgresSecrets, StoreError> {
        Ok(PostgresSecrets(Mutex::new(ReconnectingConnection::new(config, "muster secrets")?)))
    }

    fn call<T>(
        &self,
        operation: &str,
        work: impl AsyncFnOnce(&mut PostgresConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).call(operation, work)
    }
}

impl SealedSecrets for PostgresSecrets {
    fn put(&self, leader: LeaderEpoch, value: &SealedSecret<'_>) -> Result<(), StoreError> {
        self.call(WRITE_VALUE, async |connection| {
            let map_error = map_write_error(WRITE_VALUE);
            begin_as_leader(connection, leader, WRITE_VALUE).await?;
            let sql = "INSERT INTO sealed_secrets (id, tenant, owner, name, sealed) VALUES ($1, $2, $3, $4, $5)";
            let SealedSecret { id, secret, sealed } = value;
            let tenant = secret.tenant.as_str();
            let client = &connection.client;
            client.execute(sql, &[id, &tenant, &value.owner(), &secret.name, sealed]).await.map_err(&map_error)?;
            client.batch_execute("COMMIT").await.map_err(map_commit_error)
        })
    }

    fn discard(&self, leader: LeaderEpoch, id: &str) -> Result<(), StoreError> {
        self.call(DISCARD_VALUE, async |connection| {
            begin_as_leader(connection, leader, DISCARD_VALUE).await?;
            let client = &connection.client;
            let deleted = client.execute("DELETE FROM sealed_secrets WHERE id = $1", &[&id]).await;
            deleted.map_err(map_write_error(DISCARD_VALUE))?;
            client.batch_execute("COMMIT").await.map_err(map_commit_error)
        })
    }

    fn sealed(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.call(READ_VALUE, async |connection| {
            let sql = "SELECT sealed FROM sealed_secrets WHERE id = $1";
            let row = connection.client.query_opt(sql, &[&id]).await.map_err(map_read_error(READ_VALUE))?;
            Ok(row.map(|row| row.get(0)))
        })
    }
}

/// Begin a transaction of the leader. On an error the connection is closed, and the transaction with it.
async fn begin_as_leader(
    connection: &mut PostgresConnection,
    leader_epoch: LeaderEpoch,
    operation: &str,
) -> Result<(), StoreError> {
    let map_error = map_write_error(operation);
    let begin = connection.begin_sql();
    connection.client.batch_execute(&begin).await.map_err(&map_error)?;
    let row = connection.client.query_opt(leader::CHECK_LEADER_ROW, &[]).await.map_err(&map_error)?;
    leader_epoch.check(row.as_ref().map(leader::leader_row))
}
