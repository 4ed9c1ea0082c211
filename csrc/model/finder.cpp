#include "model/finder.h"
#include "model/keys.h"

namespace lucebox::model {

namespace {

std::string shape_text(const std::vector<uint64_t>& dims) {
    std::string out = "[";
    for (uint64_t dim : dims) out += join(out.size() > 1 ? ", " : "", dim);
    return out + "]";
}

std::string matrix_types() {
    std::string out;
    for (const gguf::TypeInfo& info : gguf::kTypes)
        if (info.matrix) out += join(out.empty() ? "" : " ", info.name);
    return out;
}

// Without the ones that a file may or may not write behind a shape.
std::vector<uint64_t> trimmed(std::vector<uint64_t> dims) {
    while (dims.size() > 1 && dims.back() == 1) dims.pop_back();
    return dims;
}

}  // namespace

const gguf::Tensor* Finder::find(const std::string& name, bool matrix, std::vector<uint64_t> dims) {
    const gguf::Tensor* tensor = file_.tensor(name);
    if (!tensor) file_.fail(name, 0, "is not in the file, and the model needs it");
    const std::vector<uint64_t> wanted = trimmed(std::move(dims));
    if (trimmed(tensor->dims) != wanted) file_.fail(*tensor, join("has shape ", shape_text(tensor->dims), "; by the metadata ", shape_text(wanted), " is wanted"));
    const gguf::TypeInfo& type = gguf::type_info(tensor->type);
    if (!matrix && tensor->type != gguf::Type::F32) file_.fail(*tensor, join("is of type ", type.name, "; f32 is wanted"));
    if (matrix && !type.matrix) unsupported(file_, join(name, " is of type ", type.name, "; supported are ", matrix_types()));
    claimed_.insert(tensor->name);
    return tensor;
}

}  // namespace lucebox::model
