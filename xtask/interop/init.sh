#!/bin/sh
# The first program of the guest: loads the modules, gives siw the network card, and then runs command lines that come by the network.
export PATH=/bin LD_LIBRARY_PATH=/lib64
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
ulimit -l unlimited

load base
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
rdma link add siw0 type siw netdev eth0
# The card is not up at once.
until ping -c 1 -W 1 10.0.2.2 >/dev/null; do :; done
rdma link | grep siw0 && echo "GUEST READY"

while :; do
    nc -l -p 2323 -e /bin/serve
done
