/** The server form as a newcomer and an operator meet it: the first start, the banner, mistakes, the end. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, readFile, rm, stat, writeFile } from "node:fs/promises";
import { Agent, request } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import { freePort } from "../support/brokers/programs.ts";
import { callIn, publishFlow } from "../support/flows.ts";
import type { Json } from "../support/gateway-client.ts";
import { startGateway } from "../support/gateway.ts";
import { startHttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, text as textRound, startLlmStub } from "../support/llm-stub.ts";
import { rawClient } from "../support/mcp-clients.ts";
import { serverProgram } from "../support/programs.ts";
import { verifies } from "../support/verifies.ts";

interface Started {
  readonly child: ChildProcess;
  readonly out: () => string;
  readonly err: () => string;
  /** Resolves with the exit code. */
  readonly ended: Promise<number | null>;
}

const children: Started[] = [];
const directories: string[] = [];

afterEach(async () => {
  for (const { child, ended } of children.splice(0)) {
    child.kill("SIGKILL");
    await ended;
  }
  for (const directory of directories.splice(0)) await rm(directory, { recursive: true, force: true });
});

async function newDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-start-"));
  directories.push(directory);
  return directory;
}

function start(
  directory: string,
  env: Record<string, string> = {},
  parameters: readonly string[] = [],
  standardError: "pipe" | number = "pipe",
): Started {
  const child = spawn(process.execPath, [serverProgram, ...parameters], {
    cwd: directory,
    env: { PATH: process.env["PATH"] ?? "", PORT: "0", ...env },
    stdio: ["ignore", "pipe", standardError],
  });
  let out = "";
  let err = "";
  child.stdout?.on("data", (part: Buffer) => (out += part.toString("utf8")));
  child.stderr?.on("data", (part: Buffer) => (err += part.toString("utf8")));
  const ended = once(child, "close").then(([code]: (number | null)[]) => code ?? null);
  const started = { child, ended, out: () => out, err: () => err };
  children.push(started);
  return started;
}

async function ready(started: Started): Promise<string> {
  await expect.poll(started.out, { timeout: 20_000 }).toContain("\ncurl ");
  return /listens on (\S+)/.exec(started.out())?.[1] ?? "";
}

const curlLine = (started: Started): string =>
  started
    .out()
    .split("\n")
    .find((line) => line.startsWith("curl ")) ?? "";

async function stop(started: Started): Promise<number | null> {
  started.child.kill("SIGTERM");
  return started.ended;
}

const run = promisify(execFile);
const shell = async (line: string, env: Record<string, string> = {}): Promise<string> =>
  (await run("sh", ["-c", line.replace(/^curl /, "curl -sS ")], { env: { ...process.env, ...env } })).stdout;

describe(`the first start ${verifies("CHAT-4", "CHAT-9")}`, () => {
  test("prints where it listens, the key, and a curl line that makes a real tool call", async () => {
    const directory = await newDirectory();
    const started = start(directory);
    const url = await ready(started);
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    const key = /^Key:\s+(\S+)/m.exec(started.out())?.[1] ?? "";
    expect(started.out()).toContain("127.0.0.0/8");
    expect(started.out()).toContain("toolyard/scripted");

    const answer: unknown = JSON.parse(await shell(curlLine(started)));
    expect(answer).toMatchObject({
      object: "chat.completion",
      tool_execution: { executed: true, tools_called: ["write_file"], session_id: "hello" },
    });
    const { fetch } = globalThis;
    const file = await fetch(`${url}/v1/sessions/hello/files/hello.txt`, {
      headers: { authorization: `Bearer ${key}` },
    });
    expect([file.status, await file.text()]).toEqual([200, "Hello from Toolyard"]);

    expect((await stat(join(directory, ".toolyard/admin.key"))).mode & 0o777).toBe(0o600);
    expect((await readFile(join(directory, ".toolyard/admin.key"), "utf8")).trim()).toBe(key);
    expect(await stop(started)).toBe(0);

    const again = start(directory);
    await ready(again);
    expect(again.out()).toContain(key);
    expect(await stop(again)).toBe(0);
  });

  test("with a key and an empty list of addresses given, shows neither the key nor loopback", async () => {
    const key = "an-operator-key-of-some-length";
    const started = start(await newDirectory(), { TOOLYARD_ADMIN_KEY: key, TOOLYARD_EGRESS_ALLOW: "" });
    await ready(started);
    expect(started.out() + started.err()).not.toContain(key);
    expect(started.out()).toContain("public addresses only");
    expect(JSON.parse(await shell(curlLine(started), { TOOLYARD_ADMIN_KEY: key }))).toMatchObject({
      tool_execution: { executed: true },
    });
    expect(await stop(started)).toBe(0);
  });

  test("a connection on which nothing was ever sent does not hold the end up", async () => {
    const started = start(await newDirectory());
    const url = new URL(await ready(started));
    const silent = connect(Number(url.port), url.hostname);
    await once(silent, "connect");
    silent.on("error", () => undefined);
    const closed = once(silent, "close");
    started.child.kill("SIGTERM");
    // It is cut at once: before the grace for requests in hand could have run out.
    await closed;
    expect(started.err()).not.toContain("cutting off");
    expect(await started.ended).toBe(0);
  });

  test("logs lines of JSON to standard error and nothing but the banner to standard output", async () => {
    const started = start(await newDirectory());
    const url = await ready(started);
    const banner = started.out();
    await shell(`curl ${url}/health`);
    expect(await stop(started)).toBe(0);
    expect(started.out()).toBe(banner);
    const lines = started
      .err()
      .trim()
      .split("\n")
      .map((line): unknown => JSON.parse(line));
    expect(lines).toContainEqual(expect.objectContaining({ route: "/health", status: 200, msg: "request" }));
  });
});

describe("a start that cannot be", () => {
  test("says which settings it cannot use", async () => {
    const started = start(await newDirectory(), { PORT: "eighty", TOOLYARD_LOG_LEVEL: "loud" });
    expect(await started.ended).toBe(1);
    expect(started.err()).toMatch(/PORT: must be .*\n.*TOOLYARD_LOG_LEVEL: must be/);
    expect(started.err()).not.toContain("    at ");
  });

  test("says that another process uses the data directory, and joins it when asked", async () => {
    const directory = await newDirectory();
    await ready(start(directory));
    const refused = start(directory);
    expect(await refused.ended).toBe(1);
    expect(refused.err()).toContain("--join");
    const joined = start(directory, {}, ["--join"]);
    await ready(joined);
    expect(await stop(joined)).toBe(0);
  });

  test("says that the port is taken, and leaves the data directory free", async () => {
    const port = new URL(await ready(start(await newDirectory()))).port;
    const directory = await newDirectory();
    const refused = start(directory, { PORT: port });
    expect(await refused.ended).toBe(1);
    expect(refused.err()).toContain(`port ${port} is in use`);
    const next = start(directory);
    await ready(next);
  });

  test.each([
    ["a master key that is none", { TOOLYARD_MASTER_KEY: "hunter2" }, /TOOLYARD_MASTER_KEY must be 32 bytes/],
    ["a database that is none", { DATABASE_URL: "file::memory:" }, /DATABASE_URL/],
    ["a range of addresses that is none", { TOOLYARD_EGRESS_ALLOW: "10.0.0.0/99" }, /10\.0\.0\.0\/99/],
  ])("says so for %s", async (_what, env, message) => {
    const started = start(await newDirectory(), env);
    expect(await started.ended).toBe(1);
    expect(started.err()).toMatch(message);
    expect(started.err()).not.toContain("hunter2");
  });

  test("shows how to call it for a parameter it does not know", async () => {
    const started = start(await newDirectory(), {}, ["--jion"]);
    expect(await started.ended).toBe(2);
    expect(started.err()).toContain("Usage: npm start");
  });
});

test("a start without the master key of what is there says so beside the banner: it can be given back", async () => {
  const directory = await newDirectory();
  const first = start(directory);
  await ready(first);
  expect(await stop(first)).toBe(0);
  expect(first.err()).not.toContain("not ready");
  await rm(join(directory, ".toolyard/master.key"));
  const second = start(directory);
  await ready(second);
  await expect
    .poll(second.err)
    .toMatch(/"check":"master_key".*wrapped under master key.*master\.key.*"msg":"not ready"/);
});

describe("the end", () => {
  test("waits for a stream under way, says so to who asks, then takes nothing new, and is 0", async () => {
    const llm = await startLlmStub();
    llm.script({ ...textRound("one two three four five six seven eight"), gapMs: 500 });
    const started = start(await newDirectory(), {
      OPENAI_BASE_URL: llm.url,
      TOOLYARD_DEFAULT_MODEL: "stub-1",
      TOOLYARD_ADMIN_KEY: "an-operator-key-of-some-length",
    });
    const url = await ready(started);
    const { fetch } = globalThis;
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: "Bearer an-operator-key-of-some-length", "content-type": "application/json" },
      body: JSON.stringify({ stream: true, messages: [{ role: "user", content: "count" }] }),
    });
    expect(answer.status).toBe(200);
    started.child.kill("SIGTERM");
    await expect.poll(started.err).toContain('"msg":"stopping"');
    // Asked a moment before it is told to stop as well: what is kept of that does not hide it.
    const asked = await fetch(`${url}/health/ready`);
    expect([asked.status, asked.headers.get("connection")]).toEqual([503, "close"]);
    expect(await asked.text()).toContain('"name":"draining","ok":false');
    await sleep(2_100);
    await expect(fetch(`${url}/health`)).rejects.toThrow("fetch failed");
    const text = await answer.text();
    expect(text).toContain("eight");
    expect(text.endsWith("data: [DONE]\n\n")).toBe(true);
    expect(await started.ended).toBe(0);
    expect(started.err()).not.toContain("cutting off");
    await llm.close();
  });

  test("answers what a proxy sends meanwhile on a connection that it has kept, and says that it is the last one", async () => {
    const llm = await startLlmStub();
    const message = { role: "assistant", content: "late" };
    llm.script({ json: { choices: [{ index: 0, message, finish_reason: "stop" }] }, delayMs: 500 });
    const key = "an-operator-key-of-some-length";
    const started = start(await newDirectory(), {
      OPENAI_BASE_URL: llm.url,
      TOOLYARD_DEFAULT_MODEL: "stub-1",
      TOOLYARD_ADMIN_KEY: key,
    });
    const { hostname: host, port } = new URL(await ready(started));
    const ask = async (agent: Agent, path: string, body?: string): Promise<readonly unknown[]> => {
      const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
      const asked = request({ agent, host, port, path, headers, method: body === undefined ? "GET" : "POST" });
      asked.end(body);
      const [answer] = await once(asked, "response");
      answer.resume();
      await once(answer, "end");
      return [answer.statusCode, answer.headers.connection, asked.reusedSocket];
    };
    const kept = new Agent({ keepAlive: true });
    const underWay = new Agent({ keepAlive: true });
    await ask(kept, "/health");
    const chat = ask(
      underWay,
      "/v1/chat/completions",
      JSON.stringify({ messages: [{ role: "user", content: "wait" }] }),
    );
    await expect.poll(() => llm.requests.length).toBe(1);
    started.child.kill("SIGTERM");
    await expect.poll(started.err).toContain('"msg":"stopping"');
    expect(await ask(kept, "/health")).toEqual([200, "close", true]);
    expect(await chat).toEqual([200, "close", false]);
    expect(await started.ended).toBe(0);
    kept.destroy();
    underWay.destroy();
    await llm.close();
  });

  test("does not wait for connections that are only kept open", async () => {
    const started = start(await newDirectory());
    const url = new URL(await ready(started));
    const agent = new Agent({ keepAlive: true });
    const asked = request({ agent, host: url.hostname, port: url.port, path: "/health" });
    asked.end();
    const [answer] = await once(asked, "response");
    answer.resume();
    await once(answer, "end");
    expect(await stop(started)).toBe(0);
    expect(started.err()).not.toContain("cutting off");
    agent.destroy();
  });

  test("comes at once with a second signal", async () => {
    const llm = await startLlmStub();
    llm.respond(() => ({ json: {}, delayMs: 60_000 }));
    const key = "an-operator-key-of-some-length";
    const started = start(await newDirectory(), {
      OPENAI_BASE_URL: llm.url,
      TOOLYARD_DEFAULT_MODEL: "stub-1",
      TOOLYARD_ADMIN_KEY: key,
    });
    const url = new URL(await ready(started));
    const body = JSON.stringify({ messages: [{ role: "user", content: "wait" }] });
    const socket = connect(Number(url.port), url.hostname);
    socket.on("error", () => undefined);
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    await expect.poll(() => llm.requests.length).toBe(1);
    started.child.kill("SIGTERM");
    await expect.poll(started.err).toContain('"msg":"stopping"');
    // The same signal a moment later is the same wish.
    started.child.kill("SIGTERM");
    await sleep(600);
    expect(started.child.exitCode).toBeNull();
    started.child.kill("SIGTERM");
    expect(await started.ended).toBe(1);
    socket.destroy();
    await llm.close();
  });
});

describe(`an end that cannot wait ${verifies("CHAT-6")}`, () => {
  test("tells who is still being answered why it ends, and so says the record", async () => {
    const llm = await startLlmStub();
    const forEver = { ...textRound("one two three four five six seven eight"), gapMs: 10_000 };
    llm.respond(({ stream }) => (stream === true ? forEver : { json: {}, delayMs: 60_000 }));
    const backEnd = await startHttpStub(() => ({ body: "{}", delayMs: 60_000 }));
    const staying = await startGateway();
    const leaving = await startGateway({ sharedWith: staying, graceMs: 100 });
    const tenant = await staying.newTenant();
    await tenant.addProvider(llm.url);
    await tenant.addPlugin(writingTool(backEnd));
    await tenant.addPlugin(readingTool(backEnd));
    const client = leaving.client(tenant.key);
    const chat = { model: "stub-1", messages: [{ role: "user", content: "count" }] };
    const answers = [
      client.send("post", "/v1/chat/completions", { ...chat, stream: true }),
      client.send("post", "/v1/chat/completions", chat),
      client.send("post", "/v1/tools/invoke", { name: "create_order", arguments: { sku: "x" } }),
      client.send("post", "/v1/tools/invoke", { name: "lookup", arguments: { q: "x" } }),
    ];
    await expect.poll(() => [llm.requests.length, backEnd.requests.length], { timeout: 20_000 }).toEqual([2, 2]);
    await leaving.close();
    const [stream, whole, written, read] = await Promise.all(answers);
    expect(stream?.text).toContain('"code":"shutting_down"');
    expect(stream?.text.endsWith("data: [DONE]\n\n")).toBe(true);
    expect([whole?.status, whole?.json.error.code]).toEqual([503, "shutting_down"]);
    expect([written?.status, written?.json.error.code]).toEqual([502, "outcome_unknown"]);
    expect([read?.status, read?.json.error.code]).toEqual([503, "shutting_down"]);
    const records = (await tenant.client.get("/v1/calls")).data;
    expect(records.map(({ kind, state, error }: Json) => [kind, state, error.code]).sort()).toEqual([
      ["chat", "failed", "shutting_down"],
      ["chat", "failed", "shutting_down"],
      ["tool", "failed", "shutting_down"],
      ["tool", "unknown", "outcome_unknown"],
    ]);
    await Promise.all([staying.close(), llm.close(), backEnd.close()]);
  });

  test("leaves what a chat has written to whoever sends its key again", async () => {
    const llm = await startLlmStub();
    const backEnd = await startHttpStub(() => ({ body: "{}" }));
    const staying = await startGateway();
    const leaving = await startGateway({ sharedWith: staying, graceMs: 100 });
    const tenant = await staying.newTenant();
    await tenant.addProvider(llm.url);
    await tenant.addPlugin(writingTool(backEnd));
    const order = calls({ name: "create_order", arguments: { sku: "x" } });
    llm.script(order, { json: {}, delayMs: 60_000 }, order, textRound("ordered"));
    const body = { model: "stub-1", messages: [{ role: "user", content: "order" }] };
    const options = { headers: { "idempotency-key": "order-1" } };
    const cut = leaving.client(tenant.key).send("post", "/v1/chat/completions", body, options);
    await expect.poll(() => llm.requests.length, { timeout: 20_000 }).toBe(2);
    await leaving.close();
    expect((await cut).json.error.code).toBe("shutting_down");
    const again = await tenant.client.send("post", "/v1/chat/completions", body, options);
    expect([again.status, again.json.choices?.[0].message.content]).toEqual([200, "ordered"]);
    expect(backEnd.requests).toHaveLength(1);
    await Promise.all([staying.close(), llm.close(), backEnd.close()]);
  });

  test.each([
    ["has written has an end that nobody knows", true, "unknown", "outcome_unknown"],
    ["has written nothing has failed, and may be asked again", false, "failed", "shutting_down"],
  ])("an agent that %s", async (_what, writes, state, code) => {
    const llm = await startLlmStub();
    const backEnd = await startHttpStub(() => ({ body: "{}" }));
    const staying = await startGateway();
    const leaving = await startGateway({ sharedWith: staying, graceMs: 100 });
    const tenant = await staying.newTenant();
    await tenant.addProvider(llm.url);
    await tenant.addPlugin(writingTool(backEnd));
    await tenant.addPlugin(readingTool(backEnd));
    const tools = ["create_order", "lookup"];
    const agent = await tenant.client.post("/v1/agents", { name: "clerk", model: "stub-1", tools });
    const asks = calls({ name: `agent_${agent.name}`, arguments: { prompt: "order" } });
    const works = writes
      ? calls({ name: "create_order", arguments: { sku: "x" } })
      : calls({ name: "lookup", arguments: { q: "x" } });
    llm.script(asks, works, { json: {}, delayMs: 60_000 }, asks, textRound("well"));
    const body = { model: "stub-1", messages: [{ role: "user", content: "order" }] };
    const options = { headers: { "idempotency-key": "order-1" } };
    const cut = leaving.client(tenant.key).send("post", "/v1/chat/completions", body, options);
    await expect.poll(() => llm.requests.length, { timeout: 20_000 }).toBe(3);
    await leaving.close();
    expect((await cut).json.error.code).toBe("shutting_down");
    const asked = (await tenant.client.get("/v1/calls?kind=tool")).data.find(
      ({ uri }: Json) => uri === "agent://clerk",
    );
    const again = await tenant.client.send("post", "/v1/chat/completions", body, options);
    const { messages } = llm.requests.at(-1) as Json;
    expect([asked.state, again.status]).toEqual([state, 200]);
    expect(JSON.parse(messages.at(-1).content).error.code).toBe(code);
    await Promise.all([staying.close(), llm.close(), backEnd.close()]);
  });

  test("leaves what a client of /mcp has been waiting for to the worker that has it", async () => {
    const staying = await startGateway({ timing: { cancelPollMs: 50 } });
    const leaving = await startGateway({ sharedWith: staying, graceMs: 100, requestsOnly: true });
    const release = Promise.withResolvers<void>();
    const backEnd = await startHttpStub(async () => {
      await release.promise;
      return { body: "{}" };
    });
    const tenant = await staying.newTenant();
    await tenant.addPlugin(readingTool(backEnd, "lookup", { timeout_ms: 120_000 }));
    const params = { name: "lookup", arguments: { q: "x" } };
    const asking = rawClient(`${leaving.url}/mcp`, tenant.key).ask("tools/call", params);
    await expect.poll(() => backEnd.requests.length, { timeout: 20_000 }).toBe(1);
    await leaving.close();
    const { call_id: id, status } = (await asking).answer.result.structuredContent;
    expect(status).toBe("pending");
    await sleep(300);
    release.resolve();
    expect(await callIn(tenant, id, undefined, 30_000)).toMatchObject({ state: "completed", error: null });
    await Promise.all([staying.close(), backEnd.close()]);
  });

  test("ends what is told of a run, which goes on, and so does whoever asks another process from there", async () => {
    const staying = await startGateway();
    const leaving = await startGateway({ sharedWith: staying, graceMs: 100, requestsOnly: true });
    const release = Promise.withResolvers<void>();
    const backEnd = await startHttpStub(async () => {
      await release.promise;
      return { body: "{}" };
    });
    const tenant = await staying.newTenant();
    await tenant.addPlugin(readingTool(backEnd));
    const look = { kind: "tool", name: "lookup", arguments: { q: "x" } };
    await publishFlow(tenant, { name: "one_look", start: "look", nodes: { look } });
    const following = leaving
      .client(tenant.key)
      .send("post", "/v1/run_workflow", { workflow_id: "one_look", cancel_on_disconnect: true });
    await expect.poll(() => backEnd.requests.length, { timeout: 20_000 }).toBe(1);
    await leaving.close();
    expect((await following).text).not.toContain("event: done");
    release.resolve();
    const [run] = (await tenant.client.get("/v1/calls?tool=one_look")).data;
    expect(await callIn(tenant, run.id, undefined, 30_000)).toMatchObject({ state: "completed", error: null });
    await Promise.all([staying.close(), backEnd.close()]);
  });

  test("leaves the run of a flow that somebody waits for to another process", async () => {
    const timing = { leaseMs: 3_000, heartbeatMs: 500 };
    const staying = await startGateway({ timing, tickEveryMs: 200 });
    const leaving = await startGateway({ sharedWith: staying, graceMs: 100, requestsOnly: true, timing });
    const backEnd = await startHttpStub(() => ({ body: "{}", delayMs: backEnd.requests.length === 2 ? 60_000 : 0 }));
    const tenant = await staying.newTenant();
    await tenant.addPlugin(readingTool(backEnd));
    const look = { kind: "tool", name: "lookup", arguments: { q: "x" } };
    await publishFlow(tenant, {
      name: "two_looks",
      start: "first",
      nodes: { first: { ...look, next: "second" }, second: look },
    });
    const invoked = { uri: "flow://two_looks", arguments: {} };
    const answer = leaving
      .client(tenant.key)
      .send("post", "/v1/tools/invoke", invoked)
      .catch(() => undefined);
    await expect.poll(() => backEnd.requests.length, { timeout: 20_000 }).toBe(2);
    const [run] = (await tenant.client.get("/v1/calls?tool=two_looks")).data;
    await leaving.close();
    await answer;
    expect(await callIn(tenant, run.id, undefined, 30_000)).toMatchObject({ state: "completed", error: null });
    // The step that had ended is not done again.
    expect(backEnd.requests).toHaveLength(3);
    await Promise.all([staying.close(), backEnd.close()]);
  });
});

test("a log that lies on a full disk keeps nobody from being answered, and the end is 0", async () => {
  const full = await open("/dev/full", "w");
  const started = start(await newDirectory(), {}, [], full.fd);
  const url = await ready(started);
  const { fetch } = globalThis;
  for (let at = 0; at < 3; at += 1) {
    // Longer than lines are gathered: each is a write that fails.
    await sleep(150);
    expect((await fetch(`${url}/health`)).status).toBe(200);
  }
  expect(await stop(started)).toBe(0);
  await full.close();
});

test("nobody who reads what it prints keeps it from starting and from ending with 0", async () => {
  const port = await freePort();
  const started = start(await newDirectory(), { PORT: String(port) });
  started.child.stdout?.destroy();
  const { fetch } = globalThis;
  const isWell = (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${port}/health/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  await expect.poll(isWell, { timeout: 20_000 }).toBe(true);
  expect(await stop(started)).toBe(0);
});

test("a database that is not as it should be is said with what it says itself", async () => {
  const directory = await newDirectory();
  const database = join(directory, "other.db");
  await writeFile(database, "no database");
  const wrong = start(directory, { DATABASE_URL: `file:${database}` });
  expect(await wrong.ended).toBe(1);
  expect(wrong.err()).toMatch(/^DATABASE_URL: .*SQLITE_NOTADB/);

  const odd = join(directory, "odd.db");
  const tables = new DatabaseSync(odd);
  tables.exec("CREATE TABLE tenants (odd text)");
  tables.close();
  const started = start(directory, { DATABASE_URL: `file:${odd}` });
  expect(await started.ended).toBe(1);
  expect(started.err()).toContain("table `tenants` already exists");
});

test("a request whose target cannot be read is answered in the one error shape", async () => {
  const started = start(await newDirectory());
  const url = new URL(await ready(started));
  const socket = connect(Number(url.port), url.hostname);
  let text = "";
  socket.on("data", (part: Buffer) => (text += part.toString()));
  socket.write("GET /health HTTP/1.1\r\nhost: a/b@c\r\nconnection: close\r\n\r\n");
  await once(socket, "close");
  expect(text).toMatch(/^HTTP\/1\.1 400 /);
  expect(text).toContain('"code":"invalid_request"');
});
