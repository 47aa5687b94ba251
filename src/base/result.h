// Errors as values: Result<T> is a T or an Error, an Error is a kind and a sentence a user can act on.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace strata {

/// What went wrong, coarsely: programs turn it into their exit code (docs/cli.md).
enum class ErrorKind {
    failed = 1,  // ran and failed
    usage = 2,   // wrong flags or arguments
    file = 3,    // a file was refused: missing, damaged, unsupported
    device = 4,  // no such device, or not enough memory on it
};

struct Error {
    ErrorKind kind = ErrorKind::failed;
    std::string message;  // one line: what, where, what to do
    std::string code;     // short and stable, for tests and programs ("truncated"); may be empty
};

inline Error usage_error(std::string message) { return {ErrorKind::usage, std::move(message), {}}; }
inline Error file_error(std::string message, std::string code = {}) {
    return {ErrorKind::file, std::move(message), std::move(code)};
}
inline Error device_error(std::string message) { return {ErrorKind::device, std::move(message), {}}; }
inline Error failure(std::string message) { return {ErrorKind::failed, std::move(message), {}}; }

/// A T or an Error. Read value() only after ok(); reading the wrong one is a bug of the caller and throws
/// std::bad_variant_access.
template <class T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() & { return std::get<0>(state_); }
    const T& value() const& { return std::get<0>(state_); }
    T&& value() && { return std::get<0>(std::move(state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    const Error& error() const& { return std::get<1>(state_); }
    Error&& error() && { return std::get<1>(std::move(state_)); }

  private:
    std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}

    bool ok() const { return !error_.has_value(); }
    explicit operator bool() const { return ok(); }
    const Error& error() const& { return *error_; }
    Error&& error() && { return *std::move(error_); }

  private:
    std::optional<Error> error_;
};

/// TRY(call): leaves the enclosing function with the call's Error if it failed. For calls without a value.
#define STRATA_TRY(call)                                        \
    do {                                                        \
        if (auto strata_result = (call); !strata_result.ok())   \
            return std::move(strata_result).error();            \
    } while (0)

#define STRATA_CONCAT_(a, b) a##b
#define STRATA_CONCAT(a, b) STRATA_CONCAT_(a, b)
#define STRATA_TRY_ASSIGN_(name, target, call)                  \
    auto name = (call);                                         \
    if (!name.ok()) return std::move(name).error();             \
    target = std::move(name).value()

/// TRY_ASSIGN(auto x, call): declares or assigns x from the call's value, or leaves with its Error.
#define STRATA_TRY_ASSIGN(target, call) STRATA_TRY_ASSIGN_(STRATA_CONCAT(strata_result_, __LINE__), target, call)

}  // namespace strata
