// Members of a request's body, read with their types and ranges; null counts as absent. Errors name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "text/json.h"

namespace strata::server {

/// A body as an object. `prefix` stands in front of names in messages ("text.").
class Fields {
  public:
    explicit Fields(const Json& object, std::string prefix = {}) : object_(object), prefix_(std::move(prefix)) {}

    /// Null where it is absent or null.
    const Json* find(const char* name) const;
    bool has(const char* name) const { return find(name) != nullptr; }

    Api<std::optional<bool>> boolean(const char* name) const;
    Api<std::optional<int64_t>> integer(const char* name, int64_t low, int64_t high) const;
    Api<std::optional<double>> number(const char* name, double low, double high) const;
    Api<std::optional<std::string>> text(const char* name) const;
    /// An object, or null.
    Api<const Json*> object(const char* name) const;
    Api<const Json*> array(const char* name) const;

    std::string path(const char* name) const { return prefix_ + name; }

  private:
    const Json& object_;
    const std::string prefix_;
};

}  // namespace strata::server
