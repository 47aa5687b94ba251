#include "setup/estimate.h"

#include "device/measure.h"
#include "models/model.h"

namespace strata {

uint64_t MemoryEstimate::conversation_bytes(int64_t tokens) const {
    uint64_t bytes = 0;
    for (const PartSpec& part : state.parts) {
        switch (part.kind) {
            case PartSpec::Kind::rows: bytes += part.row_bytes() * static_cast<uint64_t>(tokens); break;
            case PartSpec::Kind::ring: bytes += part.row_bytes() * static_cast<uint64_t>(part.capacity); break;
            case PartSpec::Kind::block: bytes += part.bytes + part.log_bytes * kMaxWindow; break;
        }
    }
    return bytes;
}

Result<MemoryEstimate> estimate_memory(const gguf::File& file, Type cache) {
    MeasuringDevice device;
    STRATA_TRY_ASSIGN(const std::unique_ptr<Model> model, make_model(file, device, {.cache_type = cache}));
    MemoryEstimate estimate;
    estimate.dense_bytes = device.dense_bytes();
    estimate.expert_bytes = device.expert_bytes();
    estimate.experts = int64_t{model->facts().expert_layers} * model->facts().experts;
    estimate.state = model->layout();
    return estimate;
}

}  // namespace strata
