// The page in a browser without a window, where one is installed (BROWSER, chromium or google-chrome): it loads, sends, streams, stops.
import {after, before, test} from "node:test";
import assert from "node:assert/strict";
import {execFileSync, spawn} from "node:child_process";
import {mkdtempSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {createInterface} from "node:readline";
import {startScripted, stopServer} from "./server.js";

function findBrowser() {
  if (process.env.BROWSER) return process.env.BROWSER;
  for (const name of ["chromium", "google-chrome"])
    try { return execFileSync("which", [name], {encoding: "utf8"}).trim(); } catch {}
  return null;
}
const browser = findBrowser();
const skip = !browser ? "no browser is installed" : typeof WebSocket === "undefined" ? "this node has no WebSocket" : false;
let server, page;
const folder = mkdtempSync(join(tmpdir(), "polystrata-page-"));
const attack = "<img src=x onerror=\"window.broken = true\">";

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
    if (message.id) { waiting.get(message.id)?.resolve(message); return; }
    if (message.method === "Runtime.exceptionThrown") problems.push(message.params.exceptionDetails.exception?.description);
    if (message.method === "Log.entryAdded" && message.params.entry.level === "error") problems.push(message.params.entry.text + " " + (message.params.entry.url ?? ""));
  });
  // A browser that ends in the middle fails what waits for it.
  socket.addEventListener("close", () => { for (const {reject} of waiting.values()) reject(new Error("the browser has gone")); });
  const send = (method, params = {}) => new Promise((resolve, reject) => {
    if (socket.readyState !== WebSocket.OPEN) throw new Error("the browser has gone");
    waiting.set(++id, {resolve, reject});
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
      return new Promise(resolve => {
        const ended = () => { rmSync(folder, {recursive: true, force: true, maxRetries: 5}); resolve(); };
        if (child.exitCode !== null || child.signalCode !== null) return ended();
        child.once("exit", ended);
        child.kill();
      });
    },
  };
}

before(async () => {
  if (skip) return;
  server = await startScripted(folder, ["They greet me.\n</think>\n\nHello!\n```js\nlet x;\n```", ["Well.\n</think>\n\nOn and on"], "Again.\n</think>\n\nYes.",
    `Odd.\n</think>\n\n${attack}`]);
  page = await openPage(server.url);
  await page.until("document.readyState === 'complete' && document.querySelector('#status')?.textContent !== ''");
});
after(async () => {
  await page?.close();
  if (server) assert.equal(await stopServer(server), 0);
  rmSync(folder, {recursive: true, force: true, maxRetries: 5});
});

const type = text => page.evaluate(`document.getElementById("input").value = ${JSON.stringify(text)}; document.getElementById("form").requestSubmit();`);
const idle = "document.getElementById('stop').hidden";

const turn = index => `document.querySelectorAll('.turn')[${index}]`;

test("page: loads without anything missing and shows the model", {skip, timeout: 60000}, async () => {
  assert.match(await page.evaluate("document.getElementById('status').textContent"), /^scripted: /);
  assert.equal(await page.evaluate("document.getElementById('model').value"), "scripted");
  assert.deepEqual(page.problems, []);
});

test("page: sends a message and shows thinking, text and code of the answer", {skip, timeout: 60000}, async () => {
  await type("Good morning");
  await page.until(`document.querySelectorAll('.turn').length === 2 && ${idle}`);
  assert.match(await page.evaluate(`${turn(0)}.textContent`), /Good morning/);
  assert.match(await page.evaluate(`${turn(1)}.querySelector('details .text').textContent`), /They greet me/);
  assert.match(await page.evaluate(`${turn(1)}.textContent`), /Hello!.*write \d+ tokens at/s);
  assert.equal(await page.evaluate(`${turn(1)}.querySelector('pre').textContent.trim()`), "let x;");
});

test("page: stop ends an answer while it streams, and the next one comes", {skip, timeout: 60000}, async () => {
  await type("Go on");
  await page.until(`!${idle} && ${turn(3)}?.textContent.includes("On and on")`);
  await page.evaluate("document.getElementById('stop').click()");
  await page.until(idle);
  assert.match(await page.evaluate(`${turn(3)}.textContent`), /On and on.*stopped/s);
  await type("Again?");
  await page.until(`document.querySelectorAll('.turn').length === 6 && ${idle}`);
  assert.match(await page.evaluate(`${turn(5)}.textContent`), /Yes\./);
});

test("page: what people and models write is never read as HTML", {skip, timeout: 60000}, async () => {
  await type(attack);
  await page.until(`document.querySelectorAll('.turn').length === 8 && ${idle}`);
  assert.ok((await page.evaluate(`${turn(6)}.textContent + ${turn(7)}.textContent`)).split(attack).length === 3);
  assert.equal(await page.evaluate("document.querySelectorAll('#chat img').length"), 0);
  assert.equal(await page.evaluate("window.broken === undefined"), true);
  assert.deepEqual(page.problems, []);
});

test("page: the monitor shows what was done", {skip, timeout: 60000}, async () => {
  await page.evaluate("document.getElementById('monitor-button').click()");
  await page.until("document.querySelectorAll('#requests tr').length >= 4");
  assert.match(await page.evaluate("document.getElementById('requests').textContent"), /chat\/completions/);
  assert.match(await page.evaluate("document.getElementById('facts').textContent"), /scripted, context 131072/);
  assert.deepEqual(page.problems, []);
});
