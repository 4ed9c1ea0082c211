// Decoding: proposes tokens for running sequences, verifies them in one forward together with chunks of new prompts, and accepts.
#pragma once
#include "engine/engine.h"
#include "engine/sequence.h"

namespace lucebox::engine {

// A slot's part of a step. ids: a chunk of the prompt; none: a decode. emit: the chunk ends the prompt, its last row gives the first token.
struct StepWork {
    int slot;
    std::vector<int32_t> ids;
    bool emit = false;
    int limit = 1;                              // tokens that a decode, or emit, may give at most
    std::optional<spec::Proposal> draft;              // instead of the decoder's own; an empty one drafts nothing
    std::vector<uint32_t> masks;                // allowed tokens, [rows, words]: the next token, and the one after each drafted token; empty = all
    bool look = false;                          // judge only: the sequence stays as it is
    bool logits = false;                        // give the rows' logits back
};

struct StepResult {
    explicit StepResult(int slot_) : slot(slot_) {}

    int slot;
    std::string error;                          // not empty: this sequence could not go on and has ended; the others have
    std::vector<int32_t> token_ids;
    int drafted = 0, accepted = 0;
    spec::Source source = spec::Source::kNone;
    std::vector<spec::TokenLogprobs> logprobs;  // one a token, where asked for
    std::vector<float> logits;                  // [tokens, vocab] as the model gave them, where asked for
    double draft_ms = 0, verify_ms = 0;         // of the whole step; draft_ms 0 where the blocks were drafted and verified in one go
};

class Decoder {
public:
    explicit Decoder(Engine& engine);

    // A new sequence in the slot; its prompt is fed by steps. Throws kRequest.
    void begin(int slot, const SequenceParams& params, std::span<const int32_t> prompt);
    void end(int slot);
    // What a step would draft for the slots, at most limit - 1 tokens each.
    std::vector<spec::Proposal> propose(std::span<const std::pair<int, int>> slots_and_limits);
    // Throws kRequest and kContextFull before any work; after a kDevice the slots of the call are empty.
    std::vector<StepResult> step(std::span<const StepWork> works);
    // Rows that a decode of the slot may take.
    int rows_needed(int slot, int limit) const;

    const Sequence& sequence(int slot) const;

private:
    struct Rows {  // a work's rows in the batch
        const StepWork* work;
        Sequence* sequence;
        spec::Proposal proposal;
        std::vector<int32_t> ids;
        size_t at = 0, judged = 0;    // of its rows among those that the head gave
    };
    Sequence& running(int slot);
    int room(int slot, int limit) const;
    void check(const StepWork& work);
    Rows make_rows(const StepWork& work);
    void draft(std::vector<Rows>& all);
    void verify(std::vector<Rows>& all);
    std::vector<Block> whole_blocks(const std::vector<Rows>& all) const;
    void speculate(std::vector<Rows>& all, std::span<const Block> blocks);
    int verified_rows(const Sequence& sequence, int rows) const;
    spec::Proposal hint(const Sequence& sequence, int rows, int most, bool& sure) const;
    std::vector<int32_t> judged_rows(std::vector<Rows>& all);
    StepResult judge_or_end(Rows& rows);
    StepResult judge(Rows& rows);
    int32_t decide(const Rows& rows, size_t row, StepResult& result);
    void keep(Rows& rows, const StepResult& result, std::vector<Kept>& kept);
    std::vector<int> context_from() const;
    int block_rows(const Sequence& sequence) const;
    spec::Proposal worthy(const Sequence& sequence, spec::Proposal proposal, double spent) const;
    double draft_cost(int rows) const;
    void draft_blocks(std::span<const Block> blocks);
    spec::Proposal chosen(const Sequence& sequence, size_t at, int rows, int most);

    Engine& engine_;
    spec::Costs costs_;
    std::vector<std::optional<Sequence>> sequences_;
    std::vector<float> logits_, row_;  // of the judged rows [rows, vocab]; of one, as its request shapes it
    std::vector<int32_t> best_;        // argmax of the judged rows
    std::vector<int32_t> candidates_;  // of the drafted rows (Engine::draft)
    std::vector<float> edges_;
    std::vector<int32_t> path_;        // of the drafted blocks (Engine::speculate)
};

}  // namespace lucebox::engine
