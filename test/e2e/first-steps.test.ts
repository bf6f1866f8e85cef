/**
 * What a newcomer does, with the tools that a newcomer has: `npm start` and curl. The chat
 * specification's two calls run as they stand there, with our port and a key.
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { routes } from "../../functions/http/routes/index.ts";
import type { RouteModule } from "../../functions/http/define-route.ts";
import type { Json } from "../support/gateway-client.ts";
import { startHttpStub } from "../support/http-stub.ts";
import { calls, startLlmStub, text as textRound, type LlmStub } from "../support/llm-stub.ts";
import { serverProgram } from "../support/programs.ts";
import { sseEvents } from "../support/sse.ts";
import { verifies } from "../support/verifies.ts";

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);

interface Started {
  /** Of npm, or of the process itself. */
  readonly child: ChildProcess;
  out(): string;
  err(): string;
  /** Resolves with the exit code; an end by a signal is null. */
  readonly ended: Promise<number | null>;
}

const children: Started[] = [];
const directories: string[] = [];

async function newDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-first-"));
  directories.push(directory);
  return directory;
}

async function cleanUp(): Promise<void> {
  for (const { child, ended } of children.splice(0)) {
    // npm's children are in its process group.
    if (child.exitCode === null && child.signalCode === null && child.pid !== undefined)
      process.kill(-child.pid, "SIGKILL");
    await ended;
  }
  for (const directory of directories.splice(0)) await rm(directory, { recursive: true, force: true });
}

function start(command: readonly [string, ...string[]], env: Readonly<Record<string, string>>): Started {
  const [program, ...parameters] = command;
  const child = spawn(program, parameters, {
    cwd: root,
    env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let out = "";
  let err = "";
  child.stdout.on("data", (part: Buffer) => (out += part.toString("utf8")));
  child.stderr.on("data", (part: Buffer) => (err += part.toString("utf8")));
  // All output is there when it has closed, which is after the exit.
  const ended = once(child, "close").then(([code]: (number | null)[]) => code ?? null);
  const started = { child, ended, out: () => out, err: () => err };
  children.push(started);
  return started;
}

const npmStart = ["npm", "start"] as const;
const nodeStart = [process.execPath, serverProgram] as const;

/** The curl line of the banner, once it is there. */
async function curlLine(started: Started): Promise<string> {
  const find = (): string => {
    const line = /^curl .*$/m.exec(started.out())?.[0];
    if (line === undefined) throw new Error(`no curl line yet: ${started.out()}${started.err()}`);
    return line;
  };
  return vi.waitFor(find, { timeout: 90_000 });
}

const urlOf = (started: Started): string => /listens on (\S+)/.exec(started.out())?.[1] ?? "";

/** @returns what curl wrote to standard output */
async function shell(script: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
  return (await run("bash", ["-c", script], { env: { ...process.env, ...env } })).stdout;
}

describe(`npm start with nothing set ${verifies("CHAT-4", "CHAT-9")}`, () => {
  afterEach(cleanUp);

  test("gives a key, a curl line with a real tool call in it, and ends with npm", async () => {
    const directory = await newDirectory();
    const started = start(npmStart, { PORT: "0", TOOLYARD_DATA_DIR: directory });
    const line = await curlLine(started);
    const answer: Json = JSON.parse(await shell(line.replace("curl", "curl -sS")));
    expect(answer.tool_execution.tools_called).not.toEqual([]);
    expect(answer.choices[0].message.content).not.toBe("");
    expect(answer.choices[0].finish_reason).toBe("stop");

    const keys = (await readdir(directory)).filter((name) => name.endsWith(".key"));
    expect(keys.sort()).toEqual(["admin.key", "master.key"]);
    for (const name of keys) expect((await stat(join(directory, name))).mode & 0o777).toBe(0o600);
    const key = (await readFile(join(directory, "admin.key"), "utf8")).trim();
    expect(line).toContain(`Bearer ${key}`);

    const other = start(nodeStart, { PORT: "0", TOOLYARD_DATA_DIR: directory });
    expect(await other.ended).toBe(1);
    expect(other.err()).toMatch(
      /^The data directory \S+ is in use by process \d+\. Stop it, set TOOLYARD_DATA_DIR .*--join/,
    );
    expect(other.out()).toBe("");

    // As a process manager does it: npm gets the signal, and nobody else.
    started.child.kill("SIGTERM");
    expect(await started.ended).toBe(0);
    await expect(shell(`curl -sS ${urlOf(started)}/health`)).rejects.toThrow(/refused|connect/i);
    const next = start(nodeStart, { PORT: "0", TOOLYARD_DATA_DIR: directory });
    expect(await curlLine(next)).toContain(key);
  });

  test(`the first screen's requests make a tool and use it ${verifies("BLIND-1", "BLIND-6")}`, async () => {
    const backEnd = await startHttpStub(() => ({ body: '{"name":"Toolyard"}' }));
    const started = start(nodeStart, { PORT: "0", TOOLYARD_DATA_DIR: await newDirectory() });
    const key = /Bearer ([^"]+)/.exec(await curlLine(started))?.[1] ?? "";
    const readme = await readFile(join(root, "README.md"), "utf8");
    const requests = /```sh\n(BASE=[^]*?)```/.exec(readme)?.[1] ?? "";
    const script = requests
      .replace(/^BASE=.*$/m, `BASE=${urlOf(started)}; KEY=${key}`)
      .replace("https://api.example.com", backEnd.url)
      .replace("demo-key", "sk-first-steps");
    const out = await shell(`set -e; curl() { command curl -sS -w '\\n' "$@"; }\n${script}`);
    const [credential, plugin, explained, chat] = out
      .trim()
      .split("\n")
      .map((line): Json => JSON.parse(line));
    expect(credential).toMatchObject({ object: "credential", name: "QCC_KEY", version: 1 });
    expect(plugin).toMatchObject({ object: "plugin", name: "search_company", required_credentials: ["QCC_KEY"] });
    expect(explained.request.headers).toContainEqual(["Token", "***QCC_KEY"]);
    expect(chat.tool_execution).toMatchObject({ executed: true, tools_called: ["search_company"] });
    expect(backEnd.requests.map(({ target, headers }) => [target, headers["token"]])).toEqual([
      ["/search?keyword=Toolyard", "sk-first-steps"],
    ]);
    expect(out).not.toContain("sk-first-steps");
    await backEnd.close();
  });

  test("ends cleanly when a terminal signals everybody at once, in the middle of an answer", async () => {
    const llm = await startLlmStub();
    llm.script({ ...textRound("one two three four five six seven eight nine ten"), gapMs: 80 });
    const started = start(npmStart, {
      PORT: "0",
      TOOLYARD_DATA_DIR: await newDirectory(),
      OPENAI_BASE_URL: llm.url,
      TOOLYARD_DEFAULT_MODEL: "stub-1",
    });
    const line = (await curlLine(started))
      .replace("curl", "curl -sSN")
      .replace('"session_id"', '"stream":true,"session_id"');
    const answer = shell(line);
    await expect.poll(() => llm.requests.length).toBe(1);
    if (started.child.pid !== undefined) process.kill(-started.child.pid, "SIGINT");
    const events = sseEvents(await answer) as Json[];
    expect(events.at(-2)).toMatchObject({ type: "done", finish_reason: "stop" });
    expect(await started.ended).toBe(0);
    await llm.close();
  });

  test("ends although nobody reads its log any more", async () => {
    const started = start(nodeStart, { PORT: "0", TOOLYARD_DATA_DIR: await newDirectory() });
    await curlLine(started);
    started.child.stdout?.destroy();
    started.child.stderr?.destroy();
    await shell(`curl -sS ${urlOf(started)}/health`);
    started.child.kill("SIGTERM");
    expect(await started.ended).toBe(0);
  });

  test("says in one line for each setting that cannot be used what to change, and is 1", async () => {
    const wrong: readonly (readonly [Readonly<Record<string, string>>, readonly RegExp[]])[] = [
      [
        { PORT: "abc", DATABASE_URL: ":memory:", TOOLYARD_ADMIN_KEY: "sesame" },
        [/^ {2}PORT: must be a port/, /^ {2}DATABASE_URL: must be a URL that/, /^ {2}TOOLYARD_ADMIN_KEY: must have/],
      ],
      [{ TOOLYARD_MASTER_KEY: "sesame" }, [/^ {2}TOOLYARD_MASTER_KEY must be 32 bytes/]],
      [{ TOOLYARD_EGRESS_ALLOW: "example.com" }, [/^ {2}TOOLYARD_EGRESS_ALLOW: 'example\.com' is not a CIDR/]],
      [{ TOOLYARD_DATA_DIR: join(root, "LICENSE") }, [/^ {2}TOOLYARD_DATA_DIR: '\S+LICENSE' cannot be used/]],
      [{ TOOLYARD_DATA_DIR: "/proc/toolyard" }, [/^ {2}TOOLYARD_DATA_DIR: '\/proc\/toolyard' cannot be used/]],
      [{ BLOBS_URL: `file:${join(root, "LICENSE")}` }, [/^ {2}BLOBS_URL: '\S+LICENSE' cannot be used/]],
      [{ DATABASE_URL: "http://127.0.0.1:1" }, [/^DATABASE_URL: The database/]],
    ];
    await Promise.all(
      wrong.map(async ([env, lines]) => {
        const started = start(nodeStart, { PORT: "0", TOOLYARD_DATA_DIR: await newDirectory(), ...env });
        expect(await started.ended).toBe(1);
        const said = started.err().trimEnd().split("\n");
        expect(said.filter((line) => line !== "These settings cannot be used:")).toEqual(
          lines.map((line) => expect.stringMatching(line)),
        );
        expect(started.err()).not.toContain("sesame");
        expect(started.out()).toBe("");
      }),
    );
  });
});

/** The specification's test cases, "基础功能测试", with our port, and a key. */
const specifiedCalls = [
  String.raw`curl -X POST http://localhost:8787/api/chat/completions \
  -H "Authorization: Bearer $KEY" \
  -H "Content-Type: application/json" \
  -d '{"model": "llama3.2", "messages": [{"role": "user", "content": "你好"}]}'
`,
  String.raw`curl -X POST http://localhost:8787/api/chat/completions \
  -H "Authorization: Bearer $KEY" \
  -H "Content-Type: application/json" \
  -d @- << EOF
{
  "model": "llama3.2",
  "messages": [{"role": "user", "content": "读取test.txt文件"}],
  "tools": [{
    "type": "function",
    "function": {
      "name": "read_file",
      "description": "读取文件",
      "parameters": {
        "type": "object",
        "properties": {
          "path": {"type": "string"}
        },
        "required": ["path"]
      }
    }
  }]
}
EOF
`,
] as const;

const specifiedPort = 8787;

async function isTaken(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((known) => {
    server.once("error", () => known(true));
    server.listen(port, "127.0.0.1", () => server.close(() => known(false)));
  });
}

describe(`a gateway before a model that somebody runs ${verifies("CHAT-17", "CHAT-2", "CHAT-3", "CHAT-6")}`, () => {
  const env = { KEY: `key_${randomBytes(24).toString("base64url")}` };
  let llm: LlmStub;
  let url: string;
  let isFree: boolean;

  beforeAll(async () => {
    isFree = !(await isTaken(specifiedPort));
    if (!isFree) console.warn(`port ${specifiedPort} is in use: the specification's calls go to another one`);
    llm = await startLlmStub();
    const started = start(nodeStart, {
      ...(isFree ? {} : { PORT: "0" }),
      TOOLYARD_DATA_DIR: await newDirectory(),
      TOOLYARD_ADMIN_KEY: env.KEY,
      OPENAI_BASE_URL: llm.url,
    });
    await curlLine(started);
    url = urlOf(started);
  });
  afterAll(async () => {
    await cleanUp();
    await llm.close();
  });

  const specified = (call: 0 | 1): string =>
    specifiedCalls[call].replace("curl", "curl -sS").replace(`http://localhost:${specifiedPort}`, url);

  test("listens where the calls go, unless somebody else does", () => {
    const { port } = new URL(url);
    expect(isFree ? port : String(specifiedPort)).toBe(String(specifiedPort));
  });

  test("answers the first specified call, which has no tools", async () => {
    llm.script(textRound("你好！有什么可以帮你？", [9, 7]));
    expect(JSON.parse(await shell(specified(0), env))).toMatchObject({
      id: expect.stringMatching(/^chatcmpl-/),
      object: "chat.completion",
      created: expect.any(Number),
      model: expect.any(String),
      choices: [{ index: 0, message: { role: "assistant", content: "你好！有什么可以帮你？" }, finish_reason: "stop" }],
      usage: { prompt_tokens: 9, completion_tokens: 7, total_tokens: 16 },
    });
    expect(llm.requests.at(-1)).toEqual({ model: "llama3.2", messages: [{ role: "user", content: "你好" }] });
  });

  test("answers the second with a call for the client to run", async () => {
    llm.script(calls({ name: "read_file", arguments: { path: "test.txt" } }));
    const answer: Json = JSON.parse(await shell(specified(1), env));
    expect(answer.choices).toEqual([
      {
        index: 0,
        message: {
          role: "assistant",
          content: null,
          tool_calls: [
            {
              id: expect.stringMatching(/^call_/),
              type: "function",
              function: { name: "read_file", arguments: '{"path":"test.txt"}' },
            },
          ],
        },
        finish_reason: "tool_calls",
      },
    ]);
    expect(answer.tool_execution).toBeUndefined();
  });

  test.each(["/api/chat/completions", "/v1/chat/completions"])(
    "streams %s as text/event-stream without parameters, as the specified clients compare it",
    async (path) => {
      llm.script(textRound("这是 流式 响应"));
      const body = JSON.stringify({ model: "llama3.2", stream: true, messages: [{ role: "user", content: "你好" }] });
      const answer = await shell(
        `curl -sSN -D - ${url}${path} -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '${body}'`,
        env,
      );
      const [head = "", stream = ""] = answer.split("\r\n\r\n");
      expect(head.split("\r\n")).toEqual(
        expect.arrayContaining(["HTTP/1.1 200 OK", "content-type: text/event-stream", "x-accel-buffering: no"]),
      );
      expect(stream.endsWith("data: [DONE]\n\n")).toBe(true);
      expect(
        (sseEvents(stream) as Json[]).filter((event) => event !== "[DONE]").every((event) => typeof event === "object"),
      ).toBe(true);
    },
  );

  test("asks for a key where none comes", async () => {
    const script = specified(0)
      .replace(/ *-H "Authorization[^\n]*\n/, "")
      .replace("curl -sS", "curl -sS -D -");
    const answer = await shell(script);
    expect(answer).toMatch(/^HTTP\/1\.1 401 /);
    expect(answer).toMatch(/^www-authenticate: Bearer /im);
    expect(answer).toContain('"type":"authentication_error"');
  });

  test("describes every route in an OpenAPI 3.1 document", async () => {
    const document: Json = JSON.parse(await shell(`curl -sS ${url}/openapi.json`));
    expect(document.openapi).toMatch(/^3\.1\.\d+$/);
    expect(document.info).toMatchObject({ title: expect.any(String), version: expect.any(String) });
    expect(document.servers).toEqual([{ url }]);
    const methods = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
    const operations = Object.entries<Json>(document.paths).flatMap(([path, item]) =>
      Object.entries<Json>(item)
        .filter(([method]) => methods.includes(method))
        .map(([method, operation]) => ({ path, method, operation })),
    );
    const all: readonly RouteModule[] = Object.values(routes);
    const wanted = all.map(({ method, path }) => `${method} ${path.replaceAll("+}", "}")}`);
    expect(operations.map(({ method, path }) => `${method} ${path}`).sort()).toEqual(wanted.sort());
    const ids = operations.map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { path, method, operation } of operations) {
      const where = `${method} ${path}`;
      const inPath = (operation.parameters ?? []).filter((one: Json) => one.in === "path");
      const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name);
      expect([where, inPath.map((one: Json) => one.name).sort()]).toEqual([where, names.sort()]);
      expect([where, inPath.every((one: Json) => one.required === true)]).toEqual([where, true]);
      const statuses = Object.keys(operation.responses);
      expect([where, statuses.some((status) => /^[123]/.test(status))]).toEqual([where, true]);
      for (const [status, response] of Object.entries<Json>(operation.responses)) {
        const described = response.$ref !== undefined || typeof response.description === "string";
        expect([where, status, described]).toEqual([where, status, true]);
      }
    }
    for (const reference of JSON.stringify(document).match(/"\$ref":"[^"]+"/g) ?? []) {
      const parts = JSON.parse(`{${reference}}`).$ref.split("/").slice(1) as string[];
      const target = parts.reduce(
        (value: Json, part) => value?.[part.replaceAll("~1", "/").replaceAll("~0", "~")],
        document,
      );
      expect([reference, target]).toEqual([reference, expect.anything()]);
    }
  });

  test("shows the same to people, in a page that loads nothing from elsewhere", async () => {
    const page = await shell(`curl -sSL -D - ${url}/`);
    expect(page).toMatch(/^content-type: text\/html; charset=utf-8\r$/im);
    const html = page.slice(page.indexOf("<!"));
    expect(html).toMatch(/^<!doctype html>/i);
    for (const { path } of Object.values<RouteModule>(routes)) {
      expect(html).toContain(path.replaceAll("+}", "}"));
    }
    expect(html).not.toMatch(/<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?\/\//i);
    expect(await shell(`curl -sS ${url}/llms.txt`)).toContain("/v1/chat/completions");
  });
});
