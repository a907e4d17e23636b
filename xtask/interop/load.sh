#!/bin/sh
# load NAME...: loads the modules that a file of this name lists; those that are there already are left alone.
for name in "$@"; do
    while read -r module; do
        insmod "/modules/$module" 2>/tmp/load || grep -v 'File exists' /tmp/load
    done <"/modules/$name"
done
