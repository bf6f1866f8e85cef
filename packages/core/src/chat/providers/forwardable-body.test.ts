import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import { forwardableBody, OriginalRequest } from "./forwardable-body.ts";

const messages = [{ role: "user", content: "你好" }];

/** What goes out for a request of this text when `change` has been done to what was parsed from it. */
function forward(text: string, change: (body: JsonObject) => JsonObject = (body) => body): string | undefined {
  const bytes = Buffer.from(text);
  const body = JSON.parse(text) as JsonObject;
  const forwarded = forwardableBody(new OriginalRequest(bytes, body), change({ ...body }));
  return forwarded === undefined ? undefined : Buffer.from(forwarded).toString();
}

const text = JSON.stringify({ model: "m", messages, temperature: 0.5, stream: false }, null, 1);

describe(`a request's own bytes ${verifies("CHAT-1")}`, () => {
  test("go to the back end where nothing was changed", () => {
    expect(forward(text)).toBe(text);
    expect(
      forward(text, (body) => ({ ...body, messages: [...messages.keys()].map((at) => listed(body)[at] ?? null) })),
    ).toBe(text);
    expect(forward(text, ({ stream: _stream, ...body }) => body)).toBe(text);
  });

  test("are written anew once they were let go of", () => {
    const body = { model: "m", messages };
    const original = new OriginalRequest(Buffer.from(JSON.stringify(body)), body);
    expect(forwardableBody(original, body)).toBeDefined();
    original.letGo();
    expect(forwardableBody(original, body)).toBe(undefined);
  });

  test("are given what a stream lacks: the question for its usage", () => {
    const asked = `{"model":"m","messages":[],"stream":true} \n`;
    const usage = { include_usage: true };
    expect(forward(asked, (body) => ({ ...body, stream_options: usage }))).toBe(
      `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}`,
    );
    expect(forward(asked, (body) => ({ ...body, stream_options: { ...usage, x: 1 } }))).toBe(undefined);
  });

  test.each<readonly [string, (body: JsonObject) => JsonObject]>([
    ["another model", (body) => ({ ...body, model: "n" })],
    ["no model where there was one", ({ model: _model, ...body }) => body],
    ["a message more", (body) => ({ ...body, messages: [...messages, ...messages] })],
    ["a message written anew", (body) => ({ ...body, messages: [{ ...messages[0] }] })],
    ["fields more", (body) => ({ ...body, tools: [] })],
    ["fields less", ({ temperature: _temperature, ...body }) => body],
  ])("stay here where there is %s", (_what, change) => {
    expect(forward(text, change)).toBe(undefined);
  });

  test.each([
    ["the model is said twice", `{"model":"cheap","model":"m","messages":[]}`],
    ["it is said again, spelled with escapes", `{"mod\\u0065l":"cheap","model":"m","messages":[]}`],
    ["a message speaks of a model", `{"model":"m","messages":[{"role":"user","model":"x"}]}`],
    ["there is a byte before the object", ` {"model":"m","messages":[]}`],
  ])("stay here where %s", (_what, raw) => {
    expect(forward(raw)).toBe(undefined);
  });

  test("are read as what was to be sent, whatever the request and whatever was done to it", () => {
    const key = fc.constantFrom("model", "messages", "stream", "stream_options", "n", "x");
    // As it is once it has been JSON: minus zero is not kept.
    const value = fc.json({ maxDepth: 2 }).map((json) => JSON.parse(json) as JsonValue);
    const bodies = fc.dictionary(key, value);
    fc.assert(
      fc.property(
        bodies,
        fc.dictionary(key, value, { maxKeys: 2 }),
        fc.subarray(["n", "x", "stream"]),
        (body, more, less) => {
          const given = { ...body, model: "m" };
          const rest = Object.fromEntries(Object.entries(given).filter(([name]) => !less.includes(name)));
          const sent = { ...rest, ...more };
          const bytes = Buffer.from(JSON.stringify(given));
          const forwarded = forwardableBody(new OriginalRequest(bytes, given), sent);
          const { stream, ...read } = JSON.parse(
            Buffer.from(forwarded ?? JSON.stringify(sent)).toString(),
          ) as JsonObject;
          expect(stream === false || stream === undefined ? read : { ...read, stream }).toEqual(
            sent["stream"] === false ? without(sent, "stream") : sent,
          );
        },
      ),
    );
  });
});

function listed(body: JsonObject): readonly JsonValue[] {
  return Array.isArray(body["messages"]) ? body["messages"] : [];
}

function without(body: JsonObject, key: string): JsonObject {
  return Object.fromEntries(Object.entries(body).filter(([name]) => name !== key));
}
