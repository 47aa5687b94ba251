// How fast a model's tokenizer is: loading, a text file, and texts made to be hard (one unbroken run of a kind).
//     tokenizer_speed MODEL.gguf [TEXT ...]
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "gguf/file.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

/// Processor time of this thread: other programs on the machine do not count.
double seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Prints the first call's speed (an empty piece cache) and the best of the later ones.
void measure(const char* name, const strata::Tokenizer& tokenizer, const std::string& text) {
    double first = 0, best = 1e9;
    size_t tokens = 0;
    const double end = seconds() + 0.5;
    for (int i = 0; i < 3 || seconds() < end; ++i) {
        const double start = seconds();
        tokens = tokenizer.encode(text).size();
        const double took = seconds() - start;
        if (i == 0) first = took;
        best = std::min(best, took);
    }
    const double megabytes = static_cast<double>(text.size()) / 1e6;
    std::printf("%-24s %8.2f MB %9zu tokens   first %8.1f MB/s   later %8.1f MB/s   %7.1f ms/128K tokens\n", name,
                megabytes, tokens, megabytes / first, megabytes / best,
                best * 1e3 * 131072 / static_cast<double>(tokens));
}

std::string characters(uint32_t first, uint32_t last, size_t bytes) {
    std::mt19937 random(1);
    std::string text;
    while (text.size() < bytes) strata::append_utf8(text, first + random() % (last - first + 1));
    return text;
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 2) {
        std::fprintf(stderr, "usage: tokenizer_speed MODEL.gguf [TEXT ...]\n");
        return 2;
    }
    auto file = strata::gguf::File::open(arguments[1]);
    if (!file.ok()) {
        std::fprintf(stderr, "%s\n", file.error().message.c_str());
        return 3;
    }
    double start = seconds();
    auto vocabulary = strata::read_vocabulary(*file);
    const double read = seconds() - start;
    if (!vocabulary.ok()) {
        std::fprintf(stderr, "%s\n", vocabulary.error().message.c_str());
        return 3;
    }
    start = seconds();
    auto tokenizer = strata::Tokenizer::make(*vocabulary);
    if (!tokenizer.ok()) {
        std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
        return 3;
    }
    std::printf("%zu tokens, %zu merges: keys read in %.1f ms, tokenizer made in %.1f ms\n", vocabulary->tokens.size(),
                vocabulary->merges.size(), read * 1e3, (seconds() - start) * 1e3);
    for (const std::string& warning : tokenizer->warnings()) std::printf("%s\n", warning.c_str());

    for (int i = 2; i < count; ++i) {
        std::ifstream in(arguments[i], std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(in)), {});
        const std::string name = arguments[i];
        measure(name.substr(name.rfind('/') + 1).c_str(), *tokenizer, text);
    }
    constexpr size_t megabyte = 1'000'000;
    measure("letter a, repeated", *tokenizer, std::string(megabyte, 'a'));
    measure("spaces", *tokenizer, std::string(megabyte, ' '));
    measure("newlines", *tokenizer, std::string(megabyte, '\n'));
    measure("random letters", *tokenizer, characters('a', 'z', megabyte));
    measure("one CJK character", *tokenizer, characters(0x4F60, 0x4F60, megabyte));
    measure("random CJK characters", *tokenizer, characters(0x4E00, 0x9FA5, megabyte));
    measure("one emoji", *tokenizer, characters(0x1F600, 0x1F600, megabyte));
    measure("random emoji", *tokenizer, characters(0x1F600, 0x1F64F, megabyte));
    measure("digits", *tokenizer, characters('0', '9', megabyte));
    return 0;
}
