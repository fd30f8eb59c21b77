#!/bin/sh
# The guest's first process: mounts, modules, then commands from the serial line until the host says no more.
# A command arrives as one line `NUMBER SECONDS BASE64`; what it prints is followed by a line `@end NUMBER STATUS`.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ifconfig lo up

while read -r module; do
  insmod "/lib/modules/$module.ko" || echo "insmod $module failed"
done < /etc/modules

# The host's own root, if it is offered: the guest's file system is a copy of it that it may write to.
if mount -t virtiofs -o ro host /host 2>/dev/null; then
  mkdir -p /tmp/overlay
  mount -t tmpfs -o size=75% tmpfs /tmp/overlay
  mkdir -p /tmp/overlay/upper /tmp/overlay/work
  mount -t overlay -o lowerdir=/host,upperdir=/tmp/overlay/upper,workdir=/tmp/overlay/work overlay /root
  for folder in proc sys dev; do mount --rbind "/$folder" "/root/$folder"; done
  mount -t tmpfs tmpfs /root/run
fi

# Not in this process, which inherits orphans: busybox's `read` begins anew when a child's death interrupts it, and what
# it had of the line is lost.
obey() {
  echo "@ready $(cut -d ' ' -f 1 /proc/uptime)"
  while read -r number seconds text; do
    if [ "$number" = switch ]; then
      echo "$seconds" > /tmp/switch
      return
    fi
    echo "$text" | base64 -d > /tmp/command
    timeout -s KILL "$seconds" sh /tmp/command < /dev/null 2>&1
    status=$?
    printf '\n@end %s %s\n' "$number" "$status"
  done
}
stty raw -echo < /dev/ttyS0
obey < /dev/ttyS0 &
wait $!
# From here on the file system of /root, and its own init, are the guest's.
[ -e /tmp/switch ] && exec switch_root /root "$(cat /tmp/switch)"
poweroff -f
