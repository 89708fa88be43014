#!/usr/bin/env bash
# Pack a release: scripts/dist.sh BINARY FOLDER writes FOLDER/muster-VERSION-MACHINE.tar.gz and its SHA-256 checksum.
# The same inputs give the same bytes: names are sorted, owners and times are fixed.
set -euo pipefail
if [ "$#" -ne 2 ]; then
    echo "usage: scripts/dist.sh BINARY FOLDER" >&2
    exit 2
fi
binary=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."

version=$("$binary" --version | cut -d' ' -f2)
name="muster-$version-$(uname -m)-$(uname -s | tr '[:upper:]' '[:lower:]')"
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
top="$staging/$name"

install -D -m 755 "$binary" "$top/bin/muster"
for face in scheduler gpu-cli agent star; do ln -s muster "$top/bin/$face"; done
install -m 644 LICENSE README.md CHANGELOG.md "$top"
install -D -m 644 config/scheduler-config.yaml "$top/config/scheduler-config.yaml"
for shell in bash zsh fish; do
    mkdir -p "$top/completions"
    "$binary" completion "$shell" > "$top/completions/muster.$shell"
done

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$staging" -cf - "$name" \
    | gzip -n "-${GZIP_LEVEL:-9}" > "$out/$name.tar.gz"
cd "$out"
sha256sum "$name.tar.gz" > "$name.tar.gz.sha256"
echo "$out/$name.tar.gz"
