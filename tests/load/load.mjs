// Load of the server: many clients stream at once, and every answer must be the one that the request gets alone; the engine may be
// killed meanwhile, then only the requests that run may fail, with a clear error.
//
//   node tests/load/load.mjs --url http://127.0.0.1:8080 [--clients 64] [--seconds 300] [--tokens 24] [--idle 2000]
//                            [--kill-every 20 --engine-name strata-poly --server PID] [--pid PID]
//
// --pid: the server's process, to watch its memory. Prints one line of JSON; exit 1 when an answer was lost or mixed.
import {readdirSync, readFileSync} from "node:fs";
import net from "node:net";
import http from "node:http";

const flags = Object.fromEntries(process.argv.slice(2).join(" ").split("--").filter(Boolean).map(part => part.trim().split(" ")));
const url = flags.url ?? "http://127.0.0.1:8080", clients = Number(flags.clients ?? 64), seconds = Number(flags.seconds ?? 300);
const tokens = Number(flags.tokens ?? 24), idle = Number(flags.idle ?? 0), killEvery = Number(flags["kill-every"] ?? 0);
const pid = Number(flags.pid ?? 0);
const agent = new http.Agent({keepAlive: true, maxSockets: clients});

function ask(prompt) {
  const body = JSON.stringify({messages: [{role: "user", content: prompt}], temperature: 0, max_tokens: tokens, stream: true});
  const began = performance.now();
  return new Promise(resolve => {
    const request = http.request(url + "/v1/chat/completions", {method: "POST", agent, headers: {"Content-Type": "application/json", "Content-Length": Buffer.byteLength(body)}}, answer => {
      let text = "", first = 0, error = null, whole = "", done = false;
      answer.setEncoding("utf8");
      answer.on("data", piece => { if (!first) first = performance.now() - began; whole += piece; });
      answer.on("end", () => {
        if (answer.statusCode !== 200) return resolve({error: "status " + answer.statusCode + " " + whole.slice(0, 200), status: answer.statusCode});
        for (const line of whole.split("\n")) {
          if (!line.startsWith("data: ")) continue;
          if (line === "data: [DONE]") { done = true; continue; }
          const event = JSON.parse(line.slice(6));
          if (event.error) { error = event.error.code; continue; }
          for (const choice of event.choices) text += (choice.delta.reasoning_content ?? "") + (choice.delta.content ?? "");
        }
        resolve({text, first, error: error ?? (done ? null : "no end")});
      });
      answer.on("error", problem => resolve({error: "cut: " + problem.message}));
    });
    request.on("error", problem => resolve({error: "connection: " + problem.message}));
    request.end(body);
  });
}

const resident = () => {
  if (!pid) return 0;
  const pages = Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]);
  return pages * 4096 / 2 ** 20;
};
/// The server's engine: a child of its process.
const engineOf = server => readdirSync("/proc").filter(name => /^\d+$/.test(name)).map(Number).find(one => {
  try { return Number(readFileSync(`/proc/${one}/stat`, "utf8").split(") ")[1].split(" ")[1]) === server; } catch { return false; }
});

const prompts = Array.from({length: 16}, (_, i) => `Question ${i}: ${"tell me more about it ".repeat(i % 5)}`);
const alone = [];
for (const prompt of prompts) {
  const answer = await ask(prompt);
  if (answer.error) { console.error("alone: " + answer.error); process.exit(1); }
  alone.push(answer.text);
}

const sleepers = [];
for (let i = 0; i < idle; ++i)
  sleepers.push(await new Promise((resolve, reject) => { const socket = net.connect(new URL(url).port, "127.0.0.1", () => resolve(socket)); socket.on("error", reject); }));
let dropped = 0;
for (const socket of sleepers) socket.on("close", () => ++dropped);

const result = {clients, seconds, answers: 0, wrong: 0, engine_failed: 0, lost: 0, kills: 0, idle, idle_dropped: 0, rss_mib_begin: 0, rss_mib_end: 0, lost_why: []};
const end = Date.now() + seconds * 1000;
const killer = killEvery && setInterval(() => {
  const engine = engineOf(pid);
  if (engine) { process.kill(engine, "SIGKILL"); ++result.kills; }
}, killEvery * 1000);
setTimeout(() => { result.rss_mib_begin = resident(); }, seconds * 200);

await Promise.all(Array.from({length: clients}, async (_, client) => {
  for (let i = client; Date.now() < end; ++i) {
    const which = i % prompts.length, answer = await ask(prompts[which]);
    if (answer.error === "engine_failed" && killEvery) ++result.engine_failed;
    else if (answer.error) { ++result.lost; if (result.lost_why.length < 5) result.lost_why.push(answer.error); }
    else if (answer.text !== alone[which]) ++result.wrong;
    else ++result.answers;
  }
}));
clearInterval(killer);
result.rss_mib_end = resident();
result.idle_dropped = dropped;
console.log(JSON.stringify(result));
process.exit(result.wrong || result.lost || dropped ? 1 : 0);
