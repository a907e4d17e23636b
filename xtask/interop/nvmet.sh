#!/bin/sh
# nvmet NAME: a target of NVMe over RDMA with one namespace of 16 MiB, at port 4420, for hosts that ask for the subsystem of this name.
[ -d /sys/kernel/config/nvmet/ports/1 ] && exit 0
load nvmet
mount -t configfs config /sys/kernel/config
truncate -s 16M /dev/shm/namespace
set -e
cd /sys/kernel/config/nvmet
mkdir "subsystems/$1"
echo 1 >"subsystems/$1/attr_allow_any_host"
mkdir "subsystems/$1/namespaces/1"
echo -n /dev/shm/namespace >"subsystems/$1/namespaces/1/device_path"
echo 1 >"subsystems/$1/namespaces/1/buffered_io"
echo 1 >"subsystems/$1/namespaces/1/enable"
mkdir ports/1
echo ipv4 >ports/1/addr_adrfam
echo rdma >ports/1/addr_trtype
echo 10.0.2.15 >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
ln -s "/sys/kernel/config/nvmet/subsystems/$1" "ports/1/subsystems/$1"
