#!/usr/bin/env bash
# Builds all programs and examples with debug assertions, for the scripts that run them. It takes the packages and
# features of ci/test.sh: for fewer packages cargo selects other features, and so compiles most crates again.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh
exec cargo build --quiet --locked --workspace --features samite/serde,samite/half --bins --examples
