// Claude Code itself against the server, where it is installed (CLAUDE, or claude in PATH; from npm: @anthropic-ai/claude-code). The engine
// follows a script, so that the agent's work is the same every time: it reads a file with its tool and says what it holds.
import {test} from "node:test";
import assert from "node:assert/strict";
import {execFile, execFileSync} from "node:child_process";
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {startScripted, stopServer} from "./server.js";

function findAgent() {
  if (process.env.CLAUDE) return process.env.CLAUDE;
  try { return execFileSync("which", ["claude"], {encoding: "utf8"}).trim(); } catch { return null; }
}
const agent = findAgent();

test("claude code: calls its tool, reads the result, answers", {skip: agent ? false : "claude is not installed"}, async () => {
  const folder = mkdtempSync(join(tmpdir(), "polystrata-agent-"));
  writeFileSync(join(folder, "note.txt"), "the word is kiwi-4711\n");
  // It asks for a budget of thinking, so each of its requests is two of the engine's: the reasoning, and the rest.
  const server = await startScripted(folder, [
    "I read it.\n</think>",
    `\n\n<tool_call>\n<function=Read>\n<parameter=file_path>\n${folder}/note.txt\n</parameter>\n</function>\n</tool_call>`,
    "Now I know.\n</think>",
    "\n\nThe word is kiwi-4711."]);
  const environment = {...process.env, HOME: folder, ANTHROPIC_BASE_URL: server.url, ANTHROPIC_API_KEY: "any",
                       CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_TELEMETRY: "1"};
  try {
    const {out, err} = await new Promise(resolve => {
      const child = execFile(agent, ["-p", "What does note.txt say?", "--model", "claude-sonnet-4-5", "--max-turns", "4"],
        {cwd: folder, env: environment, timeout: 120000}, (problem, stdout, stderr) => resolve({out: stdout, err: stderr}));
      child.stdin.end();
    });
    assert.match(out, /The word is kiwi-4711\./, err);
    const asked = readFileSync(server.log, "utf8").split("\n").filter(line => line.startsWith("GEN "));
    assert.equal(asked.length, 4);
    const ids = asked.map(line => line.split(" ").find(word => /^\d+,/.test(word)).split(",").map(Number));
    const {content} = await server.ask("/detokenize", {tokens: ids[2]});
    assert.ok(content.includes("the word is kiwi-4711"), content.slice(-3000));  // the result of the tool came back
    // The second prompt begins with the first: an engine reads only what is new.
    let common = 0;
    while (common < ids[0].length && ids[0][common] === ids[2][common]) ++common;
    assert.ok(common > 0.99 * ids[0].length, `${common} of ${ids[0].length} tokens are the same`);
  } finally {
    await stopServer(server);
    rmSync(folder, {recursive: true, force: true, maxRetries: 5});
  }
});
