// Whether strata-poly and llama.cpp write the same tokens on the same file.
//     node bench/agree_peer.mjs MODEL.gguf --prompts FILE --peer FOLDER [--engine build/bin/strata-poly] [--count 50] [--write 64] [--tie 0.05]
// FILE is what `polystrata eval` takes; the first prompts of every skill are used in turn. FOLDER holds llama.cpp's Node package
// (node-llama-cpp). The peer writes greedily; ours follows its tokens, so that a difference early on does not hide what comes
// after. A step differs where the likeliest tokens do; it is a near tie where the peer's own two likeliest are within --tie.
// Prints each difference, and counts; exit code 1 where one is no near tie.
import {execFileSync} from "node:child_process";
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {dirname, join, resolve} from "node:path";
import {pathToFileURL} from "node:url";

const argument = (name, otherwise) => {
    const at = process.argv.indexOf("--" + name);
    return at < 0 ? otherwise : process.argv[at + 1];
};
const model = process.argv[2], file = argument("prompts"), peer = argument("peer");
if (!model || model.startsWith("--") || !file || !peer) {
    console.error("usage: node agree_peer.mjs MODEL.gguf --prompts FILE --peer FOLDER [--engine FILE] [--count N] [--write N] [--tie P]");
    process.exit(2);
}
const engine = argument("engine", "build/bin/strata-poly"), program = join(dirname(engine), "polystrata");
const [count, write, tie] = [argument("count", 50), argument("write", 64), argument("tie", 0.05)].map(Number);
const folder = mkdtempSync(join(tmpdir(), "agree-"));
process.on("exit", () => rmSync(folder, {recursive: true}));

/// The first prompt of every skill, then the second of every skill, ...
function choosePrompts() {
    const bySkill = new Map();
    for (const line of readFileSync(file, "utf8").split("\n").filter(Boolean)) {
        const prompt = JSON.parse(line);
        bySkill.set(prompt.skill, [...(bySkill.get(prompt.skill) ?? []), prompt]);
    }
    const most = Math.max(...[...bySkill.values()].map(prompts => prompts.length));
    const all = Array.from({length: most}, (_, i) => [...bySkill.values()].flatMap(prompts => prompts[i] ?? [])).flat();
    return all.slice(0, count);
}

function idsOf({messages, tools, think}) {
    const request = join(folder, "messages");
    writeFileSync(request, JSON.stringify({messages, ...(tools ? {tools} : {})}));
    const words = ["render", "--model", model, "--messages", request, "--ids", ...(think ? ["--think", think] : [])];
    return execFileSync(program, words, {encoding: "utf8"}).match(/\d+/g).map(Number);
}

const {getLlama, LlamaLogLevel} = await import(pathToFileURL(resolve(peer, "node_modules/node-llama-cpp/dist/index.js")));
const llama = await getLlama({gpu: false, build: "never", maxThreads: 1, logLevel: LlamaLogLevel.error});
const loaded = await llama.loadModel({modelPath: model, gpuLayers: 0});

/// The peer's greedy steps up to an end of generation: [{token, top: [[id, probability], ...]}]
async function peerSteps(ids) {
    const context = await loaded.createContext({contextSize: ids.length + write + 16, flashAttention: false});
    const sequence = context.getSequence();
    const steps = [];
    for (let input = ids; steps.length < write && !(steps.length && loaded.isEogToken(steps.at(-1).token));) {
        const tokens = input.map((id, i) => i < input.length - 1 ? id
            : [id, {generateNext: {probabilities: true, token: true, options: {temperature: 0}}}]);
        const {next} = (await sequence.controlledEvaluate(tokens)).at(-1);
        const top = [...next.probabilities.entries()].slice(0, 8);
        steps.push({token: top[0][0], top});
        input = [top[0][0]];
    }
    await context.dispose();
    return steps;
}

function ourTops(ids, steps) {
    const words = ["--model", model, "--tokens", ids.join(","), "--max-new", String(steps.length), "--follow",
        steps.map(s => s.token).join(","), "--top", "8", "--json"];
    const lines = execFileSync(engine, words, {encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"]});
    return lines.trim().split("\n").map(line => JSON.parse(line)).filter(line => line.event === "token").map(line => line.top);
}

let steps = 0, ties = 0, differences = 0, worst = 0, same = 0;
for (const prompt of choosePrompts()) {
    const ids = idsOf(prompt);
    const theirs = await peerSteps(ids), ours = ourTops(ids, theirs);
    if (ours.length !== theirs.length) throw new Error(`${prompt.id}: ${ours.length} steps of ${theirs.length}`);
    let equal = true;
    theirs.forEach(({top}, i) => {
        ++steps;
        const mine = new Map(ours[i]);
        for (const [id, p] of top) if (mine.has(id)) worst = Math.max(worst, Math.abs(p - mine.get(id)));
        if (ours[i][0][0] === top[0][0]) return;
        equal = false;
        const near = top[0][1] - top[1][1] <= tie;
        near ? ++ties : ++differences;
        console.log(`${prompt.id}, step ${i}: ${near ? "a near tie" : "DIFFERS"}; theirs ${JSON.stringify(top.slice(0, 2))}, ours ${JSON.stringify(ours[i].slice(0, 2))}`);
    });
    same += equal;
}
console.log(`${same} prompts the same from end to end; of ${steps} steps ${ties} near ties and ${differences} other differences; largest difference of probability ${worst.toFixed(4)}`);
process.exit(differences ? 1 : 0);
