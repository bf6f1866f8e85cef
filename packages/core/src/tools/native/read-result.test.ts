import { describe, expect, it } from "vitest";
import { callContext, type ContextOptions } from "../../../../../test/support/call-context.ts";
import { callRow } from "../../../../../test/support/call-row.ts";
import { createNativeBench, type NativeBench } from "../../../../../test/support/native-tools.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { shapeReply } from "../../calls/result-store.ts";
import type { JsonObject } from "../../json.ts";
import { deliveryOf } from "../../errors/delivery.ts";

const settings = { result_bytes: 1_000 };

/** A long result of `call_1` whose row is not written yet. */
async function benchWith(
  body: string | Uint8Array,
  mediaType = "text/plain",
  options: ContextOptions = {},
): Promise<NativeBench> {
  const bench = createNativeBench();
  await shapeReply(
    bench.core,
    callContext({ settings: { ...settings, result_max_bytes: 20_000_000 }, ...options }),
    "call_1",
    { mediaType, body },
  );
  return bench;
}

function read(bench: NativeBench, args: JsonObject, options: ContextOptions = {}): Promise<string> {
  return bench.text("read_result", { call_id: "call_1", ...args }, { settings, ...options });
}

async function thrownBy(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => {
      throw new Error("it succeeded");
    },
    (error: unknown) => error,
  );
}

/** Notice and text apart. */
function parts(answer: string): readonly [notice: string, text: string] {
  const end = answer.indexOf("\n");
  return [answer.slice(0, end), answer.slice(end + 1)];
}

describe(`reading on by bytes ${verifies("BLIND-8", "CHAT-9")}`, () => {
  it.each(["0123456789".repeat(500), "北京🌧é".repeat(300), "a line of text\n".repeat(300)])(
    "gives the whole, part by part",
    async (whole) => {
      const bench = await benchWith(whole);
      let text = "";
      let args: JsonObject = {};
      for (let round = 0; round < 100; round += 1) {
        const answer = await read(bench, args);
        expect(Buffer.byteLength(answer)).toBeLessThanOrEqual(settings.result_bytes);
        const [notice, part] = parts(answer);
        text += part;
        const next = /read on with "offset":(\d+)\]$/.exec(notice)?.[1];
        if (next === undefined) break;
        args = { offset: Number(next) };
      }
      expect(text).toBe(whole);
    },
  );

  it("goes on where the head of the result ended", async () => {
    const bench = createNativeBench();
    const whole = "0123456789".repeat(300);
    const { outcome } = await shapeReply(bench.core, callContext({ settings }), "call_1", {
      mediaType: "text/plain",
      body: whole,
    });
    const advice = /read_result (\{.*?\})/.exec(outcome.text)?.[1] ?? "";
    const args = JSON.parse(advice) as JsonObject;
    const head = outcome.text.slice(0, outcome.text.lastIndexOf("\n["));
    const [, part] = parts(await read(bench, args));
    expect(whole.startsWith(head + part)).toBe(true);
    expect(part).not.toBe("");
  });

  it("gives the bytes asked for, and at least one character", async () => {
    const bench = await benchWith("北京天气".repeat(200));
    expect(await read(bench, { offset: 0, length: 1 })).toBe('[bytes 0-3 of 2400; read on with "offset":3]\n北');
    expect(await read(bench, { offset: 3, length: 7 })).toBe('[bytes 3-9 of 2400; read on with "offset":9]\n京天');
    expect(await read(bench, { offset: 4, length: 6 })).toBe('[bytes 6-9 of 2400; read on with "offset":9]\n天');
    expect(await read(bench, { offset: 2_397 })).toBe("[bytes 2397-2400 of 2400; this is the end]\n气");
    expect(await read(bench, { offset: 2_400 })).toBe("[bytes 2400-2400 of 2400; this is the end]\n");
    expect(await thrownBy(read(bench, { offset: 2_401 }))).toMatchObject({
      code: "invalid_arguments",
      details: { param: "offset" },
    });
  });
});

describe(`reading on by lines ${verifies("BLIND-8")}`, () => {
  it("gives the lines asked for and says how to go on", async () => {
    const bench = await benchWith(Array.from({ length: 500 }, (_, at) => `line ${at + 1}`).join("\n"));
    expect(await read(bench, { line: 3, lines: 2 })).toBe('[lines 3-4; read on with "line":5]\nline 3\nline 4\n');
    expect(await read(bench, { line: 499 })).toBe("[lines 499-500; this is the end]\nline 499\nline 500");
    const [notice, text] = parts(await read(bench, { line: 1 }));
    const last = Number(/^\[lines 1-(\d+); read on with "line":(\d+)\]$/.exec(notice)?.[1]);
    expect(text.split("\n").at(-2)).toBe(`line ${last}`);
    expect(notice).toContain(`"line":${last + 1}`);
    expect(await thrownBy(read(bench, { line: 501 }))).toMatchObject({ details: { param: "line" } });
  });

  it("gets through a line longer than an answer", async () => {
    const long = "x".repeat(3_000);
    const bench = await benchWith(`first\n${long}\nlast\n`);
    const [notice, text] = parts(await read(bench, { line: 2 }));
    const offset = Number(/"offset":(\d+)/.exec(notice)?.[1]);
    expect(offset).toBe(6 + text.length);
    const [, more] = parts(await read(bench, { offset }));
    expect(long.startsWith(text + more)).toBe(true);
  });

  it.each([2, 3, 4])("loses no character of a line of long ones, begun with line %i", async (line) => {
    const long = (first: number): string =>
      `a${Array.from({ length: 1_500 }, (_, at) => String.fromCodePoint(first + at)).join("")}`;
    const lines = ["first", long(0x20000), `a${long(0x21000)}`, long(0x22000)];
    const bench = await benchWith(lines.join("\n"));
    let got = "";
    let args: JsonObject | undefined = { line };
    for (let round = 0; round < 100 && args !== undefined; round += 1) {
      const [notice, part] = parts(await read(bench, args));
      got += part;
      const next = /read on with ("(?:offset|line)":\d+)\]$/.exec(notice)?.[1];
      args = next === undefined ? undefined : (JSON.parse(`{${next}}`) as JsonObject);
    }
    expect(got).toBe(lines.slice(line - 1).join("\n"));
  });
});

describe(`reading on by JSONPath ${verifies("BLIND-8")}`, () => {
  it("gives a part of the document, numbers as they are", async () => {
    const items = Array.from({ length: 200 }, (_, at) => `{"id":90071992547409${93 + at},"name":"n${at}"}`);
    const bench = await benchWith(`{"items":[${items.join(",")}]}`, "application/json");
    expect(await read(bench, { jsonpath: "$.items[1]" })).toBe('{"id":9007199254740994,"name":"n1"}');
    expect(await read(bench, { jsonpath: "$.items[0:2].id" })).toBe("[9007199254740993,9007199254740994]");
    expect(await read(bench, { jsonpath: "$.items[-1].name" })).toBe('"n199"');
    expect(await read(bench, { jsonpath: "$.nothing" })).toBe("[nothing is at $.nothing]");
    const cut = await read(bench, { jsonpath: "$..name" });
    expect(cut).toMatch(/\n\[cut: more than \d+ bytes are at \$\.\.name, 200 values; .*\]$/);
    expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(settings.result_bytes);
  });

  it("writes no more of what a path selects many times over than is shown", async () => {
    const nested = `${"[".repeat(2_000)}${JSON.stringify("x".repeat(1_000_000))}${"]".repeat(2_000)}`;
    const answer = await read(await benchWith(nested), { jsonpath: "$..[0]" });
    expect(answer).toContain("2000 values");
    expect(Buffer.byteLength(answer)).toBeLessThanOrEqual(settings.result_bytes);
  });

  it("says so where what is selected is nested too deep to be written", async () => {
    const bench = await benchWith(`${"[".repeat(200_000)}${"]".repeat(200_000)}`);
    expect(await thrownBy(read(bench, { jsonpath: "$" }))).toMatchObject({
      code: "invalid_arguments",
      details: { param: "jsonpath" },
    });
  });

  it("says where that cannot be", async () => {
    expect(await thrownBy(read(await benchWith("no json ".repeat(500)), { jsonpath: "$" }))).toMatchObject({
      details: { param: "jsonpath" },
    });
    const large = await benchWith(`"${"x".repeat(11_000_000)}"`);
    expect(await thrownBy(read(large, { jsonpath: "$" }))).toMatchObject({
      message: expect.stringContaining("too many") as string,
    });
  });
});

describe(`searching ${verifies("BLIND-8")}`, () => {
  const log = Array.from({ length: 400 }, (_, at) => `${at % 40 === 7 ? "ERROR" : "info"} event ${at + 1}`).join("\n");

  it("gives the lines that match, with their numbers", async () => {
    const bench = await benchWith(log);
    expect(await read(bench, { grep: "^ERROR event 8$" })).toBe("8: ERROR event 8\n[1 matches; that is all]");
    expect(await read(bench, { grep: "error event \\d{3}$", ignore_case: true, line: 300 })).toBe(
      "328: ERROR event 328\n368: ERROR event 368\n[2 matches; that is all]",
    );
    expect(await read(bench, { grep: "WARN" })).toBe("[no line from 1 on matches]");
  });

  it("says where to search on when the answer is full", async () => {
    const bench = await benchWith(log);
    const answer = await read(bench, { grep: "info" });
    const next = Number(/more from "line":(\d+) on\]$/.exec(answer)?.[1]);
    expect(Buffer.byteLength(answer)).toBeLessThanOrEqual(settings.result_bytes);
    expect(await read(bench, { grep: "info", line: next })).toContain(`${next}: info event ${next}`);
  });

  it("shows what is around a match in a long line", async () => {
    const bench = await benchWith(`${"x".repeat(9_000)}needle${"y".repeat(9_000)}`);
    const answer = await read(bench, { grep: "need.e" });
    expect(answer).toMatch(/^1: …x+needley+…\n\[1 matches; that is all\]$/);
    expect(answer.length).toBeLessThan(600);
  });

  it("runs on RE2: catastrophic patterns are harmless, look-around is refused", async () => {
    const bench = await benchWith(`${"a".repeat(3_900)}!\n`.repeat(20));
    expect(await read(bench, { grep: "^(a+)+$" })).toBe("[no line from 1 on matches]");
    expect(await thrownBy(read(bench, { grep: "(?=a)" }))).toMatchObject({ details: { param: "grep" } });
  });

  it("ends when nobody waits for it any more", async () => {
    const bench = await benchWith("some line of text\n".repeat(400_000));
    const run = bench.text(
      "read_result",
      { call_id: "call_1", grep: "(?:a|b)*x(?:c|d){50}" },
      { settings, signal: AbortSignal.abort() },
    );
    expect(await thrownBy(run)).toMatchObject({ code: "call_cancelled" });
  });
});

describe(`whose results can be read ${verifies("CHAT-9", "CHAT-13")}`, () => {
  const whole = "0123456789".repeat(500);

  it("one's own, before and after the row is written, and the session's", async () => {
    const bench = await benchWith(whole);
    expect(await read(bench, { length: 3 })).toContain("012");
    bench.rows.set(
      "call_2",
      callRow({
        id: "call_2",
        tenant: "ten_a",
        sessionId: "s1",
        callerId: "key_1",
        createdAt: Date.now(),
        outcome: { text: "short", mediaType: "text/plain", bytes: 5 },
      }),
    );
    expect(await read(bench, { call_id: "call_2" })).toBe("[bytes 0-5 of 5; this is the end]\nshort");
    expect(await read(bench, { call_id: "call_2" }, { caller: { id: "key_2" } })).toContain("short");
  });

  it.each<[string, ContextOptions]>([
    ["another caller", { caller: { id: "key_2" }, sessionId: "s2" }],
    ["another tenant", { tenant: "ten_b" }],
    ["another tenant with the same session id", { tenant: "ten_b", sessionId: "s1" }],
  ])("none to %s, long or short", async (_who, options) => {
    const bench = await benchWith(whole);
    bench.rows.set(
      "call_1",
      callRow({
        tenant: "ten_a",
        sessionId: "s1",
        callerId: "key_1",
        outcome: { text: "head", mediaType: "text/plain", bytes: 9, blobKey: "ten_a/results/key_1/call_1" },
      }),
    );
    expect(await thrownBy(read(bench, {}, options))).toMatchObject({ code: "not_found" });
  });

  it("none of chats, of calls in no session, or of calls that never were", async () => {
    const bench = createNativeBench();
    const outcome = { text: "secret", mediaType: "text/plain", bytes: 6 };
    bench.rows.set("chat_1", callRow({ id: "chat_1", tenant: "ten_a", kind: "chat", callerId: "key_1", outcome }));
    bench.rows.set("call_2", callRow({ id: "call_2", tenant: "ten_a", callerId: "key_2", sessionId: null, outcome }));
    for (const call_id of ["chat_1", "call_2", "call_3", "../key_2/call_2", "__proto__"]) {
      expect(await thrownBy(read(bench, { call_id }))).toMatchObject({ code: "not_found" });
    }
  });

  it("and says so where the call has not ended or is binary", async () => {
    const bench = await benchWith(Uint8Array.from([0x89, 0x50, 255, 0]), "image/png");
    for (const args of [{}, { line: 1 }, { grep: "x" }, { jsonpath: "$" }]) {
      expect(await thrownBy(read(bench, args))).toMatchObject({
        message: expect.stringContaining("image/png") as string,
      });
    }
    bench.rows.set("call_2", callRow({ id: "call_2", tenant: "ten_a", state: "running" }));
    expect(await thrownBy(read(bench, { call_id: "call_2" }))).toMatchObject({ code: "call_not_finished" });
  });
});

describe(`the ways to read ${verifies("CHAT-18")}`, () => {
  it.each<JsonObject>([
    { offset: 0, line: 1 },
    { jsonpath: "$", grep: "x" },
    { length: 5, grep: "x" },
    { lines: 2, jsonpath: "$" },
  ])("are one at a time: not %j", async (args) => {
    const error = await thrownBy(read(createNativeBench(), args));
    expect(error).toMatchObject({ code: "invalid_arguments" });
    expect(deliveryOf(error)).not.toBe("uncertain");
  });
});
