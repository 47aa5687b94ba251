// What people's programs do with the server, through the clients that they use.
import {after, before, test} from "node:test";
import assert from "node:assert/strict";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {generateObject, generateText, jsonSchema, streamText} from "ai";
import {startServer, stopServer} from "./server.js";

let server, openai, anthropic, sdk;
const model = "tiny";
const ask = {role: "user", content: "Hello there"};
const weather = {
  type: "function",
  function: {name: "weather", description: "Weather of a city",
             parameters: {type: "object", properties: {days: {type: "integer", minimum: 1, maximum: 9}}, required: ["days"]}},
};

before(async () => {
  server = await startServer("--api-key", "secret");
  openai = new OpenAI({baseURL: server.url + "/v1", apiKey: "secret", maxRetries: 0});
  anthropic = new Anthropic({baseURL: server.url, apiKey: "secret", maxRetries: 0});
  sdk = createOpenAICompatible({name: "polystrata", baseURL: server.url + "/v1", apiKey: "secret", supportsStructuredOutputs: true});
});
after(async () => assert.equal(await stopServer(server), 0));

test("openai: models are listed and found", async () => {
  const ids = [];
  for await (const one of openai.models.list()) ids.push(one.id);
  assert.deepEqual(ids, ["tiny"]);
  assert.equal((await openai.models.retrieve("tiny")).object, "model");
  await assert.rejects(openai.models.retrieve("nobody"), OpenAI.NotFoundError);
});

test("openai: a streamed chat says what a whole one says", async () => {
  const body = {model, messages: [ask], temperature: 0, max_tokens: 16};
  const whole = await openai.chat.completions.create(body);
  assert.equal(whole.usage.completion_tokens, 16);
  assert.equal(whole.choices[0].finish_reason, "length");
  let text = "", usage;
  for await (const chunk of await openai.chat.completions.create({...body, stream: true, stream_options: {include_usage: true}})) {
    text += (chunk.choices[0]?.delta.reasoning_content ?? "") + (chunk.choices[0]?.delta.content ?? "");
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, (whole.choices[0].message.reasoning_content ?? "") + whole.choices[0].message.content);
  assert.equal(usage.prompt_tokens, whole.usage.prompt_tokens);
  assert.ok(usage.prompt_tokens_details.cached_tokens > 0);
});

test("openai: two calls and their results in the other order", async () => {
  const answer = await openai.chat.completions.create({model, max_tokens: 4, tools: [weather], messages: [ask,
    {role: "assistant", content: null, tool_calls: ["a", "b"].map(id => ({id, type: "function", function: {name: "weather", arguments: "{\"days\": 2}"}}))},
    {role: "tool", tool_call_id: "b", content: "second"}, {role: "tool", tool_call_id: "a", content: "first"}]});
  assert.equal(answer.choices.length, 1);
});

test("openai: JSON that fits its schema", async () => {
  const schema = {type: "object", properties: {name: {type: "string", maxLength: 8}, count: {type: "integer", minimum: 0, maximum: 99}},
                  required: ["name", "count"], additionalProperties: false};
  const answer = await openai.chat.completions.create({model, messages: [ask], max_tokens: 300, seed: 1, temperature: 0.9,
    chat_template_kwargs: {enable_thinking: false}, response_format: {type: "json_schema", json_schema: {name: "x", strict: true, schema}}});
  const value = JSON.parse(answer.choices[0].message.content);
  assert.deepEqual(Object.keys(value), ["name", "count"]);
  assert.ok(Number.isInteger(value.count));
});

test("openai: logprobs, stop, several replies", async () => {
  const answer = await openai.chat.completions.create({model, messages: [ask], max_tokens: 8, n: 2, logprobs: true, top_logprobs: 2,
    temperature: 0, chat_template_kwargs: {enable_thinking: false}});
  assert.equal(answer.choices.length, 2);
  assert.equal(answer.choices[0].logprobs.content[0].top_logprobs.length, 2);
  const text = answer.choices[0].message.content;
  const stop = text.slice(2, 4);
  const stopped = await openai.chat.completions.create({model, messages: [ask], max_tokens: 8, temperature: 0, stop: [stop],
    chat_template_kwargs: {enable_thinking: false}});
  assert.equal(stopped.choices[0].finish_reason, "stop");
  assert.ok(!stopped.choices[0].message.content.includes(stop));
});

test("openai: an abort in the stream frees the server", async () => {
  const stream = await openai.chat.completions.create({model, messages: [ask], stream: true, ignore_eos: true, max_tokens: 4000});
  for await (const chunk of stream) if (chunk.choices[0].delta.role === undefined) break;
  const next = await openai.chat.completions.create({model, messages: [ask], max_tokens: 2});
  assert.equal(next.usage.completion_tokens, 2);
});

test("openai: errors are of their types", async () => {
  await assert.rejects(openai.chat.completions.create({model, messages: [ask], temperature: 9}), error =>
    error instanceof OpenAI.BadRequestError && error.param === "temperature" && error.code === "invalid_value");
  await assert.rejects(openai.embeddings.create({model, input: "x"}), OpenAI.NotFoundError);
  const stranger = new OpenAI({baseURL: server.url + "/v1", apiKey: "wrong", maxRetries: 0});
  await assert.rejects(stranger.chat.completions.create({model, messages: [ask]}), OpenAI.AuthenticationError);
  await assert.rejects(openai.chat.completions.create({model, messages: [{role: "user", content: [
    {type: "image_url", image_url: {url: "https://example.org/x.png"}}]}]}), OpenAI.BadRequestError);
  await assert.rejects(openai.chat.completions.create({model, messages: [{role: "user", content: "x".repeat(30000)}]}), error =>
    error.code === "context_length_exceeded");
});

test("openai: responses, whole and streamed", async () => {
  const body = {model, input: "Hello there", temperature: 0, max_output_tokens: 16};
  const whole = await openai.responses.create(body);
  assert.equal(whole.status, "incomplete");
  assert.equal(whole.usage.output_tokens, 16);
  const final = await openai.responses.stream(body).finalResponse();
  const text = response => response.output.map(item => (item.content ?? []).map(part => part.text).join("")).join("|");
  assert.equal(text(final), text(whole));
  await assert.rejects(openai.responses.create({...body, previous_response_id: "resp_1"}), OpenAI.BadRequestError);
});

test("openai: completions", async () => {
  const answer = await openai.completions.create({model, prompt: "Hello", max_tokens: 4, temperature: 0});
  assert.equal(answer.choices[0].finish_reason, "length");
});

test("anthropic: a streamed message says what a whole one says", async () => {
  const body = {model: "claude-sonnet-4-5", max_tokens: 16, temperature: 0, messages: [ask]};
  const whole = await anthropic.messages.create(body);
  assert.equal(whole.stop_reason, "max_tokens");
  assert.equal(whole.model, "claude-sonnet-4-5");
  const final = await anthropic.messages.stream(body).finalMessage();
  assert.deepEqual(final.content, whole.content);
  const count = await anthropic.messages.countTokens({model: body.model, messages: [ask], thinking: {type: "disabled"}});
  assert.equal(count.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
});

test("anthropic: thinking comes as a block with a signature and goes back", async () => {
  const first = await anthropic.messages.create({model, max_tokens: 40, temperature: 0, messages: [ask], thinking: {type: "enabled", budget_tokens: 1024}});
  assert.equal(first.content[0].type, "thinking");
  assert.ok(first.content[0].signature);
  const second = await anthropic.messages.create({model, max_tokens: 4, messages: [ask, {role: "assistant", content: first.content}, ask],
    thinking: {type: "enabled", budget_tokens: 1024}});
  assert.equal(second.type, "message");
});

test("anthropic: errors are of their types", async () => {
  await assert.rejects(anthropic.messages.create({model, max_tokens: 4, messages: []}), Anthropic.BadRequestError);
  await assert.rejects(anthropic.messages.create({model, max_tokens: 4, messages: [{role: "user", content: "x".repeat(30000)}]}), error =>
    error instanceof Anthropic.BadRequestError && /prompt is too long: \d+ tokens > \d+ maximum/.test(error.message));
  const stranger = new Anthropic({baseURL: server.url, apiKey: "wrong", maxRetries: 0});
  await assert.rejects(stranger.messages.create({model, max_tokens: 4, messages: [ask]}), Anthropic.AuthenticationError);
});

test("ai sdk: text, streams, objects", async () => {
  const text = await generateText({model: sdk(model), prompt: "Hello there", temperature: 0, maxOutputTokens: 12});
  assert.equal(text.usage.outputTokens, 12);
  const stream = streamText({model: sdk(model), prompt: "Hello there", temperature: 0, maxOutputTokens: 12});
  let streamed = "";
  for await (const part of stream.textStream) streamed += part;
  assert.equal(streamed, text.text);
  const {object} = await generateObject({model: sdk(model), prompt: "Hello", maxOutputTokens: 300, schema: jsonSchema({type: "object",
    properties: {ok: {type: "boolean"}}, required: ["ok"], additionalProperties: false}),
    providerOptions: {polystrata: {chat_template_kwargs: {enable_thinking: false}}}});
  assert.equal(typeof object.ok, "boolean");
});
