#include "setup/registry.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "support/process.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

const std::string kTiny = test::data("qwen35moe/tiny.gguf");

std::string config_text(const std::string& name, const std::string& model) {
    return json_text({{"exe", "build/bin/strata-poly"},
                      {"args", {"--model", model, "--max-context", "2048"}},
                      {"model_name", name},
                      {"display_name", "Shown " + name}});
}

TEST(RunConfig, PathsAreRelativeToTheFile) {
    TempFolder folder;
    const auto config =
        read_run_config(folder.file("strata-a.json", "\xEF\xBB\xBF" + config_text("a", "models/a.gguf")));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->engine, folder.path() / "build/bin/strata-poly");
    EXPECT_EQ(config->model_path(), folder.path() / "models/a.gguf");
    EXPECT_EQ(config->max_context(), 2048);
    EXPECT_TRUE(config->unknown_keys.empty());
}

TEST(RunConfig, ADraftModelsPathIsRelativeToTheFileToo) {
    TempFolder folder;
    const auto config = read_run_config(
        folder.file("strata-a.json", R"({"args": ["--model", "models/a.gguf", "--draft-model=models/d.gguf"]})"));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->draft_model_path(), folder.path() / "models/d.gguf");
    EXPECT_EQ(config->arguments[2], "--draft-model=" + (folder.path() / "models/d.gguf").string());
}

TEST(RunConfig, NameComesFromTheFileWhereItIsMissing) {
    TempFolder folder;
    const auto config = read_run_config(folder.file("strata-b.json", R"({"args": ["--model=/m.gguf"], "colour": 1})"));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->name, "b");
    EXPECT_EQ(config->model_path(), "/m.gguf");
    EXPECT_EQ(config->unknown_keys, std::vector<std::string>{"colour"});
}

TEST(RunConfig, BadValuesAreRefusedByName) {
    const struct {
        const char* text;
        const char* name;
    } cases[] = {
        {"[]", "object"},
        {"{", "strata-x.json"},
        {R"({"model_name": "x"})", "\"args\""},
        {R"({"args": "--model x"})", "\"args\""},
        {R"({"args": ["--model", "x"], "port": 70000})", "\"port\""},
        {R"({"args": ["--model", "x"], "port": "80"})", "\"port\""},
        {R"({"args": ["--model", "x"], "sampling": {"top_k": "many"}})", "\"sampling.top_k\""},
        {R"({"args": ["--model", "x"], "env": {"A": 1}})", "\"env\""},
        {R"({"args": ["--model", "x"], "exe": 1})", "\"exe\""},
        {R"({"args": ["--model", "x"], "lazy_load": "yes"})", "\"lazy_load\""},
        {R"({"args": ["--model", "x"], "idle_unload_s": -1})", "\"idle_unload_s\""},
        {R"({"args": ["--model", "x"], "cors_origins": "*"})", "\"cors_origins\""},
        {R"({"args": ["--model", "x"], "anthropic_thinking": "never"})", "\"anthropic_thinking\""},
        {R"({"args": ["--model", "x"], "chat_template": 1})", "\"chat_template\""},
    };
    for (const auto& c : cases) {
        TempFolder folder;
        const auto config = read_run_config(folder.file("strata-x.json", c.text));
        ASSERT_FALSE(config.ok()) << c.text;
        EXPECT_EQ(config.error().kind, ErrorKind::file) << c.text;
        EXPECT_NE(config.error().message.find(c.name), std::string::npos) << config.error().message;
    }
}

TEST(RunConfig, WritingKeepsTheUsersKeysAndTheOldFile) {
    TempFolder folder;
    const std::string path = folder.file("strata-a.json", R"({"port": 9000, "model_name": "old"})");
    ASSERT_TRUE(write_run_config(path, {{"model_name", "new"}, {"args", {"--model", "x"}}}).ok());
    const auto json = parse_json(test::read_file(path));
    ASSERT_TRUE(json.ok());
    EXPECT_EQ((*json)["port"], 9000);
    EXPECT_EQ((*json)["model_name"], "new");
    EXPECT_EQ(test::read_file(path + ".bak"), R"({"port": 9000, "model_name": "old"})");
}

TEST(Registry, ListsConfigsAndFilesOnceEach) {
    TempFolder folder;
    fs::create_directories(folder.path() / "models");
    fs::copy_file(kTiny, folder.path() / "models/One.gguf");
    fs::copy_file(kTiny, folder.path() / "models/two.gguf");
    folder.file("models/part-00002-of-00003.gguf", "x");
    folder.file("strata-one.json", config_text("one", "models/One.gguf"));
    folder.file("models.json", R"({"two": {"display_name": "The second", "notes": "a copy"}})");
    const auto registry = Registry::read(folder.path());
    ASSERT_TRUE(registry.ok()) << registry.error().message;
    ASSERT_EQ(registry->entries().size(), 2u);
    EXPECT_EQ(registry->entries()[0].id, "one");
    EXPECT_EQ(registry->entries()[0].display_name, "Shown one");
    EXPECT_EQ(registry->entries()[0].context(), 2048);
    EXPECT_TRUE(registry->entries()[0].available()) << registry->entries()[0].problem;
    EXPECT_EQ(registry->entries()[1].id, "two");
    EXPECT_EQ(registry->entries()[1].display_name, "The second");
    EXPECT_EQ(registry->entries()[1].notes, "a copy");
}

TEST(Registry, UnusableModelsAreListedWithTheReason) {
    TempFolder folder;
    folder.file("strata-bad.json", "{");
    folder.file("strata-gone.json", config_text("gone", "/nowhere/model.gguf"));
    folder.file("models/damaged.gguf", "GGUF");
    const auto registry = Registry::read(folder.path());
    ASSERT_TRUE(registry.ok()) << registry.error().message;
    ASSERT_EQ(registry->entries().size(), 3u);
    for (const ModelEntry& entry : registry->entries()) {
        EXPECT_FALSE(entry.available()) << entry.id;
        EXPECT_EQ(entry_json(entry)["status"], "unavailable");
        EXPECT_EQ(entry_json(entry)["problem"], entry.problem);
    }
}

TEST(Registry, APartOfANameIsEnoughWhenOnlyOneHasIt) {
    TempFolder folder;
    fs::create_directories(folder.path() / "models");
    for (const char* name : {"alpha-q4.gguf", "alpha-q8.gguf", "beta.gguf"})
        fs::copy_file(kTiny, folder.path() / "models" / name);
    const auto registry = Registry::read(folder.path());
    ASSERT_TRUE(registry.ok());
    EXPECT_EQ(registry->find("BET").value()->id, "beta");
    EXPECT_EQ(registry->find("alpha-q4").value()->id, "alpha-q4");
    const auto several = registry->find("alpha");
    ASSERT_FALSE(several.ok());
    EXPECT_EQ(several.error().kind, ErrorKind::usage);
    EXPECT_NE(several.error().message.find("alpha-q4, alpha-q8"), std::string::npos);
    const auto none = registry->find("gamma");
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().kind, ErrorKind::file);
    EXPECT_FALSE(registry->only().ok());
}

TEST(Registry, WithoutANameTheOnlyModelThatWasSetUpIsMeant) {
    TempFolder folder;
    fs::create_directories(folder.path() / "models");
    for (const char* name : {"carried.gguf", "mine.gguf", "other.gguf"})
        fs::copy_file(kTiny, folder.path() / "models" / name);
    folder.file("strata-mine.json", config_text("mine", "models/mine.gguf"));
    const auto one = Registry::read(folder.path());
    ASSERT_TRUE(one.ok());
    ASSERT_TRUE(one->only().ok()) << one->only().error().message;
    EXPECT_EQ(one->only().value()->id, "mine");
    folder.file("strata-other.json", config_text("other", "models/other.gguf"));
    const auto two = Registry::read(folder.path());
    ASSERT_TRUE(two.ok());
    ASSERT_FALSE(two->only().ok());
    EXPECT_NE(two->only().error().message.find("carried, mine, other"), std::string::npos);
}

TEST(Registry, AFileNeedsNoInstallation) {
    TempFolder folder;
    const auto entry = resolve_model(kTiny, folder.path());
    ASSERT_TRUE(entry.ok()) << entry.error().message;
    EXPECT_EQ(entry->id, "tiny");
    EXPECT_EQ(entry->config.model_path(), kTiny);
    const auto none = resolve_model("/nowhere/x.gguf", folder.path());
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().kind, ErrorKind::file);
    const auto foreign = resolve_model(test::data("gguf/v01_empty.gguf"), folder.path());
    ASSERT_FALSE(foreign.ok());
    EXPECT_EQ(foreign.error().kind, ErrorKind::file);
}

TEST(ModelFile, NameTellsTheQuantisation) {
    EXPECT_EQ(quantisation_in_name("Qwen3.6-35B-A3B-UD-Q3_K_M.gguf"), "UD-Q3_K_M");
    EXPECT_EQ(quantisation_in_name("tiel-coder-iq3_xxs-00001-of-00003.gguf"), "IQ3_XXS");
    EXPECT_EQ(quantisation_in_name("model.BF16.gguf"), "BF16");
    EXPECT_EQ(quantisation_in_name("gemma-4-26b-a4b.gguf"), "");
    EXPECT_EQ(quantisation_in_name("tiny.gguf"), "");
}

TEST(ModelFile, SizesAreForPeople) {
    EXPECT_EQ(bytes_text(17'100'000'000), "17.1 GB");
    EXPECT_EQ(bytes_text(1'487'360), "1.5 MB");
    EXPECT_EQ(bytes_text(12), "12 B");
    EXPECT_EQ(parameters_text(35'507'000'000), "36B");
    EXPECT_EQ(parameters_text(3'140'000'000), "3.1B");
    EXPECT_EQ(parameters_text(766'000), "766K");
}

}  // namespace
}  // namespace strata
