import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { startHttpStub, type HttpStub } from "../../../../../test/support/http-stub.ts";
import { createNativeBench, type NativeBench } from "../../../../../test/support/native-tools.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { createEgress } from "../../blind/egress.ts";
import type { Egress } from "../../ports/egress.ts";
import { deliveryOf } from "../../errors/delivery.ts";
import { fetchUrl } from "./fetch.ts";

let stub: HttpStub;
let egress: Egress;
let bench: NativeBench;

beforeAll(async () => {
  stub = await startHttpStub();
  egress = createEgress({ allowCidrs: ["127.0.0.1/32"] });
});
beforeEach(() => {
  stub.requests.length = 0;
  stub.answer = () => ({ body: '{"id":9007199254740993}' });
  bench = createNativeBench(egress);
});
afterAll(async () => {
  await egress.close();
  await stub.close();
});

async function thrownBy(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => {
      throw new Error("it succeeded");
    },
    (error: unknown) => error,
  );
}

describe(`fetch ${verifies("CHAT-9")}`, () => {
  it("gets a page, JSON byte for byte", async () => {
    expect(await bench.run("fetch", { url: `${stub.url}/weather?q=北京` })).toEqual({
      mediaType: "application/json",
      body: '{"id":9007199254740993}',
    });
    expect(stub.requests[0]).toMatchObject({ method: "GET", target: "/weather?q=%E5%8C%97%E4%BA%AC" });
  });

  it("reads a page in the charset it came in, and bytes as bytes", async () => {
    stub.answer = () => ({
      headers: { "content-type": "text/html; charset=gb2312" },
      body: Buffer.from("3c7469746c653eb1b1bea93c2f7469746c653e", "hex"),
    });
    expect(await bench.text("fetch", { url: stub.url })).toBe("<title>北京</title>");
    stub.answer = () => ({ headers: { "content-type": "image/png" }, body: Buffer.from([0x89, 255]) });
    expect((await bench.run("fetch", { url: stub.url })).body).toBeInstanceOf(Uint8Array);
  });

  it("sends method, headers and body as asked, JSON as JSON", async () => {
    await bench.run("fetch", {
      url: stub.url,
      method: "POST",
      body: '{"a":1}',
      headers: { "X-Kind": "test", Accept: "text/csv" },
    });
    await bench.run("fetch", { url: stub.url, method: "PUT", body: "plain" });
    await bench.run("fetch", {
      url: stub.url,
      method: "PATCH",
      body: "a=1",
      headers: { "Content-Type": "application/x-www-form-urlencoded" },
    });
    await bench.run("fetch", { url: stub.url, method: "DELETE" });
    const [post, put, patch, remove] = stub.requests;
    expect(post).toMatchObject({
      method: "POST",
      headers: { "content-type": "application/json", "x-kind": "test", accept: "text/csv" },
    });
    expect(post?.body.toString()).toBe('{"a":1}');
    expect(put?.headers["content-type"]).toBe("text/plain; charset=utf-8");
    expect(patch?.headers["content-type"]).toBe("application/x-www-form-urlencoded");
    expect(remove?.method).toBe("DELETE");
  });

  it("adds nothing of the tenant's but the trace", async () => {
    await bench.run("fetch", { url: stub.url });
    const names = Object.keys(stub.requests[0]?.headers ?? {}).sort();
    expect(names).toEqual(["accept", "accept-encoding", "connection", "host", "traceparent", "user-agent"]);
    expect(stub.requests[0]?.headers["traceparent"]).toContain("0af7651916cd43dd8448eb211c80319c");
  });

  it("makes an error status an error with status and body", async () => {
    stub.answer = () => ({ status: 404, body: '{"why":"gone"}' });
    const error = await thrownBy(bench.run("fetch", { url: stub.url }));
    expect(error).toMatchObject({ code: "tool_failed", details: { extra: { status: 404 } } });
    expect(deliveryOf(error)).toBe("answered");
  });

  it("follows redirects of a GET and not of a write", async () => {
    stub.answer = ({ target }) =>
      target === "/to"
        ? { body: "there", headers: { "content-type": "text/plain" } }
        : { status: 302, headers: { location: "/to" } };
    expect(await bench.text("fetch", { url: `${stub.url}/from` })).toBe("there");
    stub.requests.length = 0;
    expect(await thrownBy(bench.run("fetch", { url: `${stub.url}/from`, method: "POST", body: "x" }))).toMatchObject({
      code: "tool_failed",
      details: { extra: { status: 302 } },
    });
    expect(stub.requests).toHaveLength(1);
  });

  it("keeps the headers it was given from another origin", async () => {
    const other = await startHttpStub(() => ({ body: "{}" }));
    stub.answer = () => ({ status: 302, headers: { location: `${other.url}/x` } });
    await bench.run("fetch", {
      url: stub.url,
      headers: { Authorization: "Bearer of-the-conversation", "X-Key": "too" },
    });
    expect(stub.requests[0]?.headers["authorization"]).toBe("Bearer of-the-conversation");
    expect(other.requests[0]?.headers).not.toHaveProperty("authorization");
    expect(other.requests[0]?.headers).not.toHaveProperty("x-key");
    await other.close();
  });

  it("refuses a result beyond the tenant's cap", async () => {
    stub.answer = () => ({ body: "x".repeat(5_000), headers: { "content-type": "text/plain" } });
    expect(
      await thrownBy(bench.run("fetch", { url: stub.url }, { settings: { result_max_bytes: 2_048 } })),
    ).toMatchObject({
      code: "tool_output_too_large",
    });
  });

  it.each([
    "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1/",
    "http://[::1]:1/",
    "http://0.0.0.0/",
    "file:///etc/passwd",
    "ftp://example.com/",
  ])("does not reach %s", async (url) => {
    const error = await thrownBy(bench.run("fetch", { url }));
    expect(error).toMatchObject({ code: "egress_denied" });
    expect(deliveryOf(error)).toBe("not_sent");
  });

  it.each<[string, Record<string, string>]>([
    ["a line break in a value", { "X-A": "a\r\nX-B: b" }],
    ["a space in a name", { "X A": "a" }],
    ["the host", { Host: "internal" }],
    ["the length", { "content-length": "0" }],
    ["the transfer coding", { "Transfer-Encoding": "chunked" }],
  ])("refuses %s among the headers before anything is sent", async (_what, headers) => {
    const error = await thrownBy(bench.run("fetch", { url: stub.url, headers }));
    expect(error).toMatchObject({ code: "invalid_arguments", details: { param: "headers" } });
    expect(deliveryOf(error)).toBe("not_sent");
    expect(stub.requests).toEqual([]);
  });

  it("refuses a GET with a body, and an option that contradicts the arguments", async () => {
    expect(await thrownBy(bench.run("fetch", { url: stub.url, body: "x" }))).toMatchObject({
      details: { param: "body" },
    });
    expect(await thrownBy(bench.run("native://fetch?method=POST", { url: stub.url }))).toMatchObject({
      code: "invalid_uri",
    });
    await bench.run("native://fetch?method=GET", { url: stub.url });
    expect(stub.requests).toHaveLength(1);
  });

  it("is a write with every method but GET, and leaves the tenant", () => {
    expect(fetchUrl.effectOf({ url: "http://a" })).toBe("read");
    expect(fetchUrl.effectOf({ url: "http://a", method: "GET" })).toBe("read");
    for (const method of ["POST", "PUT", "PATCH", "DELETE"])
      expect(fetchUrl.effectOf({ url: "http://a", method })).toBe("write");
    expect(fetchUrl.effectOf({ nonsense: true })).toBe("write");
    expect(fetchUrl).toMatchObject({ outward: true, outputTrust: "outside", repeat: "never" });
  });
});

describe(`the example of fetching and saving ${verifies("CHAT-9")}`, () => {
  it("ends with the weather in weather.txt", async () => {
    stub.answer = () => ({ body: '{"city":"北京","weather":"晴","temperature":25}' });
    const weather = await bench.text("fetch", { url: `${stub.url}/v1/beijing` });
    expect(weather).toContain("晴");
    await bench.run("write_file", { path: "weather.txt", content: "北京天气：晴，温度25°C" });
    expect(await bench.text("read_file", { path: "weather.txt" })).toBe("北京天气：晴，温度25°C");
  });
});
