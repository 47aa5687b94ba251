#!/usr/bin/env bash
# Installs what is missing from Debian's packages (also Ubuntu's): tools/packages.sh build | test | list GROUP
#   build  what building the programs needs
#   test   that, and what building and running the tests needs
# `list GROUP` prints the group's packages and installs nothing. Works as root and with sudo. Exit codes: 0 everything is there,
# 1 something is missing and could not be installed.
set -euo pipefail

engine=(g++ cmake ninja-build)  # the engine alone
programs=(libcli11-dev nlohmann-json3-dev libutf8proc-dev libboost-dev libspdlog-dev)
tests=(libgtest-dev libgmock-dev curl ccache mold)  # ccache, mold: a second build costs seconds
command -v npm >/dev/null || tests+=(nodejs npm)      # the server's tests with real clients; any npm will do

case "${1:-}${2:+ $2}" in
    build | "list build") wanted=("${engine[@]}" "${programs[@]}") ;;
    test | "list test") wanted=("${engine[@]}" "${programs[@]}" "${tests[@]}") ;;
    *) echo "usage: tools/packages.sh build | test | list build | list test" >&2; exit 2 ;;
esac
if [[ $1 == list ]]; then printf '%s\n' "${wanted[@]}"; exit 0; fi

if ! command -v dpkg-query >/dev/null; then
    echo "packages: this is not a Debian system, so nothing was installed; the build needs these or their like: ${wanted[*]}" >&2
    exit 0
fi

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
        echo "packages: missing ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "packages: installing ${missing[*]}" >&2
install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}")
# The package lists may be old or, on a fresh machine, empty: one update, then again.
if ! "${as_root[@]}" "${install[@]}" >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -q >&2
    if ! "${as_root[@]}" "${install[@]}" >&2; then
        echo "packages: apt-get could not install ${missing[*]}; its reason stands above" >&2
        exit 1
    fi
fi
