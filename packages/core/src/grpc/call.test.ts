/** Calls end, whatever a server answers (SVC-1). */
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { deliveryOf } from "../errors/delivery.ts";
import type { Http2Connection } from "../ports/egress.ts";
import { callGrpc, type GrpcRequest } from "./call.ts";
import { toFrame } from "./frames.ts";

const most = 65_536;

function connectionThat(answers: AsyncIterable<Uint8Array>): Http2Connection {
  return {
    request: () =>
      Promise.resolve({
        status: 200,
        headers: { "content-type": "application/grpc" },
        body: answers,
        trailers: () => ({ "grpc-status": "0" }),
      }),
    isAlive: () => true,
    close: () => Promise.resolve(),
  };
}

const request: GrpcRequest = {
  path: "loyalty.v1.Customers/List",
  messages: [new Uint8Array()],
  metadata: [],
  timeoutMs: 1_000,
  signal: new AbortController().signal,
  maxBytes: most,
};

async function* inTurn(...pieces: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* pieces;
}

describe(`an answer ${verifies("SVC-1")}`, () => {
  test("of empty messages without end is cut off", async () => {
    let isClosed = false;
    async function* endless(): AsyncGenerator<Uint8Array> {
      try {
        for (let piece = 0; piece < 100; piece += 1) yield Buffer.alloc(5_000);
        throw new Error("it was read on");
      } finally {
        isClosed = true;
      }
    }
    const reply = await callGrpc(connectionThat(endless()), request);
    expect([reply.cut, isClosed]).toEqual(["bytes", true]);
    expect(reply.messages.length).toBeLessThanOrEqual(most / 64);
  });

  test("of a method that answers once is refused at its second message", async () => {
    async function* twice(): AsyncGenerator<Uint8Array> {
      yield Buffer.concat([toFrame(new Uint8Array()), toFrame(new Uint8Array())]);
      throw new Error("it was read on");
    }
    const asked = callGrpc(connectionThat(twice()), { ...request, isUnary: true });
    const error: unknown = await asked.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: "tool_failed", message: expect.stringContaining("second message") });
    expect(deliveryOf(error)).toBe("answered");
  });

  test("of a method that answers once is its message", async () => {
    const answers = inTurn(toFrame(Buffer.from("one")));
    const { messages, status } = await callGrpc(connectionThat(answers), { ...request, isUnary: true });
    expect([messages, status.code]).toEqual([[Buffer.from("one")], 0]);
  });
});
