// The page in a browser without a window, where one is installed (BROWSER, chromium or google-chrome): it loads, sends, streams, stops.
import {after, before, test} from "node:test";
import assert from "node:assert/strict";
import {execFileSync, spawn} from "node:child_process";
import {mkdtempSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {createInterface} from "node:readline";
import {startServer, stopServer} from "./server.js";

function findBrowser() {
  if (process.env.BROWSER) return process.env.BROWSER;
  for (const name of ["chromium", "google-chrome"])
    try { return execFileSync("which", [name], {encoding: "utf8"}).trim(); } catch {}
  return null;
}
const browser = findBrowser();
const skip = !browser ? "no browser is installed" : typeof WebSocket === "undefined" ? "this node has no WebSocket" : false;
let server, page;

/// A tab, driven by Chrome's own protocol.
async function openPage(url) {
  const folder = mkdtempSync(join(tmpdir(), "polystrata-page-"));
  const child = spawn(browser, ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
    "--user-data-dir=" + folder, "about:blank"], {stdio: ["ignore", "ignore", "pipe"]});
  const port = await new Promise((resolve, reject) => {
    child.on("exit", code => reject(new Error("the browser ended with code " + code)));
    createInterface({input: child.stderr}).on("line", line => {
      const found = /DevTools listening on ws:\/\/127\.0\.0\.1:(\d+)/.exec(line);
      if (found) resolve(found[1]);
    });
  });
  const tabs = await (await fetch(`http://127.0.0.1:${port}/json/list`)).json();
  const socket = new WebSocket(tabs.find(tab => tab.type === "page").webSocketDebuggerUrl);
  await new Promise(resolve => socket.addEventListener("open", resolve));
  const waiting = new Map(), problems = [];
  let id = 0;
  socket.addEventListener("message", ({data}) => {
    const message = JSON.parse(data);
    if (message.id) { waiting.get(message.id)?.(message); return; }
    if (message.method === "Runtime.exceptionThrown") problems.push(message.params.exceptionDetails.exception?.description);
    if (message.method === "Log.entryAdded" && message.params.entry.level === "error") problems.push(message.params.entry.text + " " + (message.params.entry.url ?? ""));
  });
  const send = (method, params = {}) => new Promise(resolve => {
    waiting.set(++id, resolve);
    socket.send(JSON.stringify({id, method, params}));
  });
  await send("Runtime.enable");
  await send("Log.enable");
  await send("Page.enable");
  await send("Page.navigate", {url});
  return {
    problems,
    async evaluate(expression) {
      const {result} = await send("Runtime.evaluate", {expression, awaitPromise: true, returnByValue: true});
      if (result.exceptionDetails) throw new Error(result.exceptionDetails.exception?.description ?? result.exceptionDetails.text);
      return result.result.value;
    },
    /// Waits until the expression is true in the page.
    async until(expression) {
      for (;;) {
        if (await this.evaluate(expression)) return;
        await this.evaluate("new Promise(requestAnimationFrame)");
      }
    },
    close() {
      child.removeAllListeners("exit");
      return new Promise(resolve => { child.once("exit", () => { rmSync(folder, {recursive: true, force: true, maxRetries: 5}); resolve(); }); child.kill(); });
    },
  };
}

before(async () => {
  if (skip) return;
  server = await startServer();
  page = await openPage(server.url);
  await page.until("document.readyState === 'complete' && document.querySelector('#status')?.textContent !== ''");
});
after(async () => {
  await page?.close();
  if (server) assert.equal(await stopServer(server), 0);
});

const type = text => page.evaluate(`document.getElementById("input").value = ${JSON.stringify(text)}; document.getElementById("form").requestSubmit();`);
const idle = "document.getElementById('stop').hidden";

test("page: loads without anything missing and shows the model", {skip, timeout: 60000}, async () => {
  assert.match(await page.evaluate("document.getElementById('status').textContent"), /tiny: loaded/);
  assert.equal(await page.evaluate("document.getElementById('model').value"), "tiny");
  assert.deepEqual(page.problems, []);
});

test("page: sends a message and shows the answer as it streams", {skip, timeout: 60000}, async () => {
  await page.evaluate("document.getElementById('limit').value = '12'");
  await type("Hello there");
  await page.until(`document.querySelectorAll('.turn').length === 2 && ${idle}`);
  assert.match(await page.evaluate("document.querySelector('.turn.user').textContent"), /Hello there/);
  assert.match(await page.evaluate("document.querySelector('.turn.assistant').textContent"), /write 12 tokens at .* cut by its limit/);
});

test("page: stop ends the answer and the next one comes", {skip, timeout: 60000}, async () => {
  await page.evaluate("document.getElementById('limit').value = ''");
  await type("Go on");
  await page.until(`!${idle} && document.querySelectorAll('.turn').length === 4 && document.querySelectorAll('.turn')[3].textContent.length > 20`);
  await page.evaluate("document.getElementById('stop').click()");
  await page.until(idle);
  assert.match(await page.evaluate("document.querySelectorAll('.turn')[3].textContent"), /stopped/);
  await page.evaluate("document.getElementById('limit').value = '4'");
  await type("Again");
  await page.until(`document.querySelectorAll('.turn').length === 6 && ${idle}`);
  assert.match(await page.evaluate("document.querySelectorAll('.turn')[5].textContent"), /write 4 tokens/);
  assert.deepEqual(page.problems, []);
});

test("page: what the model writes is never read as HTML", {skip, timeout: 60000}, async () => {
  await type("<img src=x onerror=\"window.broken = true\">");
  await page.until(`document.querySelectorAll('.turn').length === 8 && ${idle}`);
  assert.equal(await page.evaluate("document.querySelectorAll('#chat img').length"), 0);
  assert.equal(await page.evaluate("window.broken === undefined"), true);
});

test("page: the monitor shows what was done", {skip, timeout: 60000}, async () => {
  await page.evaluate("document.getElementById('monitor-button').click()");
  await page.until("document.querySelectorAll('#requests tr').length >= 4");
  assert.match(await page.evaluate("document.getElementById('requests').textContent"), /chat\/completions/);
  assert.match(await page.evaluate("document.getElementById('facts').textContent"), /tiny, context 4096/);
  assert.deepEqual(page.problems, []);
});
