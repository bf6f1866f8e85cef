/** A server that says too much of itself by reflection is not listened to (SVC-1). */
import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { Http2Connection } from "../ports/egress.ts";
import { toFrame } from "./frames.ts";
import { reflect } from "./reflection.ts";
import { textField } from "./wire.ts";

test.each([
  ["services", 6, undefined],
  ["files", 4, ["loyalty.v1.Customers"]],
])(`more %s than any server has are refused ${verifies("SVC-1")}`, async (_what, number, services) => {
  const empty = Buffer.alloc(50_000, Buffer.from([0x0a, 0]));
  const answer = textField(number, empty.toString("latin1"));
  const connection: Http2Connection = {
    request: () =>
      Promise.resolve({
        status: 200,
        headers: { "content-type": "application/grpc" },
        body: (async function* () {
          yield toFrame(answer);
        })(),
        trailers: () => ({ "grpc-status": "0" }),
      }),
    isAlive: () => true,
    close: () => Promise.resolve(),
  };
  const options = { metadata: [], timeoutMs: 1_000, signal: new AbortController().signal, maxBytes: 1_000_000 };
  const asked = reflect(connection, { ...options, toolName: "svc://loyalty", redact: (text) => text, services });
  await expect(asked).rejects.toThrow("there are more than 20000");
});
