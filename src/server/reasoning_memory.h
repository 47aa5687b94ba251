// Reasoning by an opaque name: Anthropic's clients send thinking blocks back, some without their text. Kept in RAM, the
// oldest go first. Safe from any thread.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/hash.h"

namespace strata::server {

class ReasoningMemory {
  public:
    /// The same text always has the same name.
    static std::string name(std::string_view text) {
        Hasher hasher;
        hasher.update(text);
        static constexpr char kDigits[] = "0123456789abcdef";
        std::string out = "ps1.";
        for (uint64_t h = hasher.value(), i = 0; i < 16; ++i, h >>= 4) out += kDigits[h & 15];
        return out;
    }

    std::string keep(const std::string& text) {
        std::string key = name(text);
        const std::lock_guard lock(mutex_);
        if (const auto [place, fresh] = texts_.try_emplace(key, text); fresh) {
            order_.push_back(key);
            bytes_ += text.size();
        }
        while (bytes_ > kMostBytes && order_.size() > 1) {
            const auto oldest = texts_.find(order_.front());
            bytes_ -= oldest->second.size();
            texts_.erase(oldest);
            order_.pop_front();
        }
        return key;
    }

    /// Empty: not known (any more).
    std::string find(const std::string& key) const {
        const std::lock_guard lock(mutex_);
        const auto found = texts_.find(key);
        return found == texts_.end() ? std::string() : found->second;
    }

  private:
    static constexpr size_t kMostBytes = size_t{32} << 20;
    mutable std::mutex mutex_;
    std::unordered_map<std::string, std::string> texts_;
    std::deque<std::string> order_;
    size_t bytes_ = 0;
};

}  // namespace strata::server
