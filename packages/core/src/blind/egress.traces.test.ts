/** What the door tells of the requests that leave through it. */
import { createServer, type AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startHttpStub, type HttpStub } from "../../../../test/support/http-stub.ts";
import { RecordedSpan } from "../../../../test/support/recorded-span.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { Egress, EgressRequest } from "../ports/egress.ts";
import { createEgress } from "./egress.ts";

let stub: HttpStub;
let egress: Egress;
let above: RecordedSpan;

beforeAll(async () => {
  stub = await startHttpStub();
  egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
});
beforeEach(() => {
  stub.requests.length = 0;
  stub.answer = () => ({ body: "{}" });
  above = new RecordedSpan();
});
afterAll(async () => {
  await egress.close();
  await stub.close();
});

async function send(more: Partial<EgressRequest> = {}): Promise<void> {
  const request = { method: "GET", url: `${stub.url}/path?key=value`, headers: [], timeoutMs: 5_000, span: above };
  const { body } = await egress.request({ ...request, ...more });
  for await (const _part of body) continue;
}

const old = ["traceparent", "00-11111111111111111111111111111111-2222222222222222-01"] as const;

describe(`outgoing requests in a trace ${verifies("CHAT-15")}`, () => {
  test("are a span each, which says where to and with what end, and nothing of path, query and headers", async () => {
    await send({ headers: [["authorization", "Bearer abc"]] });
    expect(above.below).toMatchObject([
      {
        name: "GET",
        kind: "client",
        attributes: {
          "http.request.method": "GET",
          "http.response.status_code": 200,
          "url.scheme": "http",
          "server.address": "127.0.0.1",
          "server.port": stub.port,
        },
        failedWith: [],
        ends: 1,
      },
    ]);
    expect(JSON.stringify(above.below)).not.toMatch(/path|value|abc/);
  });

  test("tell their own span to those who are told of the trace, and nobody else", async () => {
    await send({ headers: [old] });
    await send();
    await send({ headers: [old], span: undefined });
    expect(stub.requests.map(({ headers }) => headers["traceparent"])).toEqual([
      above.below[0]?.traceparent,
      undefined,
      old[1],
    ]);
  });

  test("are one more for each redirect, under its own name", async () => {
    stub.answer = ({ target }) => (target === "/end" ? { body: "{}" } : { status: 307, headers: { location: "/end" } });
    await send({ headers: [old], maxRedirects: 1 });
    expect(above.below.map(({ attributes }) => attributes["http.request.resend_count"])).toEqual([undefined, 1]);
    expect(stub.requests.map(({ headers }) => headers["traceparent"])).toEqual(
      above.below.map(({ traceparent }) => traceparent),
    );
    await expect.poll(() => above.below.map(({ ends }) => ends)).toEqual([1, 1]);
  });

  test.each([404, 503])("that are answered with %d have failed with that", async (status) => {
    stub.answer = () => ({ status });
    await send();
    expect(above.below).toMatchObject([{ failedWith: [String(status)], ends: 1 }]);
  });

  test("that are given up, before or in the middle, or meet nobody, say why and end once", async () => {
    await expect(send({ signal: AbortSignal.abort() })).rejects.toMatchObject({ code: "call_cancelled" });
    stub.answer = (_request, response) => {
      response.writeHead(200);
      response.write("begun");
      return undefined;
    };
    await expect(send({ timeoutMs: 100 })).rejects.toMatchObject({ code: "tool_timeout" });
    const nobody = createServer().listen(0, "127.0.0.1");
    await new Promise((done) => nobody.once("listening", done));
    const { port } = nobody.address() as AddressInfo;
    await new Promise((done) => nobody.close(done));
    await expect(send({ url: `http://127.0.0.1:${port}/` })).rejects.toMatchObject({ code: "tool_unreachable" });
    expect(above.below).toMatchObject([
      { failedWith: ["call_cancelled"], ends: 1 },
      { failedWith: ["tool_timeout"], attributes: { "http.response.status_code": 200 }, ends: 1 },
      { failedWith: ["tool_unreachable"], ends: 1 },
    ]);
  });

  test("whose reader has enough end there, and have not failed", async () => {
    stub.answer = (_request, response) => {
      response.writeHead(200);
      response.write("begun");
      return undefined;
    };
    const { body } = await egress.request({ method: "GET", url: stub.url, headers: [], timeoutMs: 5_000, span: above });
    for await (const _part of body) break;
    expect(above.below).toMatchObject([{ failedWith: [], ends: 1 }]);
  });
});
