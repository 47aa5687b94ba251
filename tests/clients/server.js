// Starts polystrata serve for a test file, with the tiny model (its words mean nothing, but they are always the same) or with an
// engine that writes given texts.
import {spawn} from "node:child_process";
import {mkdtempSync, rmSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {createInterface} from "node:readline";

const bin = process.env.POLYSTRATA_BIN, data = process.env.POLYSTRATA_TEST_DATA;
const tiny = `${data}/qwen35moe/tiny.gguf`;

async function start(flags) {
  const child = spawn(`${bin}/polystrata`, ["serve", "--port", "0", "--log-level", "error", ...flags], {stdio: ["ignore", "pipe", "inherit"]});
  for await (const line of createInterface({input: child.stdout}))
    if (line.startsWith("listening on ")) return {child, url: line.slice("listening on ".length)};
  throw new Error("the server did not start");
}

/// Only the tiny model is there: the folder of models is an empty one.
export function startServer(...flags) {
  const home = mkdtempSync(join(tmpdir(), "polystrata-clients-"));
  process.on("exit", () => rmSync(home, {recursive: true, force: true}));
  return start(["--data-dir", home, "--model", tiny, "--engine-args", "--device cpu --threads 1", ...flags]);
}

/// The engine answers the requests with these texts, in order; a text in a list is followed by silence until the request is stopped. What
/// the engine is sent stands in `log`.
export async function startScripted(folder, texts, flags = []) {
  const script = join(folder, "script"), log = join(folder, "engine.log");
  writeFileSync(join(folder, "strata-scripted.json"), JSON.stringify({exe: `${bin}/mock_engine`, args: [script, "--log", log, "--model", tiny, "--max-context", "131072"],
    chat_template: `${data}/chat/templates/chatml-xml.jinja`}));
  const server = await start(["--data-dir", folder, "--model", "scripted", "--lazy", ...flags]);
  const ask = async (path, body) => (await fetch(server.url + path, {method: "POST", body: JSON.stringify(body)})).json();
  const lines = ["READY 131072 stop"];
  for (const text of texts) {
    const silent = Array.isArray(text), {tokens} = await ask("/tokenize", {content: String(text)});
    lines.push("on GEN", "REUSED 0", ...tokens.map(id => "T " + id), ...(silent ? ["@wait STOP"] : []),
      `DONE ${tokens.length} 9 1 1 ${silent ? "cancel" : "stop"} 0 0 0 0 0`);
  }
  writeFileSync(script, lines.join("\n") + "\n");
  return {...server, ask, log};
}

export function stopServer({child}) {
  return new Promise(resolve => { child.once("exit", code => resolve(code)); child.kill("SIGTERM"); });
}
