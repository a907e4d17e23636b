#!/bin/sh
# begin NAME COMMAND...: runs a command in the background, for `ended NAME`.
name=/tmp/$1
shift
rm -f "$name.out" "$name.error" "$name.status"
(
    "$@" >"$name.out" 2>"$name.error"
    echo $? >"$name.status"
) >/dev/null 2>&1 &
