// Any bytes: refused with a code, or everything handed out lies inside them and getters answer.
#include <cstdlib>

#include "gguf/file.h"

namespace {

volatile uint64_t sink;

void read(std::span<const std::byte> bytes) {
    uint64_t sum = 0;
    for (const std::byte byte : bytes) sum += static_cast<uint64_t>(byte);
    sink = sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace strata::gguf;
    const auto file = File::from_memory(std::as_bytes(std::span(data, size)), "fuzz");
    if (!file.ok()) {
        if (file.error().code.empty() || file.error().message.find('\n') != std::string::npos) std::abort();
        return 0;
    }
    for (const Key& key : file->keys()) {
        if (file->find_key(key.name) != &key) std::abort();
        read(key.bytes);
        // Every getter must answer whatever the key is.
        sink = file->find_int(key.name, 0, 100).ok() + file->find_float(key.name).ok() + file->find_bool(key.name).ok();
        sink = file->find_layer_ints(key.name, 3, 0, 9).ok() + file->find_layer_floats(key.name, 3).ok() +
               file->find_layer_flags(key.name, 3).ok();
        if (const auto ints = file->get_ints(key.name, INT64_MIN, INT64_MAX); ints.ok())
            for (uint64_t i = 0; i < ints->size(); ++i) sink = static_cast<uint64_t>((*ints)[i]);
        if (const auto floats = file->get_floats(key.name); floats.ok())
            for (uint64_t i = 0; i < floats->size(); ++i) sink = (*floats)[i] > 0;
        if (const auto strings = file->get_strings(key.name); strings.ok())
            for (const std::string_view text : *strings) read(std::as_bytes(std::span(text)));
    }
    for (const TensorInfo& tensor : file->tensors()) {
        if (file->find_tensor(tensor.name) != &tensor) std::abort();
        read({tensor.data, tensor.bytes});
    }
    sink = file->identity().header_hash;
    return 0;
}
