// A state's bytes in host memory: checkpoints, parking, saved files and hashes of any model's state, by its layout
// alone.
//
// A state at row n is three kinds of bytes (device/state.h): cache rows [0, n) that later tokens do not change, the
// last rows of rings, and blocks. The first are still there when a conversation goes on; the other two are what a
// checkpoint keeps. All functions want a settled state (State::pending 0): blocks must be those of the last row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace strata {

/// Rings and blocks, part by part in the layout's order: of a ring its last min(rows, window - 1) rows, oldest first;
/// of a block all. These functions copy and check nothing: sizes are those of the layout.
uint64_t changing_bytes(const StateLayout& layout, int rows);
/// By Device::copy_to_host_later.
void copy_changing_to_host(Device& device, const State& state, std::byte* out);
void copy_changing_from_host(Device& device, State& state, int rows, const std::byte* from);

/// Cache rows [0, rows) of every part that keeps all of them, part by part.
uint64_t lasting_bytes(const StateLayout& layout, int rows);
void copy_lasting_to_host(Device& device, const State& state, int rows, std::byte* out);
/// `from` holds `stored` rows of every part, of which the first `rows` are copied.
void copy_lasting_from_host(Device& device, State& state, int rows, int stored, const std::byte* from);

/// All that `rows` rows need, from one state to another of the same layout (blocks and rings only where `changing`).
void copy_between(Device& device, const State& from, State& to, int rows, bool changing);

/// Zeroes blocks: the state before the first token.
void clear_blocks(Device& device, State& state);

/// A hash of everything that later answers depend on: numbers, cache rows, rings, blocks. Parts of the draft block are
/// left out.
uint64_t hash_state(Device& device, const State& state);
/// Sixteen hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace strata
