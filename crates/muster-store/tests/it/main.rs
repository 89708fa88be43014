//! One contract for both databases, and what is special to each.

#![allow(clippy::unwrap_used)]

mod test_database;
mod fixtures;

/// Run each of these over SQLite and over PostgreSQL.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                super::$name(&crate::bench::SqliteBench::new());
            })*
        }
        mod postgres {
            $(#[test]
            fn $name() {
                if let Some(bench) = crate::bench::PostgresBench::new() {
                    super::$name(&bench);
                }
            })*
        }
    };
}

mod tables_match_state;
mod constraints;
mod truncated_files;
mod verify;
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
mod tables;
mod tls;
