// Sequences on a model: checks requests, cuts them into batches, keeps lengths and pages, and gives logits back.
#pragma once
#include "engine/pages.h"
#include "model/drafter.h"
#include "model/rope.h"
#include "spec/policy.h"
#include <memory>
#include <optional>
#include <span>

namespace lucebox::engine {

struct Options {
    int max_ctx = 8192;
    int slots = 1;
    int max_rows = ops::kMaxRows;
    std::string kv = "q8_0";        // q8_0, f16, f32
    std::string device = "cpu";     // cpu, emulated, hip:0, cuda:0 …
    std::string variant = "auto";   // of the CPU's kernels, or the emulator's chip
    std::string launch = "auto";    // how a GPU's steps are launched: auto, graph, split, direct
    int threads = 0;                // 0 = one a physical core
    std::string kernels;            // folder of the GPU kernels
    std::shared_ptr<const gguf::File> draft;  // a drafter for the model
    int draft_block_size = 0;       // rows of its blocks, the anchor included; 0: as trained
};

// Tokens to append to a slot. Without commit they only stand for a look ahead: accept() says how many of them the sequence keeps.
struct Request {
    int slot;
    std::span<const int32_t> ids;
    bool commit = true;
};
// A block to draft: the anchor, which follows the slot's committed tokens, and rows in all.
struct Block {
    int slot;
    int32_t anchor;
    int rows;
    int verify = 0;  // of speculate(): rows of the target, 2 to rows
};
// What a slot keeps of the rows that the last batch gave it without commit.
struct Kept {
    int slot, rows;
};
enum class Want { kNone, kAll, kLast, kArgmax };

class Engine {
public:
    using Progress = model::Qwen35::Progress;
    using Poll = std::function<void()>;  // called between batches; what it throws stops the call

    // Throws kGGUF, kUnsupportedModel, kOutOfMemory (facts asked, free) and kRequest, all before memory is taken.
    Engine(std::shared_ptr<const gguf::File> file, const Options& options, const Progress& progress);
    static std::vector<ops::PlanEntry> plan(const gguf::File& file, const Options& options);

    // Appends each request's ids to its slot. out: f32 [tokens, vocab] (kAll), f32 [requests, vocab] (kLast), i32 [requests] (kArgmax).
    // Throws before any work: kContextFull (facts asked, length, max_ctx), kRequest (slot, empty, unknown id), kGGUF (the file changed).
    // Throws kDevice when logits hold a NaN, or what poll throws; then the requests' slots are reset.
    void forward(std::span<const Request> requests, Want want, void* out, const Poll& poll);
    // Residual stream after the given layers, f32 [layers, tokens, hidden], of a fresh sequence in slot 0, which must be empty and is left so.
    void hidden(std::span<const int32_t> ids, std::span<const int> layers, float* out, const Poll& poll);
    void reset(int slot);

    // One forward over all requests, at most max_rows rows in all; rows of the batch are those of the requests in order. Throws as forward.
    void run_batch(std::span<const Request> requests);
    // Of rows of the last batch, ascending: argmax [rows] and, unless null, logits [rows, vocab]. A NaN throws kDevice and resets the batch's slots.
    void head(std::span<const int32_t> rows, int32_t* best, float* logits);
    // After a batch, once: what is kept of its rows without commit, and the drafter's context from all rows that are kept. Slots that are not named
    // keep none of theirs. from: positions below it need no context, a slot [slots] or empty.
    void accept(std::span<const Kept> kept, std::span<const int> from = {});

    // Which table of costs fits, and what a block of the drafter costs beside a pass of the model over as many rows: the share of the weights it reads.
    spec::Machine machine() const;
    double draft_share() const;
    bool drafts() const { return drafter_ != nullptr; }
    const model::DraftConfig& drafter() const { return draft_config_; }
    // Of each block's rows but the first: candidates [rows, 16] (-1: the row holds a NaN) and edges [rows, 16, 16] (ops/lattice.h), block after block.
    void draft(std::span<const Block> blocks, int32_t* candidates, float* edges);
    // Blocks drafted, the best edges' path walked and verified, and the rows taken into the rings, with no look in between; then accept() as after
    // run_batch(). drafted: the path behind each block's anchor, -1 behind its end, [rows - 1] a block; best: argmax of all verified rows.
    // Whether that pays: a GPU is not kept waiting.
    bool speculates() const { return drafts() && options_.device != "cpu"; }
    void speculate(std::span<const Block> blocks, int32_t* drafted, int32_t* best);
    // Values of the target's layers that the drafter got in another form, being no numbers or too large.
    int mended_taps();

    int length(int slot) const { return length_.at(static_cast<size_t>(slot)); }
    const model::Config& config() const { return config_; }
    const Options& options() const { return options_; }
    const std::vector<ops::PlanEntry>& allocated() const { return memory_->entries(); }
    int free_pages() const { return pages_.free(); }

private:
    struct Part {  // what a batch takes of a request
        size_t request;
        int first, rows;
    };
    struct Ring {  // the drafter's context of a slot: positions first .. end - 1
        int first = 0, end = 0;
    };
    void open_models(const Progress& progress);
    void add_draft_row(ops::Batch& batch, int slot, int position, int32_t token);
    void fill_blocks(std::span<const Block> blocks);
    void fill_paths(std::span<const Block> blocks);
    void add_context(const ops::Span& span, int first, int end);
    void check(std::span<const Request> requests) const;
    std::vector<Part> fill(std::span<const Request> requests, std::vector<int>& done);
    void reserve_pages();
    void advance();
    void run(const model::Qwen35::Look& look);
    void read_logits(std::span<const Request> requests, const std::vector<Part>& parts, Want want, void* out);
    void run_head(std::span<const int32_t> rows, int32_t* best);
    [[noreturn]] void explain_nan();
    [[noreturn]] void explain_paths(const int32_t* drafted);

    std::shared_ptr<const gguf::File> file_;
    Options options_;
    model::Config config_;
    model::DraftConfig draft_config_;
    model::Shape shape_;
    model::Rope rope_;
    std::optional<model::Rope> draft_rope_;
    std::unique_ptr<ops::Backend> backend_;
    std::unique_ptr<ops::Memory> memory_;
    std::unique_ptr<model::Qwen35> model_;
    std::unique_ptr<model::Drafter> drafter_;
    Pages pages_;
    std::vector<int> length_;
    std::vector<int> pending_;     // of them, rows that the DeltaNet states lack (ops/deltanet.h)
    std::vector<int> looked_at_;   // rows of the last batch that were not committed
    std::vector<Ring> rings_;
    bool in_rings_ = false;        // speculate() took the last batch's rows into the rings
    ops::Batch draft_batch_{}, context_batch_{};
    std::vector<float> draft_cos_, draft_sin_, context_cos_, context_sin_;
    ops::Batch batch_{};
    std::vector<float> cos_, sin_;
    std::vector<int32_t> wanted_;  // rows of the batch whose logits are asked for
};

}  // namespace lucebox::engine
