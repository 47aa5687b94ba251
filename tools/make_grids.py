#!/usr/bin/env python3
"""Writes src/quant/grids.cpp from tests/data/quants/grids.json: every grid vector as one 16-bit number of level indices."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRIDS = [("iq2_xxs", 2), ("iq2_xs", 2), ("iq2_s", 2), ("iq3_xxs", 3), ("iq3_s", 3), ("iq1", 2)]  # name, bits a level

grids = json.loads((ROOT / "tests/data/quants/grids.json").read_text())["grids"]
out = ["// Written by tools/make_grids.py from tests/data/quants/grids.json; edit that, not this.",
       '#include "quant/grids.h"', "", "namespace strata {", ""]
for name, bits in GRIDS:
    levels, vectors = grids[name]["levels"], grids[name]["vectors"]
    codes = [sum(levels.index(v) << bits * i for i, v in enumerate(vector)) for vector in vectors]
    assert codes == sorted(set(codes)), name
    symbol = "kGrid" + "".join(part.capitalize() for part in name.split("_"))
    out.append(f"const std::array<uint16_t, {len(codes)}> {symbol} = {{")
    out += ["    " + " ".join(f"0x{code:04x}," for code in codes[i:i + 14]) for i in range(0, len(codes), 14)]
    out += ["};", ""]
out.append("}  // namespace strata")
(ROOT / "src/quant/grids.cpp").write_text("\n".join(out) + "\n")
