#!/bin/sh
# ended NAME: waits for the end of what `begin NAME` began; says its output, then its errors, and has its status.
name=/tmp/$1
for _ in $(seq 1200); do
    [ -s "$name.status" ] && break
    sleep 0.1
done
cat "$name.out" "$name.error"
[ -s "$name.status" ] || { echo "$1 still runs"; exit 255; }
exit "$(cat "$name.status")"
