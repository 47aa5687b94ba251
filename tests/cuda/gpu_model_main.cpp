// Makes the synthetic model that the card's benchmarks run, on a machine without the program for people.
// Usage: gpu_model PRESET MIX LAYERS(0: all) FILE
#include <cstdio>
#include <cstdlib>

#include "synth/synth.h"

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: gpu_model PRESET MIX LAYERS FILE\n");
        return 2;
    }
    const auto plan = strata::synth::plan({.preset = argv[1], .mix = argv[2], .layers = std::atoi(argv[3])});
    const auto written = plan ? strata::synth::write(*plan, argv[4]) : strata::Result<void>(plan.error());
    if (!written) {
        std::fprintf(stderr, "%s\n", written.error().message.c_str());
        return static_cast<int>(written.error().kind);
    }
    return 0;
}
