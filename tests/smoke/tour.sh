#!/bin/sh
# A first tour of mqstore, over the store that a real broker (RocketMQ 5.3.3) left behind after kill -9.
# Needs `mqstore` on the PATH. Works on a copy in a new folder, and shows every command before it runs it.
set -eu
archive=$(cd "$(dirname "$0")/../stores" && pwd)/5.3.3-killed.tar.gz
folder=$(mktemp -d)
tar -xzf "$archive" -C "$folder"
cd "$folder"
echo "The store is $folder/5.3.3-killed"

# run EXIT_CODE COMMAND...: insist on the exit code that scripts may rely on.
run() {
  expected=$1
  shift
  printf '\n$ %s\n' "$*"
  code=0
  "$@" || code=$?
  if [ "$code" -ne "$expected" ]; then
    echo "exit code $code, expected $expected" >&2
    exit 1
  fi
}

run 0 mqstore inspect 5.3.3-killed
run 3 mqstore recover 5.3.3-killed # 3: nothing lost, but not shut down cleanly
run 0 mqstore recover 5.3.3-killed --policy broker --apply --yes
run 0 mqstore recover 5.3.3-killed # 0: nothing left to do
run 0 mqstore get 5.3.3-killed --topic orders --key storm17
