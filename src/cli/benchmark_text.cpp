// The text that benchmark prompts are cut from: pages of this project's documentation as they were in November 2026. It
// must never change, or results of different versions could not be compared; tests/cli/benchmark_test.cpp holds its
// hash.
#include "cli/benchmark.h"

namespace strata::cli {

const std::string_view kBenchmarkText = R"text(
# Architecture

PolyStrata lets a person run large mixture-of-experts language models, straight from their GGUF files, on the PC they have. Dense
weights and the busiest experts belong into the card's memory; the other experts are computed on the CPU from the mapped file
while the card works. A model that fits no card, or a PC without one, runs on the CPU alone, with the same answers.

This page is the shape: processes, rooms, the device interface, the contracts. What a room does inside stands in its headers.

## Processes

    polystrata                               strata-poly
      chat, inspect, models, ...      <->      one model: reads GGUF in place, computes
      text, templates, tokens                  lines of text on standard input and output

`polystrata` starts the engine as a child and talks to it in lines of token ids. The engine knows no text and no templates; the
program for people holds no weights. Changing the model ends the child, so its memory goes back with its process, not through
clean-up code; an engine that crashes is a failed request and a new start. Anything that speaks the lines can stand in for the
engine: the tests use a program that follows a script.

## Rooms

`src/` has one folder a room; a room is a library `strata_NAME`, its tests are `tests/NAME`.

| room | holds | may include |
| --- | --- | --- |
| `base` | errors as values, checked sizes | nothing |
| `quant` | block formats: decode, encode, the scalar reference products | base |
| `gguf` | the container: hardened reader in place, writer | base, quant |
| `device` | the device interface, a conversation's state, a device that only counts memory | the above |
| `cpu` | thread pool, kernels for each instruction set, the CPU device | device and below |
| `models` | one file per architecture, written against the device interface | device and below |
| `engine` | loading, reading prompts, windows of guesses, conversations, sampling | all above, protocol |
| `protocol` | the lines between the processes, both ends | base |
| `text` | tokenizers, Jinja, chat formats, JSON | base, gguf |
| `setup` | run configs, installed models, families, memory estimates | models, text and below |
| `cli` | the commands of `polystrata`, one file each | protocol, text, setup and below |

`tools/check_rooms.sh` (test `house.rooms`) fails on an include that breaks the table. The rooms from `base` to `protocol` use the
standard library and the system alone: they build with a compiler and CMake on a bare machine
(`-DPOLYSTRATA_SERVER=OFF -DPOLYSTRATA_TESTS=OFF`). `text`, `setup` and `cli` use libraries from Debian rather than code of their
own (`tools/packages.sh list build`).

Two rules keep it so: nothing in shared code asks which model it runs, and nothing in a model's file names a device.

## The device interface

A device is the engine's instruction set: a few dozen operations, each as large as one good launch (norm and quantisation of the
activations; several matrices on one input; a head's norm, rotation and cache write; attention; delta net; routing; all routed
experts of a call at once). A model's layer is written once against it and runs on every device. Operations take views of
memory, never own it and never allocate. `src/device/device.h` is the list.

`MeasuringDevice` computes nothing and counts: a model made on it tells the scratch of a call and the memory of a conversation
before anything is allocated. The engine sizes itself by it, and `polystrata inspect` answers from it.

## Contracts

- **Numerics.** A token's result does not depend on what is computed beside it, where its experts are computed, or how its prompt
  was cut into calls. [numerics.md](numerics.md) says how, to the bit, and where it does not hold.
- **State is an object.** What a conversation remembers is a list of described parts (`src/device/state.h`); checkpoints, parking,
  saving and hashing work on any model's state. There is no global sequence.
- **Files are not trusted.** Sizes, counts and offsets are checked before use; a damaged file is refused in one sentence.
- **Errors are values.** `Result<T>` carries a kind and a sentence that a user can act on; programs turn the kind into their exit
  code. No exception crosses a room's border.
- **Wide instructions stay in their files.** Everything runs on any x86-64 machine; files named `*_avx2.cpp` and `*_avx512.cpp` are
  compiled for more and chosen at run time.

## Where to start reading

`src/models/qwen35moe.cpp` for what a model computes, `src/engine/engine.h` for how an answer comes to be,
`src/cli/session.cpp` for the way from a message to the engine and back.

# Developing

    ./test.sh                        packages, build, every test that this machine can run
    ./test.sh --sanitize address     the same under AddressSanitizer and UndefinedBehaviorSanitizer (build-asan/)
    ./test.sh --sanitize thread      under ThreadSanitizer (build-tsan/)

`test.sh` also builds the engine alone into `build-engine/`, which needs no third-party package. Continuous integration runs
`.ci/run`, which is `./test.sh`. ccache and mold are used where they are installed.

While working, build and run one room:

    cmake --preset release && ninja -C build test_gguf && build/bin/test_gguf

## CMake

| option | default | |
| --- | --- | --- |
| `POLYSTRATA_SERVER` | ON | the programs for people; OFF builds the engine alone |
| `POLYSTRATA_TESTS` | ON | the tests |
| `POLYSTRATA_CUDA` | ON where nvcc is found | the CUDA device |
| `POLYSTRATA_BENCH` | OFF | micro benchmarks in `bench/` |
| `POLYSTRATA_SANITIZE` | empty | `address` or `thread` |

## Rules

- C++20, 4 spaces, 120 columns, `.clang-format`. A declaration says shapes, units, errors and thread safety; a comment says why.
- Errors are values (`src/base/result.h`): a sentence with file, place and what to do. Data from outside is never asserted on.
- A room includes only rooms below it ([architecture.md](architecture.md)); the engine's rooms use no third-party library.
- No contraction of a * b + c that is not written as one, no fast-math ([numerics.md](numerics.md)).
- A test's name states the rule it guards, and a bug gets a test that failed first. No sleeping, no timing in asserts; random tests
  print their seed. Tests that need the programs run them as children (`tests/support/process.h`).
- Documentation is part of a change. Every number in it comes with its command, machine and date.

## Packages

`tools/packages.sh build` and `tools/packages.sh test` install what is missing; `tools/packages.sh list test` prints the list. A new
library belongs there, into the room's `CMakeLists.txt`, and only into rooms above the engine.

# Getting started

On a fresh Debian 12 (or a recent Ubuntu), as root or with `sudo`:

    ./setup.sh --family tiny --prompt "Hello"

installs what is missing from the distribution's packages, builds the programs into `build/bin`, and answers once with the small
test model that comes with the project. That model has random weights: it shows that everything works, and its words are noise.
Progress goes to standard error; the answer alone goes to standard output.

## A real model

Get a GGUF file, for example of Qwen3.6-35B-A3B (the sizes that `./setup.sh --check` lists), and ask what this PC makes of it:

    build/bin/polystrata inspect /path/file.gguf
    build/bin/polystrata chat --model /path/file.gguf

Nothing is converted or copied: the file is mapped and read in place. Give the model a name to use everywhere:

    ./setup.sh --model /path/file.gguf --no-start
    build/bin/polystrata models
    build/bin/polystrata chat --model qwen3.6

A part of a name is enough where only one model has it. A GGUF file in `models/` is found without setup, too. Setup writes a run
config, `strata-NAME.json` in the project's folder; other flags for the engine can be added to its `"args"` by hand, and setup
run again keeps keys that are not its own.

## Chatting

Type and press Enter. A paste may have several lines; a line that ends in `\` goes on in the next, and Alt-Enter makes a new line.
Reasoning is shown dim, the answer plain; a line after it tells speeds. Ctrl-C stops an answer and leaves the chat open; a second
one within a second ends the chat, as does Ctrl-D. `/help` lists the commands: changing the model, how much it thinks, the system
message, saving.

One question from a script:

    build/bin/polystrata chat --model qwen3.6 --prompt "What is a mixture of experts?"

prints the answer alone.

## When something is refused

Every refusal is one line that says what, where and what to do, and an exit code: 2 wrong usage, 3 a file, 4 the device or its
memory. `polystrata inspect FILE` tells why a file cannot run.

# The Jinja engine

A model file carries its chat template as a Jinja template (`tokenizer.chat_template`). `src/text/jinja*` reads it once into
a tree (`Template::parse`) and renders it for every request (`Template::render`). What it gives is what Python's jinja2 3.1
gives when set up as chat templates expect:

- `trim_blocks` and `lstrip_blocks` on, one newline at the source's end dropped, no autoescape, `break` and `continue`, and a
  `{% generation %}` block that prints its inside.
- Undefined prints as nothing; reading an attribute of it is an error.
- Values print as Python prints them (`True`, `None`, `1.0`, `['a', 1]`); `tojson` is a plain JSON dump in the order of the
  keys, without HTML escapes. Integers keep all their digits, floats print in their shortest form.
- Lists and dicts cannot be changed in place (`append`, `update` and the like are refused); only `namespace` objects can.

Differences from the original, all of them where chat templates do not go: filters and `items()` give lists, where the
original gives generators and views; `include`, `import`, `extends`, `block`, `do`, `trans`, `autoescape` and arguments with
`*` are refused when parsing; integers beyond 64 bits can be compared and printed but not computed with; tuples cannot be
keys of a dict; `groupby` gives plain pairs.

## Limits

A template comes from a file that somebody downloaded, so it must not be able to hang or crash the program. It sees its
variables and nothing else, and `TemplateLimits` bounds it:

| limit | default |
| --- | --- |
| steps: statements, expressions, items, each 64 bytes of text looked at | 10,000,000 |
| the result, and any one text on the way | 64 MiB |
| memory of all values made in one rendering | 256 MiB |
| macros calling macros | 200 |
| statements and expressions open at once | 2,000 |
| nesting in the source (expressions, blocks) and in printed values | 200 |

Every operation whose cost depends on its input takes steps for it, and text searches are linear whatever the texts are.
Values live in an arena that goes at once when the rendering ends, so nothing is freed recursively.

## Errors

An error is an `Error` with the line: `line 3: cannot add an int and a str`. Its code says whose fault it is:
`template_syntax` (does not parse), `template_raised` (the template called `raise_exception`; the message is the
template's own sentence, for the client), `template_failed` (an operation without a result), `template_limit`.

## Where things are

`jinja_lexer` does white space control and tokens, `jinja_parser` the tree (`jinja_ast.h`), `jinja_render` walks it,
`jinja_value` holds values and their printing, `jinja_text` Python's view of text, and `jinja_filters`,
`jinja_methods`, `jinja_functions` (tests and globals), `jinja_format` what templates can call. A new filter is a function
and a line in the table at the end of `jinja_filters.cpp`.

`tests/data/chat/jinja_cases.json` and `jinja_more_cases.json` hold templates with what jinja2 3.1.6 made of them.

# GGUF: reading and writing the container

Room `src/gguf`. A model file is untrusted input, is read in place through a read-only mapping, and is never copied as a whole.

| file | idea |
| --- | --- |
| `parse.h` | header, keys and tensor infos of one file from a range of bytes; every check before use; refusal codes |
| `metadata.h` | the keys behind typed getters |
| `mapping.h` | one file, mapped; its descriptor, identity and changes; the bus error reporter |
| `file.h` | a file or a whole set as one list of tensors; what the rest of the program opens |
| `writer.h` | keys and tensor specs to a layout, a layout to files |

## Reading

`File::open(path)` takes a single file or any part of a set. The other parts are looked for beside the path *as given* and under its
name, so that a folder of links works. The first part may hold keys only. Keys come from the first part.

- Getters: `find_X` returns nothing for an absent key, `get_X` refuses it (`missing-key`). A value of the wrong type (`key-type`), out of
  range (`key-range`) or with the wrong number of entries (`key-length`) is an error in both: a default in place of a wrong value gives
  a wrong model. Any integer type is an integer; floats may be stored as integers up to 2^24; per-layer flags may be stored as bools or
  as integers 0 and 1.
- String values are bytes: not checked for UTF-8, may hold zeros. Names of keys and tensors are checked.
- `TensorInfo::data` is aligned to the file's alignment (32 normally), rows and experts are not: they lie back to back, so kernels use
  unaligned loads. Never read past `data + bytes`.
- Errors carry a `code` (`truncated`, `data-past-end`, `split-missing`, ...): one for each check, listed by `tests/data/gguf/index.json`.

Limits (constants in `parse.h`): 2^20 tensors, 65,536 keys, keys of 65,535 bytes, tensor names of 63, strings of 64 MiB, arrays of
2^28 entries, 4 dimensions, alignments from 8 to 65,536. Counts are also bounded by the bytes that are left, so a file costs memory
in proportion to its size. Duplicate names are found by sorting, not by hashing: no choice of names makes it slow.

Stricter than other readers on purpose: tensors must be packed in order without holes (true of every file in circulation, and it rules
out overlap); names with control characters or broken UTF-8, bools other than 0 and 1, and products of dimensions that wrap are refused.

## While a file is in use

- `File::advise` gives hints, `touch(range)` reads a byte of every page so that later reads cost no fault: call it from background
  threads with slices of `TensorInfo::data`.
- `File::read` reads a tensor's bytes without the mapping (uploads through pinned memory).
- `File::identity()` keys caches; `check_unchanged()` tells whether a file was rewritten or cut.
- A read from a mapping whose file was cut short raises SIGBUS. `report_bus_errors()`, called by a program's main, turns that into one
  line that names the file and exit code 3.

## Writing

`lay_out(contents, path)` computes every header and every offset; `Output::create` refuses what would fail (an existing file, too
little disk space, anything that our own reader refuses) before data is written; `Output::write` puts bytes of a tensor anywhere, from
any thread, so nothing needs to be held in memory; `finish` flushes and renames. Files have the name `NAME.partial` until then and are
removed with an unfinished `Output`. The bytes depend on the contents alone. `Contents::max_file_bytes` makes a set.

## Tests

`test_gguf` holds the fixture's 78 files to their verdicts, parses every prefix and damaged copies of each (meaningful under
`-DPOLYSTRATA_SANITIZE=address`), and reads back what the writer makes. `tests/fuzz/gguf_fuzz.cpp` is the fuzzer (how to build it:
`tests/fuzz/CMakeLists.txt`).

# Tensor types and making their blocks

`src/quant` knows every tensor type of the GGUF format. This page says where what is; the arithmetic is in
[numerics.md](numerics.md).

| file | what |
| --- | --- |
| `types.h` | codes, names, block sizes |
| `canonical.h` | one decoder a type: file block to canonical blocks of 32 weights (D, E, s, mu, Q). All else is built on it |
| `grids.h`, `grids.cpp` | vectors of the IQ types as 16-bit codes; written by `tools/make_grids.py` |
| `dequantise.h` | a row of any type as floats, exact |
| `activations.h`, `dot.h`, `math.h` | A8, the reference products, the functions of experts |
| `quantise.h` | floats to rows of any type |
| `presets.h` | which type a tensor gets under a named preset ("Q4_K_M") |

A new type needs: a line in `types.cpp`, a decoder in `canonical.cpp` (dequantising, the reference product and repacking
then work), a quantiser, and fixtures.

## How blocks are made

Every quantiser minimises a weighted squared error. A value v counts q * sqrt(S + v^2), where S is the mean square of its
super-block (of the row for Q4_0 to Q5_1) once or twice, and q is the importance of its column, 1 without an importance
matrix; so there is one path for both. Scales are found by trying some 20 to 40 candidates and solving each for the best
scale in closed form (`quantise_search.h`: symmetric, affine, positive, by table). Super-blocks then quantise the scales of
their groups by the same searches, and K types choose their codes again for the scales as stored. Grid types search the
vector nearest in the weighted metric exactly (`quantise_grid.h`: the best level of each element by itself if that vector
exists, else a scan with the distances of half vectors tabulated). IQ1 types sort a group and try every split into three
runs. All arithmetic is float32 in a fixed order: the same input gives the same bytes on every machine.

Error on normal weights relative to their standard deviation, without importance (test
`Quantise.ErrorOnNormalWeightsIsWhatTheTypeCanDo`, within 4%): Q8_0 0.005, Q6_K 0.017, Q5_1 0.034, Q5_K 0.035, Q5_0 0.040,
Q4_1 0.070, Q4_K 0.071, IQ4_NL 0.075, IQ4_XS 0.076, Q4_0 0.081, NVFP4 0.095, MXFP4 0.115, IQ3_S 0.137, Q3_K 0.144, IQ3_XXS
0.182, IQ2_S 0.248, Q2_K 0.267, IQ2_XS 0.300, IQ2_XXS 0.343, IQ1_M 0.451, IQ1_S 0.485, Q1_0 0.600, Q2_0 0.720, TQ1_0 and
TQ2_0 0.809 (the last four suit weights trained for them).

Presets follow the rules by which most published files were made; the test `Presets.GiveTheRecordedTypes` compares them
with 39,000 recorded choices. Files mixed by hand (type lists per tensor) carry the code of the preset they started from,
so `general.file_type` says little about them: count the tensors' types.

# Numerics

What every kernel of every device must compute, to the bit. The scalar reference is in `src/quant` (`canonical.h`,
`activations.h`, `dot.h`, `math.h`); a fast kernel is right when `memcmp` with it finds nothing.

RN(v) is v rounded once to float32 (to nearest, ties to even), fma(a, b, c) = RN(a*b + c), rne(v) the nearest integer
(ties to even). All values are float32 unless another type is named. Blocks and segments are counted from a row's start.

## The contract

- **N1, company.** A token's result does not depend on what is computed beside it: alone, in a window of guesses, beside
  other conversations, its bits are the same. So guesses never change an answer.
- **N2, place.** An expert's output has the same bits wherever it is computed: scalar code, AVX2, AVX-512, CUDA. So an
  answer does not depend on the card's size, the cache's contents, the number of threads or the timing.
- **N3, cuts.** A prompt gives the same state however it is cut into calls, and a continued conversation equals a re-read
  one.

| part | N1 | N2 | N3 | by |
| --- | --- | --- | --- | --- |
| products with quantised weights | yes | yes | yes | the canonical product |
| experts, whole | yes | yes | yes | "An expert" |
| products with float weights | yes | one device | yes | "Float weights" |
| norms, rotary, convolutions, router, attention, delta net | yes | one device | yes | "On one device" |

Not covered: weights or activations that are infinite or NaN. They stay visible (a NaN activation makes every product of
its row NaN), but the bits of a NaN may differ between machines.

What the build does for it: host code is compiled with `-ffp-contract=off`, device code with `--fmad=false`; no fast-math,
nothing that flushes subnormals; every fused multiply-add is written as one; divisions are IEEE divisions.

## Activations: A8

Per block of 32 values x of a row:

    a = max |x|
    a < 1e-30:       d = 0, every A = 0          (below 4e-37 the factor 127 / a would overflow)
    a not finite:    d = NaN, every A = 0
    else:            d = RN(a / 127),  A = rne(RN(x * RN(127 / a)))

so |A| <= 127. Kept: 32 int8 A, d as float32, and the sums of A over both halves of the block as int16. Magnitudes are
compared as integers (the bits without the sign), so the order does not matter and NaN is the largest.

Why 32 wide with a float32 scale: one form serves CPU and GPU, one tensor-core instruction of depth 32 covers exactly one
block, and 256 values to a scale make the error of a product larger (one outlier coarsens more neighbours). A half scale
would overflow for large activations and lose bits for small ones.

Rows of a Q8_0 KV cache use the same rule with d stored as a half: values come from the unrounded d.

## The canonical product

Every quantised type decodes, per block of 32 inputs, to (`canonical.h`)

    w[i] = D * s[g] * Q[i]  -  E * mu[g]         g = i / 16; small integers s, Q, mu; D, E float32

Types with longer blocks repeat D and E. y = one row of weights times one row of activations:

    I = sum over i of  s[g] * Q[i] * A[i]                          exact integer
    M = sum over g of  mu[g] * (sum of A over half block g)        exact integer
    t = RN(D * I)
    t = fma(-E, M, t)                                              where the type has a minimum
    segment of 8 blocks:  c = +0;  c = fma(d_b, t_b, c) for its blocks in ascending order
    row:                  y = c_0;  y = RN(y + c_j) for further segments in ascending order

The last segment may be shorter. NVFP4 has two D a block: t = fma(D1, I1, RN(D0 * I0)). A companion scale of the file
(`X.scale`) multiplies y once at the end: y = RN(scale * y).

Nothing else is free: an integer inside a block, two or three roundings a block, a chain of at most 8 fma, a chain of
segments.

### Why it is exact where it must be

- |I| <= 16,646,144 < 2^24 for every type (the extreme is Q6_K: 128 * 32 * 127 * 32), and |M| <= 63 * 4,064. So both fit
  any integer form and convert to float32 without rounding, however the sum is split over lanes or instructions.
- D * s is exact in float32: a half (11 bits) or less times at most 8 bits. So with one group a block RN(D*I) equals
  RN((D*s) * P), P the sum of Q*A: a kernel may fold s into the scale.
- The same holds for E * mu: fma(-E, M, t) equals fma(-(E*mu), sum of A, t) with one group a block.
- Signs of zero hardly matter: c starts at +0, and +0 plus a zero of either sign is +0. Always start with the fma on +0;
  but y starts as c_0 itself, not as 0 + c_0: where d * t underflows, c_0 may round to -0, and that is its value.

For the same reason a dequantised weight is the exact real value rounded at most once, whatever the order of evaluation.

### How each machine reaches it

- *Scalar*: `dot_reference`, the definition word for word.
- *AVX2, AVX-512*: lanes are rows. For 8 or 16 rows of a segment the integer sums of a block are reduced together to one
  vector with lane = row, then converted, multiplied by D (or D*s), and chained with fma. No float crosses lanes. For
  prompts a block of several rows is decoded once and used for all tokens; the chain is the same.
- *CUDA, one to a few tokens*: a lane owns a row in a segment, forms I by 4-way byte dots and keeps c in a register; the
  segments of a row are added in order at the end.
- *CUDA, tensor cores*: an int8 instruction of depth 32 gives I (or the P of a group) as an int32 exactly. The
  accumulator may start from the bits of 12,582,912.0 (1.5 * 2^23), so that the result read as a float is 12,582,912 + P,
  and t = fma(f, ws, -12,582,912 * ws) with ws = D*s: exact product, one rounding, the same t. The tensor core never adds
  two blocks.

## Float weights

F32, F16 and BF16 matrices (and any type where a caller asks for unrounded activations) multiply float32 activations;
weights are converted exactly (types with a minimum: rounded once):

    block of 32:  t = +0;  t = fma(w[i], x[i], t) in ascending order
    segment:      c = +0;  c = RN(c + t_b) in ascending order
    row:          as above

The last block may be shorter. A device that alone computes such a product may use its own order as long as a row's sum
does not depend on the other rows of the call.

## Functions

`math.h` defines exp and its relatives as one expression tree of float32 operations, read by host and CUDA compilers and
instantiated for SIMD lanes. There is no table, no approximation instruction, no library call.

    exp_fixed(x):  x = clamp(x, -87, 87)
                   v = fma(x, log2e, 1.5 * 2^23);  n = v - 1.5 * 2^23        n = rne(x / ln 2)
                   r = fma(n, -ln2_high, x);  r = fma(n, -ln2_low, r)        |r| <= 0.347
                   p = 1 + r + r^2 (c2 + c3 r + c4 r^2 + c5 r^3 + c6 r^4)    Horner, fma at each step
                   bits(p) + (bits(v) << 23)                                 the exponent grows by n
    sigmoid(x)  =  1 / (1 + exp(-x))
    silu(x)     =  x / (1 + exp(-x))
    gelu(x)     =  x / (1 + exp(x * fma(x*x, -2 k 0.044715, -2 k)))          k = sqrt(2/pi); the tanh form of GELU
    tanh(x)     =  |x| < 0.55: x + x z (t0 + t1 z + .. + t4 z^4), z = x*x;  else sign(x) (1 - 2 / (exp(2|x|) + 1))
    softplus(x) =  max(x, 0) + log1p(y), y = exp(-|x|);  log1p(y) = 2s + s z (l0 + .. + l4 z^4), s = y / (2 + y), z = s*s

(1.5 * 2^23 = 12,582,912; the coefficients are in the header.) Largest error against double precision, which the tests
`Math.*` of `build/bin/test_quant` guard:

| function | range | ulp |
| --- | --- | ---: |
| exp_fixed | -87 .. 87 | 1 |
| sigmoid | -86 .. 86 | 2.5 |
| silu | -86 .. 86 | 2.5 |
| tanh | all | 1.6 |
| softplus | -86 .. 86 | 2.8 |
| gelu | above -1 | 2.6 |
| gelu | below -1 | absolute error below 5e-8 (12 ulp at -3; more ulp as the value falls to zero) |

Outside of the ranges the clamp shows: exp never gives less than 1.6e-38 or more than 6.1e37. A score that must not count
(a masked token) is left out of the sum, not given to exp as -infinity. NaN is not passed on by exp; silu and gelu pass it
on through their numerator.

## An expert

For one token's A8 row x:

    g = W_gate x,  u = W_up x                    canonical products
    h = RN(silu(g) * u)                          or gelu(g)
    y = W_down A8(h)                             canonical product

The mixture's result of a token, element by element, ranks in the router's order (largest first, ties to the lower index):

    s = +0;  s = fma(weight_r, y_r, s) for r = 0 .. k-1
    s = fma(weight_shared, y_shared, s)          where there is a shared expert; its weight is 1 where the model gives none
    residual = RN(residual + s)

By rank, not by place: an expert's y reaches the sum as its own vector wherever it was computed.

## On one device

Norms, rotary, convolutions, routing, attention and the delta net of a conversation run on one device for its whole life.
They must give a row the same bits in any company (N1) and for any cut (N3), and the same bits in every run: fixed
reduction trees over a row, borders of tiles and chunks at absolute positions of the context, never at the call's.
They need not agree between devices.

# `qwen35moe` and `clover_moe`

Qwen3.5/3.6 mixtures of experts (Qwen3.6-35B-A3B and fine-tunes) and Clover as a causal model. Source:
`src/models/qwen35moe.cpp`, in the order of this page. Notation: `W x` is a row product, `rms(x; w)` the RMS norm, σ the sigmoid.

## Layers

Layer i mixes tokens with a **gated delta net** or, where `attention.recurrent_layers[i]` is false (absent: where (i+1) is a multiple of
`full_attention_interval`), with **gated attention**. Every layer then runs its experts:

    x = x + mixer(rms(x; attn_norm))
    x = x + experts(rms(x; post_attention_norm))
    H = rms(x; output_norm)        logits = output H

## Gated attention

Rows of `attn_q` hold, head by head, the query and then its gate. Queries and keys get a per-head RMS norm, then rotary; keys (after both)
and values go into the caches; scores are scaled by 1/sqrt(head width); each head's result is multiplied by σ(gate) before
`attn_output`. Rotary turns the first `rope.dimension_count` values, pair i = (i, i + half). A row has three positions (t, y, x); pair i
follows, with j = i mod (sum of sections s): y where j mod 3 = 1 and j < 3 s[1], x where j mod 3 = 2 and j < 3 s[2], t where j mod 3 = 0 and
j < 3 s[0]; a pair of no section does not turn. `rope.dimension_sections` may have three or four entries. Text has three equal positions; a
picture's row r of nx columns at position P has (P, P + r / nx, P + r mod nx), and text goes on at P + max(nx, ny).

## Gated delta net

    u = attn_qkv a          z = attn_gate a          alpha, beta from unrounded rows
    c = silu(conv over the last K rows of u)         q, k, v = parts of c
    q^ = q / sqrt(sum q^2 + eps) / sqrt(d)           k^ = k / sqrt(sum k^2 + eps)
    g = a softplus(alpha + dt)                       b = sigmoid(beta)
    S = e^g S;  S += b (v - S k^) k^T;  o = S q^     value head h reads key head h mod (key heads)
    y = rms(o; ssm_norm) silu(z)                     out = ssm_out y

The recurrence is computed with both products of the old S (docs/numerics.md), and prompts run the same recurrence with rows of S
held in registers over all rows of a call. So one token and a prompt of any cut give the same bits, which a chunked form with its
own order of sums does not. A window of guesses leaves S and the conv history as they are and logs its rows; the next call replays
the kept ones first.

## Experts

The `expert_used_count` largest of softmax(router m), weights divided by max(their sum, 2^-14); ties go to the lower index; router and shared gate
take unrounded rows. The sum is in rank order, then σ(shared gate) times the shared expert. A tensor's companion `.scale` (NVFP4 files)
multiplies its products.

## Draft block

One attention layer with experts, tensors `nextn.*`, at index L of the file. Row p takes token p and the hidden row H of token p - 1 (row 0
takes zeros): y = eh_proj [rms(embed; enorm) ; rms(H; hnorm)], a layer as above, H' = rms(y; shared_head_norm), logits for token p + 1.
In a chain H' stands in for H.

## clover_moe

The same with `ssm_a` holding A_log (the decay is -exp of it) and one position for all pairs where the sections are absent. Its
block-filling tensors are ignored.

)text";

}  // namespace strata::cli
