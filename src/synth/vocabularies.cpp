// The families' tokenizers: sizes, special tokens at their real ids, and short chat templates of our own wording that
// write the family's turns. Sources: specs pages tokenizer (section 11), chat-formats and those of the architectures.
#include "synth/vocabulary.h"

namespace strata::synth {
namespace {

constexpr auto kControl = TokenType::control;
constexpr auto kUser = TokenType::user_defined;

// Reads a message's text whether it is a string or a list of parts.
#define STRATA_TEXT_MACRO                                                                                      \
    "{%- macro text(content) -%}"                                                                              \
    "{%- if content is string -%}{{ content }}"                                                                \
    "{%- elif content is iterable -%}{%- for part in content -%}"                                              \
    "{%- if part.type == 'text' -%}{{ part.text }}{%- elif part.type == 'image' -%}{{ picture }}{%- endif -%}" \
    "{%- endfor -%}{%- endif -%}"                                                                              \
    "{%- endmacro -%}"

constexpr std::string_view kQwenTemplate =
    "{%- set picture = '<|vision_start|><|image_pad|><|vision_end|>' -%}" STRATA_TEXT_MACRO
    R"({%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- set rest = messages -%}
{%- set system = '' -%}
{%- if messages and messages[0].role == 'system' -%}{%- set system = text(messages[0].content) -%}{%- endif -%}
{%- if tools or system -%}
{{- '<|im_start|>system\n' -}}
{%- if tools -%}
{{- '# Functions\n\nEach line is one function that you can use:\n<tools>' -}}
{%- for tool in tools -%}{{- '\n' + (tool | tojson) -}}{%- endfor -%}
{{- '\n</tools>\n\nTo use one, write exactly this, with a block for every argument:\n<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>\n' -}}
{%- if system -%}{{- '\n' -}}{%- endif -%}
{%- endif -%}
{{- system + '<|im_end|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'system' -%}
{%- if not loop.first -%}{{- raise_exception('the system message must be the first') -}}{%- endif -%}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\n<tool_response>\n' + text(m.content) + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- elif m.role == 'assistant' -%}
{{- '<|im_start|>assistant\n' -}}
{%- if loop.index0 > ns.last and m.reasoning_content is defined -%}{{- '<think>\n' + (m.reasoning_content | trim) + '\n</think>\n\n' -}}{%- endif -%}
{{- text(m.content) -}}
{%- for call in m.tool_calls or [] -%}
{{- '\n<tool_call>\n<function=' + call.function.name + '>\n' -}}
{%- for key, value in call.function.arguments | items -%}
{{- '<parameter=' + key + '>\n' + (value if value is string else value | tojson) + '\n</parameter>\n' -}}
{%- endfor -%}
{{- '</function>\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- else -%}
{{- '<|im_start|>' + m.role + '\n' + text(m.content) + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{{- '<think>\n\n</think>\n\n' if enable_thinking is defined and enable_thinking is false else '<think>\n' -}}
{%- endif -%})";

// ChatML with tools as JSON lines: LFM and Kolibri differ in the call's form only.
#define STRATA_CHATML(BEGIN, TOOLS_HEAD, TOOLS_TAIL, CALLS, GENERATION)                                        \
    "{%- set picture = '' -%}" STRATA_TEXT_MACRO BEGIN                                                         \
    "{%- set system = text(messages[0].content) if messages and messages[0].role == 'system' else '' -%}"      \
    "{%- if tools or system -%}{{- '<|im_start|>system\\n' + system -}}"                                       \
    "{%- if tools -%}{{- '\\n' if system -}}" TOOLS_HEAD                                                       \
    "{%- for tool in tools -%}{{- (tool | tojson) + ('' if loop.last else '\\n') -}}{%- endfor -%}" TOOLS_TAIL \
    "{%- endif -%}{{- '<|im_end|>\\n' -}}{%- endif -%}"                                                        \
    "{%- for m in messages -%}{%- if m.role == 'system' -%}"                                                   \
    "{%- else -%}{{- '<|im_start|>' + m.role + '\\n' + text(m.content) -}}"                                    \
    "{%- if m.tool_calls -%}" CALLS                                                                            \
    "{%- endif -%}{{- '<|im_end|>\\n' -}}{%- endif -%}{%- endfor -%}"                                          \
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}" GENERATION "{%- endif -%}"

constexpr std::string_view kLfmTemplate =
    STRATA_CHATML("{{- bos_token -}}", "{{- 'List of tools: [' -}}", "{{- ']' -}}",
                  "{{- '<|tool_call_start|>[' -}}{%- for call in m.tool_calls -%}{{- call.function.name + '(' -}}"
                  "{%- for key, value in call.function.arguments | items -%}{{- key + '=' + (value | tojson) + ('' if "
                  "loop.last else ', ') -}}{%- endfor -%}"
                  "{{- ')' + ('' if loop.last else ', ') -}}{%- endfor -%}{{- ']<|tool_call_end|>' -}}",
                  "");

constexpr std::string_view kJsonCallTemplate =
    STRATA_CHATML("", "{{- '# Tools\\n\\n<tools>\\n' -}}", "{{- '\\n</tools>' -}}",
                  "{%- for call in m.tool_calls -%}{{- '\\n<tool_call>\\n{\"name\": ' + (call.function.name | tojson) "
                  "+ ', \"arguments\": ' + "
                  "(call.function.arguments | tojson) + '}\\n</tool_call>' -}}{%- endfor -%}",
                  "{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' "
                  "-}}{%- endif -%}");

constexpr std::string_view kGemmaTemplate = "{%- set picture = '<|image|>' -%}" STRATA_TEXT_MACRO
                                            R"({{- bos_token -}}
{%- set system = text(messages[0].content) | trim if messages and messages[0].role == 'system' else '' -%}
{%- if system or tools or enable_thinking -%}
{{- '<|turn>system\n' -}}
{%- if enable_thinking -%}{{- '<|think|>\n' -}}{%- endif -%}
{{- system -}}
{%- for tool in tools or [] -%}{{- '<|tool>declaration:' + tool.function.name + (tool.function.parameters | tojson) + '<tool|>' -}}{%- endfor -%}
{{- '<turn|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'system' -%}
{%- elif m.role == 'tool' -%}
{{- '<|tool_response>response:' + (m.name or 'tool') + '{value:<|"|>' + text(m.content) + '<|"|>}<tool_response|>' -}}
{%- else -%}
{{- '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + (text(m.content) | trim) -}}
{%- for call in m.tool_calls or [] -%}{{- '<|tool_call>call:' + call.function.name + (call.function.arguments | tojson) + '<tool_call|>' -}}{%- endfor -%}
{%- if not m.tool_calls -%}{{- '<turn|>\n' -}}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|turn>model\n' -}}
{%- if not enable_thinking -%}{{- '<|channel>thought\n<channel|>' -}}{%- endif -%}
{%- endif -%})";

constexpr std::string_view kGlmTemplate =
    "{%- set picture = '<|begin_of_image|><|image|><|end_of_image|>' -%}" STRATA_TEXT_MACRO
    R"({{- '[gMASK]<sop>' -}}
{%- if tools -%}{{- '<|system|># Tools\n<tools>\n' -}}{%- for tool in tools -%}{{- (tool | tojson) + '\n' -}}{%- endfor -%}{{- '</tools>' -}}{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}
{{- '<|observation|><tool_response>' + text(m.content) + '</tool_response>' -}}
{%- elif m.role == 'assistant' -%}
{{- '<|assistant|></think>' + text(m.content) -}}
{%- for call in m.tool_calls or [] -%}
{{- '<tool_call>' + call.function.name -}}
{%- for key, value in call.function.arguments | items -%}{{- '<arg_key>' + key + '</arg_key><arg_value>' + (value if value is string else value | tojson) + '</arg_value>' -}}{%- endfor -%}
{{- '</tool_call>' -}}
{%- endfor -%}
{%- else -%}
{{- '<|' + m.role + '|>' + text(m.content) -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' + ('</think>' if enable_thinking is defined and enable_thinking is false else '<think>') -}}{%- endif -%})";

constexpr std::string_view kDeepseekTemplate = "{%- set picture = '' -%}" STRATA_TEXT_MACRO
                                               R"({{- bos_token -}}
{%- for m in messages -%}
{%- if m.role == 'system' -%}{{- text(m.content) -}}
{%- elif m.role == 'assistant' -%}
{{- '<｜Assistant｜></think>' + text(m.content) -}}
{%- if m.tool_calls -%}
{{- '\n\n<｜DSML｜tool_calls>\n' -}}
{%- for call in m.tool_calls -%}
{{- '<｜DSML｜invoke name="' + call.function.name + '">\n' -}}
{%- for key, value in call.function.arguments | items -%}
{{- '<｜DSML｜parameter name="' + key + '" string="' + ('true' if value is string else 'false') + '">' + (value if value is string else value | tojson) + '</｜DSML｜parameter>\n' -}}
{%- endfor -%}
{{- '</｜DSML｜invoke>\n' -}}
{%- endfor -%}
{{- '</｜DSML｜tool_calls>' -}}
{%- endif -%}
{{- eos_token -}}
{%- elif m.role == 'tool' -%}{{- '<｜User｜><tool_result>' + text(m.content) + '</tool_result>' -}}
{%- else -%}{{- '<｜User｜>' + text(m.content) -}}
{%- endif -%}
{%- if loop.first and tools -%}{{- '\n\nTools, one a line:\n' -}}{%- for tool in tools -%}{{- (tool.function | tojson) + '\n' -}}{%- endfor -%}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜>' + ('</think>' if enable_thinking is defined and enable_thinking is false else '<think>') -}}{%- endif -%})";

}  // namespace

const VocabularySpec& qwen_vocabulary() {
    static const VocabularySpec spec = {
        .model = "gpt2",
        .pre = "qwen35",
        .size = 248320,
        .merges = 247587,
        .fixed = {{248044, "<|endoftext|>", kControl},  {248045, "<|im_start|>", kControl},
                  {248046, "<|im_end|>", kControl},     {248053, "<|vision_start|>", kControl},
                  {248054, "<|vision_end|>", kControl}, {248055, "<|vision_pad|>", kControl},
                  {248056, "<|image_pad|>", kControl},  {248057, "<|video_pad|>", kControl},
                  {248058, "<tool_call>", kUser},       {248059, "</tool_call>", kUser},
                  {248060, "<|fim_prefix|>", kControl}, {248061, "<|fim_middle|>", kControl},
                  {248062, "<|fim_suffix|>", kControl}, {248063, "<|fim_pad|>", kControl},
                  {248064, "<|repo_name|>", kControl},  {248065, "<|file_sep|>", kControl},
                  {248066, "<tool_response>", kUser},   {248067, "</tool_response>", kUser},
                  {248068, "<think>", kUser},           {248069, "</think>", kUser}},
        .eos = 248046,
        .pad = 248055,
        .chat_template = kQwenTemplate,
    };
    return spec;
}

const VocabularySpec& gemma_vocabulary() {
    static const VocabularySpec spec = {
        .model = "gemma4",
        .pre = "",
        .size = 262144,
        .merges = 514906,
        .fixed = {{0, "<pad>", kControl},           {1, "<eos>", kControl},          {2, "<bos>", kControl},
                  {3, "<unk>", TokenType::unknown}, {4, "<mask>", kControl},         {46, "<|tool>", kControl},
                  {47, "<tool|>", kControl},        {48, "<|tool_call>", kUser},     {49, "<tool_call|>", kUser},
                  {50, "<|tool_response>", kUser},  {51, "<tool_response|>", kUser}, {52, "<|\"|>", kUser},
                  {98, "<|think|>", kControl},      {100, "<|channel>", kUser},      {101, "<channel|>", kUser},
                  {105, "<|turn>", kControl},       {106, "<turn|>", kControl},      {255999, "<|image>", kControl},
                  {256000, "<|audio>", kControl},   {258880, "<|image|>", kControl}, {258881, "<|audio|>", kControl},
                  {258882, "<image|>", kControl},   {258883, "<audio|>", kControl},  {258884, "<|video|>", kControl}},
        .bos = 2,
        .eos = 1,
        .pad = 0,
        .unknown = 3,
        .add_bos = true,
        .chat_template = kGemmaTemplate,
    };
    return spec;
}

const VocabularySpec& lfm_vocabulary(bool large) {
    static const auto make = [](uint32_t size) {
        return VocabularySpec{
            .model = "gpt2",
            .pre = "lfm2",
            .size = size,
            .merges = size - 256 - 128,
            .fixed = {{0, "<|pad|>", kControl},
                      {1, "<|startoftext|>", kControl},
                      {2, "<|endoftext|>", kControl},
                      {3, "<|fim_pre|>", kControl},
                      {4, "<|fim_mid|>", kControl},
                      {5, "<|fim_suf|>", kControl},
                      {6, "<|im_start|>", kControl},
                      {7, "<|im_end|>", kControl},
                      {8, "<|tool_list_start|>", kControl},
                      {9, "<|tool_list_end|>", kControl},
                      {10, "<|tool_call_start|>", kControl},
                      {11, "<|tool_call_end|>", kControl},
                      {12, "<|tool_response_start|>", kControl},
                      {13, "<|tool_response_end|>", kControl},
                      {14, "<think>", kUser},
                      {15, "</think>", kUser}},
            .bos = 1,
            .eos = 7,
            .pad = 0,
            .add_bos = true,
            .chat_template = kLfmTemplate,
        };
    };
    static const VocabularySpec small_spec = make(65536), large_spec = make(128000);
    return large ? large_spec : small_spec;
}

const VocabularySpec& kolibri_vocabulary() {
    static const VocabularySpec spec = {
        .model = "gpt2",
        .pre = "kolibri1",
        .size = 128000,
        .merges = 127644,
        .fixed = {{127901, "<|endoftext|>", kControl},
                  {127904, "<|im_start|>", kControl},
                  {127906, "<|im_end|>", kControl},
                  {127910, "<think>", kUser},
                  {127911, "</think>", kUser},
                  {127912, "<tool_call>", kUser},
                  {127913, "</tool_call>", kUser},
                  {127914, "<tool_response>", kUser},
                  {127915, "</tool_response>", kUser}},
        .eos = 127906,
        .pad = 127901,
        .chat_template = kJsonCallTemplate,
    };
    return spec;
}

const VocabularySpec& flint_vocabulary() {
    static const VocabularySpec spec = {
        .model = "gpt2",
        .pre = "flint",
        .size = 150144,
        .merges = 149744,
        .fixed = {{150000, "<|endoftext|>", kControl},
                  {150001, "<|im_start|>", kControl},
                  {150002, "<|im_end|>", kControl},
                  {150003, "<think>", kUser},
                  {150004, "</think>", kUser},
                  {150005, "<tool_call>", kUser},
                  {150006, "</tool_call>", kUser},
                  {150007, "<arg_key>", kUser},
                  {150008, "</arg_key>", kUser},
                  {150009, "<arg_value>", kUser},
                  {150010, "</arg_value>", kUser}},
        .eos = 150002,
        .pad = 150002,
        .chat_template = kJsonCallTemplate,
    };
    return spec;
}

const VocabularySpec& deepseek_vocabulary() {
    static const VocabularySpec spec = {
        .model = "gpt2",
        .pre = "joyai-llm",
        .size = 129280,
        .merges = 127741,
        .fixed = {{0, "<｜begin▁of▁sentence｜>", kControl},
                  {1, "<｜end▁of▁sentence｜>", kControl},
                  {2, "<｜▁pad▁｜>", kControl},
                  {128803, "<｜User｜>", kControl},
                  {128804, "<｜Assistant｜>", kControl},
                  {128821, "<think>", kUser},
                  {128822, "</think>", kUser},
                  {128825, "｜DSML｜", kUser}},
        .bos = 0,
        .eos = 1,
        .pad = 2,
        .chat_template = kDeepseekTemplate,
    };
    return spec;
}

const VocabularySpec& glm_vocabulary() {
    static const VocabularySpec spec = {
        .model = "gpt2",
        .pre = "glm4",
        .size = 154880,
        .merges = 154564,
        .fixed = {{154820, "<|endoftext|>", kControl},
                  {154822, "[gMASK]", kControl},
                  {154824, "<sop>", kControl},
                  {154826, "<|system|>", kControl},
                  {154827, "<|user|>", kControl},
                  {154828, "<|assistant|>", kControl},
                  {154829, "<|observation|>", kControl},
                  {154830, "<|begin_of_image|>", kControl},
                  {154831, "<|end_of_image|>", kControl},
                  {154841, "<think>", kUser},
                  {154842, "</think>", kUser},
                  {154843, "<tool_call>", kUser},
                  {154844, "</tool_call>", kUser},
                  {154845, "<tool_response>", kUser},
                  {154846, "</tool_response>", kUser},
                  {154847, "<arg_key>", kUser},
                  {154848, "</arg_key>", kUser},
                  {154849, "<arg_value>", kUser},
                  {154850, "</arg_value>", kUser},
                  {154854, "<|image|>", kControl}},
        .bos = 154822,
        .eos = 154820,
        .eot = 154827,
        .eom = 154829,
        .pad = 154820,
        .unknown = 154820,
        .chat_template = kGlmTemplate,
    };
    return spec;
}

}  // namespace strata::synth
