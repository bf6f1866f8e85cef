/**
 * A function's first invocation in a process of its own: `node cold-runner.mjs <bundle> <event file>`.
 * Prints what it cost, without the start of Node itself, and what was answered.
 */
import { readFileSync } from "node:fs";
import { PassThrough } from "node:stream";

const [bundle, eventFile] = process.argv.slice(2);
const event = JSON.parse(readFileSync(eventFile, "utf8"));
let head;
globalThis.awslambda = {
  streamifyResponse: (handler) => handler,
  HttpResponseStream: {
    from(stream, given) {
      head = given;
      return stream;
    },
  },
};

const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
};

const before = cpuMs();
const { handler } = await import(bundle);
const loaded = cpuMs();
const stream = new PassThrough();
const parts = [];
stream.on("data", (part) => parts.push(part));
const ended = new Promise((done) => stream.on("end", done));
await handler(event, stream, { getRemainingTimeInMillis: () => 60_000 });
await ended;
const answered = cpuMs();
const body = Buffer.concat(parts).toString("utf8");
process.stdout.write(
  `${JSON.stringify({ initMs: loaded - before, firstMs: answered - loaded, status: head?.statusCode, body })}\n`,
);
process.exit(0);
