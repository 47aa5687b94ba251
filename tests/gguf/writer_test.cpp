// What the writer makes, the reader must find; what fails must leave nothing behind.
#include "gguf/writer.h"

#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <thread>

#include "gguf/file.h"
#include "gguf/scratch.h"

namespace strata::gguf {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(POLYSTRATA_TEST_DATA) / "gguf";

std::string bytes_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::set<std::string> files_in(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
    return names;
}

std::vector<std::byte> pattern(uint64_t count, uint64_t seed) {
    std::vector<std::byte> bytes(count);
    for (uint64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed * 17 + i / 251) & 0xFF);
    return bytes;
}

Result<void> write(const Contents& contents, const fs::path& path, bool force = false) {
    STRATA_TRY_ASSIGN(Layout layout, lay_out(contents, path));
    STRATA_TRY_ASSIGN(Output output, Output::create(std::move(layout), {.force = force}));
    for (size_t i = 0; i < contents.tensors.size(); ++i) {
        // In two pieces, the second first: order is free.
        const auto bytes = pattern(output.layout().tensors[i].bytes, i);
        const std::span<const std::byte> all(bytes);
        STRATA_TRY(output.write(i, bytes.size() / 2, all.subspan(bytes.size() / 2)));
        STRATA_TRY(output.write(i, 0, all.first(bytes.size() / 2)));
    }
    return output.finish();
}

Contents sample() {
    Contents contents;
    contents.keys.set<uint32_t>("x.block_count", 2);
    contents.keys.set_string("general.architecture", "x");
    contents.keys.set<float>("x.eps", 1e-6f);
    contents.keys.set<bool>("x.flag", true);
    contents.keys.set_array<int32_t>("x.ids", std::vector<int32_t>{1, -2, 3});
    contents.keys.set_bools("x.flags", {true, false});
    contents.keys.set_strings("x.names", std::vector<std::string>{"a", "", std::string("z\0z", 3)});
    contents.tensors = {{"a", Type::f32, {3}},
                        {"b", Type::q4_k, {256, 2, 3}},
                        {"empty", Type::f16, {4, 0}},
                        {"c", Type::q8_0, {32, 5, 1, 1}}};
    return contents;
}

void expect_sample(const File& file) {
    EXPECT_EQ(file.keys()[0].name, "general.architecture");
    EXPECT_EQ(file.architecture(), "x");
    EXPECT_EQ(file.get_int("x.block_count", 0, 9).value(), 2);
    EXPECT_EQ(file.get_float("x.eps").value(), 1e-6f);
    EXPECT_TRUE(file.get_bool("x.flag").value());
    EXPECT_EQ(file.get_ints("x.ids", -9, 9)->to_vector(), (std::vector<int64_t>{1, -2, 3}));
    EXPECT_FALSE((*file.get_bools("x.flags"))[1]);
    EXPECT_EQ(file.get_strings("x.names").value(), (StringTable{"a", "", std::string_view("z\0z", 3)}));
    ASSERT_EQ(file.tensors().size(), 4u);
    EXPECT_EQ(file.find_tensor("c")->n_dims, 2u);
    EXPECT_EQ(file.find_tensor("b")->type, Type::q4_k);
    for (size_t i = 0; i < 4; ++i) {
        const TensorInfo& tensor = file.tensors()[i];
        const auto wanted = pattern(tensor.bytes, i);
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), tensor.data)) << tensor.name;
    }
}

TEST(GgufWriter, ReaderFindsWhatWasWritten) {
    Scratch scratch;
    ASSERT_TRUE(write(sample(), scratch.path() / "m.gguf").ok());
    const auto file = File::open(scratch.path() / "m.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    expect_sample(*file);
    EXPECT_EQ(file->total_size() % 32, 0u);
    EXPECT_EQ(files_in(scratch.path()), std::set<std::string>{"m.gguf"});
}

TEST(GgufWriter, SameContentsGiveTheSameBytes) {
    Scratch scratch;
    ASSERT_TRUE(write(sample(), scratch.path() / "a.gguf").ok());
    ASSERT_TRUE(write(sample(), scratch.path() / "b.gguf").ok());
    EXPECT_EQ(bytes_of(scratch.path() / "a.gguf"), bytes_of(scratch.path() / "b.gguf"));
}

TEST(GgufWriter, AlignmentOtherThan32IsSaidAndKept) {
    Scratch scratch;
    Contents contents = sample();
    contents.alignment = 4096;
    contents.keys.set<uint32_t>("general.alignment", 64);  // a copied key must not win over the layout
    ASSERT_TRUE(write(contents, scratch.path() / "m.gguf").ok());
    const auto file = File::open(scratch.path() / "m.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    expect_sample(*file);
    EXPECT_EQ(file->parts()[0].alignment, 4096u);
    for (const TensorInfo& tensor : file->tensors()) EXPECT_EQ(tensor.offset % 4096, 0u);
    contents.alignment = 24;
    EXPECT_FALSE(lay_out(contents, "m.gguf").ok());
}

TEST(GgufWriter, SetsAreCutBetweenTensors) {
    Scratch scratch;
    Contents contents = sample();
    contents.max_file_bytes = 200;  // "b" alone is larger
    ASSERT_TRUE(write(contents, scratch.path() / "m.gguf").ok());
    EXPECT_EQ(files_in(scratch.path()),
              (std::set<std::string>{"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}));
    const auto file = File::open(scratch.path() / "m-00003-of-00003.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    expect_sample(*file);
    EXPECT_EQ(file->find_tensor("b")->file, 1u);
}

TEST(GgufWriter, EveryFixtureFileSurvivesACopy) {
    Scratch scratch;
    int files = 0;
    for (const auto& entry : fs::directory_iterator(kFolder)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("v") || name.find("split") != std::string::npos) continue;
        ++files;
        const auto from = File::open(entry.path());
        ASSERT_TRUE(from.ok());
        Contents contents;
        contents.alignment = from->parts()[0].alignment;
        for (const Key& key : from->keys()) contents.keys.copy(key);
        for (const TensorInfo& tensor : from->tensors())
            contents.tensors.push_back({std::string(tensor.name),
                                        tensor.type,
                                        {tensor.dims.begin(), tensor.dims.begin() + std::max(1u, tensor.n_dims)}});
        auto layout = lay_out(contents, scratch.path() / name);
        ASSERT_TRUE(layout.ok()) << name << ": " << layout.error().message;
        auto output = Output::create(std::move(layout).value(), {});
        ASSERT_TRUE(output.ok()) << output.error().message;
        for (size_t i = 0; i < from->tensors().size(); ++i)
            ASSERT_TRUE(output->write(i, 0, {from->tensors()[i].data, from->tensors()[i].bytes}).ok());
        ASSERT_TRUE(output->finish().ok());
        const auto to = File::open(scratch.path() / name);
        ASSERT_TRUE(to.ok()) << to.error().message;
        ASSERT_EQ(to->keys().size(), from->keys().size()) << name;
        for (const Key& key : from->keys()) {
            const Key* copied = to->find_key(key.name);
            ASSERT_TRUE(copied) << name << " " << key.name;
            EXPECT_EQ(copied->type, key.type);
            EXPECT_TRUE(std::equal(key.bytes.begin(), key.bytes.end(), copied->bytes.begin(), copied->bytes.end()));
        }
        ASSERT_EQ(to->tensors().size(), from->tensors().size());
        for (size_t i = 0; i < from->tensors().size(); ++i) {
            const TensorInfo &a = from->tensors()[i], &b = to->tensors()[i];
            EXPECT_EQ(a.name, b.name);
            EXPECT_EQ(a.dims, b.dims);
            EXPECT_TRUE(std::equal(a.data, a.data + a.bytes, b.data)) << name << " " << a.name;
        }
    }
    EXPECT_EQ(files, 17);
}

TEST(GgufWriter, ExistingFilesAreKeptUnlessForced) {
    Scratch scratch;
    const fs::path path = scratch.path() / "m.gguf";
    std::ofstream(path) << "precious";
    const auto refused = write(sample(), path);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, "exists");
    EXPECT_EQ(bytes_of(path), "precious");
    ASSERT_TRUE(write(sample(), path, true).ok());
    EXPECT_TRUE(File::open(path).ok());
    EXPECT_EQ(files_in(scratch.path()).size(), 1u);
}

TEST(GgufWriter, AFileThatAppearsMeanwhileIsKept) {
    Scratch scratch;
    const fs::path path = scratch.path() / "m.gguf";
    Contents contents;
    contents.tensors = {{"a", Type::f32, {1}}};
    auto output = Output::create(lay_out(contents, path).value(), {});
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE(output->write(0, 0, pattern(4, 0)).ok());
    std::ofstream(path) << "precious";
    EXPECT_EQ(output->finish().error().code, "exists");
    EXPECT_EQ(bytes_of(path), "precious");
}

TEST(GgufWriter, NothingIsLeftOfAnUnfinishedFile) {
    Scratch scratch;
    const fs::path path = scratch.path() / "m.gguf";
    std::ofstream(path) << "old";
    {
        auto output = Output::create(lay_out(sample(), path).value(), {.force = true});
        ASSERT_TRUE(output.ok());
        ASSERT_TRUE(output->write(0, 0, pattern(12, 0)).ok());
        EXPECT_EQ(files_in(scratch.path()).size(), 2u);
        EXPECT_FALSE(output->finish().ok()) << "bytes are missing";
    }
    EXPECT_EQ(files_in(scratch.path()), std::set<std::string>{"m.gguf"});
    EXPECT_EQ(bytes_of(path), "old");
}

TEST(GgufWriter, WhatAKilledProgramLeftIsWrittenOverButALiveOneIsNot) {
    Scratch scratch;
    const fs::path path = scratch.path() / "m.gguf";
    std::ofstream(path.string() + ".partial") << std::string(100000, 'x');
    auto first = Output::create(lay_out(sample(), path).value(), {});
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ(fs::file_size(path.string() + ".partial"), first->layout().total_size());
    EXPECT_EQ(Output::create(lay_out(sample(), path).value(), {}).error().code, "exists");
}

TEST(GgufWriter, TooLargeForTheDiskIsRefusedBeforeItIsWritten) {
    Scratch scratch;
    Contents contents;
    contents.tensors = {{"a", Type::i8, {uint64_t{1} << 60}}};
    const auto result = Output::create(lay_out(contents, scratch.path() / "m.gguf").value(), {});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, "disk-full");
    EXPECT_TRUE(files_in(scratch.path()).empty());
}

TEST(GgufWriter, WhatTheReaderWouldRefuseIsRefusedBeforeTheData) {
    Scratch scratch;
    const auto code = [&](TensorSpec a, TensorSpec b) {
        Contents contents;
        contents.tensors = {std::move(a), std::move(b)};
        return Output::create(lay_out(contents, scratch.path() / "m.gguf").value(), {}).error().code;
    };
    EXPECT_EQ(code({"a", Type::f32, {1}}, {"a", Type::f32, {1}}), "duplicate-tensor");
    EXPECT_EQ(code({"a", Type::f32, {1}}, {std::string(64, 'n'), Type::f32, {1}}), "name-too-long");
    EXPECT_TRUE(files_in(scratch.path()).empty());
    EXPECT_FALSE(tensor_bytes({"a", Type::q4_k, {128}}).ok());
    EXPECT_FALSE(tensor_bytes({"a", Type::f32, {uint64_t{1} << 40, uint64_t{1} << 40}}).ok());
    EXPECT_FALSE(tensor_bytes({"a", Type::f32, {}}).ok());
}

TEST(GgufWriter, TensorsMayBeWrittenByManyThreads) {
    Scratch scratch;
    Contents contents;
    contents.tensors = {{"a", Type::i8, {1 << 16}}, {"b", Type::i8, {1 << 16}}};
    auto output = Output::create(lay_out(contents, scratch.path() / "m.gguf").value(), {});
    ASSERT_TRUE(output.ok());
    std::vector<std::thread> threads;
    std::atomic<int> failures = 0;
    for (uint64_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            const auto bytes = pattern(1 << 15, t);
            failures += !output->write(t / 2, (t % 2) << 15, bytes).ok();
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    ASSERT_TRUE(output->finish().ok());
    const auto file = File::open(scratch.path() / "m.gguf");
    for (uint64_t t = 0; t < 4; ++t) {
        const auto bytes = pattern(1 << 15, t);
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), file->tensors()[t / 2].data + ((t % 2) << 15)));
    }
}

}  // namespace
}  // namespace strata::gguf
