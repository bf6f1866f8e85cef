/** The response stream of a function, and the global of Lambda's runtime that gives it its head. */
import { Writable } from "node:stream";
import type { StreamingHandler } from "../../functions/lambda-runtime.ts";
import type { LambdaResponseHead } from "../../functions/http/lambda-stream.ts";

/** A response stream as the runtime's: the head goes out with the first write. */
export class FakeResponseStream extends Writable {
  readonly log: string[] = [];
  readonly parts: Buffer[] = [];
  head: LambdaResponseHead | undefined;
  ends = 0;

  override write(chunk: unknown, ...rest: unknown[]): boolean {
    if (this.log.length === 0 && this.head !== undefined) this.log.push("head");
    this.log.push("write");
    return Reflect.apply(super.write.bind(this), undefined, [chunk, ...rest]);
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.parts.push(chunk);
    done();
  }

  override end(...rest: unknown[]): this {
    this.ends += 1;
    this.log.push("end");
    Reflect.apply(super.end.bind(this), undefined, rest);
    return this;
  }

  get text(): string {
    return Buffer.concat(this.parts).toString("utf8");
  }
}

const runtime = {
  streamifyResponse: (handler: StreamingHandler) => handler,
  HttpResponseStream: {
    from(stream: FakeResponseStream, head: LambdaResponseHead): FakeResponseStream {
      stream.head = head;
      return stream;
    },
  },
};

/** @returns what takes it away again */
export function installRuntime(): () => void {
  Object.assign(globalThis, { awslambda: runtime });
  return () => void Reflect.deleteProperty(globalThis, "awslambda");
}
