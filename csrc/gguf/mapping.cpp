#include "gguf/mapping.h"
#include "gguf/header.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lucebox::gguf {
namespace {

const char* kind_of(mode_t mode) {
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a device";
}

}  // namespace

Mapping::Identity Mapping::identity_of(const struct stat& status) {
    return {static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino), static_cast<uint64_t>(status.st_size),
            static_cast<int64_t>(status.st_mtim.tv_sec), static_cast<int64_t>(status.st_mtim.tv_nsec)};
}

Mapping::Mapping(const std::string& path) : path_(path) {
    struct stat status {};
    // Asked before opening as well: opening a device or a FIFO can have effects of its own.
    if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
        fail_at(path, "file", 0, join("is ", kind_of(status.st_mode), ", not a GGUF file"));
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) fail_at(path, "file", 0, join("cannot be opened: ", std::strerror(errno)));
    std::string problem;
    if (fstat(descriptor_, &status) != 0) problem = join("cannot be read: ", std::strerror(errno));
    else if (!S_ISREG(status.st_mode)) problem = join("is ", kind_of(status.st_mode), ", not a GGUF file");
    else if (status.st_size == 0) problem = "is empty (0 bytes); a GGUF file has at least 24";
    if (problem.empty()) {
        identity_ = identity_of(status);
        void* data = mmap(nullptr, identity_.bytes, PROT_READ, MAP_SHARED, descriptor_, 0);
        if (data == MAP_FAILED) problem = join("cannot be mapped: ", std::strerror(errno));
        else data_ = static_cast<const uint8_t*>(data);
    }
    if (!problem.empty()) {
        ::close(descriptor_);
        fail_at(path, "file", 0, problem);
    }
}

Mapping::~Mapping() {
    munmap(const_cast<uint8_t*>(data_), identity_.bytes);
    ::close(descriptor_);
}

void Mapping::check_unchanged() const {
    struct stat opened {}, named {};
    if (fstat(descriptor_, &opened) != 0) fail_at(path_, "file", 0, join("cannot be read any more: ", std::strerror(errno)));
    const Identity now = identity_of(opened);
    if (now.bytes != identity_.bytes)
        fail_at(path_, "file", now.bytes, join("had ", identity_.bytes, " bytes when it was opened and has ", now.bytes, " now; load it again"));
    if (now != identity_) fail_at(path_, "file", 0, "was written to since it was opened; load it again");
    if (stat(path_.c_str(), &named) != 0) fail_at(path_, "file", 0, join("is gone since it was opened: ", std::strerror(errno)));
    if (identity_of(named) != identity_) fail_at(path_, "file", 0, "was replaced by another file since it was opened; load it again");
}

}  // namespace lucebox::gguf
