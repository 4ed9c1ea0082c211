// A regular file, mapped read-only while the object lives.
#pragma once
#include <cstdint>
#include <string>
#include <sys/stat.h>

namespace lucebox::gguf {

class Mapping {
public:
    explicit Mapping(const std::string& path);  // throws Error(kGGUF), also for what is no regular file or is empty
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    const std::string& path() const { return path_; }
    const uint8_t* data() const { return data_; }
    uint64_t bytes() const { return identity_.bytes; }
    void check_unchanged() const;  // throws Error(kGGUF)

private:
    struct Identity {
        uint64_t device, node, bytes;
        int64_t seconds, nanoseconds;
        bool operator==(const Identity&) const = default;
    };
    static Identity identity_of(const struct stat& status);

    std::string path_;
    int descriptor_ = -1;  // kept open, so that a deleted file stays readable
    Identity identity_{};
    const uint8_t* data_ = nullptr;
};

}  // namespace lucebox::gguf
