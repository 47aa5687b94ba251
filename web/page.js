// The chat page: one conversation, kept in this browser only. Talks to /v1/chat/completions like any other client.
const $ = id => document.getElementById(id);
const stored = name => localStorage.getItem("polystrata." + name) ?? "";
const store = (name, value) => localStorage.setItem("polystrata." + name, value);

let messages = [];
let running = null;  // AbortController of the answer that comes

const headers = () => {
  const out = {"Content-Type": "application/json"};
  if ($("key").value) out.Authorization = "Bearer " + $("key").value;
  return out;
};

async function ask(path, body) {
  const answer = await fetch(path, body === undefined ? {headers: headers()} : {method: "POST", headers: headers(), body: JSON.stringify(body)});
  const json = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(json.error?.message ?? "the server answered " + answer.status);
  return json;
}

// ---- what is shown

function element(tag, name, text) {
  const out = document.createElement(tag);
  if (name) out.className = name;
  if (text !== undefined) out.textContent = text;
  return out;
}

/// Text with its fenced code in boxes of its own. Nothing of it is ever read as HTML.
function showText(where, text) {
  where.replaceChildren();
  text.split(/^```/m).forEach((part, i) => {
    if (i % 2 === 0) {
      if (part.trim() || i === 0) where.append(element("div", "text", i === 0 ? part : part.replace(/^\n/, "")));
      return;
    }
    const code = part.replace(/^[^\n]*\n?/, "");
    const box = element("div", "code"), copy = element("button", "", "Copy");
    copy.type = "button";
    copy.onclick = () => navigator.clipboard?.writeText(code).then(() => { copy.textContent = "Copied"; });
    box.append(element("pre", "", code), copy);
    where.append(box);
  });
}

function showTurn(message, index) {
  const turn = element("div", "turn " + message.role);
  const thoughts = element("details"), summary = element("summary", "", "Thinking"), inner = element("div", "text");
  thoughts.append(summary, inner);
  thoughts.hidden = true;
  const content = element("div"), note = element("div", "note");
  turn.append(thoughts, content, note);
  $("chat").append(turn);
  const view = {
    update() {
      thoughts.hidden = !message.reasoning;
      inner.textContent = message.reasoning ?? "";
      showText(content, message.content);
      note.replaceChildren();
      if (message.error) note.append(element("span", "error", message.error));
      if (message.note) note.append(element("span", "", message.note));
      if (message.role === "user" && !running) {
        const edit = element("button", "", "Edit");
        edit.onclick = () => {
          $("input").value = message.content;
          messages = messages.slice(0, index);
          showAll();
          $("input").focus();
        };
        note.append(edit);
      }
    },
    follow(thinking) { summary.textContent = thinking ? "Thinking ..." : "Thinking"; },
  };
  view.update();
  return view;
}

function showAll() {
  $("chat").replaceChildren();
  messages.forEach(showTurn);
  store("messages", JSON.stringify(messages));
  $("chat").scrollTop = $("chat").scrollHeight;
}

async function showModels() {
  try {
    const {models} = await ask("/api/models");
    $("model").replaceChildren(...models.map(model => {
      const option = element("option", "", model.display_name || model.id);
      option.value = model.id;
      option.selected = model.current;
      option.disabled = model.status === "unavailable";
      option.title = model.problem ?? "";
      return option;
    }));
    const current = models.find(model => model.current);
    $("status").textContent = current ? `${current.id}: ${current.status}` : "no model is in use";
  } catch (problem) {
    $("status").textContent = problem.message;
    if (/key/.test(problem.message)) { $("settings").hidden = false; $("key").focus(); }
  }
}

// ---- the monitor

const gib = bytes => (bytes / 2 ** 30).toFixed(1) + " GiB";
const percent = share => share === null || share === undefined ? "-" : (100 * share).toFixed(0) + "%";

function showFacts(metrics, state) {
  const live = metrics.live.filter(one => one.phase !== "waiting"), {totals, hardware} = metrics, engine = metrics.engine;
  const facts = {
    "now": live.map(one => `${one.phase}, ${one.generated || one.read} tokens`).join("; ") || (metrics.model.loaded ? "nothing" : "not loaded"),
    "waiting": metrics.queue.waiting,
    "tokens/s": number(hardware.tokens_per_second),
    "prompts reused": percent(totals.cache_rate),
    "guesses right": totals.guesses ? `${totals.guesses_right} of ${totals.guesses}` : "-",
    "experts found in VRAM": percent(totals.expert_hit_rate),
    "VRAM free": engine.vram_free_mib ? `${engine.vram_free_mib} of ${engine.vram_total_mib} MiB` : "-",
    "RAM free": `${gib(hardware.ram_available_bytes)} of ${gib(hardware.ram_total_bytes)}; engine ${gib(hardware.engine_resident_bytes)}`,
    "CPU": percent(hardware.cpu_load),
    "engine starts, failures": `${totals.engine_starts}, ${totals.engine_failures}`,
    "model": `${state.model ?? "none"}, context ${state.context}, ${Object.entries(state.engine).filter(([key]) => ["arch", "device", "layers", "kv"].includes(key)).map(pair => pair.join(" ")).join(", ")}`,
    "machine": [state.machine.cpu, state.machine.gpu, state.machine.os].filter(Boolean).join(", "),
    "for other programs": `${location.origin}/v1 (OpenAI), ${location.origin} (Anthropic)`,
  };
  $("facts").replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [element("dt", "", name), element("dd", "", String(value))]));
  $("requests").replaceChildren(...metrics.requests.map(({path, timings, first_token_ms, finish}) => {
    const row = element("tr");
    for (const cell of [path, timings.prompt_n, timings.cache_n, timings.predicted_n, number(timings.predicted_per_second), first_token_ms.toFixed(0) + " ms", finish])
      row.append(element("td", "", String(cell)));
    return row;
  }));
}

async function watch() {
  if ($("monitor").hidden) return;
  try { showFacts(await ask("/metrics?format=json"), await ask("/v1/status")); } catch (problem) { $("facts").textContent = problem.message; }
  setTimeout(watch, 2000);
}

// ---- an answer

const number = value => value >= 100 ? value.toFixed(0) : value.toFixed(1);

function statistics(t) {
  const cached = t.cache_n ? `, ${t.cache_n} reused` : "";
  return `read ${t.prompt_n} tokens at ${number(t.prompt_per_second)}/s${cached} · write ${t.predicted_n} tokens at ${number(t.predicted_per_second)}/s`;
}

function requestBody() {
  const system = $("system").value.trim();
  const body = {
    stream: true,
    return_progress: true,
    messages: [...(system ? [{role: "system", content: system}] : []),
               ...messages.filter(m => m.role === "user" || m.content || m.reasoning)
                 .map(m => m.reasoning ? {role: m.role, content: m.content, reasoning_content: m.reasoning} : {role: m.role, content: m.content})],
  };
  if ($("temperature").value) body.temperature = Number($("temperature").value);
  if ($("limit").value) body.max_tokens = Number($("limit").value);
  const thinking = $("thinking").value;
  if (thinking === "off") body.reasoning_effort = "none";
  else if (thinking) body.reasoning_effort = thinking;
  return body;
}

/// Calls `take` with the data of every event.
async function readEvents(stream, take) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines)
      if (line.startsWith("data: ") && line !== "data: [DONE]") take(JSON.parse(line.slice(6)));
  }
}

async function answer() {
  const body = JSON.stringify(requestBody());
  running = new AbortController();
  $("send").hidden = true;
  $("stop").hidden = false;
  const message = {role: "assistant", content: "", reasoning: ""};
  showAll();
  messages.push(message);
  const view = showTurn(message, messages.length - 1);
  let painted = true;
  const paint = () => {
    if (!painted) return;
    painted = false;
    requestAnimationFrame(() => {
      painted = true;
      const chat = $("chat"), atEnd = chat.scrollHeight - chat.scrollTop - chat.clientHeight < 80;
      view.update();
      if (atEnd) chat.scrollTop = chat.scrollHeight;
    });
  };
  try {
    const reply = await fetch("/v1/chat/completions", {method: "POST", headers: headers(), body, signal: running.signal});
    if (!reply.ok) throw new Error((await reply.json().catch(() => ({}))).error?.message ?? "the server answered " + reply.status);
    await readEvents(reply.body, event => {
      if (event.error) throw new Error(event.error.message);
      const progress = event.prompt_progress;
      if (progress) $("status").textContent = `reading ${progress.processed} of ${progress.total} tokens`;
      const choice = event.choices?.[0];
      if (choice?.delta.reasoning_content) { message.reasoning += choice.delta.reasoning_content; view.follow(true); }
      if (choice?.delta.content) { message.content += choice.delta.content; view.follow(false); $("status").textContent = ""; }
      if (event.timings) {
        message.note = statistics(event.timings);
        if (choice?.finish_reason === "length") message.note += " · cut by its limit";
      }
      paint();
    });
  } catch (problem) {
    if (problem.name === "AbortError") message.note = "stopped";
    else message.error = problem.message;
  }
  running = null;
  $("send").hidden = false;
  $("stop").hidden = true;
  $("status").textContent = "";
  showAll();
}

function send() {
  const text = $("input").value.trim();
  if (!text || running) return;
  $("input").value = "";
  $("input").rows = 1;
  messages.push({role: "user", content: text});
  answer();
}

// ---- the controls

$("form").onsubmit = event => { event.preventDefault(); send(); };
$("input").onkeydown = event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
};
$("input").oninput = () => { $("input").rows = Math.min(12, $("input").value.split("\n").length); };
$("stop").onclick = () => running?.abort();
$("new").onclick = () => { running?.abort(); messages = []; showAll(); $("input").focus(); };
for (const name of ["settings", "monitor"])
  $(name + "-button").onclick = () => {
    $(name).hidden = !$(name).hidden;
    $(name + "-button").setAttribute("aria-expanded", String(!$(name).hidden));
    if (name === "monitor") watch();
  };
$("model").onchange = async () => {
  $("status").textContent = "loading " + $("model").value + " ...";
  try {
    await ask("/api/models/load", {model: $("model").value});
    messages = [];
    showAll();
    await showModels();
  } catch (problem) {
    await showModels();
    $("status").textContent = problem.message;
  }
};
$("unload").onclick = () => ask("/api/models/unload", {}).then(showModels, problem => { $("status").textContent = problem.message; });
for (const id of ["system", "thinking", "temperature", "limit", "key"]) {
  $(id).value = stored(id);
  $(id).onchange = () => { store(id, $(id).value); if (id === "key") showModels(); };
}

try { messages = JSON.parse(stored("messages") || "[]"); } catch { messages = []; }
showAll();
showModels();
const question = new URLSearchParams(location.search).get("q");
if (question) { messages = []; $("input").value = question; send(); history.replaceState(null, "", "/"); }
