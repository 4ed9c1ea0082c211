#include "cpu/backend.h"

namespace lucebox::cpu {

void CpuBackend::walk(const ops::Walk& op) {
    int at = 0;  // of the span's rows among those that the draft wants
    for (int s = 0; s < op.draft->spans; s++) {
        const ops::Span& verify = op.verify->span[s];
        int before = 0;
        bool usable = true;
        for (int r = 1; r < op.draft->span[s].rows; r++, at++) {
            const int32_t* id = op.id + at * ops::kCandidates;
            const float* edge = op.edge + at * ops::kCandidates * ops::kCandidates;
            usable = usable && ops::row_is_usable(id, edge, r == 1 ? 1 : op.k, op.k);
            if (usable) before = ops::best_edge(edge + before * ops::kCandidates, op.k);
            op.path[at] = usable ? id[before] : -1;
            if (r < verify.rows) op.verify->token[verify.first + r] = usable ? id[before] : 0;
        }
    }
}

}  // namespace lucebox::cpu
