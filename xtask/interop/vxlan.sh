#!/bin/sh
# vxlan PORT: a VXLAN interface whose other end is the driver's uplink, both at this port of UDP, and siw on it.
# The shell has busybox's `ip`, which knows no VXLAN.
if [ -d /sys/class/net/vx7 ]; then
    # The adapter of an earlier case had another hardware address.
    exec /bin/ip neighbour flush dev vx7
fi
load vxlan
set -e
/bin/ip link add vx7 type vxlan id 7 dstport "$1" local 10.0.2.15 remote 10.0.2.2 dev eth0
/bin/ip addr add 10.77.0.2/24 dev vx7
/bin/ip link set vx7 up
rdma link add siw1 type siw netdev vx7
