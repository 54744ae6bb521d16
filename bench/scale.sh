#!/bin/sh
# A packet's cost at 1 and 2,000 networks, 2 and 1,000 ports, and the agent's memory.
# bench/scale.sh [--rounds N] [--ports N] [--networks N]
exec "$(dirname "$0")/run.sh" scale --object "${CARGO_TARGET_DIR:-target}/podnet-ebpf.o" "$@"
