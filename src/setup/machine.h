// This computer, as far as choosing and measuring models needs it.
#pragma once

#include <cstdint>
#include <string>

#include "text/json.h"

namespace strata {

struct Machine {
    std::string cpu;     // the processor's name
    int cores = 0;       // hardware threads that this process may use
    uint64_t ram = 0;    // bytes
    std::string os;      // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
    std::string gpu;     // the first card's name; empty without one that nvidia-smi knows
    uint64_t vram = 0;   // bytes
    std::string driver;  // of the card
};

/// Reads /proc, /etc/os-release and, where it is installed, nvidia-smi. What cannot be found stays empty.
Machine this_machine();

/// {"cpu","cores","ram_gib","gpu","vram_mib","os","driver"}
Json machine_json(const Machine& machine);

/// "AMD EPYC 9B14, 2 threads, 23.5 GiB of RAM, no card": for people.
std::string machine_text(const Machine& machine);

}  // namespace strata
