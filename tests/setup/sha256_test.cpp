#include "setup/sha256.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Sha256, GivesTheStandardsDigests) {
    EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnThePieces) {
    const std::string text(1000, 'x');
    for (const size_t piece : {size_t{1}, size_t{55}, size_t{56}, size_t{63}, size_t{64}, size_t{65}, size_t{119}}) {
        Sha256 hash;
        for (size_t at = 0; at < text.size(); at += piece) hash.update(std::string_view(text).substr(at, piece));
        EXPECT_EQ(hash.finish(), sha256(text)) << piece;
    }
}

}  // namespace
}  // namespace strata
