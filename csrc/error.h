// The one exception type of the C++ side. The binding maps each kind to the Python class of the same name (lucebox/errors.py).
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lucebox {

enum class Kind { kGGUF, kUnsupportedModel, kDrafterMismatch, kContextFull, kOutOfMemory, kDevice, kRequest };

// A text says what was asked, what was found, the limit and what to do. Facts become attributes of the Python exception.
class Error : public std::exception {
public:
    using Fact = std::pair<std::string, std::variant<std::string, int64_t>>;

    Error(Kind kind, std::string text, std::vector<Fact> facts = {})
        : kind_(kind), text_(std::move(text)), facts_(std::move(facts)) {}

    Kind kind() const { return kind_; }
    const std::string& text() const { return text_; }
    const std::vector<Fact>& facts() const { return facts_; }
    const char* what() const noexcept override { return text_.c_str(); }

private:
    Kind kind_;
    std::string text_;
    std::vector<Fact> facts_;
};

// Appends, since gcc 12 warns of operator+ on two temporaries (-Wrestrict, wrongly).
template <class... Parts> std::string join(const Parts&... parts) {
    std::string out;
    const auto add = [&out](const auto& part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) out += std::to_string(part);
        else out += part;
    };
    (add(parts), ...);
    return out;
}

// Checks a condition that a caller's argument may break: LUCE_CHECK(rows <= 128, kRequest, "rows is ", rows, "; at most 128").
#define LUCE_CHECK(condition, kind, ...) \
    do { \
        if (!(condition)) throw ::lucebox::Error(::lucebox::Kind::kind, ::lucebox::join(__VA_ARGS__)); \
    } while (0)

}  // namespace lucebox
