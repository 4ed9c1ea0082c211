#include "error.h"
#include "hip/runtime/backend.h"

namespace lucebox::hip {

namespace {
[[noreturn]] void refuse() { throw Error(Kind::kUnsupportedModel, "this build has no GPU kernels for drafters; load without a drafter, or on the CPU"); }
}  // namespace

void HipBackend::tap(const ops::Tap&) { refuse(); }
void HipBackend::quantize(const ops::Quantize&) { refuse(); }
void HipBackend::draft_context(const ops::DraftContext&) { refuse(); }
void HipBackend::draft_conv(const ops::DraftConv&) { refuse(); }
void HipBackend::draft_attention(const ops::DraftAttention&) { refuse(); }
void HipBackend::top_k(const ops::TopK&) { refuse(); }
void HipBackend::lattice(const ops::Lattice&) { refuse(); }

}  // namespace lucebox::hip
