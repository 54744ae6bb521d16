#!/bin/sh
# ADD, DEL and STATUS from exec to exit: podnet beside the reference bridge with host-local.
# Needs containernetworking-plugins.   bench/cni-latency.sh [--rounds N]
exec "$(dirname "$0")/run.sh" cni-latency "$@"
