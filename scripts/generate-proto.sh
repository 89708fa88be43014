#!/usr/bin/env bash
# Generate the Rust code of the gRPC definitions in crates/muster-wire/proto; `--check` only compares.
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo run --quiet --locked --package muster-wire-gen -- "$@"
