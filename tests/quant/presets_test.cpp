// The preset rules against the types that were recorded for four mock models.
#include "quant/presets.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "fixture.h"

namespace strata {
namespace {

TEST(Presets, GiveTheRecordedTypes) {
    const auto models = fixture::read_json("presets.json").at("models");
    int checked = 0;
    for (const auto& [model_name, facts] : models.items()) {
        PresetModel model{facts.at("layers"), facts.at("heads"), facts.at("kv_heads"), facts.at("experts"), false};
        std::vector<PresetTensor> tensors;
        for (const auto& t : facts.at("tensors"))
            tensors.push_back({t.at(0), t.at(3).get<int>() > 1 ? 3 : 2, t.at(1).get<int64_t>()});
        const auto kept = facts.at("kept").get<std::vector<std::string>>();
        for (const auto& [name, expected] : facts.at("presets").items()) {
            SCOPED_TRACE(model_name + " " + name);
            const auto preset = preset_by_name(name);
            ASSERT_TRUE(preset);
            EXPECT_EQ(preset_name(*preset), name);
            EXPECT_EQ(static_cast<uint32_t>(*preset), expected.at("file_type").get<uint32_t>());
            const auto types = preset_types(*preset, model, tensors);
            for (size_t i = 0; i < tensors.size(); ++i) {
                const std::string& tensor = tensors[i].name;
                const bool is_kept = std::find(kept.begin(), kept.end(), tensor) != kept.end();
                ASSERT_EQ(!types[i].has_value(), is_kept) << tensor;
                if (is_kept) continue;
                const std::string want = expected.at("others").value(tensor, expected.at("default").get<std::string>());
                EXPECT_EQ(type_info(*types[i]).name, want) << tensor;
                ++checked;
            }
        }
    }
    EXPECT_GT(checked, 39000);
}

TEST(Presets, ImportanceChangesWhatItMakesCheap) {
    const PresetModel plain{32, 16, 8, 0, false}, weighted{32, 16, 8, 0, true};
    const std::vector<PresetTensor> tensors = {{"blk.0.ffn_down.weight", 2, 4096}, {"blk.9.attn_v.weight", 2, 4096}};
    const auto type = [&](Preset preset, const PresetModel& model, int i) {
        return *preset_types(preset, model, tensors)[i];
    };
    EXPECT_EQ(type(Preset::q4_0, plain, 0), Type::q4_0);
    EXPECT_EQ(type(Preset::q4_0, weighted, 0), Type::q4_1);
    EXPECT_EQ(type(Preset::iq4_xs, plain, 0), Type::q5_k);
    EXPECT_EQ(type(Preset::iq4_xs, weighted, 0), Type::iq4_xs);
    EXPECT_EQ(type(Preset::iq3_xxs, plain, 1), Type::iq3_s);
    EXPECT_EQ(type(Preset::iq3_xxs, weighted, 1), Type::iq3_xxs);
}

TEST(Presets, RowsThatBlocksDoNotDivideFallBack) {
    const PresetModel model{8, 16, 8, 0, false};
    const auto type = [&](Preset preset, int64_t width) {
        return *preset_types(preset, model, std::vector<PresetTensor>{{"blk.4.ssm_out.weight", 2, width}})[0];
    };
    EXPECT_EQ(type(Preset::q4_k_s, 704), Type::q5_0);
    EXPECT_EQ(type(Preset::q6_k, 704), Type::q8_0);
    EXPECT_EQ(type(Preset::iq2_m, 704), Type::iq4_nl);
    EXPECT_EQ(type(Preset::q4_k_s, 100), Type::f16);
    EXPECT_FALSE(preset_by_name("Q4_K_X"));
    EXPECT_EQ(preset_by_name("q4_k_m"), Preset::q4_k_m);
}

TEST(Presets, NormsRoutersAndVectorsAreKept) {
    const PresetModel model{8, 16, 8, 4, false};
    const std::vector<PresetTensor> tensors = {
        {"blk.0.attn_norm.weight", 1, 512}, {"blk.0.ffn_gate_inp.weight", 2, 512},
        {"blk.0.ssm_conv1d.weight", 2, 4},  {"blk.0.ssm_a", 1, 32},
        {"blk.0.attn_q.bias", 1, 512},      {"blk.0.ffn_gate_tid2eid.weight", 2, 8}};
    for (const auto& type : preset_types(Preset::q8_0, model, tensors)) EXPECT_FALSE(type);
}

}  // namespace
}  // namespace strata
