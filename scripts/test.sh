#!/usr/bin/env bash
# The whole suite.
set -euo pipefail
cd "$(dirname "$0")/.."
exec make test
