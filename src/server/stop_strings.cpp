#include "server/stop_strings.h"

#include <algorithm>

namespace strata::server {

bool StopStrings::push(std::string_view piece, std::string& out) {
    if (!found_.empty()) return true;
    if (stops_.empty()) {
        out += piece;
        return false;
    }
    held_ += piece;
    size_t begin = std::string::npos, end = std::string::npos;
    for (const std::string& stop : stops_) {
        const size_t at = held_.find(stop);
        if (at == std::string::npos) continue;
        const size_t behind = at + stop.size();
        if (behind < end || (behind == end && at < begin)) {
            begin = at;
            end = behind;
            found_ = stop;
        }
    }
    if (end != std::string::npos) {
        out.append(held_, 0, begin);
        held_.clear();
        return true;
    }
    // The longest end that begins a stop string stays.
    size_t keep = 0;
    for (const std::string& stop : stops_)
        for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
            if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
                keep = n;
                break;
            }
    out.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    return false;
}

}  // namespace strata::server
