/** The bundled functions, as they are uploaded: with a database server, outside Lambda and as if inside it. */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startHranaServer, type HranaServer } from "../support/hrana-server.ts";

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
  built = (await run(process.execPath, ["functions/build.ts"], { cwd: root })).stdout;
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

describe("the bundles", () => {
  test("are there, and their sizes are said", async () => {
    expect((await readdir(dist)).filter((name) => name.endsWith(".mjs")).sort()).toEqual([
      "api.mjs",
      "chat.mjs",
      "plugin-box.mjs",
      "tick.mjs",
      "worker.mjs",
    ]);
    // One that has become too large ends the build.
    for (const name of ["api", "chat", "tick", "worker"]) {
      expect(built).toMatch(new RegExp(`^${name} +\\d+ KiB, +\\d+ KiB gzipped; +\\d+ KiB more when needed$`, "m"));
    }
    // Runs before each first plugin of a tenant, and has no use for the product.
    expect((await stat(join(dist, "plugin-box.mjs"))).size).toBeLessThan(250_000);
  });

  test("hold no native module and nothing of this machine's paths", async () => {
    const wanted = ["-r", "-l", "--include=*.mjs", "-E", `@libsql/linux|${root}`, "."];
    const { stdout } = await run("grep", wanted, { cwd: dist }).catch((error: { stdout: string }) => error);
    expect(stdout.trim()).toBe("");
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

  test("answers whole, and streams a chat that calls a tool", async () => {
    const tenants = `
      const { handler } = await import("./api.mjs");
      const answer = await handler(${event("POST", "/v1/tenants", { body: '{"name":"bundled"}' })}, ${context});
      console.log(JSON.stringify({ ...JSON.parse(answer.body), code: answer.statusCode }));
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
      console.log(JSON.stringify([await worker.handler(${records}), await tick.handler()]));
      process.exit(0);
    `;
    // The log of the failed message is the only line on standard error.
    expect(await inFunction(source)).toEqual([{ batchItemFailures: [{ itemIdentifier: "m1" }] }, { resent: 0 }]);
  });
});
