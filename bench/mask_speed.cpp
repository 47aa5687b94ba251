// How long a token mask takes at a vocabulary of 250,000 tokens: replies made of random allowed tokens, the mask asked
// for before each. CPU time of one thread. The vocabulary is a GGUF file's, or made up: words, code, numbers, other
// scripts, runs of blanks.
//   build/bin/mask_speed [MODEL.gguf]
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <set>
#include <string>

#include "gguf/file.h"
#include "grammar/token_mask.h"
#include "grammar/vocabulary.h"
#include "text/schema.h"
#include "text/utf8.h"

namespace {

using namespace strata;

double cpu_us() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

std::vector<std::string> vocabulary() {
    std::mt19937 random(1);
    std::set<std::string> all;
    for (int i = 0; i < 256; ++i) all.insert(std::string(1, static_cast<char>(i)));
    for (int i = 0; i < 1000; ++i) all.insert(std::to_string(i));
    for (int i = 1; i < 128; ++i)
        all.insert(std::string(static_cast<size_t>(i), ' ')),
            all.insert("\n" + std::string(static_cast<size_t>(i), ' '));
    const std::string marks = "\"{}[]():,;.'\\/<>=+-*_#@!?|&%$^~` \n\t";
    while (all.size() < 12'000) {
        std::string text;
        for (unsigned i = 0, size = 1 + random() % 4; i < size; ++i) text += marks[random() % marks.size()];
        all.insert(text);
    }
    while (all.size() < 60'000) {
        std::string text;
        for (unsigned i = 0, size = 1 + random() % 3; i < size; ++i) append_utf8(text, 0x4E00 + random() % 0x5000);
        all.insert(text);
    }
    while (all.size() < 250'000) {
        std::string word = random() % 2 ? " " : "";
        for (unsigned i = 0, size = 2 + random() % 9; i < size; ++i) word += static_cast<char>('a' + random() % 26);
        if (random() % 8 == 0) word[word.size() > 1 && word[0] == ' '] -= 32;
        if (random() % 40 == 0) word += marks[random() % marks.size()];
        all.insert(word);
    }
    return {all.begin(), all.end()};
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> words;
    if (argc > 1) {
        auto file = gguf::File::open(argv[1]);
        auto pieces = file ? token_pieces(*file) : Result<std::vector<std::string>>(file.error());
        if (!pieces) {
            std::fprintf(stderr, "%s\n", pieces.error().message.c_str());
            return 1;
        }
        words = std::move(*pieces);
    } else {
        words = vocabulary();
    }
    std::vector<std::string_view> pieces(words.begin(), words.end());
    pieces.push_back({});
    const int32_t ends[] = {static_cast<int32_t>(pieces.size() - 1)};
    double start = cpu_us();
    auto trie = std::make_shared<const TokenTrie>(pieces);
    std::printf("%zu tokens, %zu nodes of the tree: built in %.0f ms, once a model\n", pieces.size(),
                trie->nodes().size(), (cpu_us() - start) / 1e3);
    const std::pair<const char*, const char*> schemas[] = {
        {"answer",
         R"({"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"],"additionalProperties":false})"},
        {"order",
         R"({"type":"object","properties":{"id":{"type":"integer"},"customer":{"type":"object","properties":{"name":{"type":"string"},
          "email":{"type":"string"},"vip":{"type":"boolean"}},"required":["name"]},"items":{"type":"array","items":{"type":"object",
          "properties":{"sku":{"type":"string","pattern":"^[A-Z]{3}-\\d{4}$"},"count":{"type":"integer","minimum":1,"maximum":99},
          "price":{"type":"number"},"note":{"type":["string","null"],"maxLength":200}},"required":["sku","count"],"additionalProperties":false}},
          "status":{"enum":["open","paid","sent"]}},"required":["id","items"],"additionalProperties":false})"},
        {"tree",
         R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":"string"},"left":{"$ref":"#/$defs/node"},
          "right":{"$ref":"#/$defs/node"}},"required":["value"],"additionalProperties":false}}})"},
        {"any JSON", "{}"},
    };
    for (const auto& [name, text] : schemas) {
        start = cpu_us();
        auto compiled = grammar_of_schema(*parse_json(text));
        if (!compiled.ok()) {
            std::fprintf(stderr, "%s\n", compiled.error().message.c_str());
            return 1;
        }
        double grammar_us = cpu_us() - start;
        start = cpu_us();
        TokenMask mask(std::make_shared<const Grammar>(std::move(*compiled)), trie, ends);
        double warm_us = cpu_us() - start;
        std::mt19937 random(2);
        std::vector<double> times;
        for (int reply = 0; reply < 20; ++reply) {
            mask.reset();
            for (int step = 0; step < 300; ++step) {
                start = cpu_us();
                auto bits = mask.mask();
                double took = cpu_us() - start;
                // A random allowed token, found from a random place.
                size_t at = random() % bits.size(), words_left = bits.size();
                while (bits[at] == 0 && --words_left > 0) at = (at + 1) % bits.size();
                if (words_left == 0) break;
                int32_t token = static_cast<int32_t>(at * 64) + __builtin_ctzll(bits[at]);
                if (trie->piece(token).empty()) break;
                start = cpu_us();
                mask.accept(token);
                times.push_back(took + cpu_us() - start);
            }
        }
        std::sort(times.begin(), times.end());
        double sum = 0;
        for (double time : times) sum += time;
        std::printf(
            "%-9s grammar %6.0f us, warm-up %6.0f us; %5zu tokens: mean %5.1f us, median %5.1f, 99%% %6.1f, largest "
            "%7.1f\n",
            name, grammar_us, warm_us, times.size(), sum / static_cast<double>(times.size()), times[times.size() / 2],
            times[times.size() * 99 / 100], times.back());
    }
    return 0;
}
