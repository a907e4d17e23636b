#!/bin/sh
# listening PORT: waits until TCP listens at the port.
state=$(printf ':%04X [0:]* 0A' "$1")
for _ in $(seq 600); do
    grep -q "$state" /proc/net/tcp /proc/net/tcp6 2>/dev/null && exit 0
    sleep 0.1
done
echo "nothing listens at port $1"
exit 1
