// A fixture's model on the CPU device, for engines.
#pragma once

#include <optional>
#include <string>

#include "cpu/cpu_device.h"
#include "device/measure.h"
#include "gguf/file.h"
#include "harness.h"
#include "models/model.h"

namespace strata {

class FixtureBench : public Bench {
  public:
    /// draft: a draft model in a file of its own, or empty.
    explicit FixtureBench(const std::string& name, int threads = 1, int max_call_rows = 64, Type cache = Type::f16,
                          const std::string& draft = "")
        : file_(must(gguf::File::open(std::string(POLYSTRATA_TEST_DATA) + "/" + name))),
          draft_file_(draft.empty() ? std::nullopt
                                    : std::optional(must(gguf::File::open(std::string(POLYSTRATA_TEST_DATA) + "/" + draft)))),
          options_{.cache_type = cache, .max_call_rows = max_call_rows, .draft = draft_file_ ? &*draft_file_ : nullptr},
          device_(must(CpuDevice::create({.threads = threads}))),
          measured_(must(make_model(file_, measuring_, options_))),
          model_(must(make_model(file_, *device_, options_))),
          hooked_(*model_) {}

    HookedModel& model() override { return hooked_; }
    Device& device() override { return *device_; }
    uint64_t scratch_bytes(const EngineLimits& limits) override {
        return must(ModelRunner::measure(*measured_, measuring_, limits.runner()));
    }

  private:
    template <class T>
    static T must(Result<T> result) {
        if (!result) throw std::runtime_error(result.error().message);
        return std::move(result).value();
    }

    gguf::File file_;
    std::optional<gguf::File> draft_file_;
    ModelOptions options_;
    MeasuringDevice measuring_;
    std::unique_ptr<Device> device_;
    std::unique_ptr<Model> measured_, model_;
    HookedModel hooked_;
};

}  // namespace strata
