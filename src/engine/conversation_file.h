// A conversation on the disk. Version 1, little-endian numbers of 64 bits:
//
//     "STRATACV"  version  model  layout  rows  next position  drafts  checkpoints
//     keys of the rows (64 bits each)
//     lasting bytes, changing bytes, hidden row (engine/state_copy.h gives the sizes: they follow from layout and rows;
//                                                hidden: a number of bytes before it)
//     checkpoints, by rows: rows, next position, drafts, changing bytes, number of bytes and hidden row
//     hash of all bytes before (base/hash.h)
//
// `model` tells models apart, `layout` what a state consists of (parts, types, widths). A file that does not fit, is
// damaged or cut is refused whole; nothing is taken from it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/conversation.h"
#include "models/model.h"

namespace strata {

Result<void> write_conversation(const std::string& path, const PackedConversation& packed, const StateLayout& layout,
                                uint64_t model_id);
Result<std::unique_ptr<PackedConversation>> read_conversation(const std::string& path, const StateLayout& layout,
                                                              const ModelFacts& facts, int max_rows, uint64_t model_id);

}  // namespace strata
