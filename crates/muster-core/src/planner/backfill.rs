//! Backfill: the first blocked jobs get reservations, and later jobs start only where they do not delay a reservation.

pub(crate) mod reservation;
pub(crate) mod timeline;
