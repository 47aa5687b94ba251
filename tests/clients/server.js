// Starts polystrata serve with the tiny model for a test file: its words mean nothing, but they are always the same.
import {spawn} from "node:child_process";
import {createInterface} from "node:readline";

const bin = process.env.POLYSTRATA_BIN, data = process.env.POLYSTRATA_TEST_DATA;

export async function startServer(...flags) {
  const child = spawn(`${bin}/polystrata`,
    ["serve", "--model", `${data}/qwen35moe/tiny.gguf`, "--port", "0", "--log-level", "error",
     "--engine-args", "--device cpu --threads 1", ...flags], {stdio: ["ignore", "pipe", "inherit"]});
  for await (const line of createInterface({input: child.stdout}))
    if (line.startsWith("listening on ")) return {child, url: line.slice("listening on ".length)};
  throw new Error("the server did not start");
}

export function stopServer({child}) {
  return new Promise(resolve => { child.once("exit", code => resolve(code)); child.kill("SIGTERM"); });
}
