#include "server/router.h"

#include <gtest/gtest.h>

namespace strata::server {
namespace {

TEST(Router, SecretsAreEqualOnlyWhenAllOfThemIs) {
    EXPECT_TRUE(same_secret("abc", "abc"));
    for (const char* wrong : {"", "ab", "abd", "abcd", "Abc", "abc\n"})
        EXPECT_FALSE(same_secret(wrong, "abc")) << wrong;
}

TEST(Router, HostNamesOfThisMachineAreKnown) {
    for (const char* known : {"localhost", "localhost:8080", "app.localhost", "127.0.0.1:80", "127.9.9.9", "[::1]:8080",
                              "192.168.1.7:8080", "LOCALHOST", "box.lan:8080"})
        EXPECT_TRUE(is_known_host(known, {"box.lan"})) << known;
    for (const char* other : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "box.lan.evil"})
        EXPECT_FALSE(is_known_host(other, {"box.lan"})) << other;
}

TEST(Http, PathsHaveNoQueryAndNoSlashAtTheEnd) {
    HttpRequest request;
    request.target = "/v1/messages/?beta=true&x=";
    EXPECT_EQ(request.path(), "/v1/messages");
    EXPECT_EQ(request.query("beta"), "true");
    EXPECT_EQ(request.query("none"), "");
    request.target = "/";
    EXPECT_EQ(request.path(), "/");
}

}  // namespace
}  // namespace strata::server
