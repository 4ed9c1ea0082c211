// lucebox._core.testing.hip: the ops that know sequences, and the whole model.
#include "bindings/testing_hip.h"
#include "model/qwen35.h"
#include "model/rope.h"

namespace lucebox::bindings {

namespace {

using SpanTuple = std::tuple<int, int, int, int, bool>;  // slot, rows, position, pending, commit

// Between [.., 128 keys, 128 values] and the backend's order.
std::vector<float> reorder_state(const float* from, size_t n, bool to_device) {
    std::vector<float> out(n);
    for (size_t head = 0; head < n; head += ops::kHeadDim * ops::kHeadDim)
        for (int k = 0; k < ops::kHeadDim; k++)
            for (int v = 0; v < ops::kHeadDim; v++) {
                const size_t plain = head + static_cast<size_t>(k * ops::kHeadDim + v), own = head + static_cast<size_t>(hip::state_index(k, v));
                if (to_device) out[own] = from[plain];
                else out[plain] = from[own];
            }
    return out;
}

py::tuple deltanet(const std::vector<SpanTuple>& spans, int key_heads, int value_heads, float eps, const Floats& u, const Floats& alpha, const Floats& beta,
                   const Floats& z, const Floats& conv, const Floats& dt, const Floats& a, const Floats& norm, Floats& state, Floats& ring_u,
                   Floats& ring_ab, const std::string& device, const std::string& order) {
    DeviceArrays on(device, order);
    ops::Batch batch{};
    for (const auto& [slot, rows, position, pending, commit] : spans) {
        batch.span[batch.spans++] = {slot, batch.rows, rows, position, pending, commit};
        for (int i = 0; i < rows; i++, batch.rows++) batch.slot[batch.rows] = slot, batch.position[batch.rows] = position + i;
    }
    on.use_scratch({ops::kMaxRows, ops::kMaxSlots, key_heads, value_heads});
    const size_t n = static_cast<size_t>(state.size());
    float* S = on.copy(reorder_state(state.data(), n, true).data(), n);
    float *ru = on.copy(ring_u), *rab = on.copy(ring_ab);
    const ops::Acts y = on.acts(batch.rows, value_heads * ops::kHeadDim);
    on.backend.deltanet({on.backend.use_batch(batch, ops::Place::kForward), key_heads, value_heads, eps, on.copy(u), on.copy(alpha), on.copy(beta), on.copy(z), on.copy(conv),
                         on.copy(dt), on.copy(a), on.copy(norm), S, ru, rab, y});
    on.back(state, S), on.back(ring_u, ru), on.back(ring_ab, rab);
    const std::vector<float> plain = reorder_state(state.data(), n, false);
    std::copy(plain.begin(), plain.end(), state.mutable_data());
    return on.result(y, batch.rows);
}

py::tuple attention(const std::vector<std::pair<int, int>>& rows, const std::string& form, float eps, int head_dim, Floats& qg, Floats& k, const Floats& v,
                    const Floats& q_norm, const Floats& k_norm, const Floats& cos, const Floats& sin, Bytes& pages,
                    const py::array_t<int32_t, py::array::c_style>& table, const std::string& device, const std::string& order) {
    DeviceArrays on(device, order);
    ops::Batch batch{};
    for (const auto& [slot, position] : rows) {
        const ops::Span* last = batch.spans ? &batch.span[batch.spans - 1] : nullptr;
        if (last && last->slot == slot && last->position + last->rows == position) batch.span[batch.spans - 1].rows++;
        else if (batch.spans < ops::kMaxSlots) batch.span[batch.spans++] = {slot, batch.rows, 1, position, 0, true};
        else throw py::value_error("rows make more than 8 spans");
        batch.slot[batch.rows] = slot, batch.position[batch.rows++] = position;
    }
    batch.rope_dims = 2 * extent(cos, 1);
    batch.rope_cos = const_cast<float*>(cos.data()), batch.rope_sin = const_cast<float*>(sin.data());
    const int heads = extent(qg, 1);
    on.use_scratch({ops::kMaxRows, ops::kMaxSlots, 1, 1, heads, head_dim, 2 * extent(cos, 1)});
    const ops::KvForm kv = form == "q8_0" ? ops::KvForm::Q8_0 : form == "f16" ? ops::KvForm::F16 : ops::KvForm::F32;
    const ops::Acts y = on.acts(batch.rows, heads * head_dim);
    float *q = on.copy(qg), *key = on.copy(k);
    uint8_t* page = on.copy(pages);
    on.backend.attention({on.backend.use_batch(batch, ops::Place::kForward), heads, 2 * extent(cos, 1), {kv, extent(k, 1), head_dim}, eps, q, key, on.copy(v), on.copy(q_norm),
                          on.copy(k_norm), page, on.copy(table), extent(table, 1), y});
    on.back(qg, q), on.back(k, key), on.back(pages, page);
    return on.result(y, batch.rows);
}

// Logits of all tokens of one sequence, cut into batches of these rows. launch: direct, graph or split.
py::array_t<float> forward(const std::shared_ptr<gguf::File>& file, const std::vector<int32_t>& ids, const std::vector<int>& cuts, const std::string& kv,
                           const std::string& launch, const std::string& device, const std::string& order) {
    DeviceArrays on(device, order, launch);
    const model::Config config = model::read_config(*file);
    const int tokens = static_cast<int>(ids.size()), half = config.rope_dims / 2;
    const model::Shape shape{tokens, 1, ops::kMaxRows, kv == "q8_0" ? ops::KvForm::Q8_0 : kv == "f16" ? ops::KvForm::F16 : ops::KvForm::F32};
    ops::Memory memory(on.backend, false);
    model::Qwen35 model(*file, config, shape, on.backend, memory, {});
    std::vector<int32_t> pages(static_cast<size_t>(shape.pages_a_slot()));
    for (size_t i = 0; i < pages.size(); i++) pages[i] = static_cast<int32_t>(pages.size() - 1 - i);
    on.backend.upload(model.page_table(), pages.data(), pages.size() * sizeof(int32_t));
    const model::Rope rope(config.theta, config.rope_dims);
    std::vector<float> cos(static_cast<size_t>(ops::kMaxRows * half)), sin(cos.size());
    py::array_t<float> logits({tokens, config.vocab});
    int at = 0;
    for (const int rows : cuts) {
        ops::Batch b{};
        b.rows = rows, b.spans = 1, b.span[0] = {0, 0, rows, at, 0, true};
        b.rope_dims = config.rope_dims, b.rope_cos = cos.data(), b.rope_sin = sin.data();
        for (int r = 0; r < rows; r++) {
            b.token[r] = ids[static_cast<size_t>(at + r)], b.position[r] = at + r, b.want[r] = r;
            rope.fill(at + r, cos.data() + r * half, sin.data() + r * half);
        }
        b.wanted = rows;
        model.use(b);
        model.forward();
        for (int first = 0; first < rows; first += model::kHeadRows) {
            const int count = std::min(model::kHeadRows, rows - first);
            model.head(first, count);
            const size_t vocab = static_cast<size_t>(config.vocab);
            float* to = logits.mutable_data() + static_cast<size_t>(at + first) * vocab;
            on.backend.download(to, model.logits(), static_cast<size_t>(count) * vocab * sizeof(float));
        }
        at += rows;
    }
    return logits;
}

}  // namespace

void init_testing_hip_sequence(py::module_& t) {
    const auto device = py::arg("device") = "emulated";
    const auto order = py::arg("order") = "forward";
    t.def("deltanet", &deltanet, py::arg("spans"), py::arg("key_heads"), py::arg("value_heads"), py::arg("eps"), py::arg("u"), py::arg("alpha"),
          py::arg("beta"), py::arg("z"), py::arg("conv"), py::arg("dt"), py::arg("a"), py::arg("norm"), py::arg("state").noconvert(),
          py::arg("ring_u").noconvert(), py::arg("ring_ab").noconvert(), device, order);
    t.def("attention", &attention, py::arg("rows"), py::arg("form"), py::arg("eps"), py::arg("head_dim"), py::arg("qg").noconvert(),
          py::arg("k").noconvert(), py::arg("v"), py::arg("q_norm"), py::arg("k_norm"), py::arg("cos"), py::arg("sin"), py::arg("pages").noconvert(),
          py::arg("table"), device, order);
    t.def("forward", &forward, py::arg("file"), py::arg("ids"), py::arg("cuts"), py::arg("kv") = "q8_0", py::arg("launch") = "direct", device, order);
}

}  // namespace lucebox::bindings
