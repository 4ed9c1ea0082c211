// Any bytes as a GGUF file: header, metadata, the model's configuration, and a look at each tensor's data. An Error is a good end.
#include "gguf/header.h"
#include "model/config.h"
#include "quants/quants.h"

namespace {

using namespace lucebox;

// A file whose bytes lie in memory, so that a fuzz target needs no disk.
class MemoryFile final : public gguf::File {
public:
    MemoryFile(const uint8_t* bytes, size_t n_bytes) : bytes_(n_bytes), header_(gguf::parse_header(path_, bytes, n_bytes)) {}

    const std::string& path() const override { return path_; }
    std::vector<std::string> parts() const override { return {path_}; }
    uint32_t version() const override { return header_.version; }
    uint64_t alignment() const override { return header_.alignment; }
    uint64_t bytes() const override { return bytes_; }
    const std::vector<std::string>& keys() const override { return header_.keys; }
    const gguf::Value* find(std::string_view key) const override {
        const auto found = header_.values.find(key);
        return found == header_.values.end() ? nullptr : &found->second;
    }
    const std::vector<gguf::Tensor>& tensors() const override { return header_.tensors; }
    const gguf::Tensor* tensor(std::string_view name) const override {
        for (const gguf::Tensor& tensor : header_.tensors)
            if (tensor.name == name) return &tensor;
        return nullptr;
    }
    void check_unchanged() const override {}

private:
    std::string path_ = "fuzz";
    uint64_t bytes_;
    gguf::Header header_;
};

template <class Call> void tried(const Call& call) {
    try {
        call();
    } catch (const Error& error) {
        if (error.text().empty()) __builtin_trap();
    }
}

// The first and the last row of a tensor of a matrix type, decoded.
void decode_rows(const gguf::Tensor& tensor) {
    const gguf::TypeInfo& type = gguf::type_info(tensor.type);
    if (!type.matrix || tensor.bytes == 0) return;
    const uint64_t stride = gguf::row_bytes(tensor.type, tensor.columns());
    std::vector<float> row(tensor.columns());
    quants::dequantize(tensor.type, tensor.data, row.data(), row.size());
    quants::dequantize(tensor.type, tensor.data + tensor.bytes - stride, row.data(), row.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t n_bytes) {
    tried([&] {
        const MemoryFile file(bytes, n_bytes);
        for (const std::string& key : file.keys()) tried([&] { (void)file.find_integer(key, -5, 5); });
        for (const gguf::Tensor& tensor : file.tensors()) decode_rows(tensor);
        model::find_tensors(file, model::read_config(file));
    });
    return 0;
}
