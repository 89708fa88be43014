//! Backfill: the first blocked jobs get reservations, and a later job starts only where it delays no reservation.

pub(crate) mod reservation;
pub(crate) mod timeline;
