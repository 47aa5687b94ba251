// Sampling that the page sets for clients that leave theirs out: a request's own field comes first, then these, then
// the model's. Kept in RAM. Safe from any thread.
#pragma once

#include <mutex>

#include "server/answer_request.h"

namespace strata::server {

class Settings {
  public:
    /// Members of `body` are set, null takes one back. Refused by name, and then nothing changes.
    Api<void> change(const Json& body);
    Json json() const;
    SamplingFields sampling() const;

  private:
    mutable std::mutex mutex_;
    Json set_ = Json::object();
    SamplingFields fields_;
};

}  // namespace strata::server
