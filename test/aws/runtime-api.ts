/**
 * Lambda around one function, for tests: execution environments in which the real runtime client runs
 * the function on this Node, each as a process of its own with a Runtime API of its own (2018-06-01:
 * next, response, error, init error; streamed responses with error trailers). An environment serves one
 * invocation at a time, is frozen (SIGSTOP) whenever it asks for the next one and there is none, and is
 * thrown away after its process ended, failed to start or ran out of time.
 * Knows nothing of events: what stands before a function (API Gateway, SQS, …) is elsewhere.
 */
import { spawn, type ChildProcessByStdio } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { PassThrough, type Readable } from "node:stream";
import { runtimeClient } from "./runtime-client.ts";

/** Of a request and of a whole response, as Lambda counts: 6 MB and some headers. */
const largestPayload = 6 * 1024 * 1024;
const largestResponse = largestPayload + 100 * 1024;
/** Lambda allows 10 s; that a test machine is busy is no fault. */
const initWithinMs = 60_000;
/** Whoever was frozen finds its connections as they were, however long it stood still. */
const patient = { keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 } as const;
/** A process whose connections broke is gone by then, if it is going. */
const endsWithinMs = 500;

export interface FunctionOptions {
  readonly name: string;
  /** Directory of the built module. */
  readonly taskRoot: string;
  /** `file.export`, as in the function's configuration. */
  readonly handler: string;
  /** The process gets these, and what Lambda sets itself; nothing of ours. */
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  /** Default 1024. */
  readonly memoryMb?: number;
  /** Environments at once (for each tenant, where they are kept apart); further invocations wait. Default 1. */
  readonly concurrency?: number;
  /** Start all environments before one is used again, then take them in turn. */
  readonly spreads?: boolean;
  /** An environment serves one tenant only (tenancy `PER_TENANT`); invocations must name it. */
  readonly perTenant?: boolean;
  /** Further arguments of `node`. */
  readonly nodeArguments?: readonly string[];
  /** The process of an environment is gone, whatever the reason. */
  readonly onEnvironmentEnd?: () => void;
  /** How an environment is started; default: as a process beside ours. */
  readonly launch?: (command: RuntimeCommand) => RuntimeProcess;
}

export interface RuntimeCommand {
  readonly node: string;
  /** The last one is the runtime client. */
  readonly arguments: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

export interface RuntimeProcess {
  readonly child: ChildProcessByStdio<null, Readable, Readable>;
  /** Of the runtime, as we see it. */
  readonly pid: number;
  /** Reaches every process of the environment. */
  signal(name: NodeJS.Signals): void;
}

/** As the service reports it to whoever invoked the function. */
export interface FunctionError {
  readonly errorType: string;
  readonly errorMessage: string;
}

export type Answer =
  | { readonly kind: "whole"; readonly body: Buffer; readonly environment: Environment }
  | {
      readonly kind: "streamed";
      readonly contentType: string;
      /** Destroyed where the function did not come to its end. */
      readonly body: Readable;
      /** Once it is over: what went wrong after the first byte. */
      readonly ended: Promise<FunctionError | undefined>;
      readonly environment: Environment;
    }
  | { readonly kind: "failed"; readonly error: FunctionError };

export interface LambdaFunction {
  /** The JSON value goes to the handler. @throws Error where Lambda would refuse the request */
  invoke(event: unknown, options?: { readonly tenantId?: string }): Promise<Answer>;
  /** Those that have not ended, the oldest first. */
  readonly environments: readonly Environment[];
  /** Environments so far. */
  readonly started: number;
  /** Starts environments until there are so many, and waits until they stand ready. */
  warm(count: number): Promise<void>;
  /** Everything that the processes wrote to standard output and standard error. */
  output(): string;
  /** Kills all environments; invocations under way fail. */
  close(): Promise<void>;
}

const noService: FunctionError = { errorType: "ServiceException", errorMessage: "The service has ended." };

export function createLambdaFunction(options: FunctionOptions): LambdaFunction {
  return new FunctionPool(options);
}

class FunctionPool implements LambdaFunction {
  readonly #options: FunctionOptions;
  #environments: readonly Environment[] = [];
  #waiting: readonly Invocation[] = [];
  #output = "";
  #isClosed = false;
  started = 0;

  constructor(options: FunctionOptions) {
    this.#options = options;
  }

  get environments(): readonly Environment[] {
    return this.#environments;
  }

  invoke(event: unknown, { tenantId }: { readonly tenantId?: string } = {}): Promise<Answer> {
    const payload = JSON.stringify(event ?? null);
    if (Buffer.byteLength(payload) > largestPayload) throw new Error("RequestTooLargeException: more than 6 MB");
    if ((tenantId !== undefined) !== (this.#options.perTenant === true)) {
      throw new Error("InvalidParameterValueException: a tenant id belongs to functions with tenant isolation");
    }
    const invocation = new Invocation(payload, tenantId);
    if (this.#isClosed) invocation.fail(noService);
    else this.#waiting = [...this.#waiting, invocation];
    this.#assign();
    return invocation.answer;
  }

  async warm(count: number): Promise<void> {
    while (this.#environments.length < count) this.#start(undefined);
    await Promise.all(this.#environments.map(({ ready }) => ready));
  }

  output(): string {
    return this.#output;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { fail } of this.#waiting) fail(noService);
    this.#waiting = [];
    await Promise.all(this.#environments.map((environment) => environment.close()));
  }

  /** Gives each invocation that waits an environment, where there may be one. */
  #assign(): void {
    this.#waiting = this.#waiting.filter((invocation) => {
      const environment = this.#environmentFor(invocation.tenantId);
      environment?.take(invocation);
      return environment === undefined;
    });
  }

  #environmentFor(tenantId: string | undefined): Environment | undefined {
    const own = this.#environments.filter((environment) => environment.tenantId === tenantId);
    const mayStart = own.length < (this.#options.concurrency ?? 1) && !this.#isClosed;
    if (this.#options.spreads === true && mayStart) return this.#start(tenantId);
    // Whoever has rested longest, so that all of them get their turn.
    const [rested] = own.filter(({ isFree }) => isFree).toSorted((a, b) => a.usedAt - b.usedAt);
    return rested ?? (mayStart ? this.#start(tenantId) : undefined);
  }

  #start(tenantId: string | undefined): Environment {
    this.started += 1;
    const environment = new Environment(this.#options, {
      tenantId,
      number: this.started,
      onOutput: (text) => (this.#output += text),
      onFree: () => this.#assign(),
      onEnd: () => {
        this.#environments = this.#environments.filter((one) => one !== environment);
        this.#options.onEnvironmentEnd?.();
        this.#assign();
      },
    });
    this.#environments = [...this.#environments, environment];
    return environment;
  }
}

/** One event on its way through the function. */
class Invocation {
  readonly id = randomUUID();
  readonly payload: string;
  readonly tenantId: string | undefined;
  readonly answer: Promise<Answer>;
  readonly resolve: (answer: Answer) => void;
  #stream: PassThrough | undefined;
  readonly #ended = Promise.withResolvers<FunctionError | undefined>();

  constructor(payload: string, tenantId: string | undefined) {
    this.payload = payload;
    this.tenantId = tenantId;
    const { promise, resolve } = Promise.withResolvers<Answer>();
    this.answer = promise;
    this.resolve = resolve;
  }

  /** The function begins to answer; what it writes goes on to whoever reads the body. */
  stream(contentType: string, environment: Environment): PassThrough {
    this.#stream = new PassThrough();
    // Whoever reads it may leave or come too late to hear of an error.
    this.#stream.on("error", () => undefined);
    this.resolve({ kind: "streamed", contentType, body: this.#stream, ended: this.#ended.promise, environment });
    return this.#stream;
  }

  endStream(error?: FunctionError): void {
    this.#ended.resolve(error);
    if (error === undefined) this.#stream?.end();
    else this.#stream?.destroy(new Error(`${error.errorType}: ${error.errorMessage}`));
  }

  readonly fail = (error: FunctionError): void => {
    if (this.#stream === undefined) this.resolve({ kind: "failed", error });
    else this.endStream(error);
  };
}

interface EnvironmentHooks {
  readonly tenantId: string | undefined;
  readonly number: number;
  readonly onOutput: (text: string) => void;
  readonly onFree: () => void;
  readonly onEnd: () => void;
}

/** One process with the function in it, and the Runtime API that it talks to. */
export class Environment {
  readonly tenantId: string | undefined;
  /** When it was last given something to do. */
  usedAt = 0;
  /** Resolves when the function is loaded, or the process has ended. */
  readonly ready: Promise<void>;
  readonly ended: Promise<void>;
  readonly #options: FunctionOptions;
  readonly #hooks: EnvironmentHooks;
  readonly #server: Server;
  readonly #setReady: () => void;
  readonly #setEnded: () => void;
  #process: RuntimeProcess | undefined;
  #current: Invocation | undefined;
  /** Where the runtime waits for the next invocation. */
  #next: ServerResponse | undefined;
  #timer: NodeJS.Timeout | undefined;
  #error: FunctionError | undefined;
  #hasEnded = false;

  constructor(options: FunctionOptions, hooks: EnvironmentHooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.tenantId = hooks.tenantId;
    const ready = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    this.ready = ready.promise;
    this.ended = ended.promise;
    this.#setReady = ready.resolve;
    this.#setEnded = ended.resolve;
    this.#server = createServer(patient, (request, response) => {
      // A process that is killed leaves its requests half done; that it ended is seen to elsewhere.
      this.#serve(request, response).catch(() => response.destroy());
    });
    this.#server.listen(0, "127.0.0.1", () => this.#boot());
  }

  get pid(): number {
    return this.#process?.pid ?? 0;
  }

  get isFree(): boolean {
    return this.#next !== undefined && this.#current === undefined && !this.#hasEnded;
  }

  get isBusy(): boolean {
    return this.#current !== undefined;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  take(invocation: Invocation): void {
    this.usedAt = performance.now();
    this.#current = invocation;
    this.#deliver();
  }

  /** Stops it wherever it is; its time limit goes on running. */
  freeze(): void {
    this.#process?.signal("SIGSTOP");
  }

  thaw(): void {
    this.#process?.signal("SIGCONT");
  }

  async isFrozen(): Promise<boolean> {
    const line = await readFile(`/proc/${this.pid}/stat`, "utf8").catch(() => "");
    // The program's name stands in brackets before the state and may hold anything.
    return line.slice(line.lastIndexOf(")") + 2).startsWith("T");
  }

  kill(): void {
    this.#process?.signal("SIGKILL");
  }

  async close(): Promise<void> {
    if (!this.#server.listening) await once(this.#server, "listening");
    this.kill();
    await this.ended;
  }

  #boot(): void {
    const { name, taskRoot, handler, env = {}, memoryMb = 1024, nodeArguments = [] } = this.#options;
    const { port } = this.#server.address() as AddressInfo;
    this.#timer = setTimeout(() => {
      const errorMessage = `INIT did not end within ${initWithinMs / 1_000} s`;
      this.#endWith({ errorType: "Sandbox.Timedout", errorMessage });
    }, initWithinMs);
    const heapMb = Math.trunc(memoryMb * 0.9);
    const launched = (this.#options.launch ?? launchBesideUs)({
      node: process.execPath,
      arguments: ["--expose-gc", `--max-old-space-size=${heapMb}`, ...nodeArguments, runtimeClient],
      cwd: taskRoot,
      env: {
        PATH: process.env["PATH"] ?? "",
        LANG: "en_US.UTF-8",
        TZ: ":UTC",
        LAMBDA_TASK_ROOT: taskRoot,
        _HANDLER: handler,
        AWS_REGION: "eu-central-1",
        AWS_DEFAULT_REGION: "eu-central-1",
        AWS_EXECUTION_ENV: "AWS_Lambda_nodejs24.x",
        AWS_LAMBDA_FUNCTION_NAME: name,
        AWS_LAMBDA_FUNCTION_VERSION: "$LATEST",
        AWS_LAMBDA_FUNCTION_MEMORY_SIZE: String(memoryMb),
        AWS_LAMBDA_INITIALIZATION_TYPE: "on-demand",
        AWS_LAMBDA_LOG_GROUP_NAME: `/aws/lambda/${name}`,
        AWS_LAMBDA_LOG_STREAM_NAME: `2026/01/01/[$LATEST]${this.#hooks.number}`,
        AWS_LAMBDA_RUNTIME_API: `127.0.0.1:${port}`,
        ...env,
      },
    });
    const { child } = launched;
    this.#process = launched;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (part: Buffer) => this.#hooks.onOutput(part.toString("utf8")));
    }
    child.once("error", (error) => this.#hooks.onOutput(`${error.message}\n`));
    // `close` and not `exit`: the last line may still be on its way when the process is gone.
    child.once("close", (code, signal) => this.#end(signal ?? `exit status ${code}`));
  }

  /** The runtime was told enough; the environment is not used again. */
  #endWith(error: FunctionError): void {
    this.#error ??= error;
    this.#current?.fail(error);
    this.kill();
  }

  #end(how: string): void {
    clearTimeout(this.#timer);
    this.#hasEnded = true;
    const errorMessage = `RequestId: ${this.#current?.id ?? "none"} Error: Runtime exited with error: ${how}`;
    this.#current?.fail(this.#error ?? { errorType: "Runtime.ExitError", errorMessage });
    this.#current = undefined;
    this.#server.closeAllConnections();
    this.#server.close();
    this.#setReady();
    this.#setEnded();
    this.#hooks.onEnd();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = /^\/2018-06-01\/runtime\/(.+)$/.exec(request.url ?? "")?.[1] ?? "";
    const [, id, what] = /^invocation\/([^/]+)\/(response|error)$/.exec(path) ?? [];
    if (path === "invocation/next") return this.#wait(response);
    if (path === "init/error") {
      this.#error = toFunctionError(await read(request));
      return accept(response);
    }
    const current = this.#current;
    if (id === undefined || current === undefined || decodeURIComponent(id) !== current.id) {
      return refuse(response, { status: 400, errorType: "InvalidRequestID", errorMessage: "Invalid request ID" });
    }
    if (what === "error") {
      current.fail(toFunctionError(await read(request)));
    } else if (request.headers["lambda-runtime-function-response-mode"] === "streaming") {
      await this.#stream(current, request);
    } else if (!(await this.#answer(current, request))) {
      const errorMessage = `Exceeded maximum allowed payload size (${largestResponse} bytes).`;
      refuse(response, { status: 413, errorType: "RequestEntityTooLarge", errorMessage });
      return this.#finish();
    }
    accept(response);
    this.#finish();
  }

  /** What the function did is known; it is free once the runtime asks for more. */
  #finish(): void {
    clearTimeout(this.#timer);
    this.#current = undefined;
    if (this.isFree) this.#hooks.onFree();
  }

  #wait(response: ServerResponse): void {
    if (this.#current === undefined) clearTimeout(this.#timer);
    this.#next = response;
    this.#setReady();
    if (this.#current !== undefined) return this.#deliver();
    this.freeze();
    this.#hooks.onFree();
  }

  #deliver(): void {
    const [invocation, response] = [this.#current, this.#next];
    if (invocation === undefined || response === undefined) return;
    this.#next = undefined;
    const { timeoutMs, name } = this.#options;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      const errorMessage = `RequestId: ${invocation.id} Error: Task timed out after ${(timeoutMs / 1_000).toFixed(2)} seconds`;
      this.#endWith({ errorType: "Sandbox.Timedout", errorMessage });
    }, timeoutMs);
    this.thaw();
    response.writeHead(200, {
      "content-type": "application/json",
      "lambda-runtime-aws-request-id": invocation.id,
      "lambda-runtime-deadline-ms": String(Date.now() + timeoutMs),
      "lambda-runtime-invoked-function-arn": `arn:aws:lambda:eu-central-1:123456789012:function:${name}`,
      "lambda-runtime-trace-id": `Root=1-${randomUUID().slice(0, 8)}-${randomUUID().replaceAll("-", "").slice(0, 24)};Sampled=0`,
      ...(invocation.tenantId === undefined ? {} : { "lambda-runtime-aws-tenant-id": invocation.tenantId }),
    });
    response.end(invocation.payload);
  }

  async #answer(invocation: Invocation, request: IncomingMessage): Promise<boolean> {
    const body = await read(request);
    const isTooLarge = body.length > largestResponse;
    if (isTooLarge) {
      const errorMessage = `Response payload size exceeded maximum allowed payload size (${largestResponse} bytes).`;
      invocation.fail({ errorType: "Function.ResponseSizeTooLarge", errorMessage });
    } else invocation.resolve({ kind: "whole", body, environment: this });
    return !isTooLarge;
  }

  /** Passes each part on as it comes. Whoever reads may leave: the function is not told and goes on. */
  async #stream(invocation: Invocation, request: IncomingMessage): Promise<void> {
    const body = invocation.stream(request.headers["content-type"] ?? "application/octet-stream", this);
    try {
      for await (const part of request) {
        if (!body.destroyed && !body.write(part)) await untilWritable(body);
      }
    } catch {
      // The connection broke: mostly because the process ended, and that will tell why.
      await Promise.race([this.ended, new Promise((done) => setTimeout(done, endsWithinMs))]);
      invocation.fail({ errorType: "Runtime.TruncatedResponse", errorMessage: "The response broke off." });
      return;
    }
    const type = request.trailers["lambda-runtime-function-error-type"];
    const detail = request.trailers["lambda-runtime-function-error-body"] ?? "";
    invocation.endStream(type === undefined ? undefined : toFunctionError(Buffer.from(detail, "base64")));
  }
}

function launchBesideUs({ node, arguments: parameters, cwd, env }: RuntimeCommand): RuntimeProcess {
  const child = spawn(node, parameters, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  return { child, pid: child.pid ?? 0, signal: (name) => child.kill(name) };
}

function untilWritable(body: PassThrough): Promise<void> {
  return new Promise((done) => {
    const stop = (): void => {
      body.off("drain", stop).off("close", stop);
      done();
    };
    body.on("drain", stop).on("close", stop);
  });
}

function accept(response: ServerResponse): void {
  response.writeHead(202, { "content-type": "application/json" }).end('{"status":"OK"}');
}

function refuse(response: ServerResponse, { status, ...error }: FunctionError & { readonly status: number }): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(error));
}

function toFunctionError(body: Buffer): FunctionError {
  const { errorType, errorMessage } = JSON.parse(body.toString("utf8")) as Partial<FunctionError>;
  return { errorType: errorType ?? "Runtime.Unknown", errorMessage: errorMessage ?? "" };
}

async function read(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

/** What the service passes on of a function's streamed answer. */
export async function* passOn(
  box: LambdaFunction,
  { payload, tenantId }: { readonly payload: unknown; readonly tenantId: string },
): AsyncGenerator<string> {
  const answer = await box.invoke(payload, { tenantId });
  if (answer.kind !== "streamed") throw new Error(`not streamed: ${JSON.stringify(answer)}`);
  for await (const part of answer.body.setEncoding("utf8")) yield part as string;
}
