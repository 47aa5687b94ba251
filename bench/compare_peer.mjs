// Speeds of strata-poly and of llama.cpp on the same file, in turn, and their ratios.
//     node bench/compare_peer.mjs MODEL.gguf --peer FOLDER [--engine build/bin/strata-poly] [--rounds 3]
//          [--threads 2] [--read 512] [--write 64] [--simd auto]
// FOLDER holds llama.cpp's Node package (node-llama-cpp) and a script bench.mjs beside it that takes MODEL --prompt N
// --gen N --threads N --reps N and prints a line of JSON a repetition, with prompt_tps and gen_tps.
//
// A round is ours, the peer's, each in a process of its own: a prompt of --read random tokens, then --write tokens after
// a prompt of 16. Both are given the same ids, answer greedily, without guesses, and are timed alike: reading ends with
// the first token, writing begins there. Each measures twice a round and the better one counts, as the first run of a
// process pays for pages that it has not touched. Prints every round and the medians; with
// `polystrata` beside the engine also the weights' bytes a token, as a rate that products_speed's "memory" can be
// compared with.
import {execFileSync, spawn} from "node:child_process";
import {dirname, join} from "node:path";
import {createInterface} from "node:readline";

const argument = (name, otherwise) => {
    const at = process.argv.indexOf("--" + name);
    return at < 0 ? otherwise : process.argv[at + 1];
};
const model = process.argv[2];
const peer = argument("peer");
if (!model || model.startsWith("--") || !peer) {
    console.error("usage: node compare_peer.mjs MODEL.gguf --peer FOLDER [--engine FILE] [--rounds N] [--threads N] [--read N] [--write N]");
    process.exit(2);
}
const engine = argument("engine", "build/bin/strata-poly");
const [rounds, threads, read, write] =
    [argument("rounds", 3), argument("threads", 2), argument("read", 512), argument("write", 64)].map(Number);
const shortPrompt = 16, repetitions = 2;

function facts() {
    const program = join(dirname(engine), "polystrata");
    try {
        return JSON.parse(execFileSync(program, ["inspect", "--json", "--tensors", model], {maxBuffer: 1 << 28}));
    } catch {
        return null;
    }
}

/// Bytes of weights that one token reads: the embedding's one row does not count, nor does the draft block.
function bytesOfToken({tensors, layers, draft_block, experts, experts_used}) {
    const trunk = layers - (draft_block ? 1 : 0);
    let bytes = 0;
    for (const tensor of tensors) {
        const layer = tensor.name.match(/^blk\.(\d+)\./);
        if (tensor.name === "token_embd.weight" || (layer && Number(layer[1]) >= trunk)) continue;
        bytes += /_exps\./.test(tensor.name) ? tensor.bytes * experts_used / experts : tensor.bytes;
    }
    return bytes;
}

/// The ids that the peer's bench.mjs makes for its repetition.
function ids(count, repetition, vocabulary) {
    let seed = 1 + repetition;
    return Array.from({length: count}, () => (seed = (seed * 1103515245 + 12345) % 2147483648) % (vocabulary - 16));
}

class Engine {
    static async start() {
        const it = new Engine();
        it.child = spawn(engine, ["--model", model, "--device", "cpu", "--threads", String(threads), "--simd", argument("simd", "auto"),
            "--max-context", String(read + write + 64), "--no-draft", "--no-repeats", "--quiet"], {stdio: ["pipe", "pipe", "inherit"]});
        it.lines = createInterface({input: it.child.stdout})[Symbol.asyncIterator]();
        while (!(await it.next()).startsWith("READY"));
        return it;
    }
    async next() {
        const {value, done} = await this.lines.next();
        if (done) throw new Error("the engine ended");
        if (value.startsWith("ERR")) throw new Error(value);
        return value;
    }
    async answer(prompt, count) {
        const start = performance.now();
        let first = 0;
        this.child.stdin.write(`GEN ${count} cache=0 draft=0 repeats=0 stop_ids= ${prompt.join(",")}\n`);
        for (;;) {
            const line = await this.next();
            if (line.startsWith("T ") && !first) first = performance.now();
            if (line.startsWith("DONE"))
                return {read: prompt.length / (first - start) * 1e3, write: (count - 1) / (performance.now() - first) * 1e3};
        }
    }
    async stop() {
        const ended = new Promise(resolve => this.child.on("exit", resolve));
        this.child.stdin.end("QUIT\n");
        await ended;
    }
}

const best = (runs, key) => Math.max(...runs.map(run => run[key]));
const median = values => values.sort((a, b) => a - b)[values.length >> 1];

async function ours(vocabulary) {
    const it = await Engine.start();
    const reading = [], writing = [];
    for (let r = 0; r < repetitions; r++) reading.push(await it.answer(ids(read, r, vocabulary), 1));
    for (let r = 0; r < repetitions; r++) writing.push(await it.answer(ids(shortPrompt, r, vocabulary), write + 1));
    await it.stop();
    return {read: best(reading, "read"), write: best(writing, "write")};
}

function theirs() {
    const run = (prompt, gen) => execFileSync(process.execPath,
        ["bench.mjs", model, "--prompt", prompt, "--gen", gen, "--threads", threads, "--reps", repetitions].map(String), {cwd: peer, stdio: ["ignore", "pipe", "ignore"]})
        .toString().split("\n").filter(line => line.startsWith("{")).map(line => JSON.parse(line));
    return {read: best(run(read, 1), "prompt_tps"), write: best(run(shortPrompt, write), "gen_tps")};
}

const known = facts();
const vocabulary = known?.vocabulary ?? 32000;
const bytes = known ? bytesOfToken(known) : 0;
const result = {read: [], write: [], oursRead: [], oursWrite: [], theirsRead: [], theirsWrite: []};
console.log(`${model}, ${threads} threads${bytes ? `, ${(bytes / 1e6).toFixed(1)} MB of weights a token` : ""}`);
console.log(`            reading ${read}: ours  llama.cpp   ratio    writing: ours  llama.cpp   ratio`);
const line = (name, a, b, readRatio, writeRatio, rate) =>
    console.log(`${name.padEnd(9)} ${a.read.toFixed(1).padStart(17)} ${b.read.toFixed(1).padStart(10)} ${readRatio.toFixed(2).padStart(7)} ` +
                `${a.write.toFixed(2).padStart(16)} ${b.write.toFixed(2).padStart(10)} ${writeRatio.toFixed(2).padStart(7)}` +
                (rate ? `   ${(bytes * a.write / 1e9).toFixed(2)} GB/s` : ""));
for (let round = 1; round <= rounds; round++) {
    const a = await ours(vocabulary), b = theirs();
    for (const key of ["read", "write"]) result[key].push(a[key] / b[key]);
    result.oursRead.push(a.read), result.oursWrite.push(a.write), result.theirsRead.push(b.read), result.theirsWrite.push(b.write);
    line(`round ${round}`, a, b, a.read / b.read, a.write / b.write, bytes);
}
line("median", {read: median(result.oursRead), write: median(result.oursWrite)}, {read: median(result.theirsRead), write: median(result.theirsWrite)},
     median(result.read), median(result.write), bytes);
