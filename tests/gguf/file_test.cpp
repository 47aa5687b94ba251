// Sets of files, links, identity, and the typed getters.
#include "gguf/file.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>

#include "gguf/scratch.h"

namespace strata::gguf {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(POLYSTRATA_TEST_DATA) / "gguf";
const char* const kSet[] = {"v18_split-00001-of-00003.gguf", "v18_split-00002-of-00003.gguf",
                            "v18_split-00003-of-00003.gguf"};

void expect_whole_set(const fs::path& path) {
    const auto file = File::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->parts().size(), 3u);
    ASSERT_EQ(file->tensors().size(), 3u);
    EXPECT_EQ(file->architecture(), "test");
    const TensorInfo* a = file->find_tensor("a");
    ASSERT_TRUE(a);
    EXPECT_EQ(a->file, 1u);
    EXPECT_EQ(a->offset, 192u);
    EXPECT_EQ(a->data, file->parts()[1].bytes.data() + 192);
    EXPECT_EQ(file->find_tensor("c")->file, 2u);
    EXPECT_FALSE(file->find_tensor("d"));
}

TEST(GgufSet, AnyPartOpensTheWholeSetAndTheFirstMayHoldKeysOnly) {
    for (const char* name : kSet) expect_whole_set(kFolder / name);
}

TEST(GgufSet, PartsAreFoundBesideTheLinkUnderItsName) {
    Scratch scratch;
    fs::create_directory(scratch.path() / "blobs");
    fs::create_directory(scratch.path() / "snap");
    const char* blobs[] = {"aa", "bb", "cc"};
    for (int i = 0; i < 3; ++i) {
        fs::copy_file(kFolder / kSet[i], scratch.path() / "blobs" / blobs[i]);
        fs::create_symlink(fs::path("../blobs") / blobs[i],
                           scratch.path() / "snap" / ("m-0000" + std::to_string(i + 1) + "-of-00003.gguf"));
    }
    expect_whole_set(scratch.path() / "snap/m-00001-of-00003.gguf");
    expect_whole_set(scratch.path() / "snap/m-00002-of-00003.gguf");
}

TEST(GgufSet, MissingPartIsNamed) {
    Scratch scratch;
    fs::copy_file(kFolder / kSet[0], scratch.path() / kSet[0]);
    fs::copy_file(kFolder / kSet[2], scratch.path() / kSet[2]);
    const auto file = File::open(scratch.path() / kSet[2]);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, "split-missing");
    EXPECT_NE(file.error().message.find(kSet[1]), std::string::npos) << file.error().message;
}

TEST(GgufSet, ANameInTheWorkingFolderNeedsNoPath) {
    const fs::path before = fs::current_path();
    fs::current_path(kFolder);
    expect_whole_set(kSet[0]);
    fs::current_path(before);
}

TEST(GgufFile, WhatIsNoFileIsRefused) {
    EXPECT_EQ(File::open(kFolder).error().code, "not-a-file");
    EXPECT_EQ(File::open(kFolder / "nothing.gguf").error().code, "missing");
    EXPECT_EQ(File::open(kFolder / "nothing.gguf").error().kind, ErrorKind::file);
}

TEST(GgufFile, ViewsSurviveAMove) {
    auto opened = File::open(kFolder / "v17_experts_3d.gguf");
    ASSERT_TRUE(opened.ok());
    const TensorInfo* tensor = &opened->tensors()[0];
    const std::byte first = *tensor->data;
    const File moved = std::move(opened).value();
    EXPECT_EQ(&moved.tensors()[0], tensor);
    EXPECT_EQ(*moved.find_tensor(tensor->name)->data, first);
    EXPECT_EQ(moved.architecture(), "test");
}

TEST(GgufFile, IdentityFollowsTheHeaderAndTheFile) {
    Scratch scratch;
    const auto original = File::open(kFolder / "v06_f32.gguf");
    ASSERT_TRUE(original.ok());
    fs::copy_file(kFolder / "v06_f32.gguf", scratch.path() / "copy.gguf");
    const auto copy = File::open(scratch.path() / "copy.gguf");
    ASSERT_TRUE(copy.ok());
    EXPECT_EQ(original->identity(), File::open(kFolder / "v06_f32.gguf")->identity());
    EXPECT_EQ(original->identity().header_hash, copy->identity().header_hash);
    EXPECT_NE(original->identity(), copy->identity());
    EXPECT_NE(original->identity().header_hash, File::open(kFolder / "v05_version2.gguf")->identity().header_hash);
    EXPECT_EQ(original->total_size(), 192u);
}

TEST(GgufFile, AChangeOfTheFileIsNoticed) {
    Scratch scratch;
    const fs::path path = scratch.path() / "a.gguf";
    fs::copy_file(kFolder / "v06_f32.gguf", path);
    const auto file = File::open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->check_unchanged().ok());
    fs::resize_file(path, 100);
    const auto check = file->check_unchanged();
    ASSERT_FALSE(check.ok());
    EXPECT_EQ(check.error().code, "changed");
    std::byte out[48];
    EXPECT_EQ(file->read(file->tensors()[0], 0, out).error().code, "changed");
}

TEST(GgufFileDeathTest, AFileCutUnderTheMappingEndsTheProcessWithItsName) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            Scratch scratch;
            const fs::path path = scratch.path() / "cut.gguf";
            fs::copy_file(kFolder / "v06_f32.gguf", path);
            const auto file = File::open(path);
            report_bus_errors();
            fs::resize_file(path, 0);
            std::exit(static_cast<int>(touch(file->parts()[0].bytes) & 1));
        },
        testing::ExitedWithCode(3), "cut.gguf: was cut short");
}

TEST(GgufFile, ReadGivesTheMappingsBytesAndStaysInsideTheTensor) {
    const auto file = File::open(kFolder / kSet[2]);
    ASSERT_TRUE(file.ok());
    const TensorInfo* tensor = file->find_tensor("b");
    std::byte out[16];
    ASSERT_TRUE(file->read(*tensor, 32, out).ok());
    EXPECT_EQ(std::memcmp(out, tensor->data + 32, 16), 0);
    EXPECT_FALSE(file->read(*tensor, 33, out).ok());
    EXPECT_FALSE(file->read(*tensor, ~uint64_t{0}, out).ok());
}

TEST(GgufFile, AdviceAndTouchLeaveTheBytesAlone) {
    const auto file = File::open(kFolder / "v07_every_tensor_type.gguf");
    ASSERT_TRUE(file.ok());
    const std::string before(reinterpret_cast<const char*>(file->parts()[0].bytes.data()), file->total_size());
    for (const Access access :
         {Access::sequential, Access::random, Access::will_need, Access::dont_need, Access::normal}) {
        file->advise(access);
        for (const TensorInfo& tensor : file->tensors()) file->advise(tensor, access);
    }
    touch(file->parts()[0].bytes);
    touch({});
    EXPECT_EQ(std::memcmp(file->parts()[0].bytes.data(), before.data(), before.size()), 0);
}

TEST(GgufFile, ParsesFromMemory) {
    std::ifstream in(kFolder / "v17_experts_3d.gguf", std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto file = File::from_memory(std::as_bytes(std::span(text)), "memory");
    ASSERT_TRUE(file.ok());
    const TensorInfo& experts = file->tensors()[0];
    EXPECT_EQ(experts.matrix_bytes() * experts.dims[2], experts.bytes);
    EXPECT_EQ(file->total_size(), text.size());
}

/// v03_every_value_type and v04_every_array_type through the getters.
class GgufGetters : public testing::Test {
  protected:
    Result<File> scalars = File::open(kFolder / "v03_every_value_type.gguf");
    Result<File> arrays = File::open(kFolder / "v04_every_array_type.gguf");
};

template <class T>
std::string code(const Result<T>& result) {
    return result.ok() ? "ok" : result.error().code;
}

TEST_F(GgufGetters, AnyIntegerTypeIsAnIntegerWithinTheRange) {
    EXPECT_EQ(scalars->get_int("t.u8", 0, 255).value(), 200);
    EXPECT_EQ(scalars->get_int("t.i8", -128, 127).value(), -100);
    EXPECT_EQ(scalars->get_int("t.u16", 0, 65535).value(), 60000);
    EXPECT_EQ(scalars->get_int("t.i16", -40000, 0).value(), -30000);
    EXPECT_EQ(scalars->get_int("t.u32", 0, INT64_MAX).value(), 4000000000);
    EXPECT_EQ(scalars->get_int("t.i32", INT64_MIN, 0).value(), -2000000000);
    EXPECT_EQ(scalars->get_int("t.i64", INT64_MIN, 0).value(), -4611686018427387904);
    EXPECT_EQ(code(scalars->get_int("t.u8", 0, 199)), "key-range");
    EXPECT_EQ(code(scalars->get_int("t.u8", 201, 300)), "key-range");
    EXPECT_EQ(code(scalars->get_int("t.u64", 0, INT64_MAX)), "key-range");
    EXPECT_EQ(code(scalars->get_int("t.true", 0, 1)), "key-type");
    EXPECT_EQ(code(scalars->get_int("t.f32", 0, 1)), "key-type");
    EXPECT_EQ(code(scalars->get_int("t.str", 0, 1)), "key-type");
    EXPECT_EQ(code(arrays->get_int("a.u8", 0, 255)), "key-type");
}

TEST_F(GgufGetters, FloatsMayBeIntegersThatAreExact) {
    EXPECT_EQ(scalars->get_float("t.f32").value(), 0.15625f);
    EXPECT_EQ(scalars->get_float("t.f64").value(), -0.0f);
    EXPECT_EQ(scalars->get_float("t.u16").value(), 60000.0f);
    EXPECT_EQ(code(scalars->get_float("t.i64")), "key-range");
    EXPECT_EQ(code(scalars->get_float("t.true")), "key-type");
    EXPECT_EQ(code(scalars->get_float("t.str")), "key-type");
}

TEST_F(GgufGetters, BoolsAndStringsAreOnlyThemselves) {
    EXPECT_TRUE(scalars->get_bool("t.true").value());
    EXPECT_FALSE(scalars->get_bool("t.false").value());
    EXPECT_EQ(code(scalars->get_bool("t.u8")), "key-type");
    EXPECT_EQ(scalars->get_string("t.str.empty").value(), "");
    EXPECT_EQ(scalars->get_string("t.str").value(), "grün 中😀");
    EXPECT_EQ(code(scalars->get_string("t.u8")), "key-type");
}

TEST_F(GgufGetters, AbsentIsNotWrong) {
    EXPECT_EQ(scalars->find_int("none", 0, 1).value(), std::nullopt);
    EXPECT_EQ(scalars->find_string("none").value(), std::nullopt);
    EXPECT_EQ(code(scalars->find_string("t.u8")), "key-type");
    EXPECT_EQ(code(scalars->get_int("none", 0, 1)), "missing-key");
    EXPECT_FALSE(scalars->has("none"));
    EXPECT_TRUE(scalars->has("t.u8"));
}

TEST_F(GgufGetters, ArraysCheckEveryElement) {
    EXPECT_EQ(arrays->get_ints("a.u8", 0, 255)->to_vector(), (std::vector<int64_t>{1, 2, 255}));
    EXPECT_EQ(arrays->get_ints("a.i32", INT32_MIN, INT32_MAX)->to_vector(), (std::vector<int64_t>{-1, 2147483647}));
    EXPECT_EQ(code(arrays->get_ints("a.u8", 0, 254)), "key-range");
    EXPECT_EQ(code(arrays->get_ints("a.u64", 0, INT64_MAX)), "key-range");
    EXPECT_EQ(code(arrays->get_ints("a.f32", 0, 1)), "key-type");
    EXPECT_EQ(code(scalars->get_ints("t.u8", 0, 255)), "key-type");
    EXPECT_EQ(arrays->get_floats("a.f32")->to_vector(), (std::vector<float>{1.5f, -0.0f}));
    EXPECT_EQ(arrays->get_floats("a.f64")->to_vector(), (std::vector<float>{0.1f}));
    EXPECT_EQ(arrays->get_floats("a.u16")->to_vector(), (std::vector<float>{1.0f, 65535.0f}));
    EXPECT_EQ(code(arrays->get_floats("a.u32")), "key-range");
    EXPECT_EQ(code(arrays->get_floats("a.bool")), "key-type");
    EXPECT_TRUE((*arrays->get_bools("a.bool"))[2]);
    EXPECT_FALSE((*arrays->get_bools("a.bool"))[1]);
    EXPECT_EQ(code(arrays->get_bools("a.u8")), "key-type");
    EXPECT_EQ(arrays->get_strings("a.str").value(), (StringTable{"x", "", "é"}));
    EXPECT_TRUE(arrays->get_strings("a.empty.str")->empty());
    EXPECT_TRUE(arrays->get_ints("a.empty", 0, 0)->empty());
}

TEST_F(GgufGetters, LayerValuesAreOneForAllOrOneForEach) {
    EXPECT_EQ(scalars->get_layer_ints("t.u8", 2, 0, 255).value(), (std::vector<int64_t>{200, 200}));
    EXPECT_EQ(arrays->get_layer_ints("a.u8", 3, 0, 255).value(), (std::vector<int64_t>{1, 2, 255}));
    EXPECT_EQ(code(arrays->get_layer_ints("a.u8", 4, 0, 255)), "key-length");
    EXPECT_EQ(code(arrays->get_layer_ints("a.u8", 2, 0, 255)), "key-length");
    EXPECT_EQ(arrays->get_layer_ints("a.u8", 2, 0, 255, 3).value(), (std::vector<int64_t>{1, 2}));
    EXPECT_EQ(scalars->get_layer_floats("t.f32", 2).value(), (std::vector<float>{0.15625f, 0.15625f}));
    EXPECT_EQ(arrays->get_layer_floats("a.f32", 2).value(), (std::vector<float>{1.5f, -0.0f}));
    EXPECT_EQ(arrays->get_layer_flags("a.bool", 3).value(), (std::vector<bool>{true, false, true}));
    EXPECT_EQ(scalars->get_layer_flags("t.true", 2).value(), (std::vector<bool>{true, true}));
    EXPECT_EQ(code(arrays->get_layer_flags("a.bool", 2)), "key-length");
    EXPECT_EQ(code(arrays->get_layer_flags("a.u8", 3)), "key-range");
    EXPECT_EQ(code(arrays->get_layer_flags("a.str", 3)), "key-type");
    EXPECT_EQ(scalars->find_layer_flags("none", 3).value(), std::nullopt);
}

TEST_F(GgufGetters, ARefusalNamesFileKeyFoundAndWanted) {
    const std::string message = scalars->get_int("t.u8", 0, 9).error().message;
    for (const char* part : {"v03_every_value_type.gguf", "t.u8", "u8 200", "0 to 9"})
        EXPECT_NE(message.find(part), std::string::npos) << message;
}

}  // namespace
}  // namespace strata::gguf
