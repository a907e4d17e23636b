#!/bin/sh
# ksmbd NAME: a server of SMB with SMB Direct, at port 5445, and a share of this name that guests may read and write.
[ -d /share ] && exit 0
load ksmbd
mkdir -p /share /etc/ksmbd /var/lib/ksmbd
mount -t tmpfs -o mode=1777 share /share
# Guests are this account.
echo 'nobody:x:65534:65534::/:/bin/sh' >/etc/passwd
cat >/etc/ksmbd/ksmbd.conf <<END
[global]
	map to guest = bad user
[$1]
	path = /share
	read only = no
	guest ok = yes
END
: >/etc/ksmbd/ksmbdpwd.db
ksmbd.mountd -n >/tmp/mountd 2>&1 &
listening 5445 && exit 0
cat /tmp/mountd
exit 1
