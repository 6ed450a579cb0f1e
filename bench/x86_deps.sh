#!/bin/bash
# Fetches what an x86-64 machine without Debian's packages lacks (Highway, CLI11) and unpacks it into the
# folder given (default build/x86_deps), to be carried there for bench/x86_check.sh. Needs Debian, of any architecture.
set -euo pipefail
cd "$(dirname "$0")/.."
into=$(realpath -m "${1:-build/x86_deps}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A package index of its own, so that the machine's own list of architectures stays as it is.
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
options=(-o APT::Architecture=amd64 -o APT::Architectures=amd64 -o Dir::State::lists="$work/lists"
         -o Dir::Cache="$work/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
packages=(libhwy-dev libhwy1 libcli11-dev)
apt-get "${options[@]}" -qq update
(cd "$work" && apt-get "${options[@]}" -qq download "${packages[@]}")
rm -rf "$into"
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$into"; done
find "$into" -depth -path '*/share/doc' -exec rm -rf {} +
# Whole files instead of links, which not every way of carrying keeps.
find "$into" -type l | while read -r link; do cp --remove-destination "$(realpath "$link")" "$link"; done
du -sh "$into"
