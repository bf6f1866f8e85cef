/**
 * AWS around our functions, as a process: API Gateway's REST API before `chat` and `api`, SQS before
 * `worker`, the scheduler before `tick`, and what Node's managed runtime puts on `globalThis`. Requests
 * become proxy events of payload version 1; streamed answers come with the runtime's prelude, which the
 * gateway takes off. Prints one line of JSON with its addresses.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Writable } from "node:stream";
import type { LambdaContext, StreamingHandler } from "../../functions/lambda-runtime.ts";
import type { LambdaResponseHead } from "../../functions/http/lambda-stream.ts";
import { readRequest, toProxyEvent } from "./proxy-event.ts";

/** Marks a handler that the runtime calls with a response stream. */
const streaming = Symbol.for("aws.lambda.runtime.handler.streaming");
const preludeType = "application/vnd.awslambda.http-integration-response";
const preludeEnd = Buffer.alloc(8);
/** Time limit of the functions. */
const limitMs = 30_000;

/** The runtime's stream: the head goes ahead of the first write, and is too late after it. */
class ResponseStream extends Writable {
  readonly #onward: (part: Buffer) => boolean;
  #contentType = "application/octet-stream";
  #head: LambdaResponseHead | undefined;
  #hasBegun = false;

  constructor(onward: (part: Buffer) => boolean) {
    super();
    this.#onward = onward;
  }

  setHead(head: LambdaResponseHead): void {
    if (this.#hasBegun) throw new Error("Cannot set content-type, too late.");
    this.#contentType = preludeType;
    this.#head = head;
  }

  get contentType(): string {
    return this.#contentType;
  }

  override _write(part: Buffer, _encoding: string, done: () => void): void {
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      if (this.#head !== undefined) this.#onward(Buffer.concat([Buffer.from(JSON.stringify(this.#head)), preludeEnd]));
    }
    this.#onward(part);
    done();
  }
}

Object.assign(globalThis, {
  awslambda: {
    streamifyResponse: (handler: StreamingHandler) => Object.assign(handler, { [streaming]: "response" }),
    HttpResponseStream: {
      from(stream: ResponseStream, head: LambdaResponseHead): ResponseStream {
        stream.setHead(head);
        return stream;
      },
    },
  },
});

function newContext(): LambdaContext {
  const deadline = Date.now() + limitMs;
  return { getRemainingTimeInMillis: () => deadline - Date.now() };
}

/** Takes the prelude off and passes the rest on as it comes. */
async function answerStreamed(handler: StreamingHandler, event: object, to: ServerResponse): Promise<void> {
  let prelude: Buffer | undefined = Buffer.alloc(0);
  const stream = new ResponseStream((part) => {
    if (prelude === undefined) return to.write(part);
    prelude = Buffer.concat([prelude, part]);
    const end = prelude.indexOf(preludeEnd);
    if (end < 0) return true;
    const head = JSON.parse(prelude.subarray(0, end).toString("utf8")) as LambdaResponseHead;
    const cookies = head.cookies === undefined ? {} : { "set-cookie": [...head.cookies] };
    to.writeHead(head.statusCode, { ...head.headers, ...cookies });
    prelude = undefined;
    return true;
  });
  const ended = new Promise((done) => stream.on("finish", done));
  await handler(event, stream, newContext());
  await ended;
  if (stream.contentType !== preludeType) throw new Error("the function answered without a head");
  to.end();
}

function serve(handle: (request: IncomingMessage, response: ServerResponse) => Promise<void>): Promise<string> {
  const server = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => {
      process.stderr.write(`invocation failed: ${String(error)}\n`);
      if (response.headersSent) response.destroy();
      else response.writeHead(502, { "content-type": "application/json" }).end('{"message": "Internal server error"}');
    });
  });
  return new Promise((listening) => {
    server.listen(0, "127.0.0.1", () => {
      listening(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    });
  });
}

const functions = Promise.withResolvers<Functions>();
interface Functions {
  readonly chat: StreamingHandler;
  readonly api: StreamingHandler;
  readonly worker: (event: unknown) => Promise<unknown>;
  readonly tick: (event: unknown, context: LambdaContext) => Promise<unknown>;
}

const longPaths = new Set(["/v1/chat/completions", "/api/chat/completions", "/v1/chatvcp/completions"]);

const api = await serve(async (request, response) => {
  const { chat, api: others } = await functions.promise;
  const event = toProxyEvent(request, await readRequest(request));
  const path = new URL(request.url ?? "/", "https://localhost").pathname;
  await answerStreamed(longPaths.has(path) ? chat : others, event, response);
});

/** `POST /worker` takes an SQS event, `POST /tick` nothing. */
const events = await serve(async (request, response) => {
  const { worker, tick } = await functions.promise;
  const body = await readRequest(request);
  const result =
    request.url === "/worker" ? await worker(JSON.parse(body.toString("utf8"))) : await tick({}, newContext());
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(result));
});

process.env["TOOLYARD_PUBLIC_URL"] = api;
const [chat, others, worker, tick] = await Promise.all([
  import("../../functions/chat.ts"),
  import("../../functions/api.ts"),
  import("../../functions/worker.ts"),
  import("../../functions/tick.ts"),
]);
for (const { handler } of [chat, others]) {
  if (!(streaming in handler)) throw new Error("chat or api is not marked as a streaming handler");
}
functions.resolve({ chat: chat.handler, api: others.handler, worker: worker.handler, tick: tick.handler });
process.stdout.write(`${JSON.stringify({ api, events })}\n`);
