// Writes GGUF files of version 3. The file appears under its name only when it is whole and on disk: until then it is a temporary
// file beside it, which goes away if anything fails.
#pragma once
#include "gguf/reader.h"
#include <span>

namespace lucebox::gguf {

using Pair = std::pair<std::string, Value>;  // the offset of the value is not used

struct NewTensor {
    std::string name;
    Type type;
    std::vector<uint64_t> dims;  // as in the file, 1 to 4 of them
};

class Writer {
public:
    // Writes the header. general.alignment is added if it is not 32. Throws Error(kRequest) for what GGUF cannot hold, and
    // Error(kGGUF) if the file cannot be written.
    Writer(const std::string& path, const std::vector<Pair>& metadata, const std::vector<NewTensor>& tensors, uint64_t alignment = 32);

    void add(std::span<const uint8_t> data);  // the bytes of the next tensor, all of them
    void finish();                            // after the last tensor
    void abandon() { file_.remove(); }        // leaves no file; nothing can be added afterwards

private:
    void put(const void* data, size_t n_bytes);
    void pad();
    [[noreturn]] void fail(const char* what) const;

    struct Temporary {
        std::string path;
        int descriptor = -1;
        explicit Temporary(std::string name) : path(std::move(name)) {}
        ~Temporary() { remove(); }
        void remove();  // and close, unless finish() has put it in place
        Temporary(const Temporary&) = delete;
        Temporary& operator=(const Temporary&) = delete;
    };

    std::string path_;
    Temporary file_;
    uint64_t alignment_, written_ = 0;
    std::vector<std::pair<std::string, uint64_t>> wanted_;  // name and bytes of each tensor
    size_t next_ = 0;
};

}  // namespace lucebox::gguf
