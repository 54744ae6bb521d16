#!/bin/sh
# TCP and small UDP from pod to pod: bare veth pair, reference bridge, bridge with
# bridge-nf-call-iptables, podnet. Needs containernetworking-plugins, iperf3, and iptables for the
# last of the bridges.   bench/same-node.sh [--rounds N] [--seconds N]
exec "$(dirname "$0")/run.sh" same-node "$@"
