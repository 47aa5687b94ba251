// SHA-256 (FIPS 180-4), for telling whether two texts or files are the same.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

class Sha256 {
  public:
    void update(std::string_view bytes);
    /// The digest in lower-case hexadecimal. Once, at the end.
    std::string finish();

  private:
    void block(const unsigned char* bytes);

    std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<unsigned char, 64> held_{};
    uint64_t size_ = 0;  // bytes so far
};

std::string sha256(std::string_view bytes);

}  // namespace strata
