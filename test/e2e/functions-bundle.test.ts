/** The bundled functions, as they are uploaded: with a database server, outside Lambda and as if inside it. */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openDatabase } from "@toolyard/db/client";
import * as z from "zod";
import { startOf } from "../../functions/build/functions.ts";
import { buildServer } from "../../functions/build/server.ts";
import { startHttpStub } from "../support/http-stub.ts";
import { startHranaServer, type HranaServer } from "../support/hrana-server.ts";
import { startOtlpReceiver, type OtlpReceiver } from "../support/otlp-receiver.ts";
import { verifies } from "../support/verifies.ts";

const root = join(import.meta.dirname, "../..");
const dist = join(root, "functions/dist");
const run = promisify(execFile);
const adminKey = randomBytes(24).toString("base64url");

let directory: string;
let database: HranaServer;
let built: string;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-bundle-"));
  database = await startHranaServer({ file: join(directory, "server.db") });
  await mkdir(join(dist, "server"), { recursive: true });
  await writeFile(join(dist, "server/planted.txt"), "of a server that runs");
  await mkdir(join(dist, "chunks"), { recursive: true });
  await writeFile(join(dist, "chunks/planted-OLD.mjs"), "of an earlier build");
  built = (await run(process.execPath, ["functions/build/functions.ts"], { cwd: root })).stdout;
});
afterAll(async () => {
  await database.close();
  await rm(directory, { recursive: true, force: true });
});

/** Runs a module in a process that has only what a function is given; it prints one JSON value at its end. */
async function inFunction(source: string, env: Record<string, string> = {}): Promise<unknown> {
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", source], {
    cwd: dist,
    env: {
      AWS_LAMBDA_FUNCTION_NAME: "toolyard",
      AWS_LAMBDA_RUNTIME_API: "127.0.0.1:9001",
      DATABASE_URL: database.url,
      BLOBS_URL: `file:${directory}/blobs`,
      TOOLYARD_ADMIN_KEY: adminKey,
      TOOLYARD_MASTER_KEY: "ab".repeat(32),
      TOOLYARD_PUBLIC_URL: "https://tools.example.com",
      TOOLYARD_LOG_LEVEL: "error",
      ...env,
    },
  });
  // Before it stand the metrics of the invocation.
  return JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "");
}

const context = "{ getRemainingTimeInMillis: () => 10000 }";
const event = (method: string, path: string, more: object = {}): string =>
  JSON.stringify({
    httpMethod: method,
    path,
    headers: { authorization: `Bearer ${adminKey}`, "content-type": "application/json" },
    ...more,
  });

/** What the managed runtime puts there: the head goes out with the first write. */
const runtime = `
  import { PassThrough } from "node:stream";
  const heads = new Map();
  globalThis.awslambda = {
    streamifyResponse: (handler) => handler,
    HttpResponseStream: { from: (stream, head) => (heads.set(stream, head), stream) },
  };
  export async function send(handler, event) {
    const stream = new PassThrough();
    const parts = [];
    stream.on("data", (part) => parts.push(part));
    const ended = new Promise((done) => stream.on("end", done));
    await handler(event, stream, ${context});
    await ended;
    return { status: heads.get(stream).statusCode, type: heads.get(stream).headers["content-type"], body: Buffer.concat(parts).toString() };
  }
`;

const metaSchema = z.object({
  inputs: z.record(z.string(), z.object({ imports: z.array(z.object({ path: z.string() })) })),
  outputs: z.record(
    z.string(),
    z.object({
      bytes: z.number(),
      entryPoint: z.string().optional(),
      imports: z.array(z.object({ path: z.string(), kind: z.string() })),
      inputs: z.record(z.string(), z.unknown()),
    }),
  ),
});

describe("the bundles", () => {
  const names = ["api", "chat", "migration", "tick", "worker", "ws"];

  test("are there, and their sizes are said", async () => {
    expect((await readdir(dist)).filter((name) => name.endsWith(".mjs")).sort()).toEqual(
      [...names, "plugin-box"].map((name) => `${name}.mjs`).sort(),
    );
    expect(built).toMatch(/^chat +\d+ KiB, +\d+ KiB gzipped$/m);
    // Runs before each first plugin of a tenant, and has no use for the product.
    expect((await stat(join(dist, "plugin-box.mjs"))).size).toBeLessThan(400_000);
  });

  test("replace earlier ones, and leave a server alone that was built beside them and may be running", async () => {
    expect(await readFile(join(dist, "server/planted.txt"), "utf8")).toBe("of a server that runs");
    expect(await readdir(join(dist, "chunks"))).not.toContain("planted-OLD.mjs");
    await rm(join(dist, "server/planted.txt"));
  });

  test("for a chat start from one file, and read the engine of patterns later", async () => {
    const { outputs } = metaSchema.parse(JSON.parse(await readFile(join(dist, "meta.json"), "utf8")));
    // Its own, that of the start's modules, and what the bundler itself needs.
    expect(startOf(outputs, "functions/dist/chat.mjs").size).toBeLessThan(5);
    const isOfEngine = (file: string): boolean =>
      Object.keys(outputs[file]?.inputs ?? {}).some((input) => input.includes("node_modules/re2js/"));
    expect(Object.keys(outputs).filter(isOfEngine)).toEqual(["functions/dist/chunks/pattern-engine.cjs"]);
    for (const name of ["api", "chat", "worker"]) {
      const start = [...startOf(outputs, `functions/dist/${name}.mjs`)];
      expect(start.filter(isOfEngine)).toEqual([]);
      // Uploaded nevertheless.
      const imports = start.flatMap((file) => outputs[file]?.imports ?? []);
      expect(imports).toContainEqual({ path: "functions/dist/chunks/pattern-engine.cjs", kind: "require-call" });
    }
  });

  test("start without the clients of AWS, which are there for later", async () => {
    const { outputs } = metaSchema.parse(JSON.parse(await readFile(join(dist, "meta.json"), "utf8")));
    const isOfAws = (file: string): boolean =>
      Object.keys(outputs[file]?.inputs ?? {}).some((input) => /node_modules\/@(aws-sdk|smithy)\//.test(input));
    for (const name of names) {
      const start = [...startOf(outputs, `functions/dist/${name}.mjs`)];
      const bytes = start.reduce((sum, file) => sum + (outputs[file]?.bytes ?? 0), 0);
      // Large enough to hold the product, far below what a careless import adds.
      expect(bytes).toBeGreaterThan(500_000);
      expect(bytes).toBeLessThan(1_600_000);
      expect(start.filter(isOfAws)).toEqual([]);
    }
    expect(Object.keys(outputs).some(isOfAws)).toBe(true);
  });

  test("start without what makes the documents about the routes", async () => {
    const { outputs } = metaSchema.parse(JSON.parse(await readFile(join(dist, "meta.json"), "utf8")));
    const isOfDocuments = (file: string): boolean =>
      Object.keys(outputs[file]?.inputs ?? {}).some((input) =>
        /functions\/http\/(openapi|docs|request-examples)\.ts$/.test(input),
      );
    for (const name of ["api", "chat"]) {
      expect([...startOf(outputs, `functions/dist/${name}.mjs`)].filter(isOfDocuments)).toEqual([]);
    }
    expect(Object.keys(outputs).some(isOfDocuments)).toBe(true);
  });

  test("are kept in one byte for each character, which a single wider one would double", async () => {
    const { outputs } = metaSchema.parse(JSON.parse(await readFile(join(dist, "meta.json"), "utf8")));
    const starts = new Set(names.flatMap((name) => [...startOf(outputs, `functions/dist/${name}.mjs`)]));
    // The bundler writes strings with escapes, but patterns as they are: put such a pattern together from strings.
    const wide = await Promise.all(
      [...starts].map(async (file) => (await readFile(join(root, file), "utf8")).match(/.{0,30}[\u0100-\uffff]/)?.[0]),
    );
    expect(wide.filter((found) => found !== undefined)).toEqual([]);
  });

  test("read nothing later whose exports lose their names", async () => {
    // A package of CommonJS in a chunk of its own has nothing but a default export, other than in its sources.
    const { outputs } = metaSchema.parse(JSON.parse(await readFile(join(dist, "meta.json"), "utf8")));
    const later = Object.entries(outputs).flatMap(([file, { entryPoint }]) =>
      file.endsWith(".cjs") ? [] : (entryPoint ?? []),
    );
    expect(later.length).toBeGreaterThan(names.length);
    const isModule = (file: string): boolean => !file.includes("node_modules/") || /\.mjs$|\/dist-es\//.test(file);
    // The language of flows is used by its default export alone.
    expect(later.filter((file) => !isModule(file))).toEqual(["node_modules/jsonata/jsonata.js"]);
  });

  test("hold of the HTTP client what sends bytes and text, and nothing that could miss the rest", async () => {
    // The bundles have a throw in place of these modules. Whoever else asks for them has to be looked at.
    const { inputs } = metaSchema.parse(JSON.parse(await readFile(join(dist, "meta.json"), "utf8")));
    const left = (file: string): boolean => /undici\/lib\/(web\/|dispatcher\/client-h2|llhttp\/llhttp-wasm)/.test(file);
    const asking = Object.entries(inputs).filter(([, { imports }]) => imports.some(({ path }) => left(path)));
    expect(asking.map(([file]) => file.replace(/.*\/undici\/lib\//, "")).sort()).toEqual([
      // For a body that is a form.
      "core/request.js",
      "dispatcher/client-h1.js",
      // For `allowH2`.
      "dispatcher/client.js",
    ]);
  });

  test("hold of the validators what is used", async () => {
    // One import of the kind `import { z }` keeps all of it: 85 KB more for every start.
    const { outputs } = metaSchema.parse(JSON.parse(await readFile(join(dist, "meta.json"), "utf8")));
    const kept = Object.values(outputs).flatMap((output) => Object.keys(output.inputs));
    expect(kept.filter((file) => file.endsWith("zod/v4/core/schemas.js"))).not.toEqual([]);
    expect(kept.filter((file) => /zod\/v4\/.*\/(from-json-schema|compile)\.js$/.test(file))).toEqual([]);
  });

  test("hold no native module and nothing of this machine's paths", async () => {
    const isOurs = (name: string): boolean => /\.[mc]js$/.test(name) && !name.startsWith("server/");
    const files = (await readdir(dist, { recursive: true })).filter(isOurs);
    expect(files.length).toBeGreaterThan(names.length);
    for (const file of files) {
      const content = await readFile(join(dist, file), "utf8");
      expect(content).not.toContain("@libsql/linux");
      expect(content).not.toContain(root);
    }
  });
});

describe("the server form", () => {
  test("built again under a server that runs from there keeps that one's files, and those of no other build", async () => {
    const out = join(directory, "server");
    const entry = join(directory, "entry.ts");
    const files = async (): Promise<string[]> => (await readdir(join(out, "bin"))).sort();
    await writeFile(entry, "export const answer = 1;");
    await buildServer({ entry, out });
    const before = await files();
    const nodes = await Promise.all(before.map(async (name) => (await stat(join(out, "bin", name))).ino));
    await writeFile(join(out, "bin/chunk-OLD.mjs"), "of an earlier build");
    await writeFile(entry, "export const answer = 42;");
    await buildServer({ entry, out });
    expect(await files()).toEqual(before);
    expect(await readFile(join(out, "bin/server.mjs"), "utf8")).toContain("42");
    // The same files, written over: at no time was one of them missing.
    expect(await Promise.all(before.map(async (name) => (await stat(join(out, "bin", name))).ino))).toEqual(nodes);
    expect(await readdir(join(out, "migrations"))).not.toEqual([]);

    // Nothing has changed since.
    const madeAt = (await stat(join(out, "bin/server.mjs"))).mtimeMs;
    await buildServer({ entry, out });
    expect((await stat(join(out, "bin/server.mjs"))).mtimeMs).toBe(madeAt);
  });
});

describe("a function before the migration", () => {
  test("does not serve, and says what to do", async () => {
    await expect(inFunction(`await import("./api.mjs");`)).rejects.toThrow(/npm run migrate/);
  });
});

describe("a function", () => {
  beforeAll(async () => {
    // The deploy step that the refusal names.
    await run(process.execPath, ["functions/migrate.ts"], {
      cwd: root,
      env: { ...process.env, DATABASE_URL: database.url },
    });
  });

  test("can be imported where the runtime's global is missing", async () => {
    expect(
      await inFunction(
        `const { handler } = await import("./chat.mjs"); console.log(JSON.stringify(typeof handler)); process.exit(0);`,
      ),
    ).toBe("function");
  });

  test("says which settings it lacks", async () => {
    const lacking = inFunction(`await import("./api.mjs");`, { TOOLYARD_ADMIN_KEY: "", TOOLYARD_MASTER_KEY: "" });
    await expect(lacking).rejects.toThrow(/TOOLYARD_ADMIN_KEY: must be set[^]*TOOLYARD_MASTER_KEY: must be set/);
  });

  test("of the WebSocket API needs to know where it pushes, and refuses whom it does not know", async () => {
    await expect(inFunction(`await import("./ws.mjs");`)).rejects.toThrow(/PUSH_URL: must be set/);
    const connecting = { requestContext: { eventType: "CONNECT", connectionId: "aGVsbG8=" }, headers: {} };
    const source = `
      const { handler } = await import("./ws.mjs");
      console.log(JSON.stringify(await handler(${JSON.stringify(connecting)})));
      process.exit(0);
    `;
    const url = "https://abc.execute-api.eu-west-1.amazonaws.com/live";
    expect(await inFunction(source, { PUSH_URL: url })).toMatchObject({
      statusCode: 401,
      body: expect.stringContaining("invalid_api_key"),
    });
  });

  test("answers, and streams a chat that calls a tool", async () => {
    const tenants = `${runtime}
      const { handler } = await import("./api.mjs");
      const answer = await send(handler, ${event("POST", "/v1/tenants", { body: '{"name":"bundled"}' })});
      console.log(JSON.stringify({ ...JSON.parse(answer.body), code: answer.status }));
      process.exit(0);
    `;
    const tenant = await inFunction(tenants);
    expect(tenant).toMatchObject({ code: 201, name: "bundled" });
    const id = typeof tenant === "object" && tenant !== null && "id" in tenant ? String(tenant.id) : "";

    const body = JSON.stringify({
      stream: true,
      session_id: "s1",
      messages: [{ role: "user", content: 'Call write_file with {"path":"a.txt","content":"b"}' }],
    });
    const chat = event("POST", "/api/chat/completions", {
      body,
      headers: { authorization: `Bearer ${adminKey}`, "content-type": "application/json", "x-toolyard-tenant": id },
    });
    const streamed = await inFunction(`${runtime}
      const { handler } = await import("./chat.mjs");
      console.log(JSON.stringify([await send(handler, ${chat}), await send(handler, ${event("HEAD", "/health/live")}), await send(handler, ${event("GET", "/health/ready")})]));
      process.exit(0);
    `);
    expect(streamed).toMatchObject([
      {
        status: 200,
        type: "text/event-stream",
        body: expect.stringMatching(/"type":"tool_result"[^]*"success":true[^]*data: \[DONE\]\n\n$/),
      },
      { status: 200, body: "" },
      { status: 200, body: expect.stringContaining('"status":"ok"') },
    ]);
  });

  test("reads the scheme of a tenant's service before a chat that uses it", async () => {
    const as = (tenant: string): string =>
      `{ authorization: "Bearer ${adminKey}", "content-type": "application/json", ${tenant} }`;
    const content = "Call api_crm__ping with {}";
    const chatted = await inFunction(
      `${runtime}
      import { createServer } from "node:http";
      const server = createServer((_request, response) => response.end('{"pong":true}')).listen(0, "127.0.0.1");
      await new Promise((done) => server.once("listening", done));
      const api = await import("./api.mjs");
      const chat = await import("./chat.mjs");
      const made = JSON.parse((await send(api.handler, ${event("POST", "/v1/tenants", { body: '{"name":"served"}' })})).body);
      const headers = ${as('"x-toolyard-tenant": made.id')};
      const config = { base_url: "http://127.0.0.1:" + server.address().port, tools: { ping: { description: "Pings.", endpoint: "/ping" } } };
      const service = { scheme: "api", service_id: "crm", config };
      const created = await send(api.handler, { httpMethod: "POST", path: "/v1/tool-services", headers, body: JSON.stringify(service) });
      const body = JSON.stringify({ messages: [{ role: "user", content: ${JSON.stringify(content)} }] });
      const answer = await send(chat.handler, { httpMethod: "POST", path: "/v1/chat/completions", headers, body });
      console.log(JSON.stringify({ created: [created.status, created.body], answer: JSON.parse(answer.body) }));
      process.exit(0);
    `,
      { TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8" },
    );
    expect(chatted).toMatchObject({
      created: [201, expect.anything()],
      answer: { tool_execution: { tools_called: ["api_crm__ping"] } },
    });
  });

  test("holds arguments against a pattern, for which it reads the engine", async () => {
    const config = {
      base_url: "http://127.0.0.1:9",
      tools: {
        ping: {
          description: "Pings.",
          endpoint: "/ping",
          parameters: { type: "object", properties: { code: { type: "string", pattern: "^(a+)+$" } } },
        },
      },
    };
    const chatted = await inFunction(
      `${runtime}
      const api = await import("./api.mjs");
      const chat = await import("./chat.mjs");
      const made = JSON.parse((await send(api.handler, ${event("POST", "/v1/tenants", { body: '{"name":"patterns"}' })})).body);
      const headers = { authorization: "Bearer ${adminKey}", "content-type": "application/json", "x-toolyard-tenant": made.id };
      const service = ${JSON.stringify({ scheme: "api", service_id: "crm", config })};
      const created = await send(api.handler, { httpMethod: "POST", path: "/v1/tool-services", headers, body: JSON.stringify(service) });
      const messages = [{ role: "user", content: 'Call api_crm__ping with {"code":"aab"}' }];
      const answer = await send(chat.handler, { httpMethod: "POST", path: "/v1/chat/completions", headers, body: JSON.stringify({ messages }) });
      console.log(JSON.stringify({ created: created.status, answer: answer.body }));
      process.exit(0);
    `,
      { TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8" },
    );
    expect(chatted).toEqual({ created: 201, answer: expect.stringContaining("^(a+)+$") });
  });

  test("of the queue names what failed, and the tick ticks", async () => {
    const records = JSON.stringify({
      Records: [
        { messageId: "m1", body: "nonsense" },
        { messageId: "m2", body: JSON.stringify({ tenant: "ten_gone", callId: "call_gone" }) },
      ],
    });
    const source = `
      const worker = await import("./worker.mjs");
      const tick = await import("./tick.mjs");
      const ticked = await tick.handler({}, ${context});
      console.log(JSON.stringify([await worker.handler(${records}), ticked]));
      process.exit(0);
    `;
    // The log of the failed message is the only line on standard error.
    expect(await inFunction(source)).toEqual([{ batchItemFailures: [{ itemIdentifier: "m1" }] }, { resent: 0 }]);
  });
});

describe(`a tick of which a part cannot be done ${verifies("CHAT-13")}`, () => {
  test("ends when the messages to webhooks that it has begun are sent", async () => {
    const receiver = await startHttpStub(() => ({ delayMs: 4_000 }));
    const rows = await openDatabase({ url: database.url });
    const away = {
      TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8",
      QUEUE_URL: "http://127.0.0.1:9/1/short",
      QUEUE_LONG_URL: "http://127.0.0.1:9/1/long",
      AWS_REGION: "eu-west-1",
      AWS_ACCESS_KEY_ID: "none",
      AWS_SECRET_ACCESS_KEY: "none",
    };
    try {
      const hook = JSON.stringify({ name: "ours", url: receiver.url, events: ["call.completed"] });
      const call = JSON.stringify({ uri: "native://list_files", arguments: {}, session_id: "of-the-tick" });
      const later = JSON.stringify({ ...JSON.parse(call), async: true });
      const begun = `${runtime}
        const { handler } = await import("./api.mjs");
        const made = JSON.parse((await send(handler, ${event("POST", "/v1/tenants", { body: '{"name":"ticked"}' })})).body);
        const headers = { authorization: "Bearer ${adminKey}", "content-type": "application/json", "x-toolyard-tenant": made.id };
        const post = async (path, body) => (await send(handler, { httpMethod: "POST", path, headers, body })).status;
        const statuses = [await post("/v1/webhooks", ${JSON.stringify(hook)})];
        for (const body of ${JSON.stringify([call, later])}) statuses.push(await post("/v1/tools/invoke", body));
        console.log(JSON.stringify(statuses));
        process.exit(0);
      `;
      expect(await inFunction(begun, away)).toEqual([201, 200, 202]);
      await rows.batch([{ sql: "UPDATE calls SET sent_at = sent_at - 60000 WHERE state = 'queued'", args: [] }]);
      // The process ends at the very moment at which the runtime would freeze it.
      const ticked = `
        const { handler } = await import("./tick.mjs");
        const context = { getRemainingTimeInMillis: () => 55_000 };
        const ended = await handler({}, context).then(() => "done", ({ code }) => code);
        process.stdout.write(JSON.stringify(ended) + "\\n", () => process.exit(0));
      `;
      expect(await inFunction(ticked, away)).toBe("queue_unavailable");
      const [deliveries] = await rows.batch([{ sql: "SELECT state, tries FROM webhook_deliveries", args: [] }]);
      expect(deliveries?.rows).toMatchObject([{ state: "delivered", tries: 1 }]);
    } finally {
      await rows.close();
      await receiver.close();
    }
  });
});

describe(`a function that is traced ${verifies("CHAT-15")}`, () => {
  let receiver: OtlpReceiver;
  beforeAll(async () => {
    receiver = await startOtlpReceiver();
  });
  afterAll(() => receiver.close());

  const list = event("GET", "/v1/tenants");
  /** The process ends at the very moment at which the runtime would freeze it. */
  const invoked = `${runtime}
    const { handler } = await import("./api.mjs");
    const { status } = await send(handler, ${list});
    process.stdout.write(JSON.stringify(status) + "\\n", () => process.exit(0));
  `;

  test("has sent its spans when the invocation ends", async () => {
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, AWS_LAMBDA_FUNCTION_NAME: "traced-api" };
    expect(await inFunction(invoked, env)).toBe(200);
    expect(receiver.spans).toMatchObject([{ name: "GET /v1/tenants", resource: { "faas.name": "traced-api" } }]);
    const streamed = `${runtime}
      const { handler } = await import("./chat.mjs");
      const { status } = await send(handler, ${event("POST", "/v1/chat/completions", { body: "{}" })});
      process.stdout.write(JSON.stringify(status) + "\\n", () => process.exit(0));
    `;
    expect(await inFunction(streamed, env)).toBeGreaterThanOrEqual(400);
    expect(receiver.spans.map(({ name }) => name)).toContain("POST /v1/chat/completions");
  });

  test.each(["down", "silent"])("answers although its collector is %s", async (how) => {
    if (how === "silent") receiver.http.answer = () => new Promise(() => undefined);
    const url = how === "down" ? "http://127.0.0.1:9" : receiver.url;
    expect(await inFunction(invoked, { OTEL_EXPORTER_OTLP_ENDPOINT: url })).toBe(200);
  });
});
