// The wrapper for servers of the Model Context Protocol, asked by the SDK's own client.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { openStore } from "bounded-evidence";
import { RANGE_URI_PREFIX, boundServer } from "bounded-evidence/mcp";
import { z } from "zod";

const INFO = { name: "test", version: "1.0.0" };

/** A client of a wrapped server that has these tools: callbacks, or [config, callback]. */
async function connect(tools, { limits, store } = {}) {
  const artifacts = (await openStore(store ? { kind: "custom", store } : { kind: "memory" })).artifacts("server");
  const server = boundServer(new McpServer(INFO), { artifacts, limits });
  for (const [name, tool] of Object.entries(tools)) {
    const [config, callback] = Array.isArray(tool) ? tool : [{}, tool];
    server.registerTool(name, config, callback);
  }
  const client = new Client(INFO);
  const [one, other] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(one), client.connect(other)]);
  return { client, server, artifacts };
}

const text = (text) => ({ content: [{ type: "text", text }] });
const json = (text) => JSON.parse(text.slice(text.indexOf("{")));

/** The whole of what an observation stands for, read with resources/read. */
async function whole(client, link, { byte_count }, step = 512) {
  const base = link.uri.slice(0, link.uri.lastIndexOf("/") + 1);
  let data = "";
  for (let start = 0; start < byte_count; start += step) {
    const { contents } = await client.readResource({ uri: `${base}${start}-${Math.min(start + step, byte_count)}` });
    data += json(contents[0].text).data;
  }
  return data;
}

test("a small result is sent as the tool answered it", async () => {
  const { client } = await connect({ get: () => text("x".repeat(512)) });
  assert.deepEqual(await client.callTool({ name: "get" }), text("x".repeat(512)));
});

test("a large result becomes an observation with a link, and resources/read answers its ranges", async () => {
  const log = Array.from({ length: 200 }, (_, line) => `${line} compiling`).join("\n");
  const { client } = await connect({ get: () => text(log) });
  const { content, isError } = await client.callTool({ name: "get" });
  assert.equal(isError, undefined);
  const [{ text: shown }, link] = content;
  assert.ok(shown.startsWith("Tool result externalized:\n") && shown.length <= 512);
  assert.equal(link.type, "resource_link");
  assert.equal(link.uri, RANGE_URI_PREFIX + json(shown).range_request.path);
  const { contents } = await client.readResource({ uri: link.uri });
  assert.equal(json(contents[0].text).data, log.slice(0, 512));
  assert.equal(await whole(client, link, json(shown)), log);
});

test("the ranges are announced as a template, and no artifact is listed", async () => {
  const { client } = await connect({ get: () => text("x".repeat(1000)) });
  await client.callTool({ name: "get" });
  const { resourceTemplates } = await client.listResourceTemplates();
  assert.deepEqual(resourceTemplates.map(({ uriTemplate }) => uriTemplate), [`${RANGE_URI_PREFIX}{+path}`]);
  assert.deepEqual((await client.listResources()).resources, []);
});

test("a refused range is an error that reveals nothing", async () => {
  const { client } = await connect({ get: () => text("漢".repeat(1000)) });
  const { content } = await client.callTool({ name: "get" });
  const base = content[1].uri.replace(/\d+-\d+$/, "");
  const unknown = base.replace(/[0-9a-f]{64}/, "0".repeat(64));
  const refusals = {
    [`${base}0-2`]: /does not align to UTF-8 text/,
    [`${base}5-5`]: /must satisfy 0 <= start < end/,
    [`${base}0-600`]: /exceeds 512 bytes/,
    [`${base}2999-3003`]: /exceeds the stored byte count/,
    [`${unknown}0-3`]: /not available/,
    [`${base}x-y`]: /malformed/,
    [`${RANGE_URI_PREFIX}etc/passwd`]: /malformed/,
    [`${RANGE_URI_PREFIX}../../etc/passwd`]: /malformed/,
  };
  for (const [uri, message] of Object.entries(refusals)) {
    await assert.rejects(client.readResource({ uri }), (error) => error.code === -32602 && message.test(error.message), uri);
  }
});

test("a model that has only tools reads ranges with read_file", async () => {
  const log = "y".repeat(2000);
  const { client } = await connect({ get: () => text(log) });
  assert.deepEqual((await client.listTools()).tools.map(({ name }) => name), ["get", "read_file"]);
  const { content } = await client.callTool({ name: "get" });
  const { tool, path } = json(content[0].text).range_request;
  const answer = await client.callTool({ name: tool, arguments: { path } });
  assert.equal(answer.isError, false);
  assert.equal(json(answer.content[0].text).data, log.slice(0, 512));
  const refused = await client.callTool({ name: tool, arguments: { path: `${path}9` } });
  assert.equal(refused.isError, true);
  assert.match(refused.content[0].text, /^error: /);
  assert.equal((await client.callTool({ name: tool, arguments: { path: "a.txt" } })).isError, true);
});

test("a server's own read_file gets every other path", async () => {
  const seen = [];
  const read_file = [
    { inputSchema: { path: z.string() } },
    ({ path }) => {
      seen.push(path);
      return text("z".repeat(1000));
    },
  ];
  const { client } = await connect({ read_file });
  assert.deepEqual((await client.listTools()).tools.map(({ name }) => name), ["read_file"]);
  const { content } = await client.callTool({ name: "read_file", arguments: { path: "a.txt" } });
  await client.callTool({ name: "read_file", arguments: { path: json(content[0].text).range_request.path } });
  assert.deepEqual(seen, ["a.txt"]);
});

test("structured content and several blocks are stored as their JSON; what is no text stays", async () => {
  const structuredContent = { lines: Array.from({ length: 100 }, (_, line) => `line ${line}`) };
  const image = { type: "image", data: "QUJD".repeat(1000), mimeType: "image/png" };
  const blob = { type: "resource", resource: { uri: "file:///a", blob: "QUJD".repeat(1000) } };
  const embedded = { type: "resource", resource: { uri: "file:///b", text: "b".repeat(400) } };
  const tools = {
    structured: [
      { outputSchema: { lines: z.array(z.string()) } },
      () => ({ content: [{ type: "text", text: JSON.stringify(structuredContent) }], structuredContent }),
    ],
    blocks: () => ({ content: [image, { type: "text", text: "a".repeat(400) }, embedded, blob], _meta: { a: 1 } }),
    image: () => ({ content: [image] }),
  };
  const { client } = await connect(tools);
  // The client checks results against the schemas that it was told.
  const { tools: announced } = await client.listTools();
  assert.ok(announced.every(({ outputSchema }) => outputSchema === undefined));
  const structured = await client.callTool({ name: "structured" });
  assert.equal(structured.structuredContent, undefined);
  const [observation, link] = structured.content;
  const stored = JSON.parse(await whole(client, link, json(observation.text)));
  assert.deepEqual(stored.structuredContent, structuredContent);
  const blocks = await client.callTool({ name: "blocks" });
  assert.deepEqual(blocks.content.slice(2), [image, blob]);
  assert.deepEqual(blocks._meta, { a: 1 });
  assert.deepEqual(
    JSON.parse(await whole(client, blocks.content[1], json(blocks.content[0].text))).content,
    [{ type: "text", text: "a".repeat(400) }, embedded],
  );
  assert.deepEqual((await client.callTool({ name: "image" })).content, [image]);
});

test("a tool's output schema is still checked by the server", async () => {
  const wrong = [{ outputSchema: { n: z.number() } }, () => ({ content: [], structuredContent: { n: "x" } })];
  const { client } = await connect({ wrong });
  const { isError, content } = await client.callTool({ name: "wrong" });
  assert.equal(isError, true);
  assert.match(content[0].text, /Output validation error/);
});

test("a large error is bounded too, and stays an error", async () => {
  const message = "trace ".repeat(1000);
  const { client } = await connect({
    fail: () => {
      throw new Error(message);
    },
    failed: () => ({ ...text(message), isError: true }),
  });
  for (const name of ["fail", "failed"]) {
    const { isError, content } = await client.callTool({ name });
    assert.equal(isError, true);
    assert.equal(await whole(client, content[1], json(content[0].text)), message);
  }
});

test("when storing fails the call is an error, and nothing of the result is sent", async () => {
  const store = {
    get: (keys) => keys.map(() => undefined),
    list: () => [],
    commit: () => {
      throw Object.assign(new Error("no room"), { code: "exhausted" });
    },
  };
  const { client } = await connect({ get: () => text("secret ".repeat(1000)) }, { store });
  await assert.rejects(client.callTool({ name: "get" }), (error) => !/secret/.test(error.message));
});

test("a server that has tools or tasks already is refused", async () => {
  const artifacts = (await openStore({ kind: "memory" })).artifacts("server");
  const server = new McpServer(INFO);
  server.registerTool("early", {}, () => text("x"));
  const taskStore = new InMemoryTaskStore();
  for (const early of [server, new McpServer(INFO, { taskStore }), new McpServer(INFO, { capabilities: { tools: {} } })]) {
    assert.throws(() => boundServer(early, { artifacts }), { code: "invalid_argument" });
  }
});

test("the example answers a client over stdio", async () => {
  const example = fileURLToPath(new URL("../examples/mcp-server.mjs", import.meta.url));
  const client = new Client(INFO);
  await client.connect(new StdioClientTransport({ command: process.execPath, args: [example] }));
  try {
    const { content } = await client.callTool({ name: "build", arguments: { target: "all" } });
    const range = content[1].uri.replace(/\d+-\d+$/, "50000-50037");
    const { contents } = await client.readResource({ uri: range });
    assert.equal(json(contents[0].text).data, "error[E0282]: type annotations needed");
  } finally {
    await client.close();
  }
  assert.ok((await readFile(example, "utf8")).split("\n").length <= 40);
});
