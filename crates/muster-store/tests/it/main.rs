//! Tests of the store: a contract that both databases must meet, and tests of one database.

#![allow(clippy::unwrap_used)]

mod fixtures;
mod test_database;

/// Run each test function with SQLite and with PostgreSQL.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                super::$name(&crate::test_database::SqliteTestDatabase::new());
            })*
        }
        mod postgres {
            $(#[test]
            fn $name() {
                if let Some(database) = crate::test_database::PostgresTestDatabase::new() {
                    super::$name(&database);
                }
            })*
        }
    };
}

mod constraints;
mod failover;
mod golden;
mod journal;
mod leadership;
mod paging;
mod pool;
mod postgres_faults;
mod private_files;
mod savepoints;
mod schema;
mod sealed_secrets;
mod tables;
mod tables_match_state;
mod tls;
mod truncated_files;
mod verify;
