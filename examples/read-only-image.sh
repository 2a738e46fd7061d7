#!/bin/sh
# For read-only-image.compose.yaml: the caches below, which nobody writes; beside them what a server saves.
# As root, on the machine that serves, in a folder with sgl-tune.toml and cosign.pub.
set -eu

mkdir -p /srv/sgl-tune/caches
sgl-tune pull oci://registry.example/caches/chat:0.5.23 --trust cosign.pub \
    --cache-dir /srv/sgl-tune/caches --at /caches --owner 1000
mkdir -p /srv/sgl-tune/saved /srv/sgl-tune/work
chown 1000:1000 /srv/sgl-tune/saved /srv/sgl-tune/work
sgl-tune verify --cache-dir /srv/sgl-tune/caches -f sgl-tune.toml:chat --as-user 1000
sgl-tune verify --store all --cache-dir /srv/sgl-tune/caches --at /caches --as-user 1000
