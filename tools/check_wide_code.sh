#!/usr/bin/env bash
# Guards code built for wide instruction sets (*_avx2.cpp, *_avx512.cpp): it may define nothing that the linker could take in
# place of a copy built for any machine (weak functions: inline ones and templates with external linkage). Such a copy would
# end the program on a machine without those instructions. Prints what it finds; exit 1 if anything.
#     check_wide_code.sh LIBRARY.a
set -euo pipefail
found=$(nm --print-file-name --demangle "$1" | grep -E '_avx(2|512)\.cpp\.o:' | grep ' W ' || true)
if [[ -n $found ]]; then
    echo "symbols of wide code that other files may be linked with; put them into an anonymous namespace:"
    echo "$found"
    exit 1
fi
