// Load of the server: many clients stream at once, and every answer must be the one that the request gets alone. The engine may be
// killed meanwhile: then only the requests that it works on may fail, with a clear error, and the next must succeed.
//
//   node tests/load/load.mjs POLYSTRATA MODEL.gguf [--clients 64] [--seconds 300] [--tokens 24] [--idle 2000]
//                            [--kill-every 0] [--parallel 8] [--port 0] [--engine-args "..."]
//
// Starts a server of its own, prints one line of JSON, and exits with 1 when an answer was lost or mixed, an idle connection was
// dropped, more failed than the engine worked on, or the server's memory grew (runs of two minutes and more).
import {spawn} from "node:child_process";
import {readdirSync, readFileSync} from "node:fs";
import http from "node:http";
import net from "node:net";
import {createInterface} from "node:readline";

const [program, model, ...words] = process.argv.slice(2), flags = {};
for (let i = 0; i < words.length; i += 2) flags[words[i].replace(/^--/, "")] = words[i + 1];
const clients = Number(flags.clients ?? 64), seconds = Number(flags.seconds ?? 300), tokens = Number(flags.tokens ?? 24);
const idle = Number(flags.idle ?? 2000), killEvery = Number(flags["kill-every"] ?? 0), parallel = Number(flags.parallel ?? 8);

const server = spawn(program, ["serve", "--model", model, "--port", flags.port ?? "0", "--log-level", "error", "--queue", String(2 * clients),
  "--engine-args", `--device cpu --parallel ${parallel} --max-context 1024 ${flags["engine-args"] ?? "--threads 1"}`],
  {stdio: ["ignore", "pipe", "ignore"]});
const url = await new Promise((resolve, reject) => {
  createInterface({input: server.stdout}).on("line", line => { if (line.startsWith("listening on ")) resolve(line.slice(13)); });
  server.on("exit", code => reject(new Error("the server ended with code " + code)));
});
const agent = new http.Agent({keepAlive: true, maxSockets: clients});

function ask(prompt) {
  const body = JSON.stringify({messages: [{role: "user", content: prompt}], temperature: 0, max_tokens: tokens, stream: true});
  return new Promise(resolve => {
    const options = {method: "POST", agent, headers: {"Content-Type": "application/json", "Content-Length": Buffer.byteLength(body)}};
    const request = http.request(url + "/v1/chat/completions", options, answer => {
      let whole = "", text = "", error = null, done = false;
      answer.setEncoding("utf8");
      answer.on("data", piece => { whole += piece; });
      answer.on("error", problem => resolve({error: "cut: " + problem.message}));
      answer.on("end", () => {
        if (answer.statusCode !== 200) return resolve({error: `status ${answer.statusCode} ${whole.slice(0, 200)}`});
        for (const line of whole.split("\n")) {
          if (!line.startsWith("data: ")) continue;
          if (line === "data: [DONE]") { done = true; continue; }
          const event = JSON.parse(line.slice(6));
          if (event.error) error = event.error.code;
          for (const {delta} of event.choices ?? []) text += (delta.reasoning_content ?? "") + (delta.content ?? "");
        }
        resolve({text, error: error ?? (done ? null : "no end")});
      });
    });
    request.on("error", problem => resolve({error: "connection: " + problem.message}));
    request.end(body);
  });
}

const resident = () => Number(readFileSync(`/proc/${server.pid}/statm`, "utf8").split(" ")[1]) * 4096 / 2 ** 20;
/// The server's engine: a child of its process.
const engine = () => readdirSync("/proc").filter(name => /^\d+$/.test(name)).map(Number).find(one => {
  try { return Number(readFileSync(`/proc/${one}/stat`, "utf8").split(") ")[1].split(" ")[1]) === server.pid; } catch { return false; }
});

const prompts = Array.from({length: 16}, (_, i) => `Question ${i}: ${"tell me more about it ".repeat(i % 5)}`), alone = [];
for (const prompt of prompts) {
  const answer = await ask(prompt);
  if (answer.error) { console.error("alone: " + answer.error); server.kill(); process.exit(1); }
  alone.push(answer.text);
}

const result = {clients, seconds, parallel, answers: 0, wrong: 0, engine_failed: 0, kills: 0, lost: 0, lost_why: [], idle, idle_dropped: 0};
const sleepers = [];
for (let i = 0; i < idle; ++i) {
  sleepers.push(await new Promise((resolve, reject) => {
    const socket = net.connect(new URL(url).port, "127.0.0.1", () => resolve(socket));
    socket.on("error", reject);
  }));
  sleepers[i].on("close", () => ++result.idle_dropped);
}

const end = Date.now() + seconds * 1000, memory = [];
const watcher = setInterval(() => memory.push([Date.now() / 60000, resident()]), 1000);
const killer = killEvery && setInterval(() => {
  const one = engine();
  if (one && end - Date.now() > 2000) { process.kill(one, "SIGKILL"); ++result.kills; }
}, killEvery * 1000);

await Promise.all(Array.from({length: clients}, async (_, client) => {
  for (let i = client; Date.now() < end; ++i) {
    const which = i % prompts.length, answer = await ask(prompts[which]);
    if (answer.error === "engine_failed") ++result.engine_failed;
    else if (answer.error) { ++result.lost; if (result.lost_why.length < 5) result.lost_why.push(answer.error); }
    else if (answer.text !== alone[which]) ++result.wrong;
    else ++result.answers;
  }
}));
clearInterval(killer);
clearInterval(watcher);

/// Of a straight line through the samples behind the first fifth, in MiB a minute.
function slope(samples) {
  const rest = samples.slice(Math.floor(samples.length / 5)), n = rest.length;
  const mean = column => rest.reduce((sum, row) => sum + row[column], 0) / n, x = mean(0), y = mean(1);
  return rest.reduce((sum, row) => sum + (row[0] - x) * (row[1] - y), 0) / rest.reduce((sum, row) => sum + (row[0] - x) ** 2, 0);
}
result.rss_mib = Number(resident().toFixed(1));
result.rss_mib_a_minute = Number(slope(memory).toFixed(2));
const dropped = result.idle_dropped;
const code = await new Promise(resolve => { server.removeAllListeners("exit"); server.on("exit", resolve); server.kill("SIGTERM"); });
result.idle_dropped = dropped;
result.exit_code = code;
console.log(JSON.stringify(result));
const grows = seconds >= 120 && result.rss_mib_a_minute > 1;
process.exit(result.wrong || result.lost || dropped || grows || code !== 0 || result.answers === 0 || result.engine_failed > result.kills * parallel ? 1 : 0);
