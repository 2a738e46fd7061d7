#!/bin/bash
# A start's lines with delays, a real compiler in a folder of FlashInfer's, a child that outlives its parent's group.
say() { echo "[$(date '+%Y-%m-%d %H:%M:%S')] $1"; }
sleep 0.3
say "server_args=ServerArgs(model_path='m', tp_size=1, nnodes=1)"
echo "GPU0 | a table, and no pod's name"
say "Load weight begin. avail mem=1 GB"
sleep 0.3
say "Load weight end. elapsed=0.30 s, avail mem=1 GB"
say "Memory pool end. avail mem=1 GB"
say "Capture target decode CUDA graph begin. backend=full"
mkdir -p "$HOME/.triton/cache/abc" && echo built > "$HOME/.triton/cache/abc/kernel.json"
echo stage > "$HOME/.triton/cache/abc/kernel.source"; sleep 0.4; echo stage > "$HOME/.triton/cache/abc/kernel.cubin"
mkdir -p "$HOME/.cache/flashinfer/0.7.2/90a/cached_ops/norm" && cd "$HOME/.cache/flashinfer/0.7.2/90a/cached_ops/norm"
# What feeds the compiler holds it for as long as the watcher needs to see it.
{ echo "int f() { return 1; }"; sleep 0.6; } | g++ -x c++ -c - -o norm.o
say "Capture target decode CUDA graph end. elapsed=1 s"
setsid sleep 60 &
echo $! > "$HOME/child"
case $1 in
  dies) say "Scheduler hit an exception: Traceback (most recent call last):"; echo "ValueError: no such thing"; exit 3 ;;
esac
trap 'say "asked to end"; exit 9' TERM HUP
say "max_total_num_tokens=1, max_running_requests=2"
say "The server is fired up and ready to roll!" >&2
for i in $(seq 600); do sleep 0.05; [ "$1" = ends ] && exit 7; done
