#include "error.h"
#include "hip/runtime/backend.h"

namespace lucebox::hip {

void HipBackend::embed(const ops::Embed& op) {
    LUCE_CHECK(op.weight.packed, kRequest, "the embedding table was not prepared");
    const std::string kernel = join("luce_embed_", std::string(gguf::type_info(op.weight.type).name));
    launch(kernel, grid(shape_of(op.batch).rows), 256, EmbedArgs{op.batch, nullptr, op.weight.packed, op.h, op.weight.columns});
}

}  // namespace lucebox::hip
