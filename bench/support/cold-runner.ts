/**
 * A function's first invocation in a process of its own: `node cold-runner <bundle> <event file>`. Prints
 * what it cost, without the start of Node itself, and what was answered.
 */
import { readFileSync } from "node:fs";
import { PassThrough, type Writable } from "node:stream";

type Handler = (event: unknown, stream: Writable, context: object) => Promise<void>;

const [bundle = "", eventFile = ""] = process.argv.slice(2);
const event: unknown = JSON.parse(readFileSync(eventFile, "utf8"));
let head: { readonly statusCode?: number } | undefined;

Object.assign(globalThis, {
  awslambda: {
    streamifyResponse: (handler: Handler) => handler,
    HttpResponseStream: {
      from(stream: Writable, given: { readonly statusCode?: number }): Writable {
        head = given;
        return stream;
      },
    },
  },
});

function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

const before = cpuMs();
const { handler } = (await import(bundle)) as { readonly handler: Handler };
const loaded = cpuMs();
const stream = new PassThrough();
const parts: Buffer[] = [];
stream.on("data", (part: Buffer) => parts.push(part));
const ended = new Promise((done) => stream.on("end", done));
await handler(event, stream, { getRemainingTimeInMillis: () => 60_000 });
await ended;
const answered = cpuMs();
const body = Buffer.concat(parts).toString("utf8");
const result = { initMs: loaded - before, firstMs: answered - loaded, status: head?.statusCode, body };
process.stdout.write(`${JSON.stringify(result)}\n`);
process.exit(0);
