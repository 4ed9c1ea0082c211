// What a backend offers to the model: memory, weights in its own order, and the ops of this folder. Pointers that ops take are its memory.
#pragma once
#include "gguf/reader.h"
#include "ops/argmax.h"
#include "ops/attention.h"
#include "ops/deltanet.h"
#include "ops/draft_attention.h"
#include "ops/draft_conv.h"
#include "ops/embed.h"
#include "ops/lattice.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/quantize.h"
#include "ops/swiglu.h"
#include "ops/tap.h"
#include "ops/top_k.h"
#include "ops/walk.h"
#include <functional>
#include <string>
#include <vector>

namespace lucebox::ops {

// What a model's ops need beside their tensors; the backend takes its scratch from it.
struct Limits {
    int max_rows, slots;
    int key_heads, value_heads;
    int heads = 0, head_dim = 0;                 // of the attention
    int rope_dims = 0;                           // the most of any batch
    int draft_heads = 0, draft_head_dim = 0;     // of a drafter's; 0: there is none
};

// Batches that a backend holds at a time: of a forward, of a draft's blocks, and of the rows that a drafter's ring takes.
enum class Place { kForward, kDraft, kContext };

class Backend {
public:
    virtual ~Backend() = default;
    virtual std::string name() const = 0;
    // How steps are launched, where that is a choice.
    virtual std::string launch_mode() const { return "direct"; }

    // Bytes that allocate() may still give.
    virtual uint64_t free_bytes() const = 0;
    // Zeroed memory that lives as long as the backend. Throws Error(kOutOfMemory).
    virtual void* allocate(uint64_t bytes) = 0;
    // Whether embed reads its table where the file is mapped; without, the table is prepared like any other weight.
    virtual bool reads_mapped() const { return true; }
    // Bytes that a weight takes beside the file's own; 0 = it is used where it is mapped.
    virtual uint64_t packed_bytes(gguf::Type type, uint64_t rows, uint64_t columns) const = 0;
    // Fills packed (packed_bytes of it) from the mapped tensor.
    virtual Weight prepare(const gguf::Tensor& tensor, uint8_t* packed) = 0;
    // Bytes of scratch for these limits, and the memory for it.
    virtual uint64_t scratch_bytes(const Limits& limits) const = 0;
    virtual void use_scratch(const Limits& limits, void* scratch) = 0;

    // A batch in the backend's memory, as it is now; what ops take as `batch`, until the place is given another one.
    virtual Batch* use_batch(Batch& batch, Place place = Place::kForward) = 0;
    // Rows that an op is given for so many rows of the batch: as many, or the next bucket, so that captured launches can be replayed with fewer.
    virtual int launch_rows(int rows) const { return rows; }
    // Runs the ops that `step` calls on these batches: at once, or captured once and replayed for all batches of the same shapes.
    // part: tells apart what runs on batches of equal shapes. Within another run the ops are that one's.
    virtual void run(const std::vector<int>& part, std::initializer_list<const Batch*> batches, const std::function<void()>& step) {
        (void)part, (void)batches;
        step();
    }

    virtual void embed(const Embed& op) = 0;
    virtual void norm(const Norm& op) = 0;
    virtual void matmul(const Matmul& op) = 0;
    virtual void swiglu(const Swiglu& op) = 0;
    virtual void deltanet(const Deltanet& op) = 0;
    virtual void attention(const Attention& op) = 0;
    virtual void argmax(const Argmax& op) = 0;
    // of a drafter
    virtual void tap(const Tap& op) = 0;
    virtual void quantize(const Quantize& op) = 0;
    virtual void draft_context(const DraftContext& op) = 0;
    virtual void draft_conv(const DraftConv& op) = 0;
    virtual void draft_attention(const DraftAttention& op) = 0;
    virtual void top_k(const TopK& op) = 0;
    virtual void lattice(const Lattice& op) = 0;
    virtual void walk(const Walk& op) = 0;

    virtual void clear(void* at, uint64_t bytes) = 0;                   // to zeros
    virtual void copy(void* to, const void* from, uint64_t bytes) = 0;  // inside the backend's memory, in order with the ops
    virtual void download(void* host, const void* from, uint64_t bytes) = 0;
    virtual void upload(void* to, const void* host, uint64_t bytes) = 0;
};

}  // namespace lucebox::ops
