#!/usr/bin/env bash
# One command from a bare Debian machine with a Rust toolchain to a built muster.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null || { echo "setup: no Rust toolchain; install one and run this again" >&2; exit 1; }
command -v cc >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends build-essential; }
make build
echo "built bin/muster; \`make run\` starts a cluster with simulated GPUs on http://127.0.0.1:8080"
