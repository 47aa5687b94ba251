// Errors as values: Result<T> is a T or an Error, an Error is a kind and a sentence a user can act on. Rooms whose
// errors say more have a type of their own: Result<T, ApiError>.
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

inline Error usage_error(std::string message) {
    return {ErrorKind::usage, std::move(message), {}};
}
inline Error file_error(std::string message, std::string code = {}) {
    return {ErrorKind::file, std::move(message), std::move(code)};
}
inline Error device_error(std::string message) {
    return {ErrorKind::device, std::move(message), {}};
}
inline Error failure(std::string message) {
    return {ErrorKind::failed, std::move(message), {}};
}

/// A T or an E. Read value() only after ok(); reading the wrong one is a bug of the caller and throws
/// std::bad_variant_access.
template <class T, class E = Error>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() & { return std::get<0>(state_); }
    const T& value() const& { return std::get<0>(state_); }
    T&& value() && { return std::get<0>(std::move(state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    const E& error() const& { return std::get<1>(state_); }
    E&& error() && { return std::get<1>(std::move(state_)); }

  private:
    std::variant<T, E> state_;
};

/// Success without a value, or an E.
template <class E>
class [[nodiscard]] Result<void, E> {
  public:
    Result() = default;
    Result(E error) : error_(std::move(error)) {}

    bool ok() const { return !error_.has_value(); }
    explicit operator bool() const { return ok(); }
    const E& error() const& { return *error_; }
    E&& error() && { return *std::move(error_); }

  private:
    std::optional<E> error_;
};

/// TRY(call): leaves the enclosing function with the call's error if it failed. For calls without a value.
#define STRATA_TRY(call)                                                                               \
    do {                                                                                               \
        if (auto strata_result = (call); !strata_result.ok()) return std::move(strata_result).error(); \
    } while (0)

#define STRATA_CONCAT_(a, b) a##b
#define STRATA_CONCAT(a, b) STRATA_CONCAT_(a, b)
#define STRATA_TRY_ASSIGN_(name, target, call)      \
    auto name = (call);                             \
    if (!name.ok()) return std::move(name).error(); \
    target = std::move(name).value()

/// TRY_ASSIGN(auto x, call): declares or assigns x from the call's value, or leaves with its error.
#define STRATA_TRY_ASSIGN(target, call) STRATA_TRY_ASSIGN_(STRATA_CONCAT(strata_result_, __LINE__), target, call)

}  // namespace strata
