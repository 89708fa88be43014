//! The tests of the core, in one program: scenarios, laws, and a naive model that must agree.

mod scenarios;
mod script;
mod world;
