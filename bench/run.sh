#!/bin/sh
# Builds what a measurement needs and starts it: bench/run.sh MEASUREMENT [OPTIONS]
# The whole measurement gets real-time priority where that is allowed, so that other programs of
# a busy machine count less; both sides of every comparison get the same.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
measurement=$1
shift
if [ "$(id -u)" != 0 ]; then
    echo "bench: makes network namespaces: run it as root" >&2
    exit 1
fi
# As for the tests, PODNET_AGENT and PODNET_CNI name other binaries than a fresh build.
if [ -z "${PODNET_AGENT:-}" ] || [ -z "${PODNET_CNI:-}" ]; then
    cargo xtask build --release
fi
cargo build --quiet --package bench --bins
priority=
if chrt -f 1 true 2>/dev/null; then
    priority="chrt -f 1"
fi
exec $priority "$target/debug/$measurement" "$@"
