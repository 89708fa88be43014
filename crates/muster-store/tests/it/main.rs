//! One contract for both databases, and what is special to each.

#![allow(clippy::unwrap_used)]

mod bench;
mod story;

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

mod agreement;
mod constraints;
mod cuts;
mod deep;
mod failover;
mod golden;
mod journal;
mod leadership;
mod paging;
mod pool;
mod postgres_faults;
mod private;
mod savepoints;
mod schema;
mod tables;
mod tls;
