#include "server/settings.h"

#include <algorithm>
#include <array>

namespace strata::server {
namespace {

constexpr std::array kNames = {
    "temperature",       "top_p", "top_k",        "min_p", "typical_p", "repeat_penalty", "presence_penalty",
    "frequency_penalty", "seed",  "repeat_last_n"};

}  // namespace

Api<void> Settings::change(const Json& body) {
    const std::lock_guard lock(mutex_);
    Json wanted = set_;
    for (const auto& [name, value] : body.items()) {
        if (std::ranges::find(kNames, name) == kNames.end())
            return unsupported_parameter(name.substr(0, 100), "there is no setting of this name");
        if (value.is_null())
            wanted.erase(name);
        else
            wanted[name] = value;
    }
    SamplingFields fields;
    STRATA_TRY(read_sampling(Fields(wanted), fields));
    set_ = std::move(wanted);
    fields_ = std::move(fields);
    return {};
}

Json Settings::json() const {
    const std::lock_guard lock(mutex_);
    Json out = Json::object();
    for (const char* name : kNames) {
        const auto found = set_.find(name);
        out[name] = found == set_.end() ? Json() : *found;
    }
    return out;
}

SamplingFields Settings::sampling() const {
    const std::lock_guard lock(mutex_);
    return fields_;
}

}  // namespace strata::server
