/** Lambda's `InvokeWithResponseStream` for one function with tenant isolation, which is given by the test. */
import { crc32 } from "node:zlib";
import { startAwsServer, type AwsReply, type AwsServer, type AwsService } from "./aws-server.ts";
import type { Signer } from "./sigv4.ts";

export interface Invocation {
  readonly tenantId: string;
  readonly payload: unknown;
}

/** What the function writes; a throw ends the answer as a function does that crashed. */
export type StreamingFunction = (invocation: Invocation) => AsyncIterable<string>;

const largestPayload = 6 * 1024 ** 2;

export async function startLambdaServer(name: string, run: StreamingFunction, signer?: Signer): Promise<AwsServer> {
  const service: AwsService = {
    name: "lambda",
    refuse: ({ code, message }) => fail(403, code, message),
    handle({ path, body, headers }) {
      const [, asked] = /^\/2021-11-15\/functions\/([^/]+)\/response-streaming-invocations$/.exec(path) ?? [];
      if (asked === undefined || decodeURIComponent(asked) !== name) {
        return fail(404, "ResourceNotFoundException", "Function not found");
      }
      const tenantId = headers["x-amz-tenant-id"];
      if (tenantId === undefined) return fail(400, "InvalidParameterValueException", "Add a valid tenant ID");
      if (body.length > largestPayload) return fail(413, "RequestTooLargeException", "Too large");
      const invocation = { tenantId, payload: JSON.parse(body.toString("utf8")) as unknown };
      return {
        status: 200,
        headers: { "content-type": "application/vnd.amazon.eventstream" },
        body: toEvents(run(invocation)),
      };
    },
  };
  return startAwsServer(service, signer);
}

async function* toEvents(output: AsyncIterable<string>): AsyncGenerator<Buffer> {
  let end: object = {};
  try {
    for await (const part of output) yield event("PayloadChunk", "application/octet-stream", Buffer.from(part));
  } catch {
    end = { ErrorCode: "Unhandled", ErrorDetails: "the function crashed" };
  }
  yield event("InvokeComplete", "application/json", Buffer.from(JSON.stringify(end)));
}

/** One message of AWS's event stream encoding. */
function event(type: string, contentType: string, payload: Buffer): Buffer {
  const headers = Buffer.concat(
    Object.entries({ ":event-type": type, ":content-type": contentType, ":message-type": "event" }).map(toHeader),
  );
  const prelude = Buffer.alloc(12);
  prelude.writeUInt32BE(16 + headers.length + payload.length, 0);
  prelude.writeUInt32BE(headers.length, 4);
  prelude.writeUInt32BE(crc32(prelude.subarray(0, 8)), 8);
  const message = Buffer.concat([prelude, headers, payload, Buffer.alloc(4)]);
  message.writeUInt32BE(crc32(message.subarray(0, -4)), message.length - 4);
  return message;
}

function toHeader([name, value]: [string, string]): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(value.length);
  // 7: a string follows.
  return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), Buffer.from([7]), length, Buffer.from(value)]);
}

function fail(status: number, type: string, message: string): AwsReply {
  const headers = { "content-type": "application/json", "x-amzn-errortype": type };
  return { status, headers, body: JSON.stringify({ Message: message }) };
}
