/** The program that runs modules, as a process, with modules that do their worst. */
import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { isJsonObject, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { hostProgram } from "@toolyard/core/vcp/modules/host-program";
import { linesOf, readOnceAnswers } from "@toolyard/core/vcp/modules/read-answers";
import type {
  CarriedModule,
  HeldQuestion,
  HttpAsked,
  ModuleFault,
  OnceQuestion,
  Stage,
} from "@toolyard/core/vcp/modules/wire";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { moduleHostSource } from "../../../../functions/build/module-host.ts";
import { verifies } from "../../../../test/support/verifies.ts";

const word = "5f1d8c3a90b24e67";
let directory: string;
const running = new Set<ChildProcessWithoutNullStreams>();
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-module-host-"));
  await writeFile(join(directory, "module-host.cjs"), hostProgram);
});
afterEach(async () => {
  for (const child of running) child.kill("SIGKILL");
  running.clear();
  await rm(directory, { recursive: true, force: true });
});

function start(...args: readonly string[]): ChildProcessWithoutNullStreams {
  const child = spawn(process.execPath, ["module-host.cjs", ...args], {
    cwd: directory,
    env: { PATH: "/usr/bin:/bin", SECRET_OF_THE_HOST: "unseen" },
  });
  running.add(child);
  return child;
}

interface Ran {
  readonly stages: readonly Stage[];
  readonly messages: readonly JsonValue[] | undefined;
  readonly result: JsonValue | undefined;
  readonly told: readonly JsonValue[];
  readonly stdout: string;
}

async function runOnce(
  plugins: readonly CarriedModule[],
  ask: OnceQuestion["ask"] = { kind: "messages", messages: [{ role: "user", content: "hello" }] },
): Promise<Ran> {
  const child = start();
  let stdout = "";
  child.stdout.on("data", (part: Buffer) => (stdout += part.toString("utf8")));
  const ended = new Promise<void>((done) => child.once("close", () => done()));
  child.stdin.end(JSON.stringify({ word, plugins, maxBytes: 100_000, ask } satisfies OnceQuestion));
  await ended;
  const answers = readOnceAnswers(stdout, word);
  const done = answers.find((answer) => answer.kind === "done");
  return {
    stages: answers.flatMap((answer) => (answer.kind === "stage" ? [answer.stage] : [])),
    told: answers.flatMap((answer) => (answer.kind === "told" ? [answer.told.data] : [])),
    messages: done?.messages,
    result: done?.result,
    stdout,
  };
}

const base64 = (text: string): string => Buffer.from(text, "utf8").toString("base64");

function carried(name: string, code: string, change: Partial<CarriedModule> = {}): CarriedModule {
  return {
    name,
    script: "index.js",
    config: { LEVEL: 3 },
    environment: { LEVEL: "3" },
    hasApiRoutes: false,
    files: [{ path: "index.js", base64: base64(code) }],
    timeoutMs: 20_000,
    memoryMb: 64,
    mayStayOpen: false,
    ...change,
  };
}

const appending = (text: string): string =>
  `module.exports = { processMessages: async (messages, config) => [...messages, { role: "system", content: ${JSON.stringify(text)} + config.LEVEL }] };`;
const contents = (messages: readonly JsonValue[] | undefined): readonly JsonValue[] =>
  (messages ?? []).map((message) => (message as JsonObject)["content"] ?? null);
const textOf = (value: JsonValue | undefined): string => (typeof value === "string" ? value : "");

describe("the bundled program", () => {
  test("is what its sources make", async () => {
    const isCurrent = (await moduleHostSource()).includes(JSON.stringify(hostProgram));
    expect(isCurrent, "run npm run build:module-host").toBe(true);
  });
});

describe(`a chain of modules ${verifies("VCP-6")}`, () => {
  test("changes the messages in order, each module with its own configuration, environment and folder", async () => {
    const looking = `
      const fs = require("node:fs"), path = require("node:path");
      let given;
      module.exports = {
        async initialize(config, deps) { given = { config, keys: Object.keys(deps).sort(), events: typeof deps.pluginManager.on }; },
        processMessages(messages, config) {
          const seen = { ...given, level: process.env.LEVEL, secret: process.env.SECRET_OF_THE_HOST ?? null,
            folder: path.basename(__dirname), home: process.env.HOME === __dirname, extensions: config.vcpchatExtensions,
            own: fs.readFileSync(path.join(__dirname, "data/own.txt"), "utf8") };
          messages.push({ role: "system", content: JSON.stringify(seen) });
          return messages;
        },
      };`;
    const files = [
      { path: "index.js", base64: base64(looking) },
      { path: "data/own.txt", base64: base64("mine") },
    ];
    const { messages, stages } = await runOnce(
      [carried("First", appending("one ")), carried("Looks", "", { files }), carried("Last", appending("three "))],
      { kind: "messages", messages: [{ role: "user", content: "hello" }], extensions: { a: 1 } },
    );
    const [hello, one, seen, three] = contents(messages);
    expect([hello, one, three]).toEqual(["hello", "one 3", "three 3"]);
    expect(JSON.parse(textOf(seen))).toMatchObject({
      config: { LEVEL: 3 },
      keys: ["pluginManager", "vcpLogFunctions"],
      events: "function",
      level: "3",
      secret: null,
      folder: "Looks",
      home: true,
      extensions: { a: 1 },
      own: "mine",
    });
    expect(stages.map(({ plugin, failed }) => [plugin, failed])).toEqual([
      ["First", undefined],
      ["Looks", undefined],
      ["Last", undefined],
    ]);
  });

  const bad: readonly (readonly [name: string, code: string, faults: readonly ModuleFault[], message: RegExp])[] = [
    ["loops for ever", "module.exports = { processMessages() { for (;;); } };", ["timeout"], /communication\.timeout/],
    [
      "never answers",
      "module.exports = { processMessages: () => new Promise(() => {}) };",
      ["ended"],
      /before it had answered/,
    ],
    ["ends its process", "module.exports = { processMessages() { process.exit(9); } };", ["ended"], /exit code 9/],
    ["cannot be read", "module.exports = {", ["load"], /cannot be loaded/],
    ["needs what is not there", "require('left-pad');", ["load"], /package 'left-pad'.*node_modules/],
    [
      "fails to begin",
      "module.exports = { initialize() { throw new Error('no key'); }, processMessages: (m) => m };",
      ["initialize"],
      /no key/,
    ],
    ["throws what is no error", "module.exports = { processMessages() { throw null; } };", ["threw"], /null/],
    [
      "throws what cannot be told",
      "module.exports = { processMessages() { throw { toString() { throw 1; } }; } };",
      ["threw"],
      /cannot be told/,
    ],
    ["gives nothing", "module.exports = { processMessages() {} };", ["result"], /undefined, not an array/],
    ["gives what is no message", "module.exports = { processMessages: () => [7] };", ["result"], /needs a 'role'/],
    [
      "gives too much",
      "module.exports = { processMessages: (m) => [...m, { role: 'user', content: 'x'.repeat(200000) }] };",
      ["size"],
      /100000 are allowed/,
    ],
    ["has no such function", "module.exports = { initialize() {} };", ["absent"], /'processMessages'/],
    [
      "changes what everything is made of",
      "Object.prototype.role = 'user'; JSON.stringify = () => '[]'; Array.isArray = () => true; module.exports = { processMessages: () => 'gone' };",
      ["result", "threw", "initialize"],
      /./,
    ],
    [
      "holds a server",
      "require('node:net').createServer().listen(0); module.exports = { processMessages: (m) => m };",
      ["open"],
      /a server/,
    ],
    [
      "repeats something",
      "setInterval(() => {}, 1000).unref(); module.exports = { processMessages: (m) => m };",
      ["open"],
      /a timer that repeats/,
    ],
    [
      "takes all memory",
      "module.exports = { processMessages() { const kept = []; for (;;) kept.push({ a: [1, 2, 3], b: String(kept.length) }); } };",
      ["memory"],
      /64 MB/,
    ],
  ];

  test("goes on where one loops, ends, throws, gives what it should not or wants to stay", async () => {
    const plugins = bad.map(([, code, faults], at) =>
      carried(`Bad${at}`, code, faults.includes("timeout") ? { timeoutMs: 700 } : {}),
    );
    const chain = [carried("Before", appending("a")), ...plugins, carried("After", appending("b"))];
    // One that takes all memory now and then takes the process along; whoever asks runs the chain anew then.
    let { messages, stages } = await runOnce(chain);
    for (let more = 0; more < 2 && messages === undefined; more += 1) ({ messages, stages } = await runOnce(chain));
    expect(contents(messages)).toEqual(["hello", "a3", "b3"]);
    for (const [at, [name, , faults, message]] of bad.entries()) {
      const stage = stages[at + 1];
      expect(stage?.plugin, name).toBe(`Bad${at}`);
      expect(faults, name).toContain(stage?.failed?.fault);
      expect(stage?.failed?.message, name).toMatch(message);
    }
  });

  test("is not confused by what modules print, nor by answers that they make up", async () => {
    const forging = `
      const { writeSync } = require("node:fs");
      console.log("noise"); process.stdout.write("more noise\\n"); process.stderr.write("and more\\n");
      writeSync(1, "\\u001eguessed " + JSON.stringify({ kind: "done", messages: [] }) + "\\n");
      writeSync(1, "no end of line");
      ${appending("said")}`;
    const { messages, stdout } = await runOnce([carried("Forges", forging), carried("Next", appending("next"))]);
    expect(contents(messages)).toEqual(["hello", "said3", "next3"]);
    expect(stdout).not.toContain("noise");
  });

  test("shows no module the files of another, or the values of one", async () => {
    const secretive = carried("Secretive", appending("a"), {
      files: [
        { path: "index.js", base64: base64(appending("a")) },
        { path: "config.env", base64: base64("TOKEN=topsecret") },
      ],
      environment: { TOKEN: "topsecret" },
      config: { TOKEN: "topsecret", LEVEL: 1 },
    });
    const peeking = `
      const fs = require("node:fs"), path = require("node:path");
      const above = path.join(__dirname, "../..");
      const found = fs.readdirSync(above, { recursive: true }).map(String).sort();
      const environment = JSON.stringify(process.env);
      const told = JSON.stringify(require("node:worker_threads").workerData);
      module.exports = { processMessages: (m) => [...m, { role: "user", content: JSON.stringify({ found, leaked: (environment + told).includes("topsecret") }) }] };`;
    const { messages } = await runOnce([secretive, carried("Peeks", peeking), { ...secretive, name: "Later" }]);
    const [, , peeked] = contents(messages);
    expect(JSON.parse(textOf(peeked))).toEqual({
      found: ["Plugin", "Plugin/Peeks", "Plugin/Peeks/index.js"],
      leaked: false,
    });
  });

  test("takes no files that would lie elsewhere, and no module that is not the plugin's own", async () => {
    const outside = carried("Outside", "", { files: [{ path: "../../escaped.js", base64: base64("1") }] });
    const elsewhere = carried("Elsewhere", appending("x"), { script: "../../../module-host.cjs" });
    const { stages } = await runOnce([outside, elsewhere]);
    expect(stages.map(({ failed }) => failed?.fault)).toEqual(["load", "load"]);
  });

  test("lets a module stay open that says it does not matter, and takes modules of either kind", async () => {
    const open = carried("Open", `setInterval(() => {}, 1000); ${appending("open")}`, { mayStayOpen: true });
    const esm = carried("Modern", "", {
      files: [
        {
          path: "index.js",
          base64: base64("export default { processMessages: (m) => [...m, { role: 'user', content: 'modern' }] };"),
        },
        { path: "package.json", base64: base64('{"type":"module"}') },
      ],
    });
    const { messages, stages } = await runOnce([open, esm]);
    expect(contents(messages)).toEqual(["hello", "open3", "modern"]);
    expect(stages[0]?.open).toEqual(["a timer that repeats"]);
  });

  test("hands on what modules tell those who watch", async () => {
    const telling = `let log; module.exports = {
      initialize(config, { vcpLogFunctions }) { log = vcpLogFunctions; },
      processMessages(m) { log.pushVcpInfo({ type: "seen", count: m.length }); log.pushVcpLog({ cyclic: 1 }); return m; } };`;
    const { told } = await runOnce([carried("Tells", telling)]);
    expect(told).toEqual([{ type: "seen", count: 1 }, { cyclic: 1 }]);
  });
});

describe(`a tool of a module ${verifies("VCP-7")}`, () => {
  const ask: OnceQuestion["ask"] = {
    kind: "tool",
    arguments: { n: 2, constructor: "plain" },
    context: { requestIp: null, sourceNode: "post" },
  };

  test("is given its arguments and who asks", async () => {
    const code = `module.exports = { processToolCall: async (args, { pluginName, sourceNode, signal }) => ({ doubled: args.n * 2, pluginName, sourceNode, aborted: signal.aborted }) };`;
    const { result } = await runOnce([carried("Doubles", code)], ask);
    expect(result).toEqual({ doubled: 4, pluginName: "Doubles", sourceNode: "post", aborted: false });
  });

  test("may give a text, a list or nothing", async () => {
    for (const [given, expected] of [
      ["'text'", "text"],
      ["[1]", [1]],
      ["undefined", null],
    ] as const) {
      const { result } = await runOnce([carried("Gives", `exports.processToolCall = () => ${given};`)], ask);
      expect(result).toEqual(expected);
    }
  });

  test("that throws says so", async () => {
    const { stages, result } = await runOnce(
      [carried("Throws", "exports.processToolCall = async () => { throw new Error('bad n'); };")],
      ask,
    );
    expect(stages[0]?.failed).toEqual({ fault: "threw", message: "bad n" });
    expect(result).toBeUndefined();
  });
});

class Held {
  readonly child = start("held");
  #text = "";
  #asked = 0;

  constructor() {
    this.child.stdout.on("data", (part: Buffer) => (this.#text += part.toString("utf8")));
  }

  async ask(question: Record<string, unknown>): Promise<JsonObject> {
    this.#asked += 1;
    const id = `q${this.#asked}`;
    this.say({ ...question, id } as unknown as HeldQuestion);
    return this.answerTo(id);
  }

  say(question: HeldQuestion): void {
    this.child.stdin.write(`${JSON.stringify(question)}\n`);
  }

  async answerTo(id: string): Promise<JsonObject> {
    for (;;) {
      const found = linesOf(this.#text, word).find((line) => isJsonObject(line) && line["id"] === id);
      if (isJsonObject(found)) return found;
      await new Promise((done) => setTimeout(done, 5));
    }
  }

  async open(code: string, change: { readonly hasApiRoutes?: boolean } = {}): Promise<JsonObject> {
    const folder = join(directory, "Plugin", "Lives");
    await mkdir(dirname(join(folder, "index.js")), { recursive: true });
    await writeFile(join(folder, "index.js"), code);
    const plugin = { name: "Lives", script: "index.js", config: {}, environment: {}, hasApiRoutes: true, ...change };
    return this.ask({ kind: "open", word, plugin, directory: folder, maxBytes: 50_000 });
  }

  async http(
    method: string,
    path: string,
    about: Partial<HttpAsked> = {},
  ): Promise<{ status: number; headers: Map<string, string>; text: string }> {
    const [below = "", query = ""] = path.split("?", 2);
    const request = { method, path: below, query, headers: [], base64: "", ip: "10.1.2.3", ...about };
    const { result, failed } = await this.ask({ kind: "http", request, timeoutMs: 5_000 });
    if (failed !== undefined) throw new Error(JSON.stringify(failed));
    const answer = result as unknown as { status: number; headers: [string, string][]; base64: string };
    return {
      status: answer.status,
      headers: new Map(answer.headers),
      text: Buffer.from(answer.base64, "base64").toString("utf8"),
    };
  }
}

describe(`a module that stays ${verifies("VCP-7")}`, () => {
  test("keeps its state, serves many questions at once, and closes", async () => {
    const held = new Held();
    const code = `let count = 0; const { writeFileSync } = require("node:fs");
      setInterval(() => {}, 1000);
      module.exports = {
        processToolCall: async ({ ms = 0 }) => { count += 1; await new Promise((done) => setTimeout(done, ms)); return { count }; },
        processMessages: (messages) => [...messages, { role: "system", content: String(count) }],
        shutdown() { writeFileSync("closed.txt", "yes"); },
      };`;
    expect(await held.open(code)).toMatchObject({ result: null });
    const tool = (args: JsonObject): Promise<JsonObject> =>
      held.ask({ kind: "tool", arguments: args, context: { requestIp: null, sourceNode: null }, timeoutMs: 5_000 });
    const slow = tool({ ms: 300 });
    expect(await tool({})).toMatchObject({ result: { count: 2 } });
    expect(await slow).toMatchObject({ result: { count: 2 } });
    const { result } = await held.ask({ kind: "messages", messages: [], timeoutMs: 5_000 });
    expect(result).toEqual([{ role: "system", content: "2" }]);
    expect(await held.ask({ kind: "close" })).toMatchObject({ result: null });
    expect(await readFile(join(directory, "closed.txt"), "utf8")).toBe("yes");
  });

  test("is not loaded where it fails, and says why to everyone who asks", async () => {
    const held = new Held();
    const failed = { fault: "initialize", message: expect.stringContaining("no port") };
    expect(await held.open("exports.initialize = () => { throw new Error('no port'); };")).toMatchObject({ failed });
    expect(await held.ask({ kind: "messages", messages: [], timeoutMs: 1_000 })).toMatchObject({ failed });
  });

  test("is told when its time is over, in upstream's words", async () => {
    const held = new Held();
    await held.open(
      "let seen = null; exports.processToolCall = ({ wait }, { signal }) => wait ? new Promise(() => signal.addEventListener('abort', () => (seen = signal.aborted))) : { seen };",
    );
    const ask = (wait: boolean): Promise<JsonObject> =>
      held.ask({ kind: "tool", arguments: { wait }, context: { requestIp: null, sourceNode: null }, timeoutMs: 200 });
    const { failed } = await ask(true);
    expect(failed).toEqual({ fault: "timeout", message: 'Plugin "Lives" direct tool call timed out after 200ms.' });
    expect(await ask(false)).toMatchObject({ result: { seen: true } });
  });

  test("that cannot be heard by its printing, reading of stdin or a rejection lives on", async () => {
    const held = new Held();
    await held.open(
      `process.stdin.on("data", () => { throw new Error("stolen"); }); console.log("noise"); Promise.reject(new Error("late"));
       exports.processToolCall = () => { console.log("x".repeat(1000)); return "here"; };`,
    );
    const asked = await held.ask({
      kind: "tool",
      arguments: {},
      context: { requestIp: null, sourceNode: null },
      timeoutMs: 5_000,
    });
    expect(asked).toMatchObject({ result: "here" });
  });
});

const routed = `
const express = require("express");
module.exports = {
  registerApiRoutes(router, config, projectBasePath, webSocketServer) {
    router.use((request, response, next) => { response.set("x-seen", "yes"); request.seen = true; next(); });
    router.get("/hello/:name", (request, response) => response.json({ hello: request.params.name, query: request.query, url: request.url, base: request.baseUrl, original: request.originalUrl, seen: request.seen, ip: request.ip }));
    router.post("/echo", (request, response) => response.status(201).json({ body: request.body, type: request.get("Content-Type"), is: request.is("json") }));
    router.post("/raw", express.raw({ type: "*/*" }), (request, response) => response.type("bin").send(request.body));
    router.post("/form", (request, response) => response.send(request.body.a + request.body.list.join("+")));
    router.put("/stream", (request, response) => { response.set("Content-Type", "text/plain"); request.pipe(response); });
    router.get("/text", (request, response) => response.send("<b>x</b>"));
    router.get("/parts", (request, response) => { response.write("a"); setTimeout(() => response.end("b"), 5); });
    router.get("/away", (request, response) => response.redirect("/elsewhere"));
    router.get("/fails", async () => { throw Object.assign(new Error("secret detail"), { status: 418 }); });
    router.get("/big", (request, response) => response.send("x".repeat(100000)));
    router.get("/never", () => {});
    router.get("/files/*", (request, response) => response.send(request.params[0]));
    router.get(/^\\/n(\\d+)$/, (request, response) => response.send(request.params[0]));
    router.param("id", (request, response, next, id) => { request.item = "item " + id; next(); });
    router.route("/items/:id").get((request, response) => response.send(request.item)).delete((request, response) => response.sendStatus(204));
    const inner = express.Router();
    inner.get("/deep", (request, response) => response.json({ base: request.baseUrl, url: request.url }));
    router.use("/inner", inner);
    router.use("/static", express.static(__dirname));
    router.get("/own", (request, response, next) => next(new Error("handled")));
    router.get("/skip", (request, response, next) => next("route"), (request, response) => response.send("not here"));
    router.get("/skip", (request, response) => response.cookie("a", "1", { httpOnly: true }).send("skipped"));
    router.use((problem, request, response, next) => problem.message === "handled" ? response.status(409).send("own") : next(problem));
  },
  registerRoutes(app, adminApiRouter, config, projectBasePath) {
    app.get("/pw=:key/images/:file", (request, response) => response.send(request.params.key + " " + request.params.file));
    adminApiRouter.get("/presets", (request, response) => response.json(["a"]));
  },
};`;

describe(`routes of a module ${verifies("VCP-7")}`, () => {
  test("are answered as express would", async () => {
    const held = new Held();
    expect(await held.open(routed)).toMatchObject({ result: null });
    const json = { headers: [["content-type", "application/json"]] } as const;
    const hello = await held.http("GET", "/hello/w%20d?a=1&b=2&b=3&c[d]=4");
    expect(hello.status).toBe(200);
    expect(hello.headers.get("x-seen")).toBe("yes");
    expect(hello.headers.get("content-type")).toContain("application/json");
    expect(JSON.parse(hello.text)).toEqual({
      hello: "w d",
      query: { a: "1", b: ["2", "3"], c: { d: "4" } },
      url: "/hello/w%20d?a=1&b=2&b=3&c[d]=4",
      base: "/api/plugins/Lives",
      original: "/api/plugins/Lives/hello/w%20d?a=1&b=2&b=3&c[d]=4",
      seen: true,
      ip: "10.1.2.3",
    });
    const echo = await held.http("POST", "/echo", { ...json, base64: base64('{"n":"值"}') });
    expect([echo.status, JSON.parse(echo.text)]).toEqual([
      201,
      { body: { n: "值" }, type: "application/json", is: "json" },
    ]);
    expect((await held.http("POST", "/echo", { ...json, base64: base64("{") })).status).toBe(400);
    expect((await held.http("POST", "/raw", { base64: base64("bytes") })).text).toBe("bytes");
    const form = {
      headers: [["content-type", "application/x-www-form-urlencoded"]],
      base64: base64("a=1&list[]=2&list[]=3"),
    } as const;
    expect((await held.http("POST", "/form", form)).text).toBe("12+3");
    expect((await held.http("PUT", "/stream", { base64: base64("flows") })).text).toBe("flows");
    expect((await held.http("GET", "/text")).headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect((await held.http("GET", "/parts")).text).toBe("ab");
    const head = await held.http("HEAD", "/text");
    expect([head.status, head.text, head.headers.get("content-length")]).toEqual([200, "", "8"]);
    const away = await held.http("GET", "/away");
    expect([away.status, away.headers.get("location")]).toEqual([302, "/elsewhere"]);
    expect((await held.http("GET", "/files/a/b.txt")).text).toBe("a/b.txt");
    expect((await held.http("GET", "/n42")).text).toBe("42");
    expect((await held.http("GET", "/items/7")).text).toBe("item 7");
    expect((await held.http("DELETE", "/items/7")).status).toBe(204);
    expect(JSON.parse((await held.http("GET", "/inner/deep")).text)).toEqual({
      base: "/api/plugins/Lives/inner",
      url: "/deep",
    });
    const own = await held.http("GET", "/own");
    expect([own.status, own.text]).toEqual([409, "own"]);
    const skipped = await held.http("GET", "/skip");
    expect([skipped.text, skipped.headers.get("set-cookie")]).toEqual(["skipped", "a=1; Path=/; HttpOnly"]);
    const script = await held.http("GET", "/static/index.js");
    expect([script.status, script.headers.get("content-type")]).toEqual([200, "text/javascript; charset=utf-8"]);
    expect((await held.http("GET", "/static/../../module-host.cjs")).status).toBe(404);
    expect((await held.http("GET", "/static/%2e%2e%2f%2e%2e%2fmodule-host.cjs")).status).toBe(404);
  });

  test("of the older kind have their addresses below the plugin's", async () => {
    const held = new Held();
    await held.open(routed);
    expect((await held.http("GET", "/pw=abc/images/x.png")).text).toBe("abc x.png");
    expect((await held.http("GET", "/admin_api/presets")).text).toBe('["a"]');
  });

  test("that fail, say nothing, or say too much are answered for", async () => {
    const held = new Held();
    await held.open(routed);
    const fails = await held.http("GET", "/fails");
    expect([fails.status, fails.text]).toEqual([418, "The plugin failed to answer this request."]);
    expect((await held.http("GET", "/nothing-here")).status).toBe(404);
    await expect(held.http("GET", "/big")).rejects.toThrow(/size.*50000/);
    const request = { method: "GET", path: "/never", query: "", headers: [], base64: "", ip: null };
    const { failed } = await held.ask({ kind: "http", request, timeoutMs: 200 });
    expect(failed).toMatchObject({ fault: "timeout" });
    expect((await held.http("GET", "/n1")).text).toBe("1");
  });
});
