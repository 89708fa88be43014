//! The words that command line, server and agent exchange. They behave in no way of their own.

pub mod agent;
